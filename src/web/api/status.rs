//! `/v1/status`: the state of the server and its workers.

use std::time::Duration;

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::Serialize;
use serde_json::Value;
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::domain::Moment;
use crate::ledger::{JobStatus, Losses, LostOfItem, WorkerStatus};
use crate::telemetry::VOTE_OUTCOMES;
use crate::web::access::Admin;
use crate::web::api::state::AppState;
use crate::web::describe::{problems, values};
use crate::web::status::{ASK_LIMIT, Figures, Histogram, Lately, workers_and_jobs};

/// The state of a server and its workers.
#[derive(Serialize, ToSchema)]
#[schema(as = Status)]
struct StatusBody {
    /// By this server's clock, as is `started_at`.
    #[schema(value_type = values::Time)]
    at: Moment,
    #[schema(value_type = values::Time)]
    started_at: Moment,
    /// Whether the server has an operator's login. Voidings, new API keys and the trail need one.
    operator_login: bool,
    stores: StoresBody,
    votes: Vec<OutcomeBody>,
    latency: LatencyBody,
    /// Votes that wait for a batch.
    queue_votes: f64,
    /// The mean number of votes in a batch, in the last minute. Null if there was no batch.
    #[schema(required)]
    batch_votes: Option<f64>,
    /// Votes that a throttle refused since the start.
    throttled_total: f64,
    streams: ClientsBody,
    connections: ClientsBody,
    /// Items whose live count is suspect.
    suspect_items: usize,
    /// Votes that servers had acknowledged and that Postgres does not have any more. Null if Postgres does not
    /// answer.
    #[schema(required)]
    lost_votes: Option<LossesBody>,
    /// The known workers. Null if Postgres does not answer.
    #[schema(required)]
    workers: Option<Vec<WorkerBody>>,
    /// The jobs of the workers. Null if Postgres does not answer.
    #[schema(required)]
    jobs: Option<Vec<JobBody>>,
}

/// Acknowledged votes that were lost: a standby that lagged was promoted, or the database went back. Only what
/// servers remembered is known: the table `loss` has more.
#[derive(Serialize, ToSchema)]
#[schema(as = LostVotes)]
struct LossesBody {
    /// Of all servers, of all time; also changes and retractions.
    #[schema(value_type = values::Total)]
    total: i64,
    /// The time at which a server last found some missing. Null if none did.
    #[schema(required, value_type = Option<values::Time>)]
    found_at: Option<Moment>,
    /// When the first of them had been stored, by the clock of the lost Postgres. Null if there are none.
    #[schema(required, value_type = Option<values::Time>)]
    first_stored_at: Option<Moment>,
    /// When the last of them had been stored. Null if there are none.
    #[schema(required, value_type = Option<values::Time>)]
    last_stored_at: Option<Moment>,
    /// False: servers may have lost earlier ones too, which they did not remember.
    whole: bool,
    /// The items with the most of them, up to 10. Another item may have a number by now.
    #[schema(max_items = 10)]
    items: Vec<LostOfItemBody>,
}

/// The lost votes of an item.
#[derive(Serialize, ToSchema)]
#[schema(as = LostVotesOfItem)]
struct LostOfItemBody {
    #[schema(value_type = values::Id)]
    item_id: i64,
    #[schema(value_type = values::Total)]
    total: i64,
}

impl From<Losses> for LossesBody {
    fn from(losses: Losses) -> Self {
        Self {
            total: losses.votes,
            found_at: losses.times.map(|times| times.last_found_at),
            first_stored_at: losses.times.map(|times| times.first_stored_at),
            last_stored_at: losses.times.map(|times| times.last_stored_at),
            whole: losses.are_whole,
            items: losses.items.into_iter().map(LostOfItemBody::from).collect(),
        }
    }
}

impl From<LostOfItem> for LostOfItemBody {
    fn from(lost: LostOfItem) -> Self {
        Self {
            item_id: lost.item_id,
            total: lost.votes,
        }
    }
}

/// The stores, as this server sees them.
#[derive(Serialize, ToSchema)]
#[schema(as = StoresStatus)]
struct StoresBody {
    #[schema(value_type = StoreStatus)]
    postgres: &'static str,
    #[schema(value_type = StoreStatus)]
    redis: &'static str,
}

/// Whether a store answers: the names in its schema.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "it is here for its schema")]
enum StoreStatus {
    Ready,
    Unavailable,
}

fn store(answers: bool) -> &'static str {
    if answers { "ready" } else { "unavailable" }
}

/// The votes that had one outcome.
#[derive(Serialize, ToSchema)]
#[schema(as = VoteOutcomeStatus)]
struct OutcomeBody {
    /// `declined`: a rule did not allow them. `refused`: the queue was full. `failed`: Postgres did not store
    /// them, or did not confirm that it did.
    #[schema(value_type = VoteOutcomeName)]
    outcome: &'static str,
    /// Since the start.
    total: f64,
    /// In the last minute.
    per_second: f64,
}

/// The outcomes of votes: the names in the schema.
#[derive(ToSchema)]
#[schema(as = VoteOutcome, rename_all = "snake_case")]
#[expect(dead_code, reason = "it is here for its schema")]
enum VoteOutcomeName {
    Accepted,
    Repeated,
    Changed,
    TakenBack,
    UnknownItem,
    Declined,
    Refused,
    Failed,
}

/// The latency of votes in the last minute, from the queue to the answer, to the precision of the metrics'
/// buckets. Null if there was no vote.
#[derive(Serialize, ToSchema)]
#[schema(as = Latency)]
struct LatencyBody {
    #[schema(required)]
    p50_seconds: Option<f64>,
    #[schema(required)]
    p90_seconds: Option<f64>,
    #[schema(required)]
    p99_seconds: Option<f64>,
}

/// The live streams, or the connections.
#[derive(Serialize, ToSchema)]
#[schema(as = ClientsStatus)]
struct ClientsBody {
    open: f64,
    /// Since the start.
    refused_total: f64,
}

/// The last heartbeat of a worker.
#[derive(Serialize, ToSchema)]
#[schema(as = Worker)]
struct WorkerBody {
    name: String,
    #[schema(value_type = values::Time)]
    started_at: Moment,
    /// The time of the last heartbeat. A worker sends one every second.
    #[schema(value_type = values::Time)]
    seen_at: Moment,
    /// Whether that was within 5 s. A worker that is silent for a minute is forgotten.
    alive: bool,
    /// The worker's last pass over what has changed. Null if none has ended yet.
    #[schema(required)]
    last_pass: Option<PassBody>,
    /// Counts that this pass did not save.
    #[schema(value_type = values::Total)]
    unsaved_counts: i64,
    oldest_unsaved_seconds: f64,
    /// Counts that the worker has saved since its start.
    #[schema(value_type = values::Total)]
    saved_counts: i64,
}

/// A pass of a worker.
#[derive(Serialize, ToSchema)]
#[schema(as = Pass)]
struct PassBody {
    #[schema(value_type = values::Time)]
    ended_at: Moment,
    took_seconds: f64,
    /// `done`, or `failed` if a store did not answer.
    outcome: String,
}

impl From<WorkerStatus> for WorkerBody {
    fn from(worker: WorkerStatus) -> Self {
        Self {
            name: worker.name,
            started_at: worker.started_at,
            seen_at: worker.seen_at,
            alive: worker.is_alive,
            last_pass: worker.pass.map(|pass| PassBody {
                ended_at: pass.ended_at,
                took_seconds: pass.took.as_secs_f64(),
                outcome: pass.outcome,
            }),
            unsaved_counts: worker.unsaved_counts,
            oldest_unsaved_seconds: worker.oldest_unsaved.as_secs_f64(),
            saved_counts: worker.saved_counts,
        }
    }
}

/// A job that one worker at a time does.
#[derive(Serialize, ToSchema)]
#[schema(as = Job)]
struct JobBody {
    name: String,
    /// The worker that does the job now. Null if none does.
    #[schema(required)]
    holder: Option<String>,
    /// The time at which a run last succeeded.
    #[schema(required, value_type = Option<values::Time>)]
    succeeded_at: Option<Moment>,
    /// The time at which someone requested a run that has not begun yet.
    #[schema(required, value_type = Option<values::Time>)]
    asked_at: Option<Moment>,
    #[schema(required)]
    last_run: Option<RunBody>,
}

/// A run that has ended.
#[derive(Serialize, ToSchema)]
#[schema(as = JobRun)]
struct RunBody {
    worker: String,
    #[schema(value_type = values::Time)]
    ended_at: Moment,
    #[schema(required)]
    took_seconds: Option<f64>,
    /// `done`, `failed`, `lost` (another worker took the job over) or `stopped`.
    outcome: String,
    /// What the run did, in numbers. An audit has `items`, `wrong_items` and `wrong_votes`, its drift.
    #[schema(required, value_type = Option<Object>)]
    details: Value,
}

impl From<JobStatus> for JobBody {
    fn from(job: JobStatus) -> Self {
        Self {
            name: job.name,
            holder: job.holder,
            succeeded_at: job.succeeded_at,
            asked_at: job.asked_at,
            last_run: job.last_run.map(|run| RunBody {
                worker: run.worker,
                ended_at: run.ended_at,
                took_seconds: run.took.as_ref().map(Duration::as_secs_f64),
                outcome: run.outcome,
                details: run.details,
            }),
        }
    }
}

/// Returns what a histogram got in the last minute.
fn recent(lately: &Lately, of: impl Fn(&Figures) -> &Histogram) -> Histogram {
    let now = of(&lately.now);
    match &lately.before {
        Some(before) => now.since(of(before)),
        None => now.clone(),
    }
}

fn outcomes(lately: &Lately) -> Vec<OutcomeBody> {
    let before = lately
        .before
        .as_ref()
        .map_or([0.0; VOTE_OUTCOMES.len()], |figures| figures.votes);
    let totals = lately.now.votes.into_iter().zip(before);
    VOTE_OUTCOMES
        .into_iter()
        .zip(totals)
        .map(|(outcome, (total, before))| OutcomeBody {
            outcome,
            total,
            // Just after the start there is no second to divide by.
            per_second: (total - before).max(0.0) / lately.seconds.max(1.0),
        })
        .collect()
}

/// Retrieve the server's status.
///
/// The server's own figures, its view of the stores, the last heartbeats of the workers, and their jobs. It
/// also answers while Postgres is unavailable. Each server has its own figures. Workers and jobs are the same
/// on every server.
#[utoipa::path(
    get,
    path = "/v1/status",
    operation_id = "showStatus",
    tag = "Operating",
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 200, description = "The status.", body = StatusBody, headers(("Cache-Control" = String)),
            example = json!({
                "at": "2030-01-31T18:00:00.123456Z", "started_at": "2030-01-31T12:00:00.123456Z",
                "operator_login": true, "stores": { "postgres": "ready", "redis": "ready" },
                "votes": [{ "outcome": "accepted", "total": 1200.0, "per_second": 1.5 }],
                "latency": { "p50_seconds": 0.004, "p90_seconds": 0.012, "p99_seconds": 0.03 },
                "queue_votes": 0.0, "batch_votes": 3.5, "throttled_total": 0.0,
                "streams": { "open": 2.0, "refused_total": 0.0 },
                "connections": { "open": 5.0, "refused_total": 0.0 }, "suspect_items": 0,
                "lost_votes": {
                    "total": 5, "found_at": "2030-01-31T17:00:00.123456Z",
                    "first_stored_at": "2030-01-31T16:59:57.123456Z",
                    "last_stored_at": "2030-01-31T16:59:59.123456Z", "whole": true,
                    "items": [{ "item_id": 5, "total": 4 }, { "item_id": 9, "total": 1 }]
                },
                "workers": [{
                    "name": "tally sync-worker 0123456789abcdef", "started_at": "2030-01-31T12:00:00.123456Z",
                    "seen_at": "2030-01-31T17:59:59.623456Z", "alive": true,
                    "last_pass": {
                        "ended_at": "2030-01-31T17:59:59.423456Z", "took_seconds": 0.004, "outcome": "done"
                    },
                    "unsaved_counts": 0, "oldest_unsaved_seconds": 0.0, "saved_counts": 800
                }],
                "jobs": [{
                    "name": "audit", "holder": null, "succeeded_at": "2030-01-31T17:59:02.123456Z",
                    "asked_at": null,
                    "last_run": {
                        "worker": "tally sync-worker 0123456789abcdef", "ended_at": "2030-01-31T17:59:02.123456Z",
                        "took_seconds": 0.02, "outcome": "done",
                        "details": { "items": 5, "votes": 1200, "wrong_items": 0, "wrong_votes": 0 }
                    }
                }]
            })),
        ShowProblems,
    )
)]
pub async fn show(_: Admin, state: web::Data<AppState>) -> HttpResponse {
    let (asked, losses) = tokio::join!(
        workers_and_jobs(&state.ledger),
        timeout(ASK_LIMIT, state.ledger.losses())
    );
    let losses = losses.ok().and_then(Result::ok);
    let has_postgres = asked.is_some();
    let (workers, jobs) = asked.unzip();
    let lately = state.status.lately();
    let seconds = recent(&lately, |figures| &figures.vote_seconds);
    HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(StatusBody {
            at: Moment::now(),
            started_at: state.status.started_at(),
            operator_login: state.operator.is_set(),
            stores: StoresBody {
                postgres: store(has_postgres),
                redis: store(state.live_counts.answers()),
            },
            votes: outcomes(&lately),
            latency: LatencyBody {
                p50_seconds: seconds.quantile(0.5),
                p90_seconds: seconds.quantile(0.9),
                p99_seconds: seconds.quantile(0.99),
            },
            queue_votes: lately.now.queue_votes,
            batch_votes: recent(&lately, |figures| &figures.batch_votes).mean(),
            throttled_total: lately.now.throttled,
            streams: ClientsBody {
                open: lately.now.streams,
                refused_total: lately.now.streams_refused,
            },
            connections: ClientsBody {
                open: lately.now.connections,
                refused_total: lately.now.connections_refused,
            },
            suspect_items: state.live_counts.suspect_total(),
            lost_votes: losses.map(LossesBody::from),
            workers: workers.map(|all| all.into_iter().map(WorkerBody::from).collect()),
            jobs: jobs.map(|all| all.into_iter().map(JobBody::from).collect()),
        })
}

problems!(ShowProblems: CALLERS, STORES);
