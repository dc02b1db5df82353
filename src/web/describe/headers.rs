//! The headers of answers. Each is described once.

use std::collections::BTreeMap;

use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::schema::Type;
use utoipa::openapi::{Header, ObjectBuilder, Ref, RefOr};

/// The id of the request, which each answer has.
pub(in crate::web) const REQUEST_ID: &str = "X-Request-Id";
/// How the answer may be kept, which each answer says.
pub(in crate::web) const CACHE_CONTROL: &str = "Cache-Control";
/// A voter's cookie.
pub(in crate::web) const SET_COOKIE: &str = "Set-Cookie";

/// Each header's name, type and description.
const ALL: &[(&str, Type, &str)] = &[
    (
        REQUEST_ID,
        Type::String,
        "The id of the request. Its log lines have the same id.",
    ),
    ("Location", Type::String, "The path of what was created."),
    (
        CACHE_CONTROL,
        Type::String,
        "`no-store`: nobody keeps the answer. `no-cache`: whoever keeps the answer asks again before using it.",
    ),
    (
        "ETag",
        Type::String,
        "The version of the answer. With this tag in If-None-Match, an unchanged answer is 304 without a body.",
    ),
    (
        "Link",
        Type::String,
        "The next page, if there is one: `<path>; rel=\"next\"`.",
    ),
    (
        "X-Accel-Buffering",
        Type::String,
        "`no`: a proxy must pass on each event at once.",
    ),
    ("Content-Security-Policy", Type::String, "What the page may load."),
    (
        SET_COOKIE,
        Type::String,
        "The voter's cookie, `__Host-voter`: a new cookie, a cookie renewed after half of its time, or one \
         that deletes it from the browser.",
    ),
    (
        "WWW-Authenticate",
        Type::String,
        "`Bearer realm=\"tally\"`: send an API key or a voter's token in the header Authorization.",
    ),
    (
        "Allow",
        Type::String,
        "The methods of this path, separated by commas.",
    ),
    (
        "Retry-After",
        Type::Integer,
        "The number of seconds after which a retry makes sense.",
    ),
    (
        "Tally-Cell",
        Type::String,
        "The number of the cell that has what the request names.",
    ),
    (
        "RateLimit-Policy",
        Type::String,
        "The throttle: `q` attempts in `w` seconds (draft-ietf-httpapi-ratelimit-headers-10).",
    ),
    (
        "RateLimit",
        Type::String,
        "The rest of the throttle: `r` attempts in the next `t` seconds.",
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

/// Returns the reference to a header. `None`: the header is described where it is sent.
pub(in crate::web) fn reference(name: &str) -> Option<RefOr<Header>> {
    let is_known = ALL.iter().any(|(known, ..)| *known == name);
    is_known.then(|| RefOr::Ref(Ref::new(format!("#/components/headers/{name}"))))
}
