//! Names in the query: an own key, and a voter, that a path cannot carry through every proxy.
//!
//! A name with a `/` stands in a path as `%2F`. Some proxies decode that, refuse it, or then take `//`, `.` and
//! `..` out of the path, so the request names something else or nothing. No proxy touches a query:
//!
//! - `/v1/items/key:?key=a%2Fb` is the item with the key `a/b`, in each path that takes `key:` and a key.
//! - `/v1/items/1/votes?voter_id=c%2Fd` is `/v1/items/1/votes/c%2Fd`, for GET, PUT and DELETE.
//!
//! Such a request gets the path that it means before it is routed. A tail of the path would not do: of
//! `/v1/items/key:a/b/votes` nobody can say whether its key was `a/b` or `a//b`.

use actix_web::dev::ServiceRequest;
use actix_web::http::Method;
use actix_web::http::uri::{PathAndQuery, Uri};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::web::problem::Problem;
use crate::web::request::path::{decoded, voter};

/// The paths of items and polls. An id, or `key:` and a key, follows.
const NAMED: [&str; 4] = ["/v1/items/", "/v1/polls/", "/items/", "/polls/"];
/// In place of an id: the key is in the query.
const KEY: &str = "key:";
/// The same, percent-encoded.
const KEY_ENCODED: &str = "key%3A";
/// The collection that a voter's vote belongs to.
const VOTES: &str = "votes";

/// Gives a request whose query has a key or a voter the path that it means.
///
/// # Errors
/// Fails when a name is given twice, or is not UTF-8, percent-encoded.
pub(in crate::web) fn from_query(request: &mut ServiceRequest) -> Result<(), Problem> {
    // Nearly all requests end here.
    if request.query_string().is_empty() {
        return Ok(());
    }
    let uri = request.uri();
    let Some(meant) = meant(request.method(), uri.path(), request.query_string())? else {
        return Ok(());
    };
    let mut parts = uri.clone().into_parts();
    // Percent-encoded, a name may be too long for an address.
    let too_long = |_| Problem::malformed("query", "query: it is too long.");
    parts.path_and_query = Some(PathAndQuery::try_from(meant).map_err(too_long)?);
    let uri = Uri::from_parts(parts).map_err(|_| Problem::internal())?;
    request.match_info_mut().get_mut().update(&uri);
    request.head_mut().uri = uri;
    Ok(())
}

/// Returns the path and query that are meant. `None`: those that were sent.
fn meant(method: &Method, path: &str, query: &str) -> Result<Option<String>, Problem> {
    let found = NAMED
        .iter()
        .find_map(|prefix| Some((*prefix, path.strip_prefix(prefix)?)));
    let Some((prefix, rest)) = found else {
        return Ok(None);
    };
    let (id, after) = rest.split_once('/').unwrap_or((rest, ""));
    let mut key = None;
    let mut voter_id = None;
    let mut others = Vec::new();
    let takes_key = id == KEY || id.eq_ignore_ascii_case(KEY_ENCODED);
    let takes_voter = after == VOTES && prefix.starts_with("/v1/") && *method != Method::POST;
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (field, place) = match name {
            "key" if takes_key => ("key", &mut key),
            "voter_id" if takes_voter => ("voter_id", &mut voter_id),
            _ => {
                others.push(pair);
                continue;
            }
        };
        // As forms have it: a plus is a blank.
        let value = decoded(field, &value.replace('+', "%20"))?;
        if place.replace(value).is_some() {
            return Err(Problem::malformed(field, format!("{field}: it is given twice.")));
        }
    }
    if key.is_none() && voter_id.is_none() {
        return Ok(None);
    }
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let id = match &key {
        Some(key) => format!("{KEY}{}", encoded(key)),
        None => id.to_owned(),
    };
    let mut meant = format!("{prefix}{id}");
    if rest.contains('/') {
        meant = format!("{meant}/{after}");
    }
    if let Some(voter_id) = voter_id {
        let voter_id = encoded(&voter_id);
        // Without a voter, the path would be another one.
        voter(&voter_id)?;
        meant = format!("{meant}/{voter_id}");
    }
    if !others.is_empty() {
        meant = format!("{meant}?{}", others.join("&"));
    }
    Ok(Some(meant))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: Method, address: &str) -> Result<String, String> {
        let (path, query) = address.split_once('?').expect("a query");
        let found = meant(&method, path, query).map_err(|problem| problem.to_string())?;
        Ok(found.unwrap_or_else(|| "as sent".to_owned()))
    }

    #[test]
    fn a_key_and_a_voter_in_the_query_go_to_their_places_in_the_path() {
        for (method, address, meant) in [
            (Method::GET, "/v1/items/key:?key=a%2Fb", "/v1/items/key:a%2Fb"),
            (Method::GET, "/v1/items/key%3A?key=a/b", "/v1/items/key:a%2Fb"),
            (
                Method::GET,
                "/v1/polls/key%3a/history?over=day&key=x",
                "/v1/polls/key:x/history?over=day",
            ),
            (
                Method::POST,
                "/v1/items/key:/votes?key=https://example.org//a?b%26c",
                "/v1/items/key:https%3A%2F%2Fexample%2Eorg%2F%2Fa%3Fb%26c/votes",
            ),
            (
                Method::PUT,
                "/v1/items/5/votes?voter_id=..",
                "/v1/items/5/votes/%2E%2E",
            ),
            (
                Method::DELETE,
                "/v1/items/key:/votes?voter_id=a+b%2Bc&key=%C3%A9",
                "/v1/items/key:%C3%A9/votes/a%20b%2Bc",
            ),
            (
                Method::PUT,
                "/v1/polls/key:a/votes?voter_id=b",
                "/v1/polls/key:a/votes/b",
            ),
            (Method::GET, "/polls/key:?key=a%2Fb&x", "/polls/key:a%2Fb?x"),
            (Method::GET, "/v1/items/key:?key=", "/v1/items/key:"),
        ] {
            assert_eq!(of(method, address).as_deref(), Ok(meant), "{address}");
        }
    }

    #[test]
    fn every_other_query_stays_where_it_is() {
        for (method, address) in [
            (Method::GET, "/v1/items?key=a"),
            (Method::GET, "/v1/items/5?key=a"),
            (Method::GET, "/v1/items/key:a?key=b"),
            (Method::GET, "/v1/votes?voter_id=a"),
            (Method::POST, "/v1/items/5/votes?voter_id=a"),
            (Method::PUT, "/v1/items/5/votes/b?voter_id=a"),
            (Method::GET, "/v1/items/5/history?voter_id=a"),
            (Method::GET, "/items/5/votes?voter_id=a"),
            (Method::GET, "/v1/items/key:?keys=a"),
        ] {
            assert_eq!(of(method, address).as_deref(), Ok("as sent"), "{address}");
        }
    }

    #[test]
    fn a_name_that_is_given_twice_or_wrongly_is_refused() {
        for address in [
            "/v1/items/key:?key=a&key=a",
            "/v1/items/key:?key=%F",
            "/v1/items/key:?key=%FF",
            "/v1/items/1/votes?voter_id=",
            "/v1/items/1/votes?voter_id=%00",
            "/v1/items/1/votes?voter_id=a&voter_id=b",
        ] {
            assert!(of(Method::GET, address).is_err(), "{address}");
        }
    }
}
