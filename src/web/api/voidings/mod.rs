//! `/v1/voidings`: voids votes that should not have been cast, and undoes voidings.
//!
//! - `new`: a new voiding, or its dry run.
//!
//! `crate::votes` voids the votes. `tally void` uses it too.

pub mod new;

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::domain::{Actor, ItemId, Moment, Voiding, VoidingId};
use crate::ledger::OperatorLedger;
use crate::votes::Direction;
use crate::web::access::Admin;
use crate::web::api::background::RunningVoiding;
use crate::web::api::state::AppState;
use crate::web::describe::{problems, values};
use crate::web::problem::{Kind, Problem};
use crate::web::request::{PathVoiding, Query, form, page};

/// Voidings on a page by default.
const PAGE_DEFAULT_VOIDINGS: i64 = 20;
/// The most voidings on a page. Each is read with the number of its votes.
pub const PAGE_LIMIT_VOIDINGS: i64 = 100;
/// The command that does the same.
const COMMAND: &str = "tally void";

/// A voiding and its progress.
#[derive(Serialize, ToSchema)]
#[schema(as = Voiding)]
struct VoidingBody {
    #[schema(value_type = values::Id)]
    id: i64,
    #[schema(value_type = VoidingState)]
    state: &'static str,
    /// Whether this server works on the voiding. Another server or `tally void` may also work on it.
    under_way: bool,
    #[schema(value_type = values::Time)]
    created_at: Moment,
    reason: String,
    /// The filter: the voiding voids votes that match all of these fields. Null matches every vote.
    #[schema(required, value_type = Option<values::VoterId>)]
    voter_id: Option<String>,
    #[schema(required, value_type = Option<values::Id>)]
    item_id: Option<ItemId>,
    #[schema(required, value_type = Option<values::Time>)]
    from: Option<Moment>,
    #[schema(required, value_type = Option<values::Time>)]
    until: Option<Moment>,
    /// Whether the voiding is limited to votes from certain addresses.
    by_address: bool,
    /// The voiding is limited to votes that were cast with this API key.
    #[schema(required, value_type = Option<values::Id>)]
    api_key_id: Option<i64>,
    /// The voiding has looked at votes up to this id. It ends at `until_vote_id`.
    #[schema(value_type = values::Total)]
    done_vote_id: i64,
    #[schema(value_type = values::Total)]
    until_vote_id: i64,
    #[schema(value_type = values::Total)]
    voided_votes: i64,
    /// Votes that undoing the voiding has cast again.
    #[schema(value_type = values::Total)]
    restored_votes: i64,
    /// Votes that undoing the voiding had to leave void.
    #[schema(value_type = values::Total)]
    left_votes: i64,
}

/// The state of a voiding: the names in its schema.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "it is here for its schema")]
enum VoidingState {
    Voiding,
    Voided,
    Undoing,
    Undone,
}

impl VoidingBody {
    fn new(voiding: Voiding, state: &AppState) -> Self {
        let under_way = state.voidings.under_way();
        Self {
            id: voiding.id.0,
            state: match voiding.undone_vote_id {
                None if voiding.is_done() => "voided",
                None => "voiding",
                Some(_) if voiding.is_undone() => "undone",
                Some(_) => "undoing",
            },
            under_way: under_way.is_some_and(|running| running.0 == voiding.id),
            created_at: voiding.created_at,
            reason: voiding.reason,
            voter_id: voiding.voter_id,
            item_id: voiding.item_id,
            from: voiding.cast_from,
            until: voiding.cast_until,
            by_address: voiding.is_by_address,
            api_key_id: voiding.api_key.map(|key| key.0),
            done_vote_id: voiding.done_vote_id,
            until_vote_id: voiding.until_vote_id,
            voided_votes: voiding.voided_votes,
            restored_votes: voiding.restored_votes,
            left_votes: voiding.left_votes,
        }
    }
}

fn example(state: &str, under_way: bool) -> serde_json::Value {
    serde_json::json!({
        "id": 1, "state": state, "under_way": under_way, "created_at": "2030-01-31T18:00:00.123456Z",
        "reason": "a bot", "voter_id": "bot-7", "item_id": null, "from": null, "until": null,
        "by_address": false, "api_key_id": null, "done_vote_id": 41, "until_vote_id": 41, "voided_votes": 3, "restored_votes": 0,
        "left_votes": 0
    })
}

async fn find(ledger: &OperatorLedger, id: VoidingId) -> Result<Voiding, Problem> {
    let found = ledger.voiding(id).await.map_err(Problem::of_operator)?;
    found.ok_or_else(|| Problem::unknown_voiding(id.0))
}

/// Answers with a voiding that has just started.
fn accepted(voiding: Voiding, state: &AppState) -> HttpResponse {
    HttpResponse::Accepted()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .insert_header((header::LOCATION, format!("/v1/voidings/{}", voiding.id.0)))
        .json(VoidingBody::new(voiding, state))
}

/// Answers with a voiding as it is now.
fn shown(voiding: Voiding, state: &AppState) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(VoidingBody::new(voiding, state))
}

form! {
    #[derive(IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct VoidingsQuery {
        /// Only voidings that were created before the voiding with this id: the `next_before` of a page.
        #[param(value_type = Option<values::Id>)]
        before: Option<i64>,
        /// The most voidings on the page. Defaults to 20.
        #[param(minimum = 1, maximum = 100)]
        limit: Option<i64>,
    }
}

impl VoidingsQuery {
    /// Returns the voiding that the page ends before, and how many voidings the page has.
    pub(in crate::web) fn into_page(self) -> Result<(Option<VoidingId>, i64), Problem> {
        let limit = page::limit(self.limit, PAGE_DEFAULT_VOIDINGS, PAGE_LIMIT_VOIDINGS)?;
        let before = page::before(self.before)?;
        Ok((before.map(VoidingId), limit))
    }
}

/// A page of voidings.
#[derive(Serialize, ToSchema)]
#[schema(as = Voidings)]
struct VoidingsBody {
    /// The voidings, with the newest first.
    voidings: Vec<VoidingBody>,
    /// The `before` of the next page. Null on the last page.
    #[schema(required, value_type = Option<values::Id>)]
    next_before: Option<i64>,
}

/// List voidings.
///
/// The newest come first. This needs a server with an operator's login (`TALLY_OPERATOR_DATABASE_URL`).
#[utoipa::path(
    get,
    path = "/v1/voidings",
    operation_id = "listVoidings",
    tag = "Operating",
    params(VoidingsQuery),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 200, description = "A page of voidings.", body = VoidingsBody,
            headers(("Cache-Control" = String)),
            example = json!({ "voidings": [example("voided", false)], "next_before": null })),
        ListProblems,
    )
)]
pub async fn list(
    by: Admin,
    state: web::Data<AppState>,
    query: Query<VoidingsQuery>,
) -> Result<HttpResponse, Problem> {
    let (before, limit) = query.0.into_page()?;
    let ledger = state.operator.ledger_of(by.0, COMMAND)?;
    let voidings = ledger
        .voidings(before, limit)
        .await
        .map_err(Problem::of_operator)?;
    let is_full = i64::try_from(voidings.len()) == Ok(limit);
    let next_before = voidings.last().filter(|_| is_full).map(|last| last.id.0);
    let voidings = voidings
        .into_iter()
        .map(|voiding| VoidingBody::new(voiding, &state));
    Ok(HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(VoidingsBody {
            voidings: voidings.collect(),
            next_before,
        }))
}

problems!(ListProblems: ADDRESSES, CALLERS, OPERATORS, STORES);

/// Retrieve a voiding.
///
/// The answer says how far the voiding is. This needs a server with an operator's login
/// (`TALLY_OPERATOR_DATABASE_URL`).
#[utoipa::path(
    get,
    path = "/v1/voidings/{id}",
    operation_id = "showVoiding",
    tag = "Operating",
    params(("id" = values::Id, Path, description = "The voiding.", example = json!(1))),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 200, description = "The voiding.", body = VoidingBody, headers(("Cache-Control" = String)),
            example = json!(example("voided", false))),
        ShowProblems,
    )
)]
pub async fn show(by: Admin, state: web::Data<AppState>, id: PathVoiding) -> Result<HttpResponse, Problem> {
    let ledger = state.operator.ledger_of(by.0, COMMAND)?;
    Ok(shown(find(&ledger, id.0).await?, &state))
}

problems!(ShowProblems: CALLERS, OPERATORS, STORES; UnknownVoiding);

/// Resume a voiding.
///
/// Resumes a voiding, or the undoing of one, that was interrupted. If nothing is left to do, nothing happens.
/// This needs a server with an operator's login (`TALLY_OPERATOR_DATABASE_URL`).
#[utoipa::path(
    post,
    path = "/v1/voidings/{id}/resume",
    operation_id = "resumeVoiding",
    tag = "Operating",
    params(("id" = values::Id, Path, description = "The voiding.", example = json!(1))),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 200, description = "Nothing was left to do.", body = VoidingBody,
            headers(("Cache-Control" = String)), example = json!(example("voided", false))),
        (status = 202, description = "The voiding is under way now.", body = VoidingBody,
            headers(("Cache-Control" = String), ("Location" = String)),
            example = json!(example("voiding", true))),
        ResumeProblems,
    )
)]
pub async fn resume(by: Admin, state: web::Data<AppState>, id: PathVoiding) -> Result<HttpResponse, Problem> {
    go(by.0, &state, id.0, |voiding| {
        Ok(match voiding.undone_vote_id {
            None => Direction::Void,
            Some(_) => Direction::Undo,
        })
    })
    .await
}

problems!(ResumeProblems: WRITES, CALLERS, OPERATORS, STORES; UnknownVoiding, VoidingUnderWay);

/// Undo a voiding.
///
/// The votes are cast again in the background. Some votes stay void: those that their voters have replaced,
/// those on full items, and those that would be one choice too many. There is no dry run. This needs a server
/// with an operator's login (`TALLY_OPERATOR_DATABASE_URL`).
#[utoipa::path(
    post,
    path = "/v1/voidings/{id}/undo",
    operation_id = "undoVoiding",
    tag = "Operating",
    params(("id" = values::Id, Path, description = "The voiding.", example = json!(1))),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 200, description = "The voiding was undone before.", body = VoidingBody,
            headers(("Cache-Control" = String)), example = json!(example("undone", false))),
        (status = 202, description = "The undoing is under way now.", body = VoidingBody,
            headers(("Cache-Control" = String), ("Location" = String)),
            example = json!(example("undoing", true))),
        UndoProblems,
    )
)]
pub async fn undo(by: Admin, state: web::Data<AppState>, id: PathVoiding) -> Result<HttpResponse, Problem> {
    go(by.0, &state, id.0, |voiding| {
        if voiding.is_done() {
            return Ok(Direction::Undo);
        }
        let detail = format!(
            "Voiding {} is not done; POST /v1/voidings/{}/resume resumes it.",
            voiding.id.0, voiding.id.0
        );
        Err(Problem::new(Kind::VoidingNotDone, detail))
    })
    .await
}

problems!(
    UndoProblems: WRITES, CALLERS, OPERATORS, STORES;
    UnknownVoiding, VoidingNotDone, VoidingUnderWay
);

/// Continues a voiding in this direction, unless it is under way or done.
async fn go(
    by: Actor,
    state: &AppState,
    id: VoidingId,
    direction: impl FnOnce(&Voiding) -> Result<Direction, Problem>,
) -> Result<HttpResponse, Problem> {
    let ledger = state.operator.ledger_of(by, COMMAND)?;
    let voiding = find(&ledger, id).await?;
    let direction = direction(&voiding)?;
    if voiding.is_finished(direction == Direction::Undo) {
        let ledger = ledger.as_server();
        ledger
            .until_earlier_commits_are_safe()
            .await
            .map_err(Problem::of_operator)?;
        return Ok(shown(voiding, state));
    }
    let wanted = RunningVoiding(id, direction);
    if state.voidings.under_way() != Some(wanted) {
        state.voidings.take()?.start(ledger, wanted);
    }
    Ok(accepted(voiding, state))
}

impl Problem {
    fn unknown_voiding(id: i64) -> Self {
        let detail = format!("There is no voiding {id}; GET /v1/voidings lists the voidings.");
        Self::new(Kind::UnknownVoiding, detail)
    }
}
