//! The server: puts together what each thread serves, and stops everything in order.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use actix_server::Server as Listening;
use actix_web::http::StatusCode;
use actix_web::middleware::from_fn;
use actix_web::{App, web};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::admission::{Admission, SharedAdmission};
use crate::cache::Cache;
use crate::counts::{CountReader, TopLists};
use crate::domain::{Cells, Owner};
use crate::ledger::{OperatorLedger, ServerLedger};
use crate::live::{LiveCounts, Redis, SUSPECTS_LIMIT_ITEMS, Seeding};
use crate::telemetry::Upkeep;
use crate::votes::{
    ProgressNotes, SeedBackoff, TAIL_STILL_LIMIT, TailReading, VoteQueue, keep_finding_losses,
};
use crate::watching::{Reads, Watching};
use crate::web::access;
use crate::web::access::{
    Access, AccessOptions, ApiKeys, OpenItems, OperatorLogin, RefusedActs, Tokens, Voting, VotingOptions,
};
use crate::web::api::list_places::ListPlaces;
use crate::web::api::runner::Runner;
use crate::web::api::state::AppState;
use crate::web::api::stream_places::StreamPlaces;
use crate::web::pages;
use crate::web::readiness::Readiness;
use crate::web::references::References;
use crate::web::status::Status;
use crate::web::transport::connection_limits::ClientLimits;
use crate::web::transport::drain::{Drain, turn_away};
use crate::web::transport::listen::threads;
use crate::web::transport::{listen, observe};
use crate::web::{api, routes};

/// How often a server asks Postgres which Tally this is, until it has an answer. Votes are not counted before
/// that.
const LEARN_EVERY: Duration = Duration::from_millis(200);
/// How long a stopping server tries to note its last votes.
const LAST_NOTE_LIMIT: Duration = Duration::from_secs(2);

/// A server that listens; [`Server::run`] makes it answer.
pub struct Server {
    listener: TcpListener,
    options: ServerOptions,
    ledger: ServerLedger,
    redis: Redis,
    metrics: PrometheusHandle,
    tokens: Option<Tokens>,
}

/// The options of a server: its address, its limits, and who may do what.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    pub listen: SocketAddr,
    /// How long a shutdown waits for requests under way, then again for batches of votes, then again for the
    /// repair of suspects: up to three times this limit.
    pub shutdown_limit: Duration,
    /// How long the server still serves after a stop, while load balancers learn of it.
    pub drain_for: Option<Duration>,
    pub clients: ClientLimits,
    pub access: AccessOptions,
    pub voting: VotingOptions,
    /// Which votes make a live count.
    pub seeding: Seeding,
    /// The operator's Postgres login. `None`: requests that need it are refused.
    pub operator: Option<OperatorLedger>,
    /// Which cells there are.
    pub cells: Cells,
}

impl Server {
    /// Binds the address. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// Fails when another program has the address, this machine does not have it, or the keys of JWTs cannot
    /// be read.
    pub fn bind(
        options: ServerOptions,
        ledger: ServerLedger,
        redis: Redis,
        metrics: PrometheusHandle,
    ) -> anyhow::Result<Self> {
        let tokens = options.access.jwt.clone().map(Tokens::open).transpose()?;
        let listen = options.listen;
        let listener = listen::bind(listen)
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

    /// Returns the address, with the port that was taken.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers requests until `stop` resolves.
    ///
    /// Then it drains, accepts no more requests, answers those under way, and returns.
    ///
    /// # Errors
    /// Fails when the server cannot be started.
    pub async fn run(self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let ServerOptions {
            listen: _,
            shutdown_limit,
            drain_for,
            clients,
            access,
            voting,
            seeding,
            operator,
            cells,
        } = self.options;
        let operator = OperatorLogin::new(operator);
        let access = Access {
            options: access,
            api_keys: ApiKeys::new(self.ledger.clone()),
            refused_acts: RefusedActs::new(self.ledger.clone(), routes::acts()),
            open_items: OpenItems::new(self.ledger.clone()),
            tokens: self.tokens.clone(),
        };
        let keeping_keys = self
            .tokens
            .map(|tokens| tokio::spawn(async move { tokens.keep_keys().await }));
        let _upkeep = Upkeep::start(self.metrics.clone());
        let (tell_owner, owner) = watch::channel(None);
        let learning = tokio::spawn(learn_owner(self.ledger.clone(), tell_owner));
        let admission = SharedAdmission::new(voting.throttles.clone(), owner.clone());
        let of_readiness = owner.clone();
        let live_counts = LiveCounts::open(owner, self.redis.clone(), SUSPECTS_LIMIT_ITEMS, seeding);
        let top_lists = TopLists::new(self.ledger.clone());
        let ledger = self.ledger.clone();
        let shared = live_counts.clone();
        let backoff = SeedBackoff::default();
        let status = Status::new(self.metrics.clone());
        let drain = Drain::default();
        let readiness = Readiness::new(&self.ledger, &self.redis, &live_counts, of_readiness, &drain);
        let finding = tokio::spawn(keep_finding_losses(self.ledger.clone()));
        let mut tail = TailReading::new(self.ledger.clone(), TAIL_STILL_LIMIT);
        let reading_on = tokio::spawn(async move { tail.run().await });
        let promotions = tokio::spawn(self.ledger.clone().keep_finding_promotions());
        let operator_promotions = tokio::spawn(operator.clone().keep_finding_promotions());
        let looking = tokio::spawn(readiness.clone().keep_looking());
        let sampling = status
            .clone()
            .keep_sampling(self.ledger.clone(), live_counts.clone());
        let sampling = tokio::spawn(sampling);
        let voidings = Runner::new(self.redis.clone());
        let shared_voidings = voidings.clone();
        let voter_edits = Runner::new(self.redis.clone());
        let shared_voter_edits = voter_edits.clone();
        let stream_places = StreamPlaces::new(clients.streams_beside_votes(), clients.streams_by_address);
        let list_places = ListPlaces::default();
        let stream_reads = Reads::default();
        let (close_streams, streams_closing) = watch::channel(false);
        // Each batch writer holds a sender. When all senders are gone, all writers are gone.
        let (writers, mut writers_ended) = mpsc::channel::<()>(1);
        let of_writers = writers.downgrade();
        // Runs once on each thread that serves.
        let routes = move |app: &mut web::ServiceConfig| {
            let access = web::Data::new(access.clone());
            let references = web::Data::new(References::new(self.ledger.clone(), cells));
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
                voting: Voting {
                    options: voting.clone(),
                    references: references.clone(),
                    open_items: access.open_items.clone(),
                    admission: Admission::start(&admission, &live_counts, threads()),
                    ledger: self.ledger.clone(),
                },
                references: references.clone(),
                counts,
                top_lists: top_lists.clone(),
                ledger: self.ledger.clone(),
                live_counts,
                metrics: self.metrics.clone(),
                known_answers: Cache::ended_by(self.ledger.ends()),
                access: access.clone(),
                operator: operator.clone(),
                voidings: shared_voidings.clone(),
                voter_edits: shared_voter_edits.clone(),
                status: status.clone(),
                readiness: readiness.clone(),
            };
            app.app_data(web::Data::new(state))
                .app_data(access)
                .app_data(web::Data::new(list_places.clone()))
                .app_data(references)
                .configure(routes::add);
        };
        // In the background, because signals would end the program at once until this function listens to them.
        tokio::task::spawn_blocking(|| {
            pages::prepare();
            routes::prepare();
        });
        let listener = self.listener.try_clone()?;
        let server = start(self.listener, clients, shutdown_limit, &drain, routes)?;
        let mut progress = ProgressNotes::new(ledger, live_counts.clone());

        let handle = server.handle();
        let running = tokio::spawn(server);
        let stopped = async {
            stop.await;
            drain.begin();
            if let Some(drain_for) = drain_for {
                tracing::info!(?drain_for, "draining: not ready any more, and still serving");
                sleep(drain_for).await;
            }
            turn_away(listener, drain_for.is_some()).await;
        };
        tokio::select! {
            () = stopped => {}
            () = progress.run() => {}
        }
        // Streams would continue for as long as a shutdown waits.
        close_streams.send_replace(true);
        learning.abort();
        sampling.abort();
        looking.abort();
        finding.abort();
        reading_on.abort();
        promotions.abort();
        operator_promotions.abort();
        if let Some(keeping) = keeping_keys {
            keeping.abort();
        }
        // A voiding and an edit of a voter end with their chunks, while the requests under way end.
        tokio::join!(
            handle.stop(true),
            voidings.stop(shutdown_limit),
            voter_edits.stop(shutdown_limit)
        );
        running.await??;
        // Each thread has answered the votes in its queue, unless that took too long. Its batch writers end
        // with it. A batch that is cut off leaves its items suspect.
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
        // With nothing in flight and nothing suspect, no count must be rebuilt after a stop.
        if timeout(LAST_NOTE_LIMIT, progress.note_last()).await.is_err() {
            tracing::warn!("the last votes are left for crashed-writer recovery");
        }
        Ok(())
    }
}

/// Asks Postgres which Tally this is, until Postgres answers.
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

/// Starts a server for these routes, with Tally's limits and with what every request has. Fails when it
/// cannot listen on the address.
pub fn start(
    listener: TcpListener,
    limits: ClientLimits,
    shutdown_limit: Duration,
    drain: &Drain,
    routes: impl Fn(&mut web::ServiceConfig) + Clone + Send + 'static,
) -> std::io::Result<Listening> {
    let app = move || {
        App::new()
            .wrap(from_fn(access::guard))
            .wrap(from_fn(access::note_refusals))
            .wrap(from_fn(observe::observe))
            .app_data(observe::RouteTimes::new("unknown", StatusCode::NOT_FOUND))
            .configure(&routes)
    };
    listen::serve(listener, limits, shutdown_limit, drain.clone(), app)
}
