//! Reading query parameters, strictly.

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest, web};
use futures_util::future;
use serde::de::DeserializeOwned;

use crate::http::problem::Problem;

/// Query parameters; an unknown or malformed one is a 400 that says which.
pub struct Query<T>(pub T);

impl<T: DeserializeOwned> FromRequest for Query<T> {
    type Error = Problem;
    type Future = future::Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        future::ready(parse(request.query_string()).map(Self))
    }
}

/// Parses a query string; what is wrong with it is reported.
pub(in crate::http) fn parse<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    let parsed = web::Query::<T>::from_query(query);
    parsed.map(web::Query::into_inner).map_err(|error| {
        let message = match error {
            actix_web::error::QueryPayloadError::Deserialize(error) => error.to_string(),
            other => other.to_string(),
        };
        Problem::malformed("query", format!("query: {message}."))
    })
}
