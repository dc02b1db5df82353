//! `tally dev`: all of Tally with one command, on its own Postgres and Redis.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::StoreUrls;
use super::greeting::{self, Greeting};
use crate::config::{self, SecretUrl, Topology};
use crate::dev::{
    Durability, PrivateCluster, PrivatePostgres, PrivateRedis, PrivateSentinels, usable_folder,
};
use crate::domain::{Actor, ItemName, NewPoll, Who};
use crate::ledger::{Listing, Role, ServerLedger};
use crate::live::KeyPrefix;
use crate::sync::{self, Schedule};
use crate::web::ServerOptions;
use crate::web::access::Open;
use crate::{files, shutdown, telemetry};

/// The items that the first start adds, so that there is something to vote on.
const DEMO_ITEMS: [&str; 4] = [
    "Tabs",
    "Spaces",
    "Both, on the same line",
    "Whatever the formatter says",
];

/// The poll that the first start adds, with its choices.
const DEMO_POLL: (&str, [&str; 3]) = (
    "Where shall we eat on Friday?",
    ["The noodle bar", "Pizza by the river", "Something new"],
);

/// The largest file of the private stores' password.
const SECRET_LIMIT_BYTES: u64 = 1024;

/// The replicas of a private Redis that Sentinels watch. One of them is promoted when the primary is gone, and takes
/// writes only while another one follows it.
const REPLICAS: usize = 2;

/// The database in the private Postgres.
const DATABASE: &str = "tally";

/// Runs everything until Ctrl-C or SIGTERM, then stops everything.
pub async fn run(settings: config::Dev) -> anyhow::Result<()> {
    let _reporting = tokio::spawn(telemetry::keep_reporting());
    let metrics = telemetry::init_metrics(&telemetry::Program::ALL)?;
    let endpoint = settings.traces.otel_exporter_otlp_endpoint.as_deref();
    let traces = telemetry::Traces::start(endpoint, telemetry::Program::Server)?;
    // Listen for signals from here on, not from when the task first runs. Then a Ctrl-C while the stores
    // start stops them too.
    let (requested, hung_up) = (shutdown::requested_or_deaf(), shutdown::hung_up()?);
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            () = requested => {}
            () = hung_up => {}
        }
        stop.send_replace(true);
    });
    let stores = {
        let mut stopped = stopped.clone();
        tokio::select! {
            stores = DevStores::start(&settings) => stores?,
            // Dropping the stores kills what has been started.
            _ = stopped.wait_for(|stopped| *stopped) => return Ok(()),
        }
    };
    let started = serve(&settings, &stores, metrics, async {
        // A dropped sender means stop, too.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    })
    .await;
    traces.end().await;
    // No process is left behind, whatever happened.
    stores.stop().await;
    started
}

async fn serve(
    settings: &config::Dev,
    stores: &DevStores,
    metrics: metrics_exporter_prometheus::PrometheusHandle,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    super::migrate(&stores.database_url, "tally dev migrate").await?;
    // As in production, the server and the worker have only the permissions that each needs.
    let logins = stores.log_in().await?;
    let urls = |role: Role, database_url: &str| StoreUrls {
        database_url: database_url.to_owned(),
        redis_url: stores.redis_login_url(role),
        key_prefix: settings.keys.key_prefix.clone(),
    };
    let (of_server, of_worker) = (
        urls(Role::Server, &logins.server_url),
        urls(Role::Worker, &logins.worker_url),
    );
    add_demo(&logins.server_url).await?;
    let mut options = ServerOptions::from(&settings.server);
    super::check_for_server(&of_server, "tally dev server", None, options.cells).await?;
    if settings.server.open.is_none() && settings.server.listen.ip().is_loopback() {
        options.access.open = Open::ALL;
    }
    let open = options.access.open;
    let operator_url = settings.server.operator_database_url.as_ref();
    let operator_url = operator_url.map_or(logins.operator_url.as_str(), SecretUrl::as_str);
    let operator = super::operator(operator_url, "tally dev operator")?;
    let key = if open == Open::ALL {
        None
    } else {
        let file = stores.private.as_ref().map(|_| stores.folder.join("api-key"));
        Some(greeting::api_key(&operator, &logins.server_url, file.as_deref()).await?)
    };
    options.operator = Some(operator);
    let server = super::server(&of_server, options, "tally dev server", metrics)?;
    let address = server.address()?;
    let worker = super::worker(&of_worker, (&settings.worker).into(), "tally dev worker")?;
    let (stop_worker, worker_stopped) = tokio::sync::oneshot::channel::<()>();
    let schedule = Schedule::from(&settings.worker);
    let working = tokio::spawn(async move {
        // A dropped sender means stop, too.
        sync::run(worker, &schedule, async { drop(worker_stopped.await) }).await
    });

    let greeting = Greeting {
        address,
        open,
        key,
        psql: &logins.psql,
        folder: stores.private.as_ref().map(|_| stores.folder.as_path()),
    };
    greeting.print();
    let served = server.run(stop).await;
    // The server stops first, so that the worker's last flush has all votes.
    drop(stop_worker);
    working.await??;
    served
}

/// Adds the demo items and the demo poll to a database without items.
async fn add_demo(server_url: &str) -> anyhow::Result<()> {
    let ledger = ServerLedger::new(server_url, "tally dev")?;
    if ledger.items(0, 1, Listing::All).await?.0.is_empty() {
        for name in DEMO_ITEMS {
            ledger
                .create_item(&ItemName::parse(name.to_owned())?.into())
                .await?;
        }
        let (title, choices) = DEMO_POLL;
        let choices = choices.map(|name| ItemName::parse(name.to_owned()));
        let poll = NewPoll {
            title: ItemName::parse(title.to_owned())?,
            key: None,
            choices: choices.into_iter().collect::<Result<_, _>>()?,
            max_choices: Some(1),
            opens_at: None,
            closes_at: None,
            shows_results: true,
            by_ballot: false,
            is_secret: false,
        };
        let actor = Actor {
            who: Who::Anyone,
            address: None,
        };
        ledger.create_poll(actor, &poll).await?;
    }
    ledger.close().await;
    Ok(())
}

/// How each part logs in to Postgres.
struct Logins {
    server_url: String,
    worker_url: String,
    operator_url: String,
    /// A psql command for reports. It shows no password.
    psql: String,
}

/// Private stores, which run.
struct PrivateStores {
    postgres: PrivatePostgres,
    redis: PrivateLive,
}

/// A private Redis, or several.
enum PrivateLive {
    Single(Box<PrivateRedis>),
    Sentinel {
        /// The primary first, as it was at the start.
        nodes: Vec<PrivateRedis>,
        sentinels: PrivateSentinels,
    },
    Cluster(PrivateCluster),
}

impl PrivateLive {
    /// Starts what the topology needs.
    async fn start(
        folder: &Path,
        secret: &str,
        prefix: &KeyPrefix,
        topology: Topology,
    ) -> anyhow::Result<Self> {
        let make = |folder: &Path| Ok(PrivateRedis::new(folder, secret)?.with_key_prefix(prefix.clone()));
        match topology {
            Topology::Single => {
                let mut redis = make(&folder.join("redis"))?;
                redis.start().await?;
                Ok(Self::Single(Box::new(redis)))
            }
            Topology::Sentinel => {
                let mut primary = make(&folder.join("redis"))?;
                let replicas = (1..=REPLICAS)
                    .map(|number| primary.replica(&folder.join(format!("redis-{number}"))))
                    .collect::<Result<Vec<_>, _>>()?;
                let mut nodes = vec![primary];
                nodes.extend(replicas);
                for node in &mut nodes {
                    node.start().await?;
                }
                let sentinels = PrivateSentinels::start(&folder.join("sentinels"), &nodes[0]).await?;
                Ok(Self::Sentinel { nodes, sentinels })
            }
            Topology::Cluster => {
                let folder = folder.join("redis-cluster");
                Ok(Self::Cluster(PrivateCluster::start(&folder, 1, make).await?))
            }
        }
    }

    /// The URL by which a program with this role finds Redis; `None`: the login that may do everything.
    fn url(&self, role: Option<Role>) -> String {
        let of = |redis: &PrivateRedis| role.map_or_else(|| redis.url(), |role| redis.login_url(role));
        match self {
            Self::Single(redis) => of(redis),
            Self::Sentinel { nodes, sentinels } => sentinels.url(&of(&nodes[0])),
            Self::Cluster(cluster) => role.map_or_else(|| cluster.url(), |role| cluster.login_url(role)),
        }
    }

    async fn stop(self) {
        match self {
            Self::Single(mut redis) => redis.stop().await,
            Self::Sentinel { nodes, sentinels } => {
                // First those who would promote a replica.
                sentinels.stop().await;
                for mut node in nodes.into_iter().rev() {
                    node.stop().await;
                }
            }
            Self::Cluster(cluster) => cluster.stop().await,
        }
    }
}

/// The stores, private or given.
struct DevStores {
    database_url: String,
    redis_url: String,
    folder: PathBuf,
    private: Option<PrivateStores>,
    /// Held while the folder is in use.
    _lock: Option<File>,
}

impl DevStores {
    async fn start(settings: &config::Dev) -> anyhow::Result<Self> {
        if let (Some(database_url), Some(redis_url)) = (&settings.database_url, &settings.redis_url) {
            return Ok(Self {
                database_url: database_url.clone(),
                redis_url: redis_url.clone(),
                folder: settings.folder.clone(),
                private: None,
                _lock: None,
            });
        }
        std::fs::create_dir_all(&settings.folder)
            .with_context(|| format!("TALLY_DEV_FOLDER: cannot create {}", settings.folder.display()))?;
        let folder = usable_folder(&settings.folder.canonicalize()?)?;
        let lock = File::create(folder.join("lock"))?;
        if lock.try_lock().is_err() {
            bail!(
                "another tally dev is running in {}; stop it, or give this one another folder with TALLY_DEV_FOLDER",
                folder.display()
            );
        }
        let secret = secret(&folder.join("secret"))?;
        let mut postgres = PrivatePostgres::new(&folder.join("postgres"), &secret, Durability::Full)?;
        postgres.start().await?;
        let database_url = postgres.create_database(DATABASE).await?;
        let prefix = &settings.keys.key_prefix;
        let redis = PrivateLive::start(&folder, &secret, prefix, settings.topology).await?;
        Ok(Self {
            database_url,
            redis_url: redis.url(None),
            folder,
            private: Some(PrivateStores { postgres, redis }),
            _lock: Some(lock),
        })
    }

    /// Returns the logins of all parts. In a private Postgres each part has its own login. A Postgres that
    /// was given is used with the login that was given.
    async fn log_in(&self) -> anyhow::Result<Logins> {
        let Some(PrivateStores { postgres, .. }) = &self.private else {
            return Ok(Logins {
                server_url: self.database_url.clone(),
                worker_url: self.database_url.clone(),
                operator_url: self.database_url.clone(),
                psql: "psql \"$DATABASE_URL\"".to_owned(),
            });
        };
        postgres.create_logins().await?;
        let (psql, password) = postgres.psql(Role::Report, DATABASE);
        let file = self.folder.join("pgpass");
        files::write_secret(&file, &password)?;
        Ok(Logins {
            server_url: postgres.login_url(Role::Server, DATABASE),
            worker_url: postgres.login_url(Role::Worker, DATABASE),
            operator_url: postgres.login_url(Role::Operator, DATABASE),
            psql: format!("PGPASSFILE='{}' {psql}", file.display()),
        })
    }

    /// Returns the URL of Redis with the login of this role.
    fn redis_login_url(&self, role: Role) -> String {
        match &self.private {
            Some(private) => private.redis.url(Some(role)),
            None => self.redis_url.clone(),
        }
    }

    async fn stop(self) {
        if let Some(PrivateStores { mut postgres, redis }) = self.private {
            redis.stop().await;
            postgres.stop().await;
        }
    }
}

/// Returns the password of the private stores. The first start draws it.
fn secret(file: &Path) -> anyhow::Result<String> {
    let read = files::read(file, SECRET_LIMIT_BYTES).ok();
    if let Some(secret) = read.and_then(|bytes| String::from_utf8(bytes).ok()) {
        return Ok(secret.trim().to_owned());
    }
    let secret = format!("{:032x}", rand::random::<u128>());
    files::write_secret(file, &secret)?;
    Ok(secret)
}
