//! `/v1/voidings`: taking votes back that should not have been cast, and undoing that.

use std::time::Duration;

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};

use super::items::moment;
use crate::domain::{
    Actor, ItemId, Moment, REASON_LIMIT_CHARACTERS, Reference, Voiding, VoidingId, VoteFilter, VoterId,
};
use crate::http::access::Admin;
use crate::http::description::{problems, values};
use crate::http::extract::{BodyItem, Field, Form, Json, PathVoiding, Query, Takes};
use crate::http::problem::{Kind, Problem};
use crate::http::state::AppState;
use crate::ledger::OperatorLedger;
use crate::votes::Direction;

/// Voidings on a page, unless `limit` says otherwise.
const PAGE_DEFAULT_VOIDINGS: i64 = 20;
/// The most voidings on a page: of each, all its votes are counted.
pub const PAGE_LIMIT_VOIDINGS: i64 = 100;
/// How long a dry run looks for votes. Then it says how far it has come.
const DRY_RUN_LIMIT: Duration = Duration::from_secs(3);
/// What does the same on the command line.
const COMMAND: &str = "tally void";

/// The body of a request for a voiding.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(
    as = NewVoiding,
    examples(json!({ "voter_id": "bot-7", "reason": "a bot", "dry_run": true }))
)]
pub struct NewVoidingBody {
    /// Only votes of this voter.
    #[schema(value_type = Option<values::VoterId>)]
    voter_id: Option<String>,
    /// Only votes on this item.
    #[schema(value_type = Option<values::ItemReference>)]
    item: Option<BodyItem>,
    /// RFC 3339: only votes that were cast at this time or later, by the database's clock.
    #[schema(value_type = Option<values::Time>)]
    from: Option<String>,
    /// RFC 3339: only votes that were cast before this time.
    #[schema(value_type = Option<values::Time>)]
    until: Option<String>,
    /// Why; it is kept with the voiding.
    #[schema(value_type = values::Reason)]
    reason: String,
    /// Whether only to say what would be voided.
    dry_run: bool,
    /// The `next_after` of a dry run that was cut off: another one then goes on there.
    #[schema(minimum = 0)]
    after: Option<i64>,
}

impl Form for NewVoidingBody {
    const FIELDS: &'static [Field] = &[
        Field::optional("voter_id", Takes::Text),
        Field::optional("item", Takes::Reference),
        Field::optional("from", Takes::Text),
        Field::optional("until", Takes::Text),
        Field::required("reason", Takes::Text),
        Field::required("dry_run", Takes::Boolean),
        Field::optional("after", Takes::Number),
    ];
}

/// What a body asks for. Its item may not be there.
#[derive(Debug)]
pub struct WantedVoiding {
    pub filter: VoteFilter,
    pub item: Option<Reference<ItemId>>,
    pub reason: String,
    pub dry_run: bool,
    pub after: i64,
}

impl NewVoidingBody {
    /// What is asked for, if it may be.
    pub(in crate::http) fn into_wanted(self) -> Result<WantedVoiding, Problem> {
        let voter_id = self.voter_id.map(VoterId::parse).transpose();
        let voter_id = voter_id.map_err(|error| Problem::invalid("voter_id", format!("{error}.")))?;
        let item = self.item.map(|item| item.into_reference("item")).transpose()?;
        let from = moment("from", self.from)?;
        let until = moment("until", self.until)?;
        if voter_id.is_none() && item.is_none() && from.is_none() && until.is_none() {
            let detail =
                "voter_id, item, from or until: one or more is needed, which says what votes are voided.";
            return Err(Problem::invalid("voter_id", detail));
        }
        if let (Some(from), Some(until)) = (from, until)
            && from >= until
        {
            let detail = "until is not after from, so no vote is between them.";
            return Err(Problem::invalid("until", detail));
        }
        let characters = self.reason.chars().count();
        if !(1..=REASON_LIMIT_CHARACTERS).contains(&characters) || self.reason.contains('\0') {
            let detail = format!(
                "reason has {characters} characters; it takes 1 to {REASON_LIMIT_CHARACTERS}, and no NUL."
            );
            return Err(Problem::invalid("reason", detail));
        }
        let after = match self.after {
            Some(_) if !self.dry_run => {
                let detail = "after: only a dry run takes it; a voiding is about all its votes.";
                return Err(Problem::invalid("after", detail));
            }
            Some(after) if after < 0 => {
                let detail = format!("after is {after}; it takes 0 or more.");
                return Err(Problem::invalid("after", detail));
            }
            after => after.unwrap_or(0),
        };
        Ok(WantedVoiding {
            filter: VoteFilter {
                voter_id,
                item_id: None,
                cast_from: from,
                cast_until: until,
                addresses: None,
            },
            item,
            reason: self.reason,
            dry_run: self.dry_run,
            after,
        })
    }
}

/// What a voiding would take back now.
#[derive(Serialize, ToSchema)]
#[schema(as = DryRun)]
struct DryRunBody {
    /// Votes that were found.
    #[schema(value_type = values::Total)]
    votes: i64,
    /// What their values add up to: the counts together would sink by it.
    #[schema(value_type = values::NetCount)]
    sum: i64,
    /// Whether these are all. If not, looking for them took too long.
    complete: bool,
    /// The `after` of a dry run that goes on; null: these are all.
    #[schema(required, value_type = Option<values::Id>)]
    next_after: Option<i64>,
}

/// A voiding, and how far it is.
#[derive(Serialize, ToSchema)]
#[schema(as = Voiding)]
struct VoidingBody {
    #[schema(value_type = values::Id)]
    id: i64,
    #[schema(value_type = VoidingState)]
    state: &'static str,
    /// Whether this server is at it. Another server or `tally void` may be.
    under_way: bool,
    #[schema(value_type = values::Time)]
    created_at: Moment,
    reason: String,
    /// What is voided: votes to which all of these apply. Null: it does not matter.
    #[schema(required, value_type = Option<values::VoterId>)]
    voter_id: Option<String>,
    #[schema(required, value_type = Option<values::Id>)]
    item_id: Option<ItemId>,
    #[schema(required, value_type = Option<values::Time>)]
    from: Option<Moment>,
    #[schema(required, value_type = Option<values::Time>)]
    until: Option<Moment>,
    /// Whether only votes from certain clients.
    by_address: bool,
    /// Up to which vote it has looked, of those up to `until_vote_id`.
    #[schema(value_type = values::Total)]
    done_vote_id: i64,
    #[schema(value_type = values::Total)]
    until_vote_id: i64,
    #[schema(value_type = values::Total)]
    voided_votes: i64,
    /// Votes that undoing it has cast again.
    #[schema(value_type = values::Total)]
    restored_votes: i64,
    /// Votes that undoing it had to leave void.
    #[schema(value_type = values::Total)]
    left_votes: i64,
}

/// How far a voiding is: the names in its schema.
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
            under_way: under_way.is_some_and(|(id, _)| id == voiding.id),
            created_at: voiding.created_at,
            reason: voiding.reason,
            voter_id: voiding.voter_id,
            item_id: voiding.item_id,
            from: voiding.cast_from,
            until: voiding.cast_until,
            by_address: voiding.is_by_address,
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
        "by_address": false, "done_vote_id": 41, "until_vote_id": 41, "voided_votes": 3, "restored_votes": 0,
        "left_votes": 0
    })
}

async fn find(ledger: &OperatorLedger, id: VoidingId) -> Result<Voiding, Problem> {
    let found = ledger.voiding(id).await.map_err(Problem::of_operator)?;
    found.ok_or_else(|| Problem::unknown_voiding(id.0))
}

/// Voids votes, or says which would be.
///
/// A dry run changes nothing: it says how many votes would be voided, as far as it comes in three seconds.
/// Otherwise the voiding is made, and worked off in the background, whether or not the client waits:
/// `GET /v1/voidings/{id}` says how far it is. Votes that are cast later are left alone. A server works off
/// one voiding at a time. It takes a server with an operator's login (`TALLY_OPERATOR_DATABASE_URL`).
#[utoipa::path(
    post,
    path = "/v1/voidings",
    operation_id = "createVoiding",
    tag = "Operating",
    request_body(
        content = NewVoidingBody,
        example = json!({ "voter_id": "bot-7", "reason": "a bot", "dry_run": true })
    ),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 200, description = "A dry run: what would be voided.", body = DryRunBody,
            headers(("Cache-Control" = String)),
            example = json!({ "votes": 3, "sum": 1, "complete": true, "next_after": null })),
        (status = 202, description = "The voiding, which is under way now.", body = VoidingBody,
            headers(("Cache-Control" = String), ("Location" = String)),
            example = json!(example("voiding", true))),
        CreateProblems,
    )
)]
pub async fn create(
    by: Admin,
    state: web::Data<AppState>,
    body: Json<NewVoidingBody>,
) -> Result<HttpResponse, Problem> {
    let wanted = body.0.into_wanted()?;
    let ledger = state.operator.ledger_of(by.0, COMMAND)?;
    let mut filter = wanted.filter;
    if let Some(item) = &wanted.item {
        let found = ledger.find_item(item).await.map_err(Problem::of_operator)?;
        filter.item_id = Some(found.ok_or_else(|| Problem::unknown_item(item))?);
    }
    if wanted.dry_run {
        return dry_run(&ledger, &filter, wanted.after).await;
    }
    let place = state.voidings.take()?;
    let until = ledger.last_vote().await.map_err(Problem::of_operator)?;
    let made = ledger.create_voiding(&filter, &wanted.reason, until).await;
    let id = made.map_err(Problem::of_operator)?;
    let voiding = find(&ledger, id).await;
    // Made it is, whatever became of reading it.
    place.start(ledger, id, Direction::Void);
    Ok(accepted(voiding?, &state))
}

problems!(
    CreateProblems: WRITES, BODIES, CALLERS, OPERATORS, STORES;
    BodyTooLarge, UnknownItem, VoidingUnderWay
);

/// Says what would be voided, for as long as it may take.
async fn dry_run(ledger: &OperatorLedger, filter: &VoteFilter, after: i64) -> Result<HttpResponse, Problem> {
    let started = Instant::now();
    let until = ledger.last_vote().await.map_err(Problem::of_operator)?;
    let (mut after, mut votes, mut sum) = (after, 0, 0);
    while after < until.get() && started.elapsed() < DRY_RUN_LIMIT {
        let next = ledger.votes_to_void(filter, after, until).await;
        let next = next.map_err(Problem::of_operator)?;
        (after, votes, sum) = (next.up_to, votes + next.votes, sum + next.net);
    }
    let complete = after >= until.get();
    Ok(HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(DryRunBody {
            votes,
            sum,
            complete,
            next_after: (!complete).then_some(after),
        }))
}

/// A voiding that is under way.
fn accepted(voiding: Voiding, state: &AppState) -> HttpResponse {
    HttpResponse::Accepted()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .insert_header((header::LOCATION, format!("/v1/voidings/{}", voiding.id.0)))
        .json(VoidingBody::new(voiding, state))
}

/// A voiding as it is.
fn shown(voiding: Voiding, state: &AppState) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(VoidingBody::new(voiding, state))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct VoidingsQuery {
    /// Only voidings that were made before the one of this id: the `next_before` of a page.
    #[param(value_type = Option<values::Id>)]
    before: Option<i64>,
    /// How many voidings a page has; without it, 20.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<i64>,
}

impl Form for VoidingsQuery {
    const FIELDS: &'static [Field] = &[
        Field::optional("before", Takes::Number),
        Field::optional("limit", Takes::Number),
    ];
}

impl VoidingsQuery {
    /// Before which voiding, and how many.
    pub(in crate::http) fn into_page(self) -> Result<(Option<VoidingId>, i64), Problem> {
        let limit = self.limit.unwrap_or(PAGE_DEFAULT_VOIDINGS);
        if !(1..=PAGE_LIMIT_VOIDINGS).contains(&limit) {
            let detail = format!("limit is {limit}; it takes 1 to {PAGE_LIMIT_VOIDINGS}.");
            return Err(Problem::invalid("limit", detail));
        }
        if let Some(before) = self.before.filter(|before| *before < 1) {
            let detail = format!("before is {before}; it takes 1 or more.");
            return Err(Problem::invalid("before", detail));
        }
        Ok((self.before.map(VoidingId), limit))
    }
}

/// A page of voidings.
#[derive(Serialize, ToSchema)]
#[schema(as = Voidings)]
struct VoidingsBody {
    /// The newest first.
    voidings: Vec<VoidingBody>,
    /// The `before` of the next page; null on the last page.
    #[schema(required, value_type = Option<values::Id>)]
    next_before: Option<i64>,
}

/// Lists voidings, the newest first.
///
/// It takes a server with an operator's login (`TALLY_OPERATOR_DATABASE_URL`).
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

/// Shows a voiding, and how far it is.
///
/// It takes a server with an operator's login (`TALLY_OPERATOR_DATABASE_URL`).
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

/// Goes on with a voiding that was interrupted.
///
/// Or with the undoing of one. With nothing left to do, nothing is done. It takes a server with an
/// operator's login (`TALLY_OPERATOR_DATABASE_URL`).
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
        (status = 202, description = "It is under way now.", body = VoidingBody,
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

/// Undoes a voiding.
///
/// Its votes are cast again, in the background. What cannot be stays void: votes that their voters have
/// replaced, on full items, or one choice too many. There is no dry run. It takes a server with an
/// operator's login (`TALLY_OPERATOR_DATABASE_URL`).
#[utoipa::path(
    post,
    path = "/v1/voidings/{id}/undo",
    operation_id = "undoVoiding",
    tag = "Operating",
    params(("id" = values::Id, Path, description = "The voiding.", example = json!(1))),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 200, description = "It was undone before.", body = VoidingBody,
            headers(("Cache-Control" = String)), example = json!(example("undone", false))),
        (status = 202, description = "Its undoing is under way now.", body = VoidingBody,
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
            "Voiding {} is not done; POST /v1/voidings/{}/resume goes on with it.",
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

/// Goes on with a voiding in the direction that this says, unless it is under way or done.
async fn go(
    by: Actor,
    state: &AppState,
    id: VoidingId,
    direction: impl FnOnce(&Voiding) -> Result<Direction, Problem>,
) -> Result<HttpResponse, Problem> {
    let ledger = state.operator.ledger_of(by, COMMAND)?;
    let voiding = find(&ledger, id).await?;
    let direction = direction(&voiding)?;
    if voiding.is_worked_off(direction == Direction::Undo) {
        return Ok(shown(voiding, state));
    }
    if state.voidings.under_way() != Some((id, direction)) {
        state.voidings.take()?.start(ledger, id, direction);
    }
    Ok(accepted(voiding, state))
}

impl Problem {
    fn unknown_voiding(id: i64) -> Self {
        let detail = format!("There is no voiding {id}; GET /v1/voidings lists those that there are.");
        Self::new(Kind::UnknownVoiding, detail)
    }
}
