//! `/v1/votes/{id}`: what became of a vote.

use actix_web::{HttpResponse, web};
use serde::Serialize;

use crate::domain::{ItemId, VoteId};
use crate::http::extract::PathVote;
use crate::http::problem::Problem;
use crate::http::state::AppState;

#[derive(Serialize)]
struct ReceiptBody {
    vote_id: VoteId,
    item_id: ItemId,
    /// What the row adds to its item's count.
    value: i16,
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<i64>,
    /// Whether the row takes the voter's vote back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    retraction: bool,
    /// `stored`: it is a committed row. `counted`: it is in the live count. `saved`: it is in the
    /// saved count too. It may say less than is so, and never more.
    state: &'static str,
}

/// Shows a vote's receipt. Who voted is not in it: ids can be guessed.
pub async fn show(state: web::Data<AppState>, id: PathVote) -> Result<HttpResponse, Problem> {
    let Some(receipt) = state.ledger.receipt(id.0).await? else {
        return Err(Problem::unknown_vote(id.0));
    };
    let row = receipt.row;
    // After the ledger was read: what was counted then is in the live count that is read now.
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
        state: match is_saved {
            None => "stored",
            Some(false) => "counted",
            Some(true) => "saved",
        },
    }))
}
