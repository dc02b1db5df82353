//! The problem types that each operation can answer with.

use std::collections::BTreeMap;

use actix_web::http::StatusCode;
use utoipa::ToSchema;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::example::ExampleBuilder;
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::{Ref, RefOr, Response};

use crate::web::describe::headers;
use crate::web::problem::{Body, Kind, example};

pub(in crate::web) const CONTENT_TYPE: &str = "application/problem+json";

/// For every operation. A method that a path does not take is answered there too.
const ANY: &[Kind] = &[Kind::MethodNotAllowed, Kind::TooManyConnections, Kind::Internal];
/// For writes: pages of foreign origins may not write.
pub(in crate::web) const WRITES: &[Kind] = &[Kind::ForeignOrigin];
/// For an id, a voter or a parameter in a path or query.
pub(in crate::web) const ADDRESSES: &[Kind] = &[Kind::Malformed, Kind::InvalidValue];
/// For a body.
pub(in crate::web) const BODIES: &[Kind] = &[
    Kind::Malformed,
    Kind::InvalidValue,
    Kind::BodyTooSlow,
    Kind::UnsupportedContentType,
];
/// For operations that look at credentials.
pub(in crate::web) const CALLERS: &[Kind] = &[
    Kind::Malformed,
    Kind::CredentialMissing,
    Kind::CredentialNotValid,
    Kind::TokenExpired,
    Kind::NotAllowed,
];
/// For operations that need the operator's Postgres login.
pub(in crate::web) const OPERATORS: &[Kind] = &[Kind::OperatorLogin];
/// For operations that use Postgres and store no vote.
pub(in crate::web) const STORES: &[Kind] = &[Kind::Unavailable];
/// For operations that store votes.
pub(in crate::web) const VOTES: &[Kind] = &[Kind::Throttled, Kind::VoteNotStored, Kind::VoteUnconfirmed];

/// Declares the problems of an operation: some of the sets above, and its own.
macro_rules! problems {
    ($name:ident $(: $($set:ident),+)? $(; $($kind:ident),+)?) => {
        /// The problems that the operation can answer with.
        struct $name;

        impl utoipa::IntoResponses for $name {
            fn responses() -> std::collections::BTreeMap<
                String,
                utoipa::openapi::RefOr<utoipa::openapi::Response>,
            > {
                $crate::web::describe::problems::responses(&[
                    $($($crate::web::describe::problems::$set,)+)?
                    $(&[$($crate::web::problem::Kind::$kind),+],)?
                ])
            }
        }
    };
}
pub(in crate::web) use problems;

/// Returns the answers with these problem types, and with those of every operation. Each status has one
/// answer.
pub(in crate::web) fn responses(sets: &[&[Kind]]) -> BTreeMap<String, RefOr<Response>> {
    let is_sent = |kind: &&Kind| ANY.contains(kind) || sets.iter().any(|set| set.contains(kind));
    // In the order of the table of problem types.
    let mut by_status: BTreeMap<StatusCode, Vec<Kind>> = BTreeMap::new();
    for kind in Kind::ALL.iter().filter(is_sent) {
        by_status.entry(kind.status()).or_default().push(*kind);
    }
    let answers = by_status.into_iter();
    answers
        .map(|(status, kinds)| (status.as_str().to_owned(), RefOr::T(response(status, &kinds))))
        .collect()
}

fn response(status: StatusCode, kinds: &[Kind]) -> Response {
    // Every refusal has the one schema, from which generators make one type. The names of the examples say
    // which types this answer can have.
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(Body::name())));
    let content = content.examples_from_iter(kinds.iter().map(|kind| {
        let example = ExampleBuilder::new()
            .summary(kind.title())
            .value(Some(example(*kind)));
        (kind.slug(), example.build())
    }));
    let titles: Vec<&str> = kinds.iter().map(|kind| kind.title()).collect();
    let names: &[&str] = match status {
        StatusCode::UNAUTHORIZED => &["WWW-Authenticate"],
        StatusCode::METHOD_NOT_ALLOWED => &["Allow"],
        StatusCode::MISDIRECTED_REQUEST => &["Tally-Cell"],
        StatusCode::TOO_MANY_REQUESTS if kinds.contains(&Kind::Throttled) => {
            &["Retry-After", "RateLimit-Policy", "RateLimit"]
        }
        StatusCode::TOO_MANY_REQUESTS => &["Retry-After"],
        StatusCode::SERVICE_UNAVAILABLE => &["Retry-After"],
        _ => &[],
    };
    let mut response = ResponseBuilder::new()
        .description(format!("{}.", titles.join(", or: ")))
        .content(CONTENT_TYPE, content.build())
        .build();
    let named = names
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), headers::reference(name)?)));
    response.headers = named.collect();
    response
}
