//! `/health/live`, `/health/ready`, `/metrics`.

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::Serialize;
use std::time::Duration;
use tokio::time::timeout;

use crate::http::access::Reporter;
use crate::http::problem::{self, Kind, Problem};
use crate::http::state::AppState;
use crate::ledger::{LedgerError, Migrations, Writes};
use crate::live::LiveError;
use crate::telemetry::{Program, name};

/// How long a probe waits for the stores; it asks both at once.
pub(crate) const PROBE_LIMIT: Duration = Duration::from_secs(2);

/// The process runs and answers.
pub async fn live() -> HttpResponse {
    HttpResponse::Ok().json(serde_json::json!({ "status": "live" }))
}

#[derive(Serialize)]
struct Ready {
    /// `ready`, or `degraded`: votes are stored, live counts are unavailable.
    status: &'static str,
    /// `ready`; in a problem also `read-only`, `standby` or `unavailable`.
    postgres: &'static str,
    /// `ready`; `refused`, if the login may not do what a server does; or `unavailable`, also when it
    /// takes no writes that need memory.
    redis: &'static str,
    migrations: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// The body of a refusal, which has a `status` of its own: the number.
#[derive(Serialize)]
struct NotReady<'a> {
    #[serde(flatten)]
    problem: problem::Body<'a>,
    postgres: &'static str,
    redis: &'static str,
    migrations: &'static str,
}

/// Says whether votes can be stored, and the state of Postgres, Redis and the migrations. It
/// asks for what a vote needs: both stores have to take writes.
/// Without Redis voting goes on, so the answer is still 200, with the status `degraded`: a
/// load balancer must not take the server out for it.
pub async fn ready(state: web::Data<AppState>) -> HttpResponse {
    let ledger =
        async { Ok::<_, LedgerError>((state.ledger.writes().await?, state.ledger.migrations().await?)) };
    let (ledger, redis) = tokio::join!(
        timeout(PROBE_LIMIT, ledger),
        timeout(PROBE_LIMIT, redis_state(&state))
    );
    let (postgres, migrations) = match ledger {
        Ok(Ok((writes, migrations))) => (
            match writes {
                Writes::Taken => "ready",
                Writes::Standby => "standby",
                Writes::ReadOnly => "read-only",
            },
            match migrations {
                Migrations::Done => "ready",
                Migrations::Pending => "pending",
            },
        ),
        Ok(Err(_)) | Err(_) => ("unavailable", "unknown"),
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
            Some(why) if *state == "refused" => format!("{part}: {why}"),
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

/// The state of Redis, and why it refuses this server's login, if it does. What is missing is no
/// secret, and the log of a server that goes on without Redis says it once.
async fn redis_state(state: &AppState) -> (&'static str, Option<String>) {
    if state.redis.takes_writes().await.is_ok() && state.live_counts.answers() {
        return ("ready", None);
    }
    match state.redis.check(Program::Server).await {
        Err(error @ LiveError::Permission { .. }) => ("refused", Some(error.to_string())),
        _ => ("unavailable", None),
    }
}

/// Prometheus' text format.
pub async fn metrics(_: Reporter, state: web::Data<AppState>) -> HttpResponse {
    metrics::gauge!(name::SUSPECTS).set(state.live_counts.suspect_total() as f64);
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/plain; version=0.0.4"))
        .body(state.metrics.render())
}
