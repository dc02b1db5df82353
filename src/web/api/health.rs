//! `/health/live`, `/health/ready`, `/metrics`.

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;
use utoipa::openapi::schema::AnyOfBuilder;
use utoipa::openapi::{Ref, RefOr, Response};
use utoipa::{IntoResponses, ToSchema};

use crate::ledger::{Migrations, Writes};
use crate::live::LiveError;
use crate::telemetry::{Program, name};
use crate::web::access::Reporter;
use crate::web::api::state::AppState;
use crate::web::describe::problems;
use crate::web::problem;
use crate::web::problem::{Kind, Problem};

/// The longest time that a probe waits for the stores. It asks all at once.
pub(crate) const PROBE_LIMIT: Duration = Duration::from_secs(2);

/// The process runs and answers.
#[derive(Serialize, ToSchema)]
struct Live {
    /// `live`
    status: &'static str,
}

/// Check that the process is alive.
#[utoipa::path(
    get,
    path = "/health/live",
    operation_id = "showLive",
    tag = "Health",
    responses(
        (status = 200, description = "The process runs and answers.", body = Live, example = json!({ "status": "live" })),
        LiveProblems,
    )
)]
pub async fn live() -> HttpResponse {
    HttpResponse::Ok().json(Live { status: "live" })
}

problems!(LiveProblems);

/// Everything that a vote needs is available.
#[derive(Serialize, ToSchema)]
struct Ready {
    /// `ready`, or `degraded`: votes are stored, but live counts are unavailable.
    #[schema(value_type = ReadyStatus)]
    status: &'static str,
    /// `ready`. In a problem also `read-only`, `standby`, `unavailable`, or `not-storing`: it answers, but
    /// stores no vote.
    postgres: &'static str,
    /// `ready`; `refused` if Redis does not let this server in, or lacks a command, until someone changes
    /// that; or `unavailable`, also if Redis takes no writes or has no memory for them.
    redis: &'static str,
    /// `ready`. In a problem also `pending` or `unknown`.
    migrations: &'static str,
    /// What is missing, if anything is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    detail: Option<String>,
}

/// How ready a server is: the names in its schema.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "it is here for its schema")]
enum ReadyStatus {
    Ready,
    Degraded,
}

/// Something that a vote needs is missing. In this body `status` is the number.
#[derive(Serialize, ToSchema)]
pub struct NotReady<'a> {
    #[serde(flatten)]
    problem: problem::Body<'a>,
    postgres: &'static str,
    redis: &'static str,
    migrations: &'static str,
}

/// Check that the server is ready.
///
/// Says whether votes can be stored, and the state of Postgres, Redis and the migrations. Without Redis
/// voting continues, so the answer is still 200, with the status `degraded`: a load balancer must not take
/// the server out.
#[utoipa::path(
    get,
    path = "/health/ready",
    operation_id = "showReady",
    tag = "Health",
    responses(
        (status = 200, description = "Votes can be stored.", body = Ready,
            example = json!({
                "status": "ready", "postgres": "ready", "redis": "ready", "migrations": "ready"
            })),
        ReadyProblems,
    )
)]
pub async fn ready(state: web::Data<AppState>) -> HttpResponse {
    let (ledger, stores_votes, redis) = tokio::join!(
        timeout(PROBE_LIMIT, state.ledger.state()),
        timeout(PROBE_LIMIT, state.ledger.stores_votes()),
        timeout(PROBE_LIMIT, redis_state(&state))
    );
    let stores_votes = matches!(stores_votes, Ok(true));
    let (postgres, migrations) = match ledger {
        Ok(Some((writes, migrations))) => (
            match writes {
                // There may be no table to lock yet.
                Writes::Taken if migrations == Migrations::Done && !stores_votes => "not-storing",
                Writes::Taken => "ready",
                Writes::Standby => "standby",
                Writes::ReadOnly => "read-only",
            },
            match migrations {
                Migrations::Done => "ready",
                Migrations::Pending => "pending",
            },
        ),
        Ok(None) | Err(_) => ("unavailable", "unknown"),
    };
    let (redis, refusal) = redis.unwrap_or(("unavailable", None));
    let parts = [
        ("Postgres", postgres),
        ("Redis", redis),
        ("migrations", migrations),
    ];
    let missing: Vec<String> = parts
        .iter()
        .filter(|(_, state)| *state != "ready")
        .map(|(part, state)| match &refusal {
            Some(why) if *part == "Redis" => format!("{part}: {why}"),
            _ => format!("{part}: {state}"),
        })
        .collect();
    let missing = missing.join(", ");
    if postgres == "ready" && migrations == "ready" {
        let (status, detail) = match redis {
            "ready" => ("ready", None),
            _ => ("degraded", Some(missing)),
        };
        return HttpResponse::Ok().json(Ready {
            status,
            postgres,
            redis,
            migrations,
            detail,
        });
    }
    let problem = Problem::new(Kind::NotReady, missing);
    let body = NotReady {
        problem: problem.to_body(),
        postgres,
        redis,
        migrations,
    };
    problem.answer_with(serde_json::to_string(&body).unwrap_or_default())
}

/// The problems of this operation. One of them has more fields than others.
///
/// `anyOf`, because that one is a problem of the usual form, too.
struct ReadyProblems;

impl IntoResponses for ReadyProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let mut responses = problems::responses(&[&[Kind::NotReady]]);
        let status = Kind::NotReady.status();
        if let Some(RefOr::T(response)) = responses.get_mut(status.as_str()) {
            let content = response.content.get_mut(problems::CONTENT_TYPE);
            if let Some(RefOr::T(content)) = content {
                let any = content.schema.take().unwrap_or_default();
                let of_all = AnyOfBuilder::new()
                    .item(Ref::from_schema_name(NotReady::name()))
                    .item(any);
                content.schema = Some(of_all.into());
            }
        }
        responses
    }
}

/// Returns the state of Redis, and why Redis refuses to be used, if it says so. The reason is no secret, and
/// the log of a server that runs without Redis says it only once.
async fn redis_state(state: &AppState) -> (&'static str, Option<String>) {
    let probed = state.redis.takes_writes().await;
    if probed.is_ok() && state.live_counts.answers() {
        return ("ready", None);
    }
    let checked = state.redis.check(Program::Server).await;
    // Redis may take what these two send, and still refuse the server's own calls.
    let of_calls = state.live_counts.refusal().map(LiveError::Refused);
    let errors = [checked.err(), probed.err(), of_calls].into_iter().flatten();
    let mut known = errors.filter(|error| error.is_refusal() || error.refusal().is_some());
    match known.next() {
        Some(error) if error.is_refusal() => ("refused", Some(error.to_string())),
        Some(error) => ("unavailable", Some(error.to_string())),
        None => ("unavailable", None),
    }
}

/// Retrieve the server's metrics.
///
/// In the text format of Prometheus.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "showMetrics",
    tag = "Health",
    security(("apiKey" = ["report"]), ()),
    extensions(("x-open" = json!(["report"]))),
    responses(
        (status = 200, description = "The metrics.", body = String, content_type = "text/plain; version=0.0.4",
            example = json!("# HELP tally_votes_total …")),
        MetricsProblems,
    )
)]
pub async fn metrics(_: Reporter, state: web::Data<AppState>) -> HttpResponse {
    metrics::gauge!(name::SUSPECTS).set(state.live_counts.suspect_total() as f64);
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/plain; version=0.0.4"))
        .body(state.metrics.render())
}

problems!(MetricsProblems: CALLERS, STORES);
