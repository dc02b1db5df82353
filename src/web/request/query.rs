//! Reads queries.

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest, web};
use futures_util::future;

use crate::web::problem::Problem;
use crate::web::request::form::{Form, unreadable_query, wrong_query};

/// The parameters of a query. An unknown or malformed parameter is a 400 that names it.
pub struct Query<T>(pub T);

impl<T: Form> FromRequest for Query<T> {
    type Error = Problem;
    type Future = future::Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        future::ready(parse(request.query_string()).map(Self))
    }
}

/// Reads a query. The problem names the wrong parameter.
pub(in crate::web) fn parse<T: Form>(query: &str) -> Result<T, Problem> {
    if let Ok(read) = web::Query::<T>::from_query(query) {
        return Ok(read.into_inner());
    }
    let parameters = web::Query::<Vec<(String, String)>>::from_query(query);
    Err(match parameters {
        Ok(parameters) => wrong_query(&parameters, T::FIELDS),
        Err(_) => unreadable_query(),
    })
}
