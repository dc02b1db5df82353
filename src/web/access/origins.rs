//! Pages of other origins: which of them may write, and what answers tell browsers.
//!
//! A browser sends some writes of any page without asking first. For example, a POST without a body needs no
//! preflight. So a write is refused here before anything else happens.
//!
//! Whether a page is the server's own, its browser says best (Sec-Fetch-Site): it knows the address that it
//! asked, whatever a proxy made of `Host`. Scripts cannot set this header. Browsers send it over https, and to
//! localhost. Where it is missing, the host and the port in `Origin` are compared with `Host`. X-Forwarded-Host
//! is never believed.

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
use crate::web::request::named;
use crate::web::transport::POLICY_OF_DATA;

/// How long a browser may remember the answer to a preflight.
const PREFLIGHT_LIMIT_SECONDS: &str = "600";
/// The methods that pages of allowed origins may use.
const ALLOWED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE";
/// The headers that they may send, besides those that their browser asks for.
const ALLOWED_HEADERS: &str = "authorization, content-type, idempotency-key, if-none-match, last-event-id";
/// The longest list of headers that a preflight may ask for. Of a longer one, [`ALLOWED_HEADERS`] are allowed.
const ASKED_HEADERS_LIMIT_BYTES: usize = 2048;
/// The headers of an answer that their scripts may read, besides those that every script may read.
const EXPOSED_HEADERS: &str = "allow, date, etag, link, location, ratelimit, ratelimit-policy, \
    retry-after, tally-cell, www-authenticate, x-request-id";
/// What browsers leave out of `Host` and `Origin`: the ports of http and https. The server does not know
/// which of the two its clients speak with the proxy in front of it.
const DEFAULT_PORTS: [&[u8]; 2] = [b"80", b"443"];

/// An origin as browsers send it: a scheme, a host, and a port unless it is the scheme's default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin(String);

impl Origin {
    /// Returns the origin as browsers send it.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

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
            (origin, None) => origin.map(HeaderValue::as_bytes),
            (_, Some(_)) => return From::Elsewhere,
        };
        if let Some(origin) = origin
            && self.0.iter().any(|allowed| allowed.0.as_bytes() == origin)
        {
            return From::Allowed;
        }
        let mut sites = headers.get_all(&SEC_FETCH_SITE);
        match (sites.next().map(HeaderValue::as_bytes), sites.next()) {
            (Some(b"same-origin"), None) => return From::Here,
            // A person or an extension asks, and no page. An extension has an origin, which is compared.
            (None | Some(b"none"), None) => {}
            // Also the http page of this host: whoever is on the way to its reader may have written it.
            _ => return From::Elsewhere,
        }
        let Some(origin) = origin else {
            return From::Here;
        };
        let mut hosts = headers.get_all(header::HOST);
        match (hosts.next(), hosts.next()) {
            (Some(host), None) if is_host_of(host.as_bytes(), origin) => From::Here,
            _ => From::Elsewhere,
        }
    }
}

/// Returns whether an origin is at this `Host`. The scheme is not compared: the server does not know whether
/// a proxy in front of it speaks TLS. So the ports of both schemes are the same, and so is no port.
pub(in crate::web) fn is_host_of(host: &[u8], origin: &[u8]) -> bool {
    let authority = origin
        .strip_prefix(b"https://")
        .or_else(|| origin.strip_prefix(b"http://"));
    let Some((of_origin, host)) = authority.map(host_and_port).zip(Some(host_and_port(host))) else {
        return false;
    };
    !host.0.is_empty() && of_origin.0.eq_ignore_ascii_case(host.0) && of_origin.1 == host.1
}

/// Splits a host from its port. `None`: no port, or the default of http or https.
fn host_and_port(authority: &[u8]) -> (&[u8], Option<&[u8]>) {
    let colon = authority.iter().rposition(|byte| *byte == b':');
    match colon.map(|at| (&authority[..at], &authority[at + 1..])) {
        Some((host, port)) if !port.is_empty() && port.iter().all(u8::is_ascii_digit) => {
            (host, Some(port).filter(|port| !DEFAULT_PORTS.contains(port)))
        }
        // Also an IPv6 address without a port, whose last colon is followed by a bracket.
        _ => (authority, None),
    }
}

static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
static TRUE: HeaderValue = HeaderValue::from_static("true");
static NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
static VARY: HeaderValue = HeaderValue::from_static("origin");
static EXPOSED: HeaderValue = HeaderValue::from_static(EXPOSED_HEADERS);
static NO_REFERRER: HeaderValue = HeaderValue::from_static("no-referrer");
static NOTHING: HeaderValue = HeaderValue::from_static(POLICY_OF_DATA);
static NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

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
/// Adds to every answer the headers that browsers and caches need.
pub async fn guard(
    mut request: ServiceRequest,
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
        From::Allowed if is_preflight => Some(preflight(request.headers())),
        _ => named::from_query(&mut request)
            .err()
            .map(HttpResponse::from_error),
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
    // An answer that does not say how it may be kept is not kept: without a word, a cache may keep a 404 of
    // an item that is made a moment later.
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, NO_STORE.clone());
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

/// Answers the preflight of a page of an allowed origin. The page may send all headers that it asks for:
/// tracing libraries add some of their own, and none lets a page do more. What a proxy's header says is
/// believed only from a proxy.
fn preflight(headers: &HeaderMap) -> HttpResponse {
    let allow = |name: HeaderName, value: &'static str| (name, HeaderValue::from_static(value));
    let asked = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS);
    let asked = asked.filter(|asked| is_list_of_names(asked.as_bytes()));
    let allowed = asked.and_then(|asked| {
        let all = [ALLOWED_HEADERS.as_bytes(), b", ", asked.as_bytes()].concat();
        HeaderValue::from_bytes(&all).ok()
    });
    let allowed = allowed.unwrap_or(HeaderValue::from_static(ALLOWED_HEADERS));
    HttpResponse::NoContent()
        .insert_header(allow(header::ACCESS_CONTROL_ALLOW_METHODS, ALLOWED_METHODS))
        .insert_header((header::ACCESS_CONTROL_ALLOW_HEADERS, allowed))
        .insert_header(allow(header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_LIMIT_SECONDS))
        .finish()
}

/// Returns whether a text is a list of header names, and not too long.
fn is_list_of_names(text: &[u8]) -> bool {
    let mut names = text.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    text.len() <= ASKED_HEADERS_LIMIT_BYTES && names.all(|name| HeaderName::from_bytes(name).is_ok())
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
    fn the_default_ports_are_no_ports_and_every_other_port_counts() {
        for (host, origin) in [
            ("news.example.org:443", "https://news.example.org"),
            ("news.example.org:80", "http://news.example.org"),
            ("news.example.org:80", "https://news.example.org"),
            ("news.example.org", "https://news.example.org:443"),
            ("[2001:db8::1]:443", "https://[2001:db8::1]"),
            ("[2001:db8::1]:8080", "http://[2001:db8::1]:8080"),
            ("[2001:db8::1]", "http://[2001:db8::1]"),
        ] {
            assert_eq!(
                of(&[], &[("host", host), ("origin", origin)]),
                From::Here,
                "{host}"
            );
        }
        for (host, origin) in [
            ("news.example.org", "http://news.example.org:8080"),
            ("news.example.org:8080", "http://news.example.org"),
            ("news.example.org:8080", "http://news.example.org:8081"),
            ("news.example.org:443", "https://news.example.org:8443"),
            ("news.example.org:443", "https://evil.example"),
            ("news.example.org:443", "https://evil.example:443"),
            ("news.example.org:443@evil.example", "https://evil.example"),
            ("", "https://"),
            (":443", "https://:443"),
            ("[2001:db8::1]", "http://[2001:db8::2]"),
        ] {
            assert_eq!(
                of(&[], &[("host", host), ("origin", origin)]),
                From::Elsewhere,
                "{host} {origin}"
            );
        }
    }

    #[test]
    fn the_browsers_own_word_counts_more_than_the_host_that_a_proxy_made_up() {
        let site = |site| ("sec-fetch-site", site);
        let (host, origin) = (("host", "tally"), ("origin", "https://news.example.org"));
        assert_eq!(of(&[], &[host, origin]), From::Elsewhere);
        assert_eq!(of(&[], &[host, origin, site("same-origin")]), From::Here);
        // A page whose policy is no-referrer sends `null` with a form, also to its own server.
        assert_eq!(
            of(&[], &[host, ("origin", "null"), site("same-origin")]),
            From::Here
        );
        assert_eq!(of(&[], &[host, site("none")]), From::Here);
        let own = ("origin", "https://tally");
        for site in [
            "cross-site",
            "same-site",
            "",
            "same-origin, cross-site",
            "Same-Origin",
        ] {
            for headers in [
                &[host, ("sec-fetch-site", site)][..],
                &[host, own, ("sec-fetch-site", site)],
            ] {
                assert_eq!(of(&[], headers), From::Elsewhere, "{headers:?}");
            }
        }
        assert_eq!(of(&[], &[host, origin, site("none")]), From::Elsewhere);
        assert_eq!(
            of(&[], &[host, own, site("same-origin"), site("cross-site")]),
            From::Elsewhere
        );
        let allowed = ["https://news.example.org"];
        assert_eq!(of(&allowed, &[host, origin, site("cross-site")]), From::Allowed);
        // Whatever a client says of hosts elsewhere.
        let forwarded = ("x-forwarded-host", "news.example.org");
        assert_eq!(of(&[], &[host, origin, forwarded]), From::Elsewhere);
    }

    #[test]
    fn a_preflight_is_allowed_the_headers_that_it_asks_for() {
        let allowed = |asked: &'static str| {
            let mut headers = HeaderMap::new();
            let asked = HeaderValue::from_static(asked);
            headers.insert(header::ACCESS_CONTROL_REQUEST_HEADERS, asked);
            let answer = preflight(&headers);
            let allowed = answer.headers().get(header::ACCESS_CONTROL_ALLOW_HEADERS);
            allowed.and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        let traced = "baggage,content-type,if-none-match,sentry-trace,traceparent,tracestate,x-request-id";
        let all = format!("{ALLOWED_HEADERS}, {traced}");
        assert_eq!(allowed(traced), Some(all));
        for wrong in ["", "*, a b", "a,,b", "a: b"] {
            assert_eq!(allowed(wrong).as_deref(), Some(ALLOWED_HEADERS), "{wrong}");
        }
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
