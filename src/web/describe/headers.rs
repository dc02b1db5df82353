//! The headers of answers. Each is described once.

use std::collections::BTreeMap;

use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::schema::Type;
use utoipa::openapi::{Header, ObjectBuilder, Ref, RefOr};

/// The id of the request, which each answer has.
pub(in crate::web) const REQUEST_ID: &str = "X-Request-Id";
/// A voter's cookie.
pub(in crate::web) const SET_COOKIE: &str = "Set-Cookie";

/// Each header's name, type and description.
const ALL: &[(&str, Type, &str)] = &[
    (
        REQUEST_ID,
        Type::String,
        "The id of the request; each of its log lines has it.",
    ),
    ("Location", Type::String, "The path of what was made."),
    (
        "Cache-Control",
        Type::String,
        "`no-store`: nobody keeps the answer. `no-cache`: it is asked for again before it is used.",
    ),
    (
        "ETag",
        Type::String,
        "Names this version. Sent back in If-None-Match, it saves the body: the answer is 304.",
    ),
    (
        "Link",
        Type::String,
        "The next page, if there is one: `<path>; rel=\"next\"`.",
    ),
    (
        "X-Accel-Buffering",
        Type::String,
        "`no`: a proxy passes each event on at once.",
    ),
    ("Content-Security-Policy", Type::String, "What the page may load."),
    (
        SET_COOKIE,
        Type::String,
        "The voter's cookie, `__Host-voter`: a new one, one that is renewed after half its time, or one that \
         takes it out of the browser.",
    ),
    (
        "WWW-Authenticate",
        Type::String,
        "`Bearer realm=\"tally\"`: an API key or a voter's token, in the header Authorization.",
    ),
    (
        "Allow",
        Type::String,
        "The methods that there are at this path, separated by commas.",
    ),
    (
        "Retry-After",
        Type::Integer,
        "In how many seconds another try makes sense.",
    ),
    (
        "RateLimit-Policy",
        Type::String,
        "The throttle: `q` attempts in `w` seconds (draft-ietf-httpapi-ratelimit-headers-10).",
    ),
    (
        "RateLimit",
        Type::String,
        "What is left of the throttle: `r` attempts, for `t` seconds more.",
    ),
];

/// All of them, for the components of the document.
pub(in crate::web) fn components() -> BTreeMap<String, RefOr<Header>> {
    let header = |kind: &Type, text: &str| {
        let schema = ObjectBuilder::new().schema_type(kind.clone());
        let schema = match kind {
            Type::Integer => schema.minimum(Some(1)),
            _ => schema,
        };
        HeaderBuilder::new()
            .schema(Some(schema))
            .description(Some(text))
            .build()
    };
    ALL.iter()
        .map(|(name, kind, text)| ((*name).to_owned(), RefOr::T(header(kind, text))))
        .collect()
}

/// What stands for a header in an answer; `None`: it is described where it is sent.
pub(in crate::web) fn reference(name: &str) -> Option<RefOr<Header>> {
    let is_known = ALL.iter().any(|(known, ..)| *known == name);
    is_known.then(|| RefOr::Ref(Ref::new(format!("#/components/headers/{name}"))))
}
