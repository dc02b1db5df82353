//! Creates an edit of a voter, or does a dry run of one.

use std::time::Duration;

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::domain::{InvalidVoterEdit, Moment, NewVoterEdit, VoterEditKind, VoterId, VoterSummary};
use crate::ledger::{EditInTheWay, OperatorLedger};
use crate::web::access::Admin;
use crate::web::api::background::RunningEdit;
use crate::web::api::state::AppState;
use crate::web::api::voter_edits::{COMMAND, VoterEditBody, accepted, example, find};
use crate::web::describe::{problems, values};
use crate::web::problem::{Kind, Problem};
use crate::web::request::{Json, form, page};

/// The longest time that a dry run looks for votes. Its answer says how far it got.
const DRY_RUN_LIMIT: Duration = Duration::from_secs(3);

form! {
    /// The body of a request to edit a voter.
    #[derive(ToSchema)]
    #[schema(as = NewVoterEdit, examples(json!({ "kind": "erase", "voter_id": "ada", "dry_run": true })))]
    pub struct NewVoterEditBody {
        /// What is done: `rename` gives the voter's votes a voter id that has none yet, `merge` makes them
        /// another voter's, `erase` makes them nobody's.
        #[schema(value_type = super::EditKind)]
        kind: String,
        /// The voter.
        #[schema(value_type = values::VoterId)]
        voter_id: String,
        /// The voter who has the votes afterwards. Not for `erase`.
        #[schema(value_type = Option<values::VoterId>)]
        to_voter_id: Option<String>,
        /// Whether to show what the voter has in the ledger, and change nothing.
        dry_run: bool,
        /// The `next_after` of a dry run that ran out of time. This dry run continues there.
        #[schema(minimum = 0)]
        after: Option<i64>,
    }
}

/// What a body asks for.
#[derive(Debug)]
pub struct WantedVoterEdit {
    pub new: NewVoterEdit,
    pub dry_run: bool,
    pub after: i64,
}

impl NewVoterEditBody {
    /// Returns what the body asks for, if every field is allowed.
    pub(in crate::web) fn into_wanted(self) -> Result<WantedVoterEdit, Problem> {
        let kind = self.kind.parse::<VoterEditKind>().map_err(|()| {
            let detail = "kind: it takes \"rename\", \"merge\" or \"erase\".";
            Problem::invalid("kind", detail)
        })?;
        let from = VoterId::parse(self.voter_id)
            .map_err(|error| Problem::invalid("voter_id", format!("{error}.")))?;
        let to = self.to_voter_id.map(VoterId::parse).transpose();
        let to = to.map_err(|error| {
            let said = error.to_string();
            Problem::invalid("to_voter_id", format!("to_{said}."))
        })?;
        let new = NewVoterEdit::new(kind, from, to)
            .map_err(|error: InvalidVoterEdit| Problem::invalid("to_voter_id", format!("{error}.")))?;
        let after = page::dry_run_after(self.after, self.dry_run)?;
        Ok(WantedVoterEdit {
            new,
            dry_run: self.dry_run,
            after,
        })
    }
}

/// What a voter has in the ledger.
#[derive(Serialize, ToSchema)]
#[schema(as = VoterDryRun)]
struct VoterDryRunBody {
    /// Votes, changes and retractions.
    #[schema(value_type = values::Total)]
    rows: i64,
    /// The votes that the voter holds.
    #[schema(value_type = values::Total)]
    held_votes: i64,
    /// The items that the voter has voted on.
    #[schema(value_type = values::Total)]
    items: i64,
    /// The items on which the other voter holds a vote, too.
    #[schema(value_type = values::Total)]
    items_of_both: i64,
    /// When the first row was stored.
    #[schema(required, value_type = Option<values::Time>)]
    first_at: Option<Moment>,
    /// When the last row was stored.
    #[schema(required, value_type = Option<values::Time>)]
    last_at: Option<Moment>,
    /// Whether this is all. If not, the dry run ran out of time.
    complete: bool,
    /// The `after` for a dry run that continues. Null if this is all.
    #[schema(required, value_type = Option<values::Id>)]
    next_after: Option<i64>,
}

/// Rename, merge or erase a voter.
///
/// A dry run changes nothing. It shows what the voter has in the ledger, as far as it gets in three seconds.
/// Otherwise the server creates an edit and works on it in the background, whether or not the client waits;
/// `GET /v1/voter-edits/{id}` says how far it is. The same request continues an edit that was interrupted. Votes
/// that are cast later stay the voter's. A renaming whose new voter id has votes ends as `refused`. A server works
/// on one edit at a time. This needs a server with an operator's login (`TALLY_OPERATOR_DATABASE_URL`).
#[utoipa::path(
    post,
    path = "/v1/voter-edits",
    operation_id = "createVoterEdit",
    tag = "Operating",
    request_body(
        content = NewVoterEditBody,
        example = json!({ "kind": "erase", "voter_id": "ada", "dry_run": true })
    ),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 200, description = "The result of a dry run.", body = VoterDryRunBody,
            headers(("Cache-Control" = String)),
            example = json!({
                "rows": 3, "held_votes": 1, "items": 2, "items_of_both": 0,
                "first_at": "2030-01-31T18:00:00.123456Z", "last_at": "2030-01-31T18:00:00.123456Z",
                "complete": true, "next_after": null
            })),
        (status = 202, description = "The edit was created and is under way now.", body = VoterEditBody,
            headers(("Cache-Control" = String), ("Location" = String)),
            example = json!(example("editing", true))),
        CreateProblems,
    )
)]
pub async fn create(
    by: Admin,
    state: web::Data<AppState>,
    body: Json<NewVoterEditBody>,
) -> Result<HttpResponse, Problem> {
    let wanted = body.0.into_wanted()?;
    let ledger = state.operator.ledger_of(by.0, COMMAND)?;
    // What is found here must not be used after a failover, which gives some ids out again.
    let ledger = ledger.only_in_this_run().await.map_err(Problem::of_operator)?;
    if wanted.dry_run {
        return dry_run(&ledger, &wanted.new, wanted.after).await;
    }
    let place = state.voter_edits.take()?;
    let until = ledger.last_vote().await.map_err(Problem::of_operator)?;
    let made = ledger.create_voter_edit(&wanted.new, until).await;
    let id = made.map_err(Problem::of_operator)?.map_err(in_the_way)?;
    let edit = find(&ledger, id).await;
    // The edit exists now, even if reading it fails.
    place.start(ledger, RunningEdit(id));
    Ok(accepted(edit?, &state))
}

problems!(
    CreateProblems: WRITES, BODIES, CALLERS, OPERATORS, STORES;
    BodyTooLarge, VoidingUnderWay, VoterEditUnderWay
);

fn in_the_way(why: EditInTheWay) -> Problem {
    match why {
        EditInTheWay::Edit(id) => {
            let detail = format!(
                "The edit {} of one of these voters is not done; POST /v1/voter-edits/{}/resume resumes it.",
                id.0, id.0
            );
            Problem::new(Kind::VoterEditUnderWay, detail)
        }
        EditInTheWay::Voiding(id) => {
            let detail = format!(
                "The voiding {} of one of these voters is not done; POST /v1/voidings/{}/resume resumes it.",
                id.0, id.0
            );
            Problem::new(Kind::VoidingUnderWay, detail)
        }
        EditInTheWay::Archive(id) => {
            let detail = format!("The archive {id} is not finished; tally archive resume {id} resumes it.");
            Problem::new(Kind::VoterEditUnderWay, detail)
        }
    }
}

/// Looks for the voter's rows, until the time is up.
async fn dry_run(ledger: &OperatorLedger, new: &NewVoterEdit, after: i64) -> Result<HttpResponse, Problem> {
    let started = Instant::now();
    let until = ledger.last_vote().await.map_err(Problem::of_operator)?;
    let (mut after, mut found) = (after, VoterSummary::default());
    while after < until.get() && started.elapsed() < DRY_RUN_LIMIT {
        let next = ledger.rows_of_voter(&new.from, Some(&new.to), after, until).await;
        let next = next.map_err(Problem::of_operator)?;
        found.add(&next.summary);
        after = next.up_to;
    }
    let complete = after >= until.get();
    Ok(HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(VoterDryRunBody {
            rows: found.rows,
            held_votes: found.held_votes,
            items: found.items,
            items_of_both: found.items_of_both,
            first_at: found.first_at,
            last_at: found.last_at,
            complete,
            next_after: (!complete).then_some(after),
        }))
}
