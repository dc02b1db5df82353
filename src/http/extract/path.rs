//! Reads ids in paths.

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest};
use futures_util::future;

use crate::domain::ItemId;
use crate::http::problem::Problem;

/// The `{id}` of a path: a positive 64-bit number.
pub struct PathItem(pub ItemId);

impl FromRequest for PathItem {
    type Error = Problem;
    type Future = future::Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let text = request.match_info().query("id");
        future::ready(text.parse().map(Self).map_err(|()| {
            Problem::malformed("id", "id: it takes a whole number from 1 to 9223372036854775807.")
        }))
    }
}
