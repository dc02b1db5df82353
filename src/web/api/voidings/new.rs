//! Creates a voiding, or does a dry run of one.

use std::time::Duration;

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::domain::{ApiKeyId, ItemId, Reference, VoteFilter, VoterId, check_reason};
use crate::ledger::OperatorLedger;
use crate::votes::Direction;
use crate::web::access::Admin;
use crate::web::api::background::RunningVoiding;
use crate::web::api::fields::moment;
use crate::web::api::state::AppState;
use crate::web::api::voidings::{COMMAND, VoidingBody, accepted, example, find};
use crate::web::describe::{problems, values};
use crate::web::problem::Problem;
use crate::web::request::{BodyItem, Json, form, page};

/// The longest time that a dry run looks for votes. Its answer says how far it got.
const DRY_RUN_LIMIT: Duration = Duration::from_secs(3);

form! {
    /// The body of a request to void votes.
    #[derive(ToSchema)]
    #[schema(as = NewVoiding, examples(json!({ "voter_id": "bot-7", "reason": "a bot", "dry_run": true })))]
    pub struct NewVoidingBody {
        /// Only votes of this voter.
        #[schema(value_type = Option<values::VoterId>)]
        voter_id: Option<String>,
        /// Only votes on this item.
        #[schema(value_type = Option<values::ItemReference>)]
        item: Option<BodyItem>,
        /// Only votes that were cast at this time or later (RFC 3339), by the database's clock.
        #[schema(value_type = Option<values::Time>)]
        from: Option<String>,
        /// Only votes that were cast before this time (RFC 3339).
        #[schema(value_type = Option<values::Time>)]
        until: Option<String>,
        /// Only votes that were cast with this API key, also one that was revoked.
        #[schema(value_type = Option<values::Id>)]
        api_key_id: Option<i64>,
        /// The reason, which is stored with the voiding.
        #[schema(value_type = values::Reason)]
        reason: String,
        /// Whether to count the votes without voiding them.
        dry_run: bool,
        /// The `next_after` of a dry run that ran out of time. This dry run continues there.
        #[schema(minimum = 0)]
        after: Option<i64>,
    }
}

/// What a body asks for. Its item may not exist.
#[derive(Debug)]
pub struct WantedVoiding {
    pub filter: VoteFilter,
    pub item: Option<Reference<ItemId>>,
    pub reason: String,
    pub dry_run: bool,
    pub after: i64,
}

impl NewVoidingBody {
    /// Returns what the body asks for, if every field is allowed.
    pub(in crate::web) fn into_wanted(self) -> Result<WantedVoiding, Problem> {
        let voter_id = self.voter_id.map(VoterId::parse_stored).transpose();
        let voter_id = voter_id.map_err(|error| Problem::invalid("voter_id", format!("{error}.")))?;
        let item = self.item.map(|item| item.into_reference("item")).transpose()?;
        let from = moment("from", self.from)?;
        let until = moment("until", self.until)?;
        if let Some(id) = self.api_key_id
            && id < 1
        {
            return Err(Problem::invalid(
                "api_key_id",
                format!("api_key_id is {id}; it takes 1 or more."),
            ));
        }
        let api_key = self.api_key_id.map(ApiKeyId);
        let has_voter_or_item = voter_id.is_some() || item.is_some();
        if !has_voter_or_item && from.is_none() && until.is_none() && api_key.is_none() {
            let detail = "voter_id, item, from, until or api_key_id: at least one is needed to say which votes are \
                          voided.";
            return Err(Problem::invalid("voter_id", detail));
        }
        if let (Some(from), Some(until)) = (from, until)
            && from >= until
        {
            let detail = "until is not after from, so no vote matches.";
            return Err(Problem::invalid("until", detail));
        }
        check_reason(&self.reason).map_err(|error| Problem::invalid("reason", format!("reason {error}.")))?;
        let after = page::dry_run_after(self.after, self.dry_run)?;
        Ok(WantedVoiding {
            filter: VoteFilter {
                voter_id,
                item_id: None,
                cast_from: from,
                cast_until: until,
                addresses: None,
                api_key,
            },
            item,
            reason: self.reason,
            dry_run: self.dry_run,
            after,
        })
    }
}

/// The votes that a voiding would void now.
#[derive(Serialize, ToSchema)]
#[schema(as = DryRun)]
struct DryRunBody {
    /// The number of votes that were found.
    #[schema(value_type = values::Total)]
    votes: i64,
    /// The sum of the values of these votes. A voiding would lower the counts by this sum in all.
    #[schema(value_type = values::NetCount)]
    sum: i64,
    /// Whether these are all the votes. If not, the dry run ran out of time.
    complete: bool,
    /// The `after` for a dry run that continues. Null if these are all the votes.
    #[schema(required, value_type = Option<values::Id>)]
    next_after: Option<i64>,
}

/// Void votes.
///
/// A dry run changes nothing. It counts the votes that would be voided, as far as it gets in three seconds.
/// Otherwise the server creates a voiding and voids the votes in the background, whether or not the client
/// waits. `GET /v1/voidings/{id}` says how far it is. Votes that are cast later are not voided. A server
/// works on one voiding at a time. This needs a server with an operator's login
/// (`TALLY_OPERATOR_DATABASE_URL`).
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
        (status = 200, description = "The result of a dry run.", body = DryRunBody,
            headers(("Cache-Control" = String)),
            example = json!({ "votes": 3, "sum": 1, "complete": true, "next_after": null })),
        (status = 202, description = "The voiding was created and is under way now.", body = VoidingBody,
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
    // What is found here must not be used after a failover, which gives some ids out again.
    let ledger_of_run = ledger.only_in_this_run().await.map_err(Problem::of_operator)?;
    let mut filter = wanted.filter;
    if let Some(item) = &wanted.item {
        let found = ledger_of_run
            .find_item(item)
            .await
            .map_err(Problem::of_operator)?;
        let id = found.ok_or_else(|| Problem::unknown_item(item))?;
        let archive = ledger_of_run.archive_of(id).await.map_err(Problem::of_operator)?;
        if let Some(archive) = archive {
            let detail = format!(
                "item: the votes on item {id} are in archive {}, and archived votes cannot be voided.",
                archive.0
            );
            return Err(Problem::invalid("item", detail));
        }
        filter.item_id = Some(id);
    }
    if let Some(id) = filter.api_key
        && !ledger_of_run
            .has_api_key(id)
            .await
            .map_err(Problem::of_operator)?
    {
        return Err(Problem::unknown_api_key(id.0));
    }
    if wanted.dry_run {
        return dry_run(&ledger_of_run, &filter, wanted.after).await;
    }
    let place = state.voidings.take()?;
    let until = ledger_of_run.last_vote().await.map_err(Problem::of_operator)?;
    let made = ledger_of_run.create_voiding(&filter, &wanted.reason, until).await;
    let id = made.map_err(Problem::of_operator)?;
    let voiding = find(&ledger_of_run, id).await;
    // The voiding exists now, even if reading it fails.
    place.start(ledger_of_run, RunningVoiding(id, Direction::Void));
    Ok(accepted(voiding?, &state))
}

problems!(
    CreateProblems: WRITES, BODIES, CALLERS, OPERATORS, STORES;
    BodyTooLarge, UnknownApiKey, OtherCell, UnknownItem, VoidingUnderWay, VoterEditUnderWay
);

/// Counts the votes that would be voided, until the time is up.
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
