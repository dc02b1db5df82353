//! The server: listens, serves on each thread, and stops in order.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use actix_http::HttpService;
use actix_http::error::DispatchError;
use actix_server::Server as Listening;
use actix_service::{ServiceFactoryExt, fn_service, map_config};
use actix_web::dev::AppConfig;
use actix_web::http::StatusCode;
use actix_web::middleware::from_fn;
use actix_web::{App, web};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tracing_actix_web::TracingLogger;

use crate::admission::{Admission, SharedAdmission};
use crate::counts::{CountReader, TopLists};
use crate::domain::{AddressKeys, Owner, Throttles};
use crate::ledger::{OperatorLedger, ServerLedger};
use crate::live::{LiveCounts, Redis, SUSPECTS_LIMIT_ITEMS};
use crate::telemetry::Upkeep;
use crate::votes::{ProgressNotes, SeedBackoff, VoteQueue};
use crate::watching::{Reads, Watching};
use crate::web::access;
use crate::web::access::voting::KeyCache;
use crate::web::access::{
    Access, ApiKeys, JwtOptions, Open, OpenItems, OperatorLogin, Origins, Proxies, RefusedActs, Tokens,
    VoterCookies,
};
use crate::web::api::conditional::KnownAnswers;
use crate::web::api::state::AppState;
use crate::web::api::stream_places::StreamPlaces;
use crate::web::api::voidings::running::Voidings;
use crate::web::limits::{
    BACKLOG_LIMIT_CONNECTIONS, DISCONNECT_LIMIT, REFUSAL_LIMIT_CONNECTIONS_PER_THREAD, THREADS_LIMIT,
};
use crate::web::pages;
use crate::web::status::Status;
use crate::web::transport::connection::{ClientLimits, Connection, Places};
use crate::web::transport::observe;
use crate::web::{api, openapi, routes};

/// How often a server asks Postgres which Tally this is, until it has an answer. Until then votes
/// are not counted.
const LEARN_EVERY: Duration = Duration::from_millis(200);
/// How long a server that stops tries to note its last votes.
const LAST_NOTE_LIMIT: Duration = Duration::from_secs(2);
/// How long it waits between two tries.
const NOTE_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// A server that listens; [`Server::run`] makes it answer.
pub struct Server {
    listener: TcpListener,
    options: ServerOptions,
    ledger: ServerLedger,
    redis: Redis,
    metrics: PrometheusHandle,
    tokens: Option<Tokens>,
}

/// Where a server listens, and how long it waits for what.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    pub listen: SocketAddr,
    /// How long a shutdown waits for the requests under way, then for the batches of votes,
    /// then for the repair of suspects: up to three times as long in all.
    pub shutdown_limit: Duration,
    pub clients: ClientLimits,
    /// Whether a vote on an unknown key makes its item.
    pub creates_items: bool,
    /// What anyone may do without a credential.
    pub open: Open,
    /// Whose pages may write, beside the server's own.
    pub origins: Origins,
    /// For how long browsers use the server's host over https alone; `None`: it is not for the server
    /// to say.
    pub hsts: Option<Duration>,
    /// Whose word is taken for who their client is.
    pub proxies: Proxies,
    pub throttles: Throttles,
    /// What hashes the client's address that is kept of each vote. `None`: none is kept.
    pub address_keys: Option<AddressKeys>,
    /// The keys of voters' cookies. `None`: voters have none.
    pub cookies: Option<VoterCookies>,
    /// Whose tokens voters have. `None`: they have none.
    pub jwt: Option<JwtOptions>,
    /// The operator's login in Postgres. `None`: what takes one is not for requests.
    pub operator: Option<OperatorLedger>,
}

impl Server {
    /// Takes the address. It must be called within a Tokio runtime.
    ///
    /// # Errors
    /// When another program has the address, this machine does not have it, or the keys of JWTs
    /// cannot be read.
    pub fn bind(
        options: ServerOptions,
        ledger: ServerLedger,
        redis: Redis,
        metrics: PrometheusHandle,
    ) -> anyhow::Result<Self> {
        let tokens = options.jwt.clone().map(Tokens::open).transpose()?;
        let listen = options.listen;
        let listener = listen_on(listen)
            .map_err(|error| anyhow::anyhow!("TALLY_LISTEN: cannot listen on {listen}: {error}"))?;
        Ok(Self {
            listener,
            options,
            ledger,
            redis,
            metrics,
            tokens,
        })
    }

    /// The address, with the port that was taken.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers requests until `stop` resolves. Then it accepts no more, answers the requests
    /// under way, and returns.
    ///
    /// # Errors
    /// When the server cannot be started.
    pub async fn run(self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let ServerOptions {
            clients,
            shutdown_limit,
            creates_items,
            open,
            origins,
            hsts,
            proxies,
            throttles,
            address_keys,
            cookies,
            operator,
            ..
        } = self.options;
        let operator = OperatorLogin::new(operator);
        let access = Access {
            open,
            origins,
            hsts: hsts.map(access::hsts),
            api_keys: ApiKeys::new(self.ledger.clone()),
            proxies,
            address_keys,
            cookies,
            tokens: self.tokens.clone(),
            refused_acts: RefusedActs::default(),
            open_items: OpenItems::new(self.ledger.clone()),
        };
        let keeping_keys = self
            .tokens
            .map(|tokens| tokio::spawn(async move { tokens.keep_keys().await }));
        let _upkeep = Upkeep::start(self.metrics.clone());
        let (tell_owner, owner) = watch::channel(None);
        let learning = tokio::spawn(learn_owner(self.ledger.clone(), tell_owner));
        let admission = SharedAdmission::new(throttles, owner.clone());
        let live_counts = LiveCounts::open(owner, self.redis.clone(), SUSPECTS_LIMIT_ITEMS);
        let top_lists = TopLists::new(self.ledger.clone());
        let ledger = self.ledger.clone();
        let shared = live_counts.clone();
        let backoff = SeedBackoff::default();
        let status = Status::new(self.metrics.clone());
        let sampling = status
            .clone()
            .keep_sampling(self.ledger.clone(), live_counts.clone());
        let sampling = tokio::spawn(sampling);
        let voidings = Voidings::new(self.redis.clone());
        let shared_voidings = voidings.clone();
        let stream_places = StreamPlaces::new(clients.streams_beside_votes(), clients.streams_by_address);
        let stream_reads = Reads::default();
        let (close_streams, streams_closing) = watch::channel(false);
        // Each batch writer holds a sender; when all senders are gone, so are the writers.
        let (writers, mut writers_ended) = mpsc::channel::<()>(1);
        let of_writers = writers.downgrade();
        // Runs once on each thread that serves.
        let routes = move |app: &mut web::ServiceConfig| {
            let live_counts = shared.with_own_connection();
            let counts = CountReader::start(&self.ledger, &live_counts, threads());
            let state = AppState {
                watching: Watching::start(
                    &self.ledger,
                    &live_counts,
                    &counts,
                    api::RENDERING,
                    stream_reads.clone(),
                    streams_closing.clone(),
                ),
                stream_places: stream_places.clone(),
                votes: VoteQueue::start(
                    &self.ledger,
                    &live_counts,
                    &backoff,
                    threads(),
                    of_writers.upgrade(),
                ),
                admission: Admission::start(&admission, &live_counts, threads()),
                counts,
                top_lists: top_lists.clone(),
                ledger: self.ledger.clone(),
                live_counts,
                redis: self.redis.clone(),
                metrics: self.metrics.clone(),
                item_keys: KeyCache::default(),
                poll_keys: KeyCache::default(),
                known_answers: KnownAnswers::default(),
                access: access.clone(),
                operator: operator.clone(),
                voidings: shared_voidings.clone(),
                status: status.clone(),
                creates_items,
            };
            app.app_data(web::Data::new(state)).configure(routes::add);
        };
        // Beside: until this listens to signals, they would end the program at once.
        tokio::task::spawn_blocking(|| {
            pages::prepare();
            openapi::prepare();
        });
        let server = start(self.listener, clients, shutdown_limit, routes)?;
        let mut progress = ProgressNotes::new(ledger, live_counts.clone());

        let handle = server.handle();
        let running = tokio::spawn(server);
        tokio::select! {
            () = stop => {}
            () = progress.run() => {}
        }
        // They would go on for as long as a shutdown waits.
        close_streams.send_replace(true);
        learning.abort();
        sampling.abort();
        if let Some(keeping) = keeping_keys {
            keeping.abort();
        }
        // While the requests under way end, it ends with its chunk.
        tokio::join!(handle.stop(true), voidings.stop(shutdown_limit));
        running.await??;
        // Each thread has answered the votes in its queue, unless that took too long. Its
        // batch writers end with it; a batch that is cut off leaves its items suspect.
        drop(writers);
        if timeout(shutdown_limit, writers_ended.recv()).await.is_err() {
            tracing::error!(limit = ?shutdown_limit, "some batches of votes did not end in time");
        }
        if timeout(shutdown_limit, live_counts.repaired()).await.is_err() {
            tracing::warn!(
                items = live_counts.suspect_total(),
                "suspect counts are left for crashed-writer recovery"
            );
        }
        // With nothing in flight and nothing suspect, no count has to be rebuilt after a stop.
        if timeout(LAST_NOTE_LIMIT, note_last(&mut progress)).await.is_err() {
            tracing::warn!("the last votes are left for crashed-writer recovery");
        }
        Ok(())
    }
}

/// Notes the progress, until Postgres has it. A connection that a thread opened ended with the
/// thread, and the pool learns it only when it is used.
async fn note_last(progress: &mut ProgressNotes) {
    while let Err(error) = progress.note().await {
        tracing::debug!(%error, "the last votes are not noted yet");
        sleep(NOTE_AGAIN_AFTER).await;
    }
}

/// Asks Postgres which Tally this is, until it says so.
async fn learn_owner(ledger: ServerLedger, tell: watch::Sender<Option<Owner>>) {
    let mut is_failing = false;
    loop {
        match ledger.owner().await {
            Ok(owner) => {
                tell.send_replace(Some(owner));
                return;
            }
            Err(error) => {
                if !is_failing {
                    tracing::warn!(%error, "Postgres has not said which Tally this is: nothing is counted until then");
                }
                is_failing = true;
                sleep(LEARN_EVERY).await;
            }
        }
    }
}

/// How many threads serve requests. Each has its own queues, batch writers and connections.
pub fn threads() -> usize {
    std::thread::available_parallelism()
        .map_or(2, usize::from)
        .min(THREADS_LIMIT)
}

/// Takes an address. More connections may wait to be accepted than with std.
fn listen_on(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG_LIMIT_CONNECTIONS)?.into_std()
}

/// Starts a server for these routes, with Tally's limits and with `observe` around each
/// request. It does what actix-web's HttpServer does, over connections of Tally's own kind.
///
/// # Errors
/// When the address cannot be listened on.
pub fn start(
    listener: TcpListener,
    limits: ClientLimits,
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
            .wrap(from_fn(access::guard))
            .wrap(from_fn(access::note_refusals))
            .wrap(from_fn(observe::observe))
            .wrap(TracingLogger::<observe::RequestSpan>::new())
            .app_data(observe::Route::new("unknown", StatusCode::NOT_FOUND))
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
                    // The client has been answered.
                    None => Err(DispatchError::DisconnectTimeout),
                }
            }
        })
        .and_then(http)
    };
    Ok(builder.listen("http", listener, service)?.run())
}
