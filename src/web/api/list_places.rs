//! Places for public reads that look at many rows: lists, searches, histories, the page of all items and polls.
//!
//! Such a read costs the server and Postgres more than a vote. Whoever asks for many at once is told to wait,
//! before the server does anything for them.

use std::future::{Ready, ready};

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest, web};

use crate::telemetry::name;
use crate::web::access::client_address;
use crate::web::api::places::{NoPlace, Place, Places};
use crate::web::api::state::AppState;
use crate::web::limits::{LISTS_LIMIT, LISTS_LIMIT_BY_ADDRESS};
use crate::web::problem::{Kind, Problem};

/// Counts the lists that a server reads at once. Cheap to clone.
#[derive(Clone)]
pub struct ListPlaces(Places);

impl Default for ListPlaces {
    fn default() -> Self {
        Self(Places::new(LISTS_LIMIT, LISTS_LIMIT_BY_ADDRESS))
    }
}

/// The place of a request that reads a list. It is free again when the request is answered.
pub struct ListPlace(#[expect(dead_code, reason = "it is dropped with the request")] Place);

impl FromRequest for ListPlace {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(take(request))
    }
}

fn take(request: &HttpRequest) -> Result<ListPlace, Problem> {
    let Some(state) = request.app_data::<web::Data<AppState>>() else {
        return Err(Problem::internal());
    };
    let taken = state.list_places.0.take(client_address(request));
    taken.map(ListPlace).map_err(|full| {
        metrics::counter!(name::LISTS_REFUSED, "by" => full.name()).increment(1);
        match full {
            NoPlace::Server => {
                let detail = "This server reads as many lists at once as it takes; ask again later.";
                Problem::new(Kind::TooManyLists, detail)
            }
            NoPlace::Address => {
                let detail = format!(
                    "One client address may ask for {LISTS_LIMIT_BY_ADDRESS} lists, searches and histories at \
                     once; wait for an answer before you ask again."
                );
                Problem::new(Kind::TooManyListsOfAddress, detail)
            }
        }
    })
}
