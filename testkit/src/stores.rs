//! A private Postgres, copied from a migrated template, and a private Redis.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tally::app;
use tally::dev::{
    Durability, PrivateCluster, PrivatePostgres, PrivateRedis, PrivateSentinels, usable_folder,
};
use tally::ledger::{OwnerLedger, RANGE_LEAST_IDS, Role};
use tempfile::TempDir;

/// The password of all private stores, which hold nothing worth protecting.
pub const SECRET: &str = "a-test-has-no-secrets";
/// The database in a template and in its copies.
pub const DATABASE: &str = "tally";
/// Names a file of SQL that is run in each [`Stores`] before its test.
/// `tools/mutants/texts` changes functions that way.
const CHANGE_VARIABLE: &str = "TALLY_TEST_SQL";
/// If it is set, the ledger of all tests is in ranges: `make test-in-ranges`.
const IN_RANGES: &str = "TALLY_TEST_IN_RANGES";
/// Tests insert rows with a voter into `vote`, as if it were one table. In ranges such a row goes by `vote_of_voter`.
const ROWS_OF_TESTS: &str = "
    create function row_of_test() returns trigger language plpgsql as $$
    begin
        insert into vote_of_voter select new.*;
        return null;
    end $$;
    drop trigger vote_has_voter_in_vote_of_voter on vote;
    create trigger vote_has_voter_in_vote_of_voter before insert on vote
        for each row when (new.voter_id is not null and pg_trigger_depth() = 0)
        execute function row_of_test()";
const FOLDER_VARIABLE: &str = "TALLY_TEST_FOLDER";
/// Connections of a test's own pool.
const POOL_CONNECTIONS: u32 = 2;
/// The replicas of a test's Redis that Sentinels watch: one may be promoted and the other one follow it.
const REPLICAS: usize = 2;
/// How long Redis may take to answer a test.
/// To delete a million counters takes it most of a second.
const REDIS_ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// How long Sentinels may take. Those that stood still do nothing for 30 s (TILT), and a failover that fails is tried again
/// after twice its time of 10 s.
const PROMOTION_LIMIT: Duration = Duration::from_secs(180);

/// The folder `target/<name>` of the workspace, or one that Postgres can enter.
/// Creates the folder if it does not exist.
///
/// # Errors
/// When it cannot be created.
pub fn folder(name: &str) -> anyhow::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target").join(name);
    std::fs::create_dir_all(&folder)?;
    usable_folder(&folder.canonicalize()?)
}

/// A new folder, which is deleted when it is dropped.
/// It is in the folder that `TALLY_TEST_FOLDER` names, such as one in memory (`scripts/in-memory`),
/// or in `target/tmp`.
///
/// # Errors
/// When it cannot be created.
pub fn temporary_folder(prefix: &str) -> anyhow::Result<TempDir> {
    let base = match std::env::var_os(FOLDER_VARIABLE) {
        Some(named) => PathBuf::from(named),
        None => folder("tmp")?,
    };
    let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(base)?;
    // tempfile lets in only its own user. Postgres may run as another one.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
    Ok(folder)
}

/// Makes a migrated, stopped Postgres in `folder`, for others to copy.
/// initdb takes longer than most tests. `settings` are statements that its owner runs, such as
/// `alter system set max_wal_size = '96MB'`.
///
/// # Errors
/// When Postgres does not start, or a statement fails.
pub async fn make_template(
    folder: &Path,
    durability: Durability,
    settings: &[&str],
) -> anyhow::Result<PrivatePostgres> {
    let mut template = PrivatePostgres::new(folder, SECRET, durability)?;
    template.start().await?;
    let url = template.create_database(DATABASE).await?;
    app::migrate(&url, "testkit").await?;
    if std::env::var_os(IN_RANGES).is_some() {
        let owner = OwnerLedger::new(&url, "testkit")?;
        owner.partition(RANGE_LEAST_IDS, |_, _| {}).await?;
        owner.close().await;
        let pool = owner_pool(&url)?;
        sqlx::raw_sql(ROWS_OF_TESTS).execute(&pool).await?;
        pool.close().await;
    }
    let owner = owner_pool(&url)?;
    for statement in settings {
        sqlx::raw_sql(statement).execute(&owner).await?;
    }
    owner.close().await;
    template.stop().await;
    Ok(template)
}

/// Variables for a store's environment, such as those of a clock of its own.
pub type Variables = Vec<(String, String)>;

/// Starts a copy of a template in `folder`, with a login for each role.
///
/// # Errors
/// When Postgres cannot be copied or does not start.
pub async fn start_copy(
    template: &PrivatePostgres,
    folder: &Path,
    durability: Durability,
    variables: Variables,
) -> anyhow::Result<PrivatePostgres> {
    let mut postgres = PrivatePostgres::new(folder, SECRET, durability)?.with_variables(variables);
    postgres.copy_from(template).await?;
    postgres.start().await?;
    postgres.create_logins().await?;
    Ok(postgres)
}

/// Starts a Redis in `folder` that keeps its data over a restart.
///
/// # Errors
/// When it does not start.
pub async fn start_redis(folder: &Path, secret: &str, variables: Variables) -> anyhow::Result<PrivateRedis> {
    let mut redis = PrivateRedis::new(folder, secret)?
        .persistent()
        .with_variables(variables);
    redis.start().await?;
    Ok(redis)
}

/// Starts a Redis Cluster in the folder `cluster` of this one, with a replica of each primary.
///
/// # Errors
/// When a node does not start.
pub async fn start_cluster(folder: &Path) -> anyhow::Result<PrivateCluster> {
    let secret = own_secret();
    PrivateCluster::start(&folder.join("cluster"), 1, |folder| {
        Ok(PrivateRedis::new(folder, &secret)?.persistent())
    })
    .await
}

/// A pool of a few connections, which open when they are needed.
///
/// # Errors
/// When the URL is wrong.
pub fn owner_pool(url: &str) -> anyhow::Result<PgPool> {
    Ok(PgPoolOptions::new()
        .max_connections(POOL_CONNECTIONS)
        .connect_lazy(url)?)
}

/// A connection to Redis for the test itself.
///
/// # Errors
/// When Redis does not answer.
pub async fn redis_connection(url: &str) -> anyhow::Result<MultiplexedConnection> {
    // The default of a second is too short for a connection on a machine that is busy building.
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(REDIS_ANSWER_LIMIT))
        .set_response_timeout(Some(REDIS_ANSWER_LIMIT));
    Ok(redis::Client::open(url)?
        .get_multiplexed_async_connection_with_config(&config)
        .await?)
}

/// Whether tests run on Valkey: `scripts/valkey`. Its words and its pages are not always those of Redis.
pub fn is_valkey() -> bool {
    static IS_VALKEY: LazyLock<bool> = LazyLock::new(|| {
        let version = Command::new("redis-server").arg("--version").output();
        version.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("Valkey"))
    });
    *IS_VALKEY
}

/// A section of Redis' `INFO`.
///
/// # Errors
/// When Redis does not answer.
pub async fn redis_info(url: &str, section: &str) -> anyhow::Result<redis::InfoDict> {
    let mut connection = redis_connection(url).await?;
    Ok(redis::cmd("INFO")
        .arg(section)
        .query_async(&mut connection)
        .await?)
}

/// The variables that tell a program where its stores are.
pub fn environment(database_url: String, redis_url: String) -> [(&'static str, String); 2] {
    [("DATABASE_URL", database_url), ("REDIS_URL", redis_url)]
}

/// A Postgres and a Redis for one test. Dropping stops them.
pub struct Stores {
    pub postgres: PrivatePostgres,
    pub redis: PrivateRedis,
    /// The login that owns the tables, for migrations and the test's own queries.
    pub database_url: String,
    folder: TempDir,
}

impl Stores {
    /// Starts both. Commits survive the end of any process, but not of the machine.
    pub async fn start() -> Self {
        let folder = temporary_folder("stores-").expect("a folder");
        Self::start_in(folder, Variables::new()).await
    }

    /// Starts both in this folder, with these variables in the environment of Postgres.
    pub async fn start_in(folder: TempDir, variables: Variables) -> Self {
        let template = kept_template().await.expect("a template");
        let postgres = start_copy(
            &template,
            &folder.path().join("postgres"),
            Durability::ProcessOnly,
            variables,
        )
        .await
        .expect("a copy of the template");
        if let Some(file) = std::env::var_os(CHANGE_VARIABLE) {
            let change = std::fs::read_to_string(file).expect("the change can be read");
            let owner = owner_pool(&postgres.url(DATABASE)).expect("a URL");
            sqlx::raw_sql(&change)
                .execute(&owner)
                .await
                .expect("the change can be made");
            owner.close().await;
        }
        let redis = start_redis(&folder.path().join("redis"), &own_secret(), Variables::new())
            .await
            .expect("Redis starts");
        Self {
            database_url: postgres.url(DATABASE),
            postgres,
            redis,
            folder,
        }
    }

    /// Replaces its Redis by a primary and replicas that Sentinels watch.
    pub async fn watched(mut self) -> (Self, Watched) {
        self.redis.stop().await;
        let folder = self.folder.path();
        let primary = PrivateRedis::new(&folder.join("primary"), &own_secret()).expect("a port");
        let mut primary = primary.persistent();
        let mut replicas = Vec::new();
        for number in 1..=REPLICAS {
            let replica = primary.replica(&folder.join(format!("replica-{number}")));
            replicas.push(replica.expect("a port"));
        }
        primary.start().await.expect("Redis starts");
        for replica in &mut replicas {
            replica.start().await.expect("a replica starts");
        }
        let sentinels = PrivateSentinels::start(&folder.join("sentinels"), &primary)
            .await
            .expect("Sentinels start");
        self.redis = primary;
        let watched = Watched { replicas, sentinels };
        watched.until_all_are_known().await;
        (self, watched)
    }

    /// Stops its Redis, and starts a Redis Cluster instead.
    pub async fn clustered(mut self) -> (Self, PrivateCluster) {
        self.redis.stop().await;
        let cluster = start_cluster(self.folder.path()).await;
        (self, cluster.expect("a Redis Cluster starts"))
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The URL of the login with this role.
    pub fn login_url(&self, role: Role) -> String {
        self.postgres.login_url(role, DATABASE)
    }

    /// The URL of Redis for the test's own commands, whose login may do everything.
    pub fn redis_url(&self) -> String {
        self.redis.url()
    }

    /// The URL of Redis with the login of this role.
    pub fn redis_login_url(&self, role: Role) -> String {
        self.redis.login_url(role)
    }

    /// The variables that tell a program where the stores are, with the role's logins.
    pub fn environment(&self, role: Role) -> [(&'static str, String); 2] {
        environment(self.login_url(role), self.redis_login_url(role))
    }

    /// A pool for the test's own queries.
    pub fn pool(&self) -> PgPool {
        owner_pool(&self.database_url).expect("a URL")
    }

    /// A connection for the test's own commands.
    pub async fn redis_connection(&self) -> MultiplexedConnection {
        redis_connection(&self.redis_url()).await.expect("Redis answers")
    }
}

/// Each Redis has its own password. If two tests draw one port, neither takes the other's Redis for its own.
fn own_secret() -> String {
    format!("{SECRET}-{:016x}", rand::random::<u64>())
}

/// Replicas of a test's Redis, and the Sentinels that watch all of them.
pub struct Watched {
    pub replicas: Vec<PrivateRedis>,
    pub sentinels: PrivateSentinels,
}

impl Watched {
    /// Waits until each Sentinel knows the others and all replicas: earlier, none would be promoted.
    pub async fn until_all_are_known(&self) {
        for at in 0..PrivateSentinels::NUMBER {
            let what = format!("Sentinel {at} knows the others and the replicas");
            crate::eventually(&what, async || {
                let state = self.state(at).await?;
                let number = |name: &str| state.get(name)?.parse::<usize>().ok();
                let all = PrivateSentinels::NUMBER - 1;
                let is_all =
                    number("num-other-sentinels") == Some(all) && number("num-slaves") == Some(REPLICAS);
                is_all.then_some(())
            })
            .await;
        }
    }

    /// What a Sentinel says of the primary.
    async fn state(&self, at: usize) -> Option<HashMap<String, String>> {
        let mut connection = redis_connection(&self.sentinels.address(at)).await.ok()?;
        redis::cmd("SENTINEL")
            .arg("MASTER")
            .arg(PrivateSentinels::NAME)
            .query_async(&mut connection)
            .await
            .ok()
    }

    /// The port of the primary that this Sentinel names.
    pub async fn primary_port(&self, at: usize) -> Option<u16> {
        self.state(at).await?.get("port")?.parse().ok()
    }

    /// Waits until this Sentinel names another primary than the one at this port. Returns its port.
    pub async fn promoted(&self, at: usize, before: u16) -> u16 {
        crate::until("a replica is promoted", PROMOTION_LIMIT, async || {
            self.primary_port(at).await.filter(|port| *port != before)
        })
        .await
        .unwrap_or_else(|error| panic!("{error}"))
    }
}

/// The template of [`Stores`], which is kept between runs.
/// It is made again after a change of the migrations, the functions or the grants. A lock lets only
/// one test process make it.
async fn kept_template() -> anyhow::Result<PrivatePostgres> {
    // Mutation testing of migrations uses templates of its own.
    let name = std::env::var("TALLY_TEST_TEMPLATE").unwrap_or_else(|_| {
        let is_in_ranges = std::env::var_os(IN_RANGES).is_some();
        if is_in_ranges {
            "template-in-ranges"
        } else {
            "template"
        }
        .to_owned()
    });
    let folder = folder(&format!("tmp/{name}"))?;
    let lock = File::create(folder.join("lock"))?;
    lock.lock()?;
    let (postgres, done) = (folder.join("postgres"), folder.join("done"));
    let mut made_of = migrations()?;
    if std::env::var_os(IN_RANGES).is_some() {
        made_of += ROWS_OF_TESTS;
    }
    if std::fs::read_to_string(&done).is_ok_and(|text| text == made_of) {
        return PrivatePostgres::new(&postgres, SECRET, Durability::ProcessOnly);
    }
    let _ = std::fs::remove_dir_all(&postgres);
    let template = make_template(&postgres, Durability::ProcessOnly, &[]).await?;
    std::fs::write(&done, made_of)?;
    Ok(template)
}

/// The texts that `tally migrate` runs: migrations, functions, reports and roles.
fn migrations() -> std::io::Result<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations");
    let mut files = Vec::new();
    for folder in [folder.join("functions"), folder.join("report"), folder] {
        files.extend(std::fs::read_dir(folder)?.flatten().map(|file| file.path()));
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "sql"));
    files.sort();
    files.iter().map(std::fs::read_to_string).collect()
}
