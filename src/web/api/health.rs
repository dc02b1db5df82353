//! `/health/live`, `/health/ready`, `/metrics`.

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::openapi::schema::AnyOfBuilder;
use utoipa::openapi::{Ref, RefOr, Response};
use utoipa::{IntoResponses, ToSchema};

use crate::telemetry::name;
use crate::web::access::Reporter;
use crate::web::api::state::AppState;
use crate::web::describe::problems;
use crate::web::problem;
use crate::web::problem::{Kind, Problem};
use crate::web::readiness::READY;

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
    /// How long ago the oldest of this was found out. The server looks at each store every second and whenever
    /// someone asks, and its answer waits at most 100 ms for that. Null just after the start.
    #[schema(required)]
    age_seconds: Option<f64>,
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
    /// As in the answer of a server that is ready.
    #[schema(required)]
    age_seconds: Option<f64>,
}

/// Check that the server is ready.
///
/// Says whether votes can be stored, and the state of Postgres, Redis and the migrations, as the server knows
/// them. Without Redis voting continues, so the answer is still 200, with the status `degraded`: a load balancer
/// must not take the server out. A server that is about to stop is not ready.
#[utoipa::path(
    get,
    path = "/health/ready",
    operation_id = "showReady",
    tag = "Health",
    responses(
        (status = 200, description = "Votes can be stored.", body = Ready,
            example = json!({
                "status": "ready", "postgres": "ready", "redis": "ready", "migrations": "ready",
                "age_seconds": 0.001
            })),
        ReadyProblems,
    )
)]
pub async fn ready(state: web::Data<AppState>) -> HttpResponse {
    let known = state.readiness.ask().await;
    let age_seconds = known.age.map(|age| age.as_secs_f64());
    let parts = [
        ("Postgres", known.postgres),
        ("Redis", known.redis),
        ("migrations", known.migrations),
    ];
    let missing = parts.iter().filter(|(_, state)| *state != READY);
    let missing = missing.map(|(part, state)| match &known.refusal {
        Some(why) if *part == "Redis" => format!("{part}: {why}"),
        _ => format!("{part}: {state}"),
    });
    let stopping = known
        .is_draining
        .then(|| "the server is about to stop".to_owned());
    let missing: Vec<String> = stopping.into_iter().chain(missing).collect();
    let missing = missing.join(", ");
    if known.is_ready() {
        let (status, detail) = match known.redis {
            READY => ("ready", None),
            _ => ("degraded", Some(missing)),
        };
        return HttpResponse::Ok().json(Ready {
            status,
            postgres: known.postgres,
            redis: known.redis,
            migrations: known.migrations,
            age_seconds,
            detail,
        });
    }
    let problem = Problem::new(Kind::NotReady, missing);
    let body = NotReady {
        problem: problem.to_body(),
        postgres: known.postgres,
        redis: known.redis,
        migrations: known.migrations,
        age_seconds,
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
