//! `/v1/votes/{id}`: how far a vote has come.

use actix_web::{HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::{ItemId, VoteId};
use crate::web::access::IsAdmin;
use crate::web::api::state::AppState;
use crate::web::describe::{problems, values};
use crate::web::problem::Problem;
use crate::web::request::PathVote;

/// How far a vote has come.
#[derive(Serialize, ToSchema)]
#[schema(as = Receipt)]
struct ReceiptBody {
    #[schema(value_type = values::Id)]
    vote_id: VoteId,
    #[schema(value_type = values::Id)]
    item_id: ItemId,
    /// What the row adds to its item's count.
    #[schema(value_type = values::VoteValue)]
    value: i16,
    /// The vote's number, on an item that numbers its votes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = values::Id)]
    number: Option<i64>,
    /// True if the row takes the voter's vote back. Left out otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    retraction: bool,
    /// The API key that the vote was cast with; null for none. Left out unless
    /// the request has an API key with the scope `admin`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<values::Id>)]
    api_key_id: Option<Option<i64>>,
    /// `stored`: the vote is a committed row. `counted`: it is also in the live count. `saved`: it is also in
    /// the saved count. The state may lag behind, but is never ahead.
    #[schema(value_type = State)]
    state: &'static str,
}

/// How far a vote has come: the names in its schema.
#[derive(ToSchema)]
#[schema(as = VoteState, rename_all = "lowercase")]
#[expect(dead_code, reason = "it is here for its schema")]
enum State {
    Stored,
    Counted,
    Saved,
}

/// Retrieve a vote's receipt.
///
/// The receipt does not name the voter, because ids can be guessed. An API key with the scope `admin` also
/// shows with which API key the vote was cast.
#[utoipa::path(
    get,
    path = "/v1/votes/{id}",
    operation_id = "showReceipt",
    tag = "Votes",
    params(("id" = values::Id, Path, description = "The `vote_id` of a vote's answer.", example = json!(1))),
    responses(
        (status = 200, description = "The receipt.", body = ReceiptBody,
            example = json!({ "vote_id": 1, "item_id": 1, "value": 1, "state": "counted" })),
        ReceiptProblems,
    )
)]
pub async fn show(
    is_admin: IsAdmin,
    state: web::Data<AppState>,
    id: PathVote,
) -> Result<HttpResponse, Problem> {
    state.references.check_vote(id.0).await?;
    let Some(receipt) = state.ledger.receipt(id.0).await? else {
        return Err(match state.ledger.archive_around(id.0).await? {
            Some(archive) => Problem::archived_vote(id.0, archive),
            None => Problem::unknown_vote(id.0),
        });
    };
    let row = receipt.row;
    let api_key_id = match is_admin.0 {
        true => Some(state.ledger.api_key_of(row.id).await?.map(|key| key.0)),
        false => None,
    };
    // The live count is read after the ledger, so it contains everything that the ledger says was counted.
    let is_saved = match receipt.is_counted {
        true => state.counts.is_saved(row.item_id).await?,
        false => None,
    };
    Ok(HttpResponse::Ok().json(ReceiptBody {
        vote_id: row.id,
        item_id: row.item_id,
        value: row.value,
        number: row.number,
        retraction: !row.is_cast(),
        api_key_id,
        state: match is_saved {
            None => "stored",
            Some(false) => "counted",
            Some(true) => "saved",
        },
    }))
}

problems!(ReceiptProblems: STORES; Malformed, OtherCell, UnknownVote);
