//! The HTTP interface. The whole route table is here, a resource has a file of
//! its own. Handlers know no SQL and no Redis.

mod body;
mod error;
mod health;
mod items;
mod observe;
mod page;
mod query;
mod votes;

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use actix_web::dev;
use actix_web::middleware::from_fn;
use actix_web::{App, HttpServer, web};
use metrics_exporter_prometheus::PrometheusHandle;
use tracing_actix_web::TracingLogger;

use crate::gather::{self, Gatherer};
use crate::ledger::Ledger;
use crate::live::{Link, Redis};
use error::{method_not_allowed, not_found};

// For the bench, which answers the same requests over other ways of storing votes.
pub use body::{Json, PathItem};
pub use error::Problem;
pub use items::item_answer;
pub use votes::{VoteBody, vote_answer};

/// How large a request's body may be.
pub const BODY_LIMIT_BYTES: usize = 16 * 1024;
/// How long a client may take to send a request's body.
pub const BODY_LIMIT: Duration = Duration::from_secs(5);
/// How long a client may take to send its first request's head.
pub const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// How long a connection may stay open without a request.
pub const KEEP_ALIVE_LIMIT: Duration = Duration::from_secs(75);
/// Connections each worker thread serves at once.
pub const CONNECTIONS_LIMIT_PER_THREAD: usize = 8192;
/// What a client that was turned away should wait.
pub const RETRY_AFTER_SECONDS: u64 = 1;

/// What the handlers work with.
#[derive(Clone)]
pub(crate) struct House {
    gatherer: Gatherer,
    ledger: Ledger,
    link: Link,
    redis: Redis,
    metrics: PrometheusHandle,
}

/// A server that listens; [`Server::run`] makes it answer.
pub struct Server {
    listener: TcpListener,
    ledger: Ledger,
    redis: Redis,
    metrics: PrometheusHandle,
    shutdown_limit: Duration,
}

impl Server {
    /// Takes the address.
    ///
    /// # Errors
    /// When the address is taken or not this machine's.
    pub fn bind(
        listen: SocketAddr,
        shutdown_limit: Duration,
        ledger: Ledger,
        redis: Redis,
        metrics: PrometheusHandle,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(listen)
            .map_err(|error| anyhow::anyhow!("TALLY_LISTEN: cannot listen on {listen}: {error}"))?;
        Ok(Self {
            listener,
            ledger,
            redis,
            metrics,
            shutdown_limit,
        })
    }

    /// The address, its port filled in.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `stop` resolves; then accepts no more, answers what was
    /// gathered, and returns.
    ///
    /// # Errors
    /// When the server cannot be started.
    pub async fn run(self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let link = Link::open(self.redis.clone());
        let (gatherer, lanes) = gather::start(&self.ledger, &link);
        let house = House {
            gatherer,
            ledger: self.ledger,
            link: link.clone(),
            redis: self.redis,
            metrics: self.metrics,
        };
        let shared = house.clone();
        let server = start(self.listener, self.shutdown_limit, move |app| {
            app.app_data(web::Data::new(shared.clone())).configure(routes);
        })?;

        let handle = server.handle();
        let running = tokio::spawn(server);
        stop.await;
        handle.stop(true).await;
        running.await??;
        // The last gatherer goes with the house; the lanes then end.
        drop(house);
        if tokio::time::timeout(self.shutdown_limit, lanes.finish())
            .await
            .is_err()
        {
            tracing::error!(limit = ?self.shutdown_limit, "some votes were not settled in time");
        }
        if tokio::time::timeout(self.shutdown_limit, link.settled())
            .await
            .is_err()
        {
            tracing::warn!(
                items = link.doubt_total(),
                "doubtful counts are left for the epoch check or the audit"
            );
        }
        Ok(())
    }
}

/// Starts a server for these routes, with Tally's limits and what is seen of each
/// request around them.
///
/// # Errors
/// When the address cannot be listened on.
pub fn start(
    listener: TcpListener,
    shutdown_limit: Duration,
    routes: impl Fn(&mut web::ServiceConfig) + Clone + Send + 'static,
) -> std::io::Result<dev::Server> {
    let server = HttpServer::new(move || {
        App::new()
            .wrap(from_fn(observe::observe))
            .wrap(TracingLogger::<observe::RequestSpan>::new())
            .configure(&routes)
    })
    .client_request_timeout(HEAD_LIMIT)
    .keep_alive(KEEP_ALIVE_LIMIT)
    .max_connections(CONNECTIONS_LIMIT_PER_THREAD)
    .shutdown_timeout(shutdown_limit.as_secs().max(1))
    .disable_signals()
    .listen(listener)?
    .run();
    Ok(server)
}

/// The route table.
fn routes(app: &mut web::ServiceConfig) {
    // GET answers HEAD as well: the server leaves the body out.
    macro_rules! resource {
        ($path:literal, allow = $allow:literal, $($method:ident => $handler:path),+ $(,)?) => {
            app.service(
                web::resource($path)
                    $(.route(web::$method().to($handler)))+
                    .default_service(web::to(|| async { method_not_allowed($allow) })),
            );
        };
    }
    resource!("/", allow = "GET, HEAD", get => page::html, head => page::html);
    resource!("/page.css", allow = "GET, HEAD", get => page::css, head => page::css);
    resource!("/page.js", allow = "GET, HEAD", get => page::script, head => page::script);
    resource!("/v1/items", allow = "GET, HEAD, POST", get => items::list, head => items::list, post => items::create);
    resource!("/v1/items/{id}", allow = "GET, HEAD", get => items::show, head => items::show);
    resource!("/v1/items/{id}/votes", allow = "POST", post => votes::cast);
    resource!("/health/live", allow = "GET, HEAD", get => health::live, head => health::live);
    resource!("/health/ready", allow = "GET, HEAD", get => health::ready, head => health::ready);
    resource!("/metrics", allow = "GET, HEAD", get => health::metrics, head => health::metrics);
    app.default_service(web::to(not_found));
}
