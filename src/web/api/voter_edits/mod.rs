//! `/v1/voter-edits`: renames, merges and erases voters.
//!
//! - `new`: a new edit, or its dry run.
//!
//! `crate::votes` edits the voters. `tally voter` uses it too.

pub mod new;

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::domain::{Moment, VoterEdit, VoterEditId};
use crate::ledger::OperatorLedger;
use crate::web::access::Admin;
use crate::web::api::background::RunningEdit;
use crate::web::api::state::AppState;
use crate::web::describe::{problems, values};
use crate::web::problem::{Kind, Problem};
use crate::web::request::{PathVoterEdit, Query, form, page};

/// Edits on a page by default.
const PAGE_DEFAULT_EDITS: i64 = 20;
/// The most edits on a page.
pub const PAGE_LIMIT_VOTER_EDITS: i64 = 100;
/// The command that does the same.
const COMMAND: &str = "tally voter";

/// An edit of a voter, and its progress.
#[derive(Serialize, ToSchema)]
#[schema(as = VoterEdit)]
struct VoterEditBody {
    #[schema(value_type = values::Id)]
    id: i64,
    #[schema(value_type = EditKind)]
    kind: &'static str,
    #[schema(value_type = EditState)]
    state: &'static str,
    /// Whether this server works on the edit. Another server or `tally voter` may also work on it.
    under_way: bool,
    #[schema(value_type = values::Time)]
    created_at: Moment,
    /// The voter. Null once the voter is erased.
    #[schema(required, value_type = Option<values::VoterId>)]
    voter_id: Option<String>,
    /// The voter who has the votes afterwards. For an erased voter, a random id.
    #[schema(value_type = values::VoterId)]
    to_voter_id: String,
    /// The edit has looked at this many vote ids, of `of_vote_ids`.
    #[schema(value_type = values::Total)]
    done_vote_ids: i64,
    #[schema(value_type = values::Total)]
    of_vote_ids: i64,
    /// The rows of the ledger that have the other voter id now.
    #[schema(value_type = values::Total)]
    moved_rows: i64,
    /// The votes that were taken back because one voter cannot hold them.
    #[schema(value_type = values::Total)]
    taken_back_votes: i64,
}

/// What an edit does: the names in its schema.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "it is here for its schema")]
enum EditKind {
    Rename,
    Merge,
    Erase,
}

/// The state of an edit. It is refused if the new voter id of a renaming has votes.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "it is here for its schema")]
enum EditState {
    Editing,
    Done,
    Refused,
}

impl VoterEditBody {
    fn new(edit: VoterEdit, state: &AppState) -> Self {
        let (done_vote_ids, of_vote_ids) = edit.progress();
        Self {
            id: edit.id.0,
            kind: edit.kind.name(),
            state: edit.state(),
            under_way: state.voter_edits.under_way() == Some(RunningEdit(edit.id)),
            created_at: edit.created_at,
            voter_id: edit.from_voter_id,
            to_voter_id: edit.to_voter_id,
            done_vote_ids,
            of_vote_ids,
            moved_rows: edit.moved_rows,
            taken_back_votes: edit.taken_back_votes,
        }
    }
}

fn example(state: &str, under_way: bool) -> serde_json::Value {
    serde_json::json!({
        "id": 1, "kind": "merge", "state": state, "under_way": under_way,
        "created_at": "2030-01-31T18:00:00.123456Z", "voter_id": "ada", "to_voter_id": "ada2",
        "done_vote_ids": 41, "of_vote_ids": 41, "moved_rows": 3, "taken_back_votes": 1
    })
}

async fn find(ledger: &OperatorLedger, id: VoterEditId) -> Result<VoterEdit, Problem> {
    let found = ledger.voter_edit(id).await.map_err(Problem::of_operator)?;
    found.ok_or_else(|| {
        let detail = format!(
            "There is no edit {} of a voter; GET /v1/voter-edits lists them.",
            id.0
        );
        Problem::new(Kind::UnknownVoterEdit, detail)
    })
}

/// Answers with an edit that is under way now.
fn accepted(edit: VoterEdit, state: &AppState) -> HttpResponse {
    HttpResponse::Accepted()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .insert_header((header::LOCATION, format!("/v1/voter-edits/{}", edit.id.0)))
        .json(VoterEditBody::new(edit, state))
}

/// Answers with an edit as it is now.
fn shown(edit: VoterEdit, state: &AppState) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(VoterEditBody::new(edit, state))
}

form! {
    #[derive(IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct VoterEditsQuery {
        /// Only edits that were created before the edit with this id: the `next_before` of a page.
        #[param(value_type = Option<values::Id>)]
        before: Option<i64>,
        /// The most edits on the page. Defaults to 20.
        #[param(minimum = 1, maximum = 100)]
        limit: Option<i64>,
    }
}

impl VoterEditsQuery {
    /// Returns the edit that the page ends before, and how many edits the page has.
    pub(in crate::web) fn into_page(self) -> Result<(Option<VoterEditId>, i64), Problem> {
        let limit = page::limit(self.limit, PAGE_DEFAULT_EDITS, PAGE_LIMIT_VOTER_EDITS)?;
        let before = page::before(self.before)?;
        Ok((before.map(VoterEditId), limit))
    }
}

/// A page of edits.
#[derive(Serialize, ToSchema)]
#[schema(as = VoterEdits)]
struct VoterEditsBody {
    /// The edits, with the newest first.
    voter_edits: Vec<VoterEditBody>,
    /// The `before` of the next page. Null on the last page.
    #[schema(required, value_type = Option<values::Id>)]
    next_before: Option<i64>,
}

/// List edits of voters.
///
/// The newest come first. This needs a server with an operator's login (`TALLY_OPERATOR_DATABASE_URL`).
#[utoipa::path(
    get,
    path = "/v1/voter-edits",
    operation_id = "listVoterEdits",
    tag = "Operating",
    params(VoterEditsQuery),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 200, description = "A page of edits.", body = VoterEditsBody,
            headers(("Cache-Control" = String)),
            example = json!({ "voter_edits": [example("done", false)], "next_before": null })),
        ListProblems,
    )
)]
pub async fn list(
    by: Admin,
    state: web::Data<AppState>,
    query: Query<VoterEditsQuery>,
) -> Result<HttpResponse, Problem> {
    let (before, limit) = query.0.into_page()?;
    let ledger = state.operator.ledger_of(by.0, COMMAND)?;
    let edits = ledger
        .voter_edits(before, limit)
        .await
        .map_err(Problem::of_operator)?;
    let is_full = i64::try_from(edits.len()) == Ok(limit);
    let next_before = edits.last().filter(|_| is_full).map(|last| last.id.0);
    let edits = edits.into_iter().map(|edit| VoterEditBody::new(edit, &state));
    Ok(HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(VoterEditsBody {
            voter_edits: edits.collect(),
            next_before,
        }))
}

problems!(ListProblems: ADDRESSES, CALLERS, OPERATORS, STORES);

/// Retrieve an edit of a voter.
///
/// The answer says how far the edit is. This needs a server with an operator's login
/// (`TALLY_OPERATOR_DATABASE_URL`).
#[utoipa::path(
    get,
    path = "/v1/voter-edits/{id}",
    operation_id = "showVoterEdit",
    tag = "Operating",
    params(("id" = values::Id, Path, description = "The edit.", example = json!(1))),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 200, description = "The edit.", body = VoterEditBody, headers(("Cache-Control" = String)),
            example = json!(example("done", false))),
        ShowProblems,
    )
)]
pub async fn show(by: Admin, state: web::Data<AppState>, id: PathVoterEdit) -> Result<HttpResponse, Problem> {
    let ledger = state.operator.ledger_of(by.0, COMMAND)?;
    Ok(shown(find(&ledger, id.0).await?, &state))
}

problems!(ShowProblems: CALLERS, OPERATORS, STORES; UnknownVoterEdit);

/// Resume an edit of a voter.
///
/// Resumes an edit that was interrupted. If nothing is left to do, nothing happens. This needs a server with an
/// operator's login (`TALLY_OPERATOR_DATABASE_URL`).
#[utoipa::path(
    post,
    path = "/v1/voter-edits/{id}/resume",
    operation_id = "resumeVoterEdit",
    tag = "Operating",
    params(("id" = values::Id, Path, description = "The edit.", example = json!(1))),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 200, description = "Nothing was left to do.", body = VoterEditBody,
            headers(("Cache-Control" = String)), example = json!(example("done", false))),
        (status = 202, description = "The edit is under way now.", body = VoterEditBody,
            headers(("Cache-Control" = String), ("Location" = String)),
            example = json!(example("editing", true))),
        ResumeProblems,
    )
)]
pub async fn resume(
    by: Admin,
    state: web::Data<AppState>,
    id: PathVoterEdit,
) -> Result<HttpResponse, Problem> {
    let ledger = state.operator.ledger_of(by.0, COMMAND)?;
    let edit = find(&ledger, id.0).await?;
    if edit.ended_at.is_some() {
        let ledger = ledger.as_server();
        ledger
            .until_earlier_commits_are_safe()
            .await
            .map_err(Problem::of_operator)?;
        return Ok(shown(edit, &state));
    }
    if state.voter_edits.under_way() != Some(RunningEdit(id.0)) {
        state.voter_edits.take()?.start(ledger, RunningEdit(id.0));
    }
    Ok(accepted(edit, &state))
}

problems!(ResumeProblems: WRITES, CALLERS, OPERATORS, STORES; UnknownVoterEdit, VoterEditUnderWay);
