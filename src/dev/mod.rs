//! `tally dev`: all of Tally with one command, on a Postgres and a Redis of its
//! own. The tests start their stores with the same pieces.

mod postgres;
mod process;
mod redis;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

pub use postgres::{Durability, PrivatePostgres};
pub use process::{Process, free_port};
pub use redis::PrivateRedis;

use crate::config;
use crate::domain::ItemName;
use crate::http::{Limits, Server};
use crate::ledger::{self, Ledger, Role};
use crate::live::{self, Counters, Redis};
use crate::{shutdown, sync, telemetry};

/// The items that a first start adds, so that there is something to vote on.
const DEMO_ITEMS: [&str; 4] = [
    "Tabs",
    "Spaces",
    "Both, on the same line",
    "Whatever the formatter says",
];

/// The database in the private Postgres.
const DATABASE: &str = "tally";

/// Runs everything until Ctrl-C or SIGTERM, then stops everything.
///
/// # Errors
/// When a part cannot be started.
pub async fn run(settings: config::Dev) -> anyhow::Result<()> {
    let metrics = telemetry::init_metrics()?;
    // Heard from the first moment on, so that a Ctrl-C while the stores start
    // finds someone who stops them.
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    tokio::spawn(async move {
        let heard = tokio::select! {
            heard = shutdown::requested() => heard,
            heard = shutdown::hung_up() => heard,
        };
        if let Err(error) = heard {
            tracing::error!(%error, "cannot listen to signals");
        }
        stop.send_replace(true);
    });
    let stores = {
        let mut stopped = stopped.clone();
        tokio::select! {
            stores = Stores::start(&settings) => stores?,
            // What has been started is killed as it is dropped.
            _ = stopped.wait_for(|stopped| *stopped) => return Ok(()),
        }
    };
    let started = serve(&settings, &stores, metrics, async {
        // A sender that is gone means stop as well.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    })
    .await;
    // Whatever happened, no process is left behind.
    stores.stop().await;
    started
}

async fn serve(
    settings: &config::Dev,
    stores: &Stores,
    metrics: metrics_exporter_prometheus::PrometheusHandle,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let redis_url = &stores.redis_url;
    let owner = Ledger::new(
        &stores.database_url,
        "tally dev migrate",
        ledger::WORKER_STATEMENT_LIMIT,
    )?;
    owner.migrate().await?;
    owner.close().await;
    // As in earnest: the server and the worker may do what each has to, and no more.
    let logins = stores.log_in().await?;
    let ledger = Ledger::new(
        &logins.server_url,
        "tally dev server",
        ledger::SERVER_STATEMENT_LIMIT,
    )?;
    if ledger.item_ids(0, 1).await?.is_empty() {
        for name in DEMO_ITEMS {
            ledger.create_item(&ItemName::parse(name.to_owned())?).await?;
        }
    }
    let redis = Redis::new(redis_url, live::SERVER_ANSWER_LIMIT)?;
    let server = Server::bind(
        settings.server.listen,
        settings.server.shutdown_limit,
        ledger,
        redis,
        metrics,
    )?
    .limited_to(Limits::with_connections(settings.server.connections_limit));
    let address = server.address()?;

    let worker = sync::Worker::new(
        Ledger::new(
            &logins.worker_url,
            "tally dev worker",
            ledger::WORKER_STATEMENT_LIMIT,
        )?,
        Counters::new(Redis::new(redis_url, live::WORKER_ANSWER_LIMIT)?),
        (&settings.worker).into(),
    );
    let (stop_worker, worker_stopped) = tokio::sync::oneshot::channel::<()>();
    let worker_settings = settings.worker.clone();
    let working = tokio::spawn(async move {
        // A sender that is gone means stop as well.
        sync::run(worker, &worker_settings, async { drop(worker_stopped.await) }).await
    });

    greet(address, stores, &logins);
    let served = server.run(stop).await;
    // The server first, so that the worker's last flush has all votes.
    drop(stop_worker);
    working.await??;
    served
}

fn greet(address: std::net::SocketAddr, stores: &Stores, logins: &Logins) {
    let base = format!("http://{address}");
    telemetry::print(format_args!(
        "
Tally is at {base}/

  curl -s {base}/v1/items
  curl -s {base}/v1/items/1/votes -H 'content-type: application/json' -d '{{\"voter_id\":\"ada\"}}'
  curl -s {base}/v1/items/1

  {}      reports: select * from item;
  Ctrl-C stops all of it{}.
",
        logins.psql,
        if stores.private.is_some() {
            format!("; the data stay in {}", stores.folder.display())
        } else {
            String::new()
        }
    ));
}

/// How each part logs in to Postgres.
struct Logins {
    server_url: String,
    worker_url: String,
    /// A command for reports; it shows no password.
    psql: String,
}

/// The stores, private or given.
struct Stores {
    database_url: String,
    redis_url: String,
    folder: PathBuf,
    private: Option<(PrivatePostgres, PrivateRedis)>,
    /// Held for as long as the folder is in use.
    _lock: Option<File>,
}

impl Stores {
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
            .with_context(|| format!("TALLY_DEV_FOLDER: cannot make {}", settings.folder.display()))?;
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
        let mut redis = PrivateRedis::new(&folder.join("redis"), &secret)?;
        postgres.start().await?;
        let database_url = postgres.create_database(DATABASE).await?;
        redis.start().await?;
        Ok(Self {
            database_url,
            redis_url: redis.url(),
            folder,
            private: Some((postgres, redis)),
            _lock: Some(lock),
        })
    }

    /// In a private Postgres each part has a login of its own; one that was given
    /// is used as it was given.
    async fn log_in(&self) -> anyhow::Result<Logins> {
        let Some((postgres, _)) = &self.private else {
            return Ok(Logins {
                server_url: self.database_url.clone(),
                worker_url: self.database_url.clone(),
                psql: "psql \"$DATABASE_URL\"".to_owned(),
            });
        };
        postgres.create_logins().await?;
        let (psql, password) = postgres.psql(Role::Report, DATABASE);
        let file = self.folder.join("pgpass");
        write_secret(&file, &password)?;
        Ok(Logins {
            server_url: postgres.login_url(Role::Server, DATABASE),
            worker_url: postgres.login_url(Role::Worker, DATABASE),
            psql: format!("PGPASSFILE='{}' {psql}", file.display()),
        })
    }

    async fn stop(self) {
        if let Some((mut postgres, mut redis)) = self.private {
            redis.stop().await;
            postgres.stop().await;
        }
    }
}

/// The folder itself, or one that Postgres can reach as well: it refuses to run as
/// root, and the user that it runs as may have no way into root's folders.
///
/// # Errors
/// When neither can be made.
pub fn usable_folder(folder: &Path) -> anyhow::Result<PathBuf> {
    if process::can_enter(folder)? {
        return Ok(folder.to_owned());
    }
    let name: String = folder
        .to_string_lossy()
        .chars()
        .map(|one| if one.is_ascii_alphanumeric() { one } else { '-' })
        .collect();
    let other = Path::new("/var/tmp").join(format!("tally{name}"));
    std::fs::create_dir_all(&other)?;
    eprintln!(
        "Postgres, which does not run as root, cannot reach {}; its data are in {}",
        folder.display(),
        other.display()
    );
    Ok(other)
}

/// The password of the private stores, drawn at the first start.
fn secret(file: &Path) -> anyhow::Result<String> {
    if let Ok(secret) = std::fs::read_to_string(file) {
        return Ok(secret);
    }
    let secret = format!("{:032x}", rand::random::<u128>());
    write_secret(file, &secret)?;
    Ok(secret)
}

/// Writes a file that only we can read.
fn write_secret(file: &Path, text: &str) -> anyhow::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let mut made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)?;
    Ok(made.write_all(text.as_bytes())?)
}
