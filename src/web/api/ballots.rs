//! `/v1/items/{id}/ballots`, `/v1/polls/{id}/ballots`: creates ballots.

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::{Actor, Ballot, BallotHash, Moment};
use crate::ledger::AddedBallots;
use crate::web::access::Admin;
use crate::web::api::fields::moment;
use crate::web::api::named;
use crate::web::api::named::Named;
use crate::web::api::state::AppState;
use crate::web::describe::{problems, values};
use crate::web::problem::Problem;
use crate::web::request::{Json, PathItemReference, PathPollReference, form};

/// The most ballots in one request.
pub const BALLOTS_LIMIT: i64 = 1000;

form! {
    /// The body of a request for ballots.
    #[derive(ToSchema)]
    #[schema(as = NewBallots, examples(json!({ "count": 2 })))]
    pub struct BallotsBody {
        /// The number of ballots.
        #[schema(minimum = 1, maximum = 1000)]
        count: i64,
        /// The time at which the ballots expire (RFC 3339). Without it they never expire.
        #[schema(value_type = Option<values::Time>)]
        expires_at: Option<String>,
    }
}

impl BallotsBody {
    /// Draws the ballots. Also returns when they expire.
    pub(in crate::web) fn into_ballots(self) -> Result<(Vec<Ballot>, Option<Moment>), Problem> {
        if !(1..=BALLOTS_LIMIT).contains(&self.count) {
            let detail = format!("count is {}; it takes 1 to {BALLOTS_LIMIT}.", self.count);
            return Err(Problem::invalid("count", detail));
        }
        let expires_at = moment("expires_at", self.expires_at)?;
        Ok(((0..self.count).map(|_| Ballot::fresh()).collect(), expires_at))
    }
}

/// New ballots.
#[derive(Serialize, ToSchema)]
#[schema(as = Ballots)]
struct BallotsAnswer<'a> {
    /// The ballots are shown once: Tally keeps only their hashes.
    ballots: Vec<&'a str>,
    /// The time at which the ballots expire. Null means never.
    #[schema(required, value_type = Option<values::Time>)]
    expires_at: Option<Moment>,
}

/// Create ballots for an item.
///
/// Each ballot buys one vote on the item. The item must have been created with `by_ballot`.
#[utoipa::path(
    post,
    path = "/v1/items/{id}/ballots",
    operation_id = "createItemBallots",
    tag = "Ballots",
    params(("id" = values::ItemReference, Path, example = json!("key:raffle"))),
    request_body(content = BallotsBody, example = json!({ "count": 2 })),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 201, description = "The ballots were created.", body = BallotsAnswer,
            headers(("Cache-Control" = String)),
            example = json!({
                "ballots": ["0c7f8b62a9d14e5f8a3b6c7d9e0f1a2b", "5d1e2f3a4b5c6d7e8f9a0b1c2d3e4f5a"],
                "expires_at": null
            })),
        OfItemProblems,
    )
)]
pub async fn of_item(
    by: Admin,
    state: web::Data<AppState>,
    id: PathItemReference,
    body: Json<BallotsBody>,
) -> Result<HttpResponse, Problem> {
    make(by.0, named::item(&state, &id.0).await?, body.0).await
}

problems!(
    OfItemProblems: WRITES, ADDRESSES, BODIES, CALLERS, STORES;
    BodyTooLarge, OtherCell, UnknownItem, BallotNotTaken
);

/// Create ballots for a poll.
///
/// Each ballot buys one vote on one of the poll's choices. The poll must have been created with `by_ballot`.
#[utoipa::path(
    post,
    path = "/v1/polls/{id}/ballots",
    operation_id = "createPollBallots",
    tag = "Ballots",
    params(("id" = values::PollReference, Path, example = json!("key:board"))),
    request_body(content = BallotsBody, example = json!({ "count": 2 })),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 201, description = "The ballots were created.", body = BallotsAnswer,
            headers(("Cache-Control" = String)),
            example = json!({
                "ballots": ["0c7f8b62a9d14e5f8a3b6c7d9e0f1a2b", "5d1e2f3a4b5c6d7e8f9a0b1c2d3e4f5a"],
                "expires_at": "2030-01-31T18:00:00Z"
            })),
        OfPollProblems,
    )
)]
pub async fn of_poll(
    by: Admin,
    state: web::Data<AppState>,
    id: PathPollReference,
    body: Json<BallotsBody>,
) -> Result<HttpResponse, Problem> {
    make(by.0, named::poll(&state, &id.0).await?, body.0).await
}

problems!(
    OfPollProblems: WRITES, ADDRESSES, BODIES, CALLERS, STORES;
    BodyTooLarge, OtherCell, UnknownPoll, BallotNotTaken
);

async fn make(by: Actor, named: Named<'_>, body: BallotsBody) -> Result<HttpResponse, Problem> {
    let (ballots, expires_at) = body.into_ballots()?;
    let hashes: Vec<BallotHash> = ballots.iter().map(Ballot::hash).collect();
    match named
        .ledger
        .add_ballots(by, named.of, &hashes, expires_at)
        .await?
    {
        AddedBallots::Added => Ok(HttpResponse::Created()
            .insert_header((header::CACHE_CONTROL, "no-store"))
            .json(BallotsAnswer {
                ballots: ballots.iter().map(Ballot::as_str).collect(),
                expires_at,
            })),
        AddedBallots::Unknown => Err(named.unknown()),
        AddedBallots::Unwanted => Err(Problem::takes_no_ballots()),
        AddedBallots::OfPoll(poll) => Err(Problem::choice_has_no_ballots(poll)),
    }
}
