//! The stores of `tally dev`: its own, or those that were given.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::config::{self, Topology};
use crate::dev::{
    Durability, PrivateCluster, PrivatePostgres, PrivateRedis, PrivateSentinels, usable_folder,
};
use crate::files;
use crate::ledger::Role;
use crate::live::KeyPrefix;

/// The largest file of the private stores' password.
const SECRET_LIMIT_BYTES: u64 = 1024;

/// The replicas of a private Redis that Sentinels watch. One of them is promoted when the primary is gone, and takes
/// writes only while another one follows it.
const REPLICAS: usize = 2;

/// The database in the private Postgres.
const DATABASE: &str = "tally";

/// The folders of the private Postgres and of its standby. After a promotion they are the other way round.
const POSTGRES_FOLDERS: [&str; 2] = ["postgres", "postgres-standby"];

/// How each part logs in to Postgres.
pub(super) struct Logins {
    pub server_url: String,
    pub worker_url: String,
    pub operator_url: String,
    /// A psql command for reports. It shows no password.
    pub psql: String,
}

/// Private stores, which run.
struct PrivateStores {
    postgres: PrivateLedger,
    redis: PrivateLive,
}

/// A private Postgres, perhaps with a standby that follows it.
struct PrivateLedger {
    primary: PrivatePostgres,
    standby: Option<PrivatePostgres>,
}

impl PrivateLedger {
    async fn start(folder: &Path, secret: &str, topology: Topology) -> anyhow::Result<Self> {
        let make = |name| PrivatePostgres::new(&folder.join(name), secret, Durability::Full);
        let [one, other] = POSTGRES_FOLDERS;
        let (mut primary, mut standby) = (make(one)?, make(other)?);
        // Whoever tried a failover has promoted the standby, which has all votes since.
        let is_promoted = standby.is_primary() && standby.timeline() > primary.timeline();
        if is_promoted || standby.is_primary() && !primary.is_primary() {
            std::mem::swap(&mut primary, &mut standby);
        }
        primary.start().await?;
        if topology == Topology::Single {
            return Ok(Self {
                primary,
                standby: None,
            });
        }
        // A standby that was down may lack what the primary has forgotten: it is copied anew.
        standby.delete()?;
        standby.follow(&primary).await?;
        standby.start().await?;
        Ok(Self {
            primary,
            standby: Some(standby),
        })
    }

    /// This URL of the primary, with the standby as a second host.
    fn with_standby(&self, url: &str) -> String {
        let host = |postgres: &PrivatePostgres| format!("127.0.0.1:{}", postgres.port());
        let primary = host(&self.primary);
        match &self.standby {
            Some(standby) => url.replacen(&primary, &format!("{primary},{}", host(standby)), 1),
            None => url.to_owned(),
        }
    }

    fn login_url(&self, role: Role) -> String {
        self.with_standby(&self.primary.login_url(role, DATABASE))
    }

    async fn stop(mut self) {
        // First the standby: a primary that stops waits for those that follow it.
        if let Some(mut standby) = self.standby {
            standby.stop().await;
        }
        self.primary.stop().await;
    }
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

    /// All of them but Sentinels.
    fn nodes(&self) -> Vec<&PrivateRedis> {
        match self {
            Self::Single(redis) => vec![redis],
            Self::Sentinel { nodes, .. } => nodes.iter().collect(),
            Self::Cluster(cluster) => cluster.nodes.iter().collect(),
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
pub(super) struct DevStores {
    pub database_url: String,
    redis_url: String,
    pub folder: PathBuf,
    private: Option<PrivateStores>,
    /// Held while the folder is in use.
    _lock: Option<File>,
}

impl DevStores {
    pub async fn start(settings: &config::Dev) -> anyhow::Result<Self> {
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
        let postgres = PrivateLedger::start(&folder, &secret, settings.topology).await?;
        let database_url = postgres.primary.create_database(DATABASE).await?;
        let database_url = postgres.with_standby(&database_url);
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
    pub async fn log_in(&self) -> anyhow::Result<Logins> {
        let Some(PrivateStores { postgres, .. }) = &self.private else {
            return Ok(Logins {
                server_url: self.database_url.clone(),
                worker_url: self.database_url.clone(),
                operator_url: self.database_url.clone(),
                psql: "psql \"$DATABASE_URL\"".to_owned(),
            });
        };
        postgres.primary.create_logins().await?;
        let (psql, password) = postgres.primary.psql(Role::Report, DATABASE);
        let file = self.folder.join("pgpass");
        files::write_secret(&file, &password)?;
        Ok(Logins {
            server_url: postgres.login_url(Role::Server),
            worker_url: postgres.login_url(Role::Worker),
            operator_url: postgres.login_url(Role::Operator),
            psql: format!("PGPASSFILE='{}' {psql}", file.display()),
        })
    }

    /// Returns the URL of Redis with the login of this role.
    pub fn redis_login_url(&self, role: Role) -> String {
        match &self.private {
            Some(private) => private.redis.url(Some(role)),
            None => self.redis_url.clone(),
        }
    }

    /// A redis-cli command for the login that may do everything, and the ports of further Redises. `None`: Redis was given.
    pub fn redis_cli(&self) -> Option<(String, Vec<u16>)> {
        let nodes = self.private.as_ref()?.redis.nodes();
        let (first, others) = nodes.split_first()?;
        let secret = self.folder.join("secret");
        let command = format!(
            "REDISCLI_AUTH=\"$(cat '{}')\" redis-cli -p {}",
            secret.display(),
            first.port()
        );
        Some((command, others.iter().map(|redis| redis.port()).collect()))
    }

    /// Whether they are its own.
    pub fn are_private(&self) -> bool {
        self.private.is_some()
    }

    pub async fn stop(self) {
        if let Some(PrivateStores { postgres, redis }) = self.private {
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
