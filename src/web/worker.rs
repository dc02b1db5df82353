//! The worker's own HTTP: its health and its metrics, without a credential.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use actix_web::http::header;
use actix_web::{App, HttpResponse, HttpServer, web};
use anyhow::Context;
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Serialize;

use crate::sync::{Going, Why, Worker};
use crate::web::problem::{self, Kind, Problem, method_not_allowed, not_found};

/// The most connections at once: some for scrapers and probes.
const CONNECTIONS_LIMIT: usize = 64;
/// How long an end waits for requests under way.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(1);

#[derive(Clone)]
struct State {
    worker: Worker,
    metrics: PrometheusHandle,
}

/// How the work goes.
#[derive(Serialize)]
struct HealthBody {
    status: &'static str,
    /// `ready`, `starting`, `failing` or `hanging`, as is `roll_up`.
    flush: &'static str,
    roll_up: &'static str,
}

/// The work does not go well. In this body `status` is the number.
#[derive(Serialize)]
struct NotReadyBody<'a> {
    #[serde(flatten)]
    problem: problem::Body<'a>,
    flush: &'static str,
    roll_up: &'static str,
}

/// Serves a worker's health and metrics at this address, in the background.
///
/// # Errors
/// When the address cannot be listened on.
pub fn serve_worker(listen: SocketAddr, worker: Worker, metrics: PrometheusHandle) -> anyhow::Result<()> {
    let listener = TcpListener::bind(listen)
        .with_context(|| format!("TALLY_WORKER_LISTEN: cannot listen on {listen}"))?;
    let state = State { worker, metrics };
    let app = move || {
        let only_get = || web::to(async || method_not_allowed("GET, HEAD"));
        let at = |path| web::resource(path).default_service(only_get());
        App::new()
            .app_data(web::Data::new(state.clone()))
            .service(
                at("/health/live")
                    .route(web::get().to(live))
                    .route(web::head().to(live)),
            )
            .service(
                at("/health/ready")
                    .route(web::get().to(ready))
                    .route(web::head().to(ready)),
            )
            .service(
                at("/metrics")
                    .route(web::get().to(render))
                    .route(web::head().to(render)),
            )
            .default_service(web::to(not_found))
    };
    let server = HttpServer::new(app)
        .workers(1)
        .max_connections(CONNECTIONS_LIMIT)
        .shutdown_timeout(SHUTDOWN_LIMIT.as_secs())
        .disable_signals()
        .listen(listener)
        .with_context(|| format!("TALLY_WORKER_LISTEN: cannot listen on {listen}"))?;
    tokio::spawn(server.run());
    Ok(())
}

async fn live() -> HttpResponse {
    HttpResponse::Ok().json(serde_json::json!({ "status": "live" }))
}

async fn ready(state: web::Data<State>) -> HttpResponse {
    let health = state.worker.health();
    let parts = [("flush", health.flush), ("roll_up", health.roll_up)];
    let (flush, roll_up) = (name(health.flush), name(health.roll_up));
    let missing = parts
        .into_iter()
        .filter_map(|(part, going)| Some(format!("{part}: {}", trouble(going)?)));
    let missing: Vec<String> = missing.collect();
    if missing.is_empty() {
        let status = "ready";
        return HttpResponse::Ok().json(HealthBody {
            status,
            flush,
            roll_up,
        });
    }
    let problem = Problem::new(Kind::NotReady, missing.join("; "));
    let body = NotReadyBody {
        problem: problem.to_body(),
        flush,
        roll_up,
    };
    problem.answer_with(serde_json::to_string(&body).unwrap_or_default())
}

async fn render(state: web::Data<State>) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/plain; version=0.0.4"))
        .body(state.metrics.render())
}

fn name(going: Going) -> &'static str {
    match going {
        Going::Starting => "starting",
        Going::Well => "ready",
        Going::Failing(..) => "failing",
        Going::Hanging(_) => "hanging",
    }
}

/// What is wrong, in words. `None`: nothing.
fn trouble(going: Going) -> Option<String> {
    match going {
        Going::Well => None,
        Going::Starting => Some("none has ended yet since the start".to_owned()),
        Going::Failing(why, since) => {
            let why = match why {
                Why::Postgres => "Postgres is unavailable, or refuses something",
                Why::Redis => "Redis is unavailable, or refuses something",
                Why::JobTaken => "another worker has the job",
            };
            let seconds = since.as_secs();
            Some(format!("failing for {seconds} s: {why}; the log says more"))
        }
        Going::Hanging(since) => Some(format!("under way for {} s without an end", since.as_secs())),
    }
}
