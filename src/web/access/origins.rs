//! Pages of other origins: which of them may write, and what answers tell browsers.
//!
//! A browser sends some writes of any page without asking first. For example, a POST without a body needs no
//! preflight. So a write is refused here before anything else happens.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, HttpResponse, web};

use crate::web::access::Access;
use crate::web::access::caller::RenewedCookie;
use crate::web::problem::Problem;
use crate::web::transport::POLICY_OF_DATA;

/// How long a browser may remember the answer to a preflight.
const PREFLIGHT_LIMIT_SECONDS: &str = "600";
/// The methods that pages of allowed origins may use.
const ALLOWED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE";
const ALLOWED_HEADERS: &str = "authorization, content-type, idempotency-key, last-event-id";
/// The headers of an answer that their scripts may read.
const EXPOSED_HEADERS: &str = "retry-after, ratelimit, ratelimit-policy, x-request-id, link";

/// An origin as browsers send it: a scheme, a host, and a port unless it is the scheme's default.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin(String);

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("{text}: an origin is like https://example.org or http://127.0.0.1:3000, without a path")
        };
        let url = reqwest::Url::parse(text).map_err(|_| wrong())?;
        let is_origin = matches!(url.scheme(), "http" | "https")
            && !text.contains('*')
            && url.origin().is_tuple()
            && url.origin().ascii_serialization().eq_ignore_ascii_case(text);
        if is_origin {
            Ok(Self(url.origin().ascii_serialization()))
        } else {
            Err(wrong())
        }
    }
}

/// The origins whose pages may write, besides the server's own. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Origins(Arc<[Origin]>);

/// Reads origins, separated by commas. An empty text means none.
impl FromStr for Origins {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let origins = text.split(',').map(str::trim).filter(|_| !text.trim().is_empty());
        Ok(Self(origins.map(str::parse).collect::<Result<_, _>>()?))
    }
}

/// The origin of the page that sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// No other origin: the request comes from a program, or from a page of the server's own.
    Here,
    Allowed,
    Elsewhere,
}

impl Origins {
    /// Returns whether a request with these headers may write.
    #[cfg(any(test, fuzzing))]
    pub(in crate::web) fn may_write(&self, headers: &HeaderMap) -> bool {
        self.of(headers) != From::Elsewhere
    }

    fn of(&self, headers: &HeaderMap) -> From {
        let mut origins = headers.get_all(header::ORIGIN);
        let origin = match (origins.next(), origins.next()) {
            (None, _) => return From::Here,
            (Some(origin), None) => origin.as_bytes(),
            (Some(_), Some(_)) => return From::Elsewhere,
        };
        if self.0.iter().any(|allowed| allowed.0.as_bytes() == origin) {
            return From::Allowed;
        }
        // The scheme is not compared, because the server does not know whether a proxy in front of it speaks
        // TLS.
        let mut hosts = headers.get_all(header::HOST);
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host.as_bytes(),
            _ => return From::Elsewhere,
        };
        let authority = origin
            .strip_prefix(b"https://")
            .or_else(|| origin.strip_prefix(b"http://"));
        match authority {
            Some(authority) if authority.eq_ignore_ascii_case(host) => From::Here,
            _ => From::Elsewhere,
        }
    }
}

static TRUE: HeaderValue = HeaderValue::from_static("true");
static NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
static VARY: HeaderValue = HeaderValue::from_static("origin");
static EXPOSED: HeaderValue = HeaderValue::from_static(EXPOSED_HEADERS);
static NO_REFERRER: HeaderValue = HeaderValue::from_static("no-referrer");
static NOTHING: HeaderValue = HeaderValue::from_static(POLICY_OF_DATA);

/// Makes the Strict-Transport-Security header.
///
/// Browsers then use the host only over https for this long. They ignore the header in answers without TLS.
pub fn hsts(age: Duration) -> HeaderValue {
    const MAX_AGE: &[u8] = b"max-age=";
    let digits = HeaderValue::from(age.as_secs());
    // A fixed text and digits are always a valid header value.
    HeaderValue::from_bytes(&[MAX_AGE, digits.as_bytes()].concat()).unwrap_or(digits)
}

/// Refuses writes from pages of foreign origins, and answers preflights.
///
/// Adds to every answer the headers that browsers need.
pub async fn guard(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let access = request.app_data::<web::Data<Access>>();
    let from = access.map_or(From::Here, |access| access.options.origins.of(request.headers()));
    let hsts = access.and_then(|access| access.options.hsts.clone());
    let varies = access.is_some_and(|access| !access.options.origins.0.is_empty());
    let is_preflight = request.method() == Method::OPTIONS
        && request
            .headers()
            .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let is_write = !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let origin = match from {
        From::Allowed => request.headers().get(header::ORIGIN).cloned(),
        From::Here | From::Elsewhere => None,
    };
    let early = match from {
        From::Elsewhere if is_write || is_preflight => {
            Some(HttpResponse::from_error(Problem::foreign_origin()))
        }
        From::Allowed if is_preflight => Some(preflight()),
        _ => None,
    };
    let mut response = match early {
        // `into_response` would drop the problem, but the trail notes its type.
        Some(early) => ServiceResponse::new(request.into_parts().0, early).map_into_right_body(),
        None => next.call(request).await?.map_into_left_body(),
    };
    let renewed = response.request().extensions_mut().remove::<RenewedCookie>();
    let headers = response.headers_mut();
    // Unless the handler has set a cookie: of two, a browser keeps the last.
    if let Some(RenewedCookie(cookie)) = renewed
        && !headers.contains_key(header::SET_COOKIE)
    {
        headers.insert(header::SET_COOKIE, cookie);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF.clone());
    headers.insert(header::REFERRER_POLICY, NO_REFERRER.clone());
    if !headers.contains_key(header::CONTENT_SECURITY_POLICY) {
        headers.insert(header::CONTENT_SECURITY_POLICY, NOTHING.clone());
    }
    if let Some(hsts) = hsts {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, hsts);
    }
    if varies {
        headers.append(header::VARY, VARY.clone());
    }
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        // Allows the voter's cookie: a listed origin may act for whoever looks at its pages.
        headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, TRUE.clone());
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED.clone());
    }
    Ok(response)
}

fn preflight() -> HttpResponse {
    let allow = |name: HeaderName, value: &'static str| (name, HeaderValue::from_static(value));
    HttpResponse::NoContent()
        .insert_header(allow(header::ACCESS_CONTROL_ALLOW_METHODS, ALLOWED_METHODS))
        .insert_header(allow(header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED_HEADERS))
        .insert_header(allow(header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_LIMIT_SECONDS))
        .finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(allowed: &[&str], headers: &[(&'static str, &'static str)]) -> From {
        let allowed: Origins = allowed.join(",").parse().expect("origins");
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        allowed.of(&map)
    }

    #[test]
    fn a_page_of_the_server_itself_and_a_program_are_here() {
        let host = ("host", "example.org:8080");
        assert_eq!(of(&[], &[host]), From::Here);
        assert_eq!(
            of(&[], &[host, ("origin", "http://example.org:8080")]),
            From::Here
        );
        assert_eq!(
            of(&[], &[host, ("origin", "https://Example.org:8080")]),
            From::Here
        );
    }

    #[test]
    fn only_origins_that_are_listed_whole_are_allowed() {
        let allowed = ["https://news.example.org"];
        let host = ("host", "votes.example.org");
        assert_eq!(
            of(&allowed, &[host, ("origin", "https://news.example.org")]),
            From::Allowed
        );
        for origin in [
            "null",
            "",
            "http://news.example.org",
            "https://news.example.org:444",
            "https://news.example.org.evil.example",
            "https://evil-news.example.org",
            "https://votes.example.org.evil.example",
            "https://votes.example.org@evil.example",
            "ftp://votes.example.org",
            "votes.example.org",
        ] {
            assert_eq!(
                of(&allowed, &[host, ("origin", origin)]),
                From::Elsewhere,
                "{origin}"
            );
        }
        let twice = [
            host,
            ("origin", "https://news.example.org"),
            ("origin", "https://evil.example"),
        ];
        assert_eq!(of(&allowed, &twice), From::Elsewhere);
        let hosts = [host, ("host", "evil.example"), ("origin", "https://evil.example")];
        assert_eq!(of(&allowed, &hosts), From::Elsewhere);
    }

    #[test]
    fn what_is_no_origin_is_no_setting() {
        for wrong in [
            "",
            "*",
            "null",
            "example.org",
            "https://example.org/",
            "https://a.example/x",
            "https://*.example.org",
            "ftp://a.example",
        ] {
            assert!(wrong.parse::<Origin>().is_err(), "{wrong}");
        }
        let origin: Origin = "https://EXAMPLE.org".parse().expect("an origin");
        assert_eq!(origin.0, "https://example.org");
    }
}
