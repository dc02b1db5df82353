//! The bench's own Postgres and Redis, and the databases with which runs begin.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::unistd::Pid;
use sqlx::Connection;
use sqlx::postgres::{PgConnection, PgPool};
use tally::app;
use tally::dev::{Durability, PrivateCluster, PrivatePostgres, PrivateRedis, PrivateSentinels};
use tally::ledger::OwnerLedger;
use testkit::benchmark::Topology;
use testkit::stores::{SECRET, environment, folder, owner_pool, redis_connection, redis_info};

use crate::measure::Processes;
use crate::systems::locking;

/// Postgres with its default durability (fsync and synchronous_commit on), and Redis.
pub struct Stores {
    pub postgres: PrivatePostgres,
    pub redis: PrivateRedis,
    /// Of the run.
    topology: Mutex<Topology>,
    cluster: tokio::sync::OnceCell<PrivateCluster>,
    sentinels: tokio::sync::OnceCell<PrivateSentinels>,
    admin: PgPool,
    made: AtomicUsize,
    folder: PathBuf,
    /// Held for as long as the folder is in use.
    _lock: File,
}

/// How many ids a range of a split ledger has: the default.
pub const RANGE_IDS: i64 = 100_000_000;

/// What is in the database with which a run begins.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    pub name: &'static str,
    pub items: i64,
    /// Each item's exact count.
    pub count: i64,
    /// Whether the ledger has rows for that count. If not, only the audited counts have it.
    pub in_ledger: bool,
    /// Whether the items' audited counts have it, so that it is below the watermark.
    pub audited: bool,
    /// Whether the items' saved counts have it.
    pub saved: bool,
    pub rules: Rules,
    /// Whether the ledger is split into ranges.
    pub in_ranges: bool,
}

/// Which rules the items have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    Default,
    /// Each has a limit of votes, far above the votes that it gets.
    Limited,
    /// Each takes one vote, and is full from then on.
    OnePlace,
    /// They are the choices of poll 1, and each vote has a voter: see [`voter_of_poll`].
    Poll,
}

/// The voter with this number, in SQL, as [`testkit::load::Mix::PollMoves`] names it.
pub fn voter_of_poll(number: &str) -> String {
    format!("'voter-' || lpad({number}::text, 16, '0')")
}

impl Template {
    /// How many votes are in the ledger.
    pub fn votes(&self) -> i64 {
        if self.in_ledger {
            self.items * self.count
        } else {
            0
        }
    }

    pub fn saved_count(&self) -> i64 {
        if self.saved { self.count } else { 0 }
    }
}

/// The database of one run.
pub struct Database {
    pub name: String,
    pub url: String,
    pub pool: PgPool,
    /// The last vote id at the start.
    pub first_votes: i64,
}

/// Files of the write-ahead log that exist before the first run: more than two runs fill.
const LOG_FILES: u32 = 30;

impl Stores {
    pub async fn start() -> Self {
        let base = folder("tmp").expect("a folder");
        let lock = File::create(base.join("bench.lock")).expect("a lock");
        assert!(
            lock.try_lock().is_ok(),
            "another bench runs in {}",
            base.display()
        );
        let folder = base.join("bench");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut postgres =
            PrivatePostgres::new(&folder.join("postgres"), SECRET, Durability::Full).expect("a free port");
        postgres.start().await.expect("Postgres starts");
        let mut redis = PrivateRedis::new(&folder.join("redis"), SECRET).expect("a free port");
        redis.start().await.expect("Redis starts");
        let admin = owner_pool(&postgres.url("postgres")).expect("a URL");
        for (name, wanted) in [("fsync", "on"), ("synchronous_commit", "on")] {
            let set: String = sqlx::query_scalar("select current_setting($1)")
                .bind(name)
                .fetch_one(&admin)
                .await
                .expect("a setting");
            assert_eq!(set, wanted, "{name}");
        }
        let stores = Self {
            postgres,
            redis,
            topology: Mutex::new(Topology::Single),
            cluster: tokio::sync::OnceCell::new(),
            sentinels: tokio::sync::OnceCell::new(),
            admin,
            made: AtomicUsize::new(0),
            folder,
            _lock: lock,
        };
        stores.make_log_files().await;
        stores
    }

    /// Lets Postgres make log files that it will use again, as a Postgres has that has run for a while.
    /// A new file (16 MB) stops commits for about 40 ms, and a system that takes more votes would need
    /// more of them.
    async fn make_log_files(&self) {
        for _ in 0..LOG_FILES {
            self.execute("select pg_logical_emit_message(false, 'bench', 'x')")
                .await;
            self.execute("select pg_switch_wal()").await;
        }
        self.execute("checkpoint").await;
    }

    /// The versions of the stores.
    pub async fn versions(&self) -> String {
        let postgres: String = sqlx::query_scalar("select current_setting('server_version')")
            .fetch_one(&self.admin)
            .await
            .expect("a version");
        let info = redis_info(&self.redis.url(), "server")
            .await
            .expect("Redis answers");
        let redis: String = info.get("redis_version").expect("a version");
        format!("PostgreSQL {postgres}, Redis {redis}")
    }

    pub async fn stop(mut self) {
        self.admin.close().await;
        if let Some(sentinels) = self.sentinels.take() {
            sentinels.stop().await;
        }
        if let Some(cluster) = self.cluster.take() {
            cluster.stop().await;
        }
        self.redis.stop().await;
        self.postgres.stop().await;
        // The prepared databases take gigabytes.
        let _ = std::fs::remove_dir_all(&self.folder);
    }

    /// Where the stores keep their data and the programs their logs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The variables that tell a program where its stores are.
    pub fn environment(&self, database: &Database) -> [(&'static str, String); 2] {
        let redis_url = match (self.topology(), self.cluster.get(), self.sentinels.get()) {
            (Topology::Cluster, Some(cluster), _) => cluster.url(),
            (Topology::Sentinel, _, Some(sentinels)) => sentinels.url(&self.redis.url()),
            _ => self.redis.url(),
        };
        environment(database.url.clone(), redis_url)
    }

    fn topology(&self) -> Topology {
        *self.topology.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets Redis up like this for the runs that follow, and starts what that needs. Idle Sentinels and nodes take next to
    /// no time from other runs.
    pub async fn set_up(&self, topology: Topology) {
        let start = || async {
            let make = |folder: &Path| PrivateRedis::new(folder, SECRET);
            PrivateCluster::start(&self.folder.join("cluster"), 0, make)
                .await
                .expect("a Redis Cluster")
        };
        let watch = || async {
            let folder = self.folder.join("sentinels");
            PrivateSentinels::start(&folder, &self.redis)
                .await
                .expect("Sentinels")
        };
        match topology {
            Topology::Single => {}
            Topology::Sentinel => drop(self.sentinels.get_or_init(watch).await),
            Topology::Cluster => drop(self.cluster.get_or_init(start).await),
        }
        *self.topology.lock().unwrap_or_else(PoisonError::into_inner) = topology;
    }

    /// The Redises of the run.
    fn redises(&self) -> Vec<&PrivateRedis> {
        match (self.topology(), self.cluster.get()) {
            (Topology::Cluster, Some(cluster)) => cluster.nodes.iter().collect(),
            _ => vec![&self.redis],
        }
    }

    /// The processes of the stores, without a server or a worker.
    pub fn processes(&self) -> Processes {
        let pid = |id: Option<u32>| Pid::from_raw(i32::try_from(id.expect("it runs")).expect("an id"));
        Processes {
            servers: Vec::new(),
            worker: None,
            postgres: pid(self.postgres.process_id()),
            redis: self
                .redises()
                .into_iter()
                .map(|redis| pid(redis.process_id()))
                .collect(),
        }
    }

    async fn exists(&self, name: &str) -> bool {
        sqlx::query_scalar("select exists (select from pg_database where datname = $1)")
            .bind(name)
            .fetch_one(&self.admin)
            .await
            .expect("an answer")
    }

    /// Makes a fresh copy of a template, and first the template if it does not exist. Empties
    /// Redis, and has Postgres write everything to disk.
    pub async fn database(&self, template: &Template) -> Database {
        if !self.exists(template.name).await {
            self.fill(template).await;
        }
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let name = format!("run_{number}");
        // A large database is copied by files where Postgres can do that: through the
        // write-ahead log it would take several times as long.
        let version: i32 = sqlx::query_scalar("select current_setting('server_version_num')::int")
            .fetch_one(&self.admin)
            .await
            .expect("a version");
        let strategy = if version >= 150_000 && template.votes() + template.items > 100_000 {
            "strategy file_copy"
        } else {
            ""
        };
        self.execute(&format!(
            "create database {name} template {} {strategy}",
            template.name
        ))
        .await;
        self.flush_redis().await;
        self.execute("checkpoint").await;
        let url = self.postgres.url(&name);
        let pool = owner_pool(&url).expect("a URL");
        let first_votes = sqlx::query_scalar("select coalesce(max(id), 0) from vote")
            .fetch_one(&pool)
            .await
            .expect("a vote id");
        Database {
            name,
            url,
            pool,
            first_votes,
        }
    }

    /// Makes each sync of the write-ahead log take longer, for all later connections to the
    /// database. Postgres then waits before the sync, and other transactions that want to
    /// commit wait for it (`commit_delay`).
    pub async fn delay_syncs(&self, database: &Database, delay: Duration) {
        if delay.is_zero() {
            return;
        }
        // By default it waits only while five other transactions are at work.
        for (name, value) in [("commit_delay", delay.as_micros()), ("commit_siblings", 0)] {
            self.execute(&format!("alter database {} set {name} = {value}", database.name))
                .await;
        }
    }

    /// Drops a run's database.
    pub async fn drop(&self, database: Database) {
        database.pool.close().await;
        self.execute(&format!("drop database {} with (force)", database.name))
            .await;
    }

    /// Drops a template that no further run begins with.
    pub async fn drop_template(&self, template: &Template) {
        self.execute(&format!("drop database if exists {} with (force)", template.name))
            .await;
    }

    async fn execute(&self, statement: &str) {
        sqlx::raw_sql(statement)
            .execute(&self.admin)
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
    }

    /// Makes a template.
    async fn fill(&self, template: &Template) {
        let making = format!("{}_making", template.name);
        let url = self.postgres.create_database(&making).await.expect("a database");
        app::migrate(&url, "tally bench")
            .await
            .expect("the migrations run");
        let mut connection = PgConnection::connect(&url).await.expect("a connection");
        sqlx::query(
            "with items as (
                 insert into item (name, vote_count, counted_at)
                 select 'item ' || n, $3, case when $3 > 0 then now() - interval '1 hour' end
                 from generate_series(1, $1) n
                 returning id
             )
             insert into audited_count select id, $2, 0 from items where $2 <> 0",
        )
        .bind(template.items)
        .bind(if template.audited { template.count } else { 0 })
        .bind(template.saved_count())
        .execute(&mut connection)
        .await
        .expect("items");
        match template.rules {
            Rules::Default => {}
            Rules::Limited => limit_items(&mut connection, 1_000_000_000).await,
            Rules::OnePlace => limit_items(&mut connection, 1).await,
            Rules::Poll => make_poll(&mut connection, template).await,
        }
        if template.votes() > 0 && template.rules != Rules::Poll {
            fill_votes(&mut connection, template).await;
        }
        if template.audited && template.votes() > 0 {
            set_watermark(&mut connection).await;
        }
        if template.in_ranges {
            let owner = OwnerLedger::new(&url, "tally bench").expect("a URL");
            owner.partition(RANGE_IDS, |_, _| {}).await.expect("a split");
            owner.close().await;
            // As it is once the first range is full: new votes go into the next one.
            sqlx::raw_sql(
                "select setval('vote_id_seq', min(end_vote_id) - 1) from vote_range;
                 update watermark
                 set vote_id = (select last_value from vote_id_seq), saved_vote_id = (select last_value from vote_id_seq)",
            )
            .execute(&mut connection)
            .await
            .expect("a next range");
        }
        locking::make_tables(&mut connection).await;
        // As autovacuum would leave it.
        sqlx::raw_sql("vacuum analyze")
            .execute(&mut connection)
            .await
            .expect("vacuum");
        connection.close().await.expect("an end");
        // It gets its name only now, so an interrupted bench leaves no half template.
        self.execute(&format!("alter database {making} rename to {}", template.name))
            .await;
    }

    pub async fn flush_redis(&self) {
        for redis in self.redises() {
            let mut connection = redis_connection(&redis.url()).await.expect("Redis answers");
            redis::cmd("FLUSHALL")
                .exec_async(&mut connection)
                .await
                .expect("Redis answers");
        }
    }

    pub async fn redis_connection(&self) -> redis::aio::MultiplexedConnection {
        redis_connection(&self.redis.url()).await.expect("Redis answers")
    }

    /// How many bytes Redis uses.
    pub async fn redis_bytes(&self) -> u64 {
        let mut bytes = 0;
        for redis in self.redises() {
            let info = redis_info(&redis.url(), "memory").await.expect("Redis answers");
            bytes += info.get::<u64>("used_memory").expect("a number");
        }
        bytes
    }

    /// The position in the write-ahead log, in bytes.
    pub async fn wal_bytes(&self) -> i64 {
        sqlx::query_scalar("select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
            .fetch_one(&self.admin)
            .await
            .expect("a position")
    }
}

/// Fills the ledger: every tenth vote has a voter of its own. To drop the secondary indexes first and create them again
/// afterwards takes half the time.
async fn fill_votes(connection: &mut PgConnection, template: &Template) {
    let indexes: Vec<(String, String)> = sqlx::query_as(
        "select indexrelid::regclass::text, pg_get_indexdef(indexrelid) from pg_index
         where indrelid = 'vote'::regclass and not indisprimary",
    )
    .fetch_all(&mut *connection)
    .await
    .expect("indexes");
    for (name, _) in &indexes {
        sqlx::raw_sql(&format!("drop index {name}"))
            .execute(&mut *connection)
            .await
            .expect("an index less");
    }
    // Old enough that none of them is in flight.
    sqlx::query(
        "insert into vote (item_id, voter_id, created_at)
         select 1 + n % $1, case when n % 10 = 9 then 'earlier ' || n end, now() - interval '1 day'
         from generate_series(0, $2 - 1) n",
    )
    .bind(template.items)
    .bind(template.votes())
    .execute(&mut *connection)
    .await
    .expect("votes");
    for (_, definition) in &indexes {
        sqlx::raw_sql(definition)
            .execute(&mut *connection)
            .await
            .expect("an index more");
    }
}

/// Sets the watermark behind all votes.
async fn set_watermark(connection: &mut PgConnection) {
    sqlx::raw_sql(
        "update watermark
         set vote_id = coalesce(max_id, 0), saved_vote_id = coalesce(max_id, 0), vote_total = total
         from (select max(id) as max_id, count(*) as total from vote) as all_votes",
    )
    .execute(connection)
    .await
    .expect("a watermark");
}

/// Makes the items choices of poll 1. Each vote there has a voter of its own, and each voter takes
/// the choice after the one before.
async fn make_poll(connection: &mut PgConnection, template: &Template) {
    sqlx::raw_sql(&format!(
        "alter table item disable trigger all;
         insert into rule (title, max_choices, voter_count) values ('Poll', 1, {voters});
         update item set rule_id = 1, takes_down_votes = false;
         alter table item enable trigger all;
         insert into vote (item_id, voter_id, poll_id, created_at)
         select 1 + n % {choices}, {voter}, 1, now() - interval '1 day'
         from generate_series(0, {voters} - 1) n",
        voters = template.votes(),
        choices = template.items,
        voter = voter_of_poll("n"),
    ))
    .execute(connection)
    .await
    .expect("a poll");
}

/// Replaces the items by items with a rule each. An item cannot get a rule later.
async fn limit_items(connection: &mut PgConnection, max_votes: i64) {
    sqlx::raw_sql(&format!(
        "alter table item disable trigger all;
         insert into rule select from item;
         update item set rule_id = id;
         insert into place (item_id, max_votes) select id, {max_votes} from item;
         alter table item enable trigger all",
    ))
    .execute(connection)
    .await
    .expect("limits");
}
