//! The HTTP interface. The whole route table is here, a resource has a file of
//! its own. Handlers know no SQL and no Redis.

mod body;
mod connection;
mod error;
mod health;
mod items;
mod observe;
mod page;
#[cfg(any(test, fuzzing))]
pub(crate) mod parsing;
mod query;
mod votes;

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use actix_http::HttpService;
use actix_http::error::DispatchError;
use actix_server::Server as Listening;
use actix_service::{ServiceFactoryExt, fn_service, map_config};
use actix_web::dev::AppConfig;
use actix_web::middleware::from_fn;
use actix_web::{App, web};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tracing_actix_web::TracingLogger;

use crate::gather::{self, Gatherer};
use crate::ledger::Ledger;
use crate::live::{Link, Redis};
pub use connection::{ANSWER_LIMIT, HEAD_LIMIT, KEEP_ALIVE_LIMIT, Limits};
use connection::{
    BACKLOG_LIMIT_CONNECTIONS, Connection, DISCONNECT_LIMIT, Places, REFUSAL_LIMIT_CONNECTIONS_PER_THREAD,
};
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
/// How many headers a request may have, and how many bytes its head: actix-http's own
/// limits, which cannot be set. Beyond them it answers 431.
pub const HEAD_LIMIT_HEADERS: usize = 96;
pub const HEAD_LIMIT_BYTES: usize = 128 * 1024;
/// Connections that are served at once, unless TALLY_CONNECTIONS_LIMIT says otherwise.
pub const CONNECTIONS_LIMIT: usize = 8192;
/// Threads that serve requests, at the most. Each has three connections to Postgres of
/// its own, two lanes for votes and one for reads, and one to Redis.
pub const THREADS_LIMIT: usize = 8;
/// What a client that was turned away should wait.
pub const RETRY_AFTER_SECONDS: u64 = 1;

/// What the handlers work with.
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
    limits: Limits,
}

impl Server {
    /// Takes the address. Call it within a runtime of tokio.
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
        let listener = listen_on(listen)
            .map_err(|error| anyhow::anyhow!("TALLY_LISTEN: cannot listen on {listen}: {error}"))?;
        Ok(Self {
            listener,
            ledger,
            redis,
            metrics,
            shutdown_limit,
            limits: Limits::with_connections(CONNECTIONS_LIMIT),
        })
    }

    /// With other limits on its clients.
    #[must_use]
    pub fn limited_to(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
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
        let shared = link.clone();
        // Each lane holds a sender; when all are gone, so are the lanes.
        let (lanes, mut lanes_ended) = mpsc::channel::<()>(1);
        let of_lanes = lanes.downgrade();
        // Once on each thread that serves.
        let routes = move |app: &mut web::ServiceConfig| {
            let link = shared.with_own_connection();
            let house = House {
                gatherer: gather::start(&self.ledger, &link, threads(), of_lanes.upgrade()),
                ledger: self.ledger.clone(),
                link,
                redis: self.redis.clone(),
                metrics: self.metrics.clone(),
            };
            app.app_data(web::Data::new(house)).configure(routes);
        };
        let server = start(self.listener, self.limits, self.shutdown_limit, routes)?;

        let handle = server.handle();
        let running = tokio::spawn(server);
        stop.await;
        handle.stop(true).await;
        running.await??;
        // Each thread has answered what it had gathered, unless that took too long, and
        // its lanes end with it. A batch that is cut off then is among the doubts.
        drop(lanes);
        if tokio::time::timeout(self.shutdown_limit, lanes_ended.recv())
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

/// How many threads serve requests, each with connections, lanes and batches of its own.
pub fn threads() -> usize {
    std::thread::available_parallelism()
        .map_or(2, usize::from)
        .min(THREADS_LIMIT)
}

/// Takes an address, with a longer queue of connections to accept than std asks for.
fn listen_on(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG_LIMIT_CONNECTIONS)?.into_std()
}

/// Starts a server for these routes, with Tally's limits, and with what is seen of
/// each request around them; over connections of our own kind, but for which this is
/// what actix-web's HttpServer does.
///
/// # Errors
/// When the address cannot be listened on.
pub fn start(
    listener: TcpListener,
    limits: Limits,
    shutdown_limit: Duration,
    routes: impl Fn(&mut web::ServiceConfig) + Clone + Send + 'static,
) -> std::io::Result<Listening> {
    let threads = threads();
    let limits = limits.within_open_files(threads);
    let places = Places::new(limits.connections);
    let builder = Listening::build()
        .workers(threads)
        .max_concurrent_connections(
            limits.connections.div_ceil(threads) + REFUSAL_LIMIT_CONNECTIONS_PER_THREAD,
        )
        .shutdown_timeout(shutdown_limit.as_secs().max(1))
        .disable_signals();
    let stopping = builder.graceful_shutdown_signal();
    let service = move || {
        let app = App::new()
            .wrap(from_fn(observe::observe))
            .wrap(TracingLogger::<observe::RequestSpan>::new())
            .app_data(observe::Route::new("unknown"))
            .configure(&routes);
        let stopping = stopping.clone();
        let http = HttpService::build()
            .client_request_timeout(limits.head)
            .client_disconnect_timeout(DISCONNECT_LIMIT)
            .keep_alive(limits.keep_alive)
            // Idle connections are closed when the server stops.
            .graceful_shutdown_signal(move || {
                let stopping = stopping.clone();
                async move { stopping.notified().await }
            })
            .on_connect_ext(|connection: &Connection, data| {
                data.insert(connection.activity());
            })
            .h1(map_config(app, |()| AppConfig::default()));
        let places = places.clone();
        fn_service(move |stream: TcpStream| {
            let places = places.clone();
            async move {
                let address = stream.peer_addr().ok();
                match Connection::admit(stream, &places, limits).await {
                    Some(connection) => Ok((connection, address)),
                    // It has been answered.
                    None => Err(DispatchError::DisconnectTimeout),
                }
            }
        })
        .and_then(http)
    };
    Ok(builder.listen("http", listener, service)?.run())
}

/// The route table.
fn routes(app: &mut web::ServiceConfig) {
    // GET answers HEAD as well: the server leaves the body out.
    macro_rules! resource {
        ($path:literal, allow = $allow:literal, $($method:ident => $handler:path),+ $(,)?) => {
            app.service(
                web::resource($path)
                    .app_data(observe::Route::new($path))
                    $(.route(web::$method().to($handler)))+
                    .default_service(web::to(|| async { method_not_allowed($allow) })),
            );
        };
    }
    // The first that fits is taken, so those that are asked for most come first.
    resource!("/v1/items/{id}/votes", allow = "POST", post => votes::cast);
    resource!("/v1/items/{id}", allow = "GET, HEAD", get => items::show, head => items::show);
    resource!("/v1/items", allow = "GET, HEAD, POST", get => items::list, head => items::list, post => items::create);
    resource!("/", allow = "GET, HEAD", get => page::html, head => page::html);
    resource!("/page.css", allow = "GET, HEAD", get => page::css, head => page::css);
    resource!("/page.js", allow = "GET, HEAD", get => page::script, head => page::script);
    resource!("/health/live", allow = "GET, HEAD", get => health::live, head => health::live);
    resource!("/health/ready", allow = "GET, HEAD", get => health::ready, head => health::ready);
    resource!("/metrics", allow = "GET, HEAD", get => health::metrics, head => health::metrics);
    app.default_service(web::to(not_found));
}
