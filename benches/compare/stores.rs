//! The bench's own Postgres and Redis, and the databases that runs begin with.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sqlx::Connection;
use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};
use tally::dev::{Durability, PrivatePostgres, PrivateRedis, usable_folder};
use tokio::process::Command;

use crate::machine::Machine;

/// How long Redis may take: to forget a million counters needs most of a second.
const REDIS_ANSWER_LIMIT: Duration = Duration::from_secs(30);
const SECRET: &str = "bench";
/// What `create database … template` and a checkpoint may make the next run wait for.
const ADMIN_CONNECTIONS: u32 = 2;

/// Postgres as it comes (fsync and synchronous_commit on) and Redis.
pub struct Stores {
    pub postgres: PrivatePostgres,
    pub redis: PrivateRedis,
    admin: PgPool,
    made: AtomicUsize,
    folder: PathBuf,
    /// Held for as long as the folder is in use.
    _lock: File,
}

/// A database that runs begin with, and what is in it.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    pub name: &'static str,
    pub items: i64,
    /// Each item's exact count.
    pub count: i64,
    /// Whether the ledger has rows for it; if not, an audit has had it all along.
    pub in_ledger: bool,
    /// Whether it is in the items' audited counts, so before the watermark.
    pub audited: bool,
    /// Whether it is in the items' saved counts.
    pub saved: bool,
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

/// A database of a run's own.
pub struct Database {
    pub name: String,
    pub url: String,
    pub pool: PgPool,
    /// The last vote id that it began with.
    pub first_votes: i64,
}

impl Stores {
    pub async fn start() -> Self {
        let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
        std::fs::create_dir_all(base).expect("a folder");
        let base = usable_folder(&base.canonicalize().expect("a folder")).expect("a folder");
        let lock = File::create(base.join("bench.lock")).expect("a lock");
        assert!(
            lock.try_lock().is_ok(),
            "another bench runs in {}",
            base.display()
        );
        let folder = base.join("bench");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let machine = Machine::measure(&folder);
        let mut postgres =
            PrivatePostgres::new(&folder.join("postgres"), SECRET, Durability::Full).expect("a free port");
        postgres.start().await.expect("Postgres starts");
        let mut redis = PrivateRedis::new(&folder.join("redis"), SECRET).expect("a free port");
        redis.start().await.expect("Redis starts");
        let admin = PgPoolOptions::new()
            .max_connections(ADMIN_CONNECTIONS)
            .connect(&postgres.url("postgres"))
            .await
            .expect("a connection");
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
            admin,
            made: AtomicUsize::new(0),
            folder,
            _lock: lock,
        };
        machine.tell(&stores.versions().await);
        stores
    }

    /// What the stores say they are.
    async fn versions(&self) -> String {
        let postgres: String = sqlx::query_scalar("select current_setting('server_version')")
            .fetch_one(&self.admin)
            .await
            .expect("a version");
        let info: redis::InfoDict = redis::cmd("INFO")
            .arg("server")
            .query_async(&mut self.redis_connection().await)
            .await
            .expect("Redis answers");
        let redis: String = info.get("redis_version").expect("a version");
        format!("PostgreSQL {postgres}, Redis {redis}")
    }

    pub async fn stop(mut self) {
        self.admin.close().await;
        self.redis.stop().await;
        self.postgres.stop().await;
        // The prepared databases take gigabytes.
        let _ = std::fs::remove_dir_all(&self.folder);
    }

    /// Both stores' addresses, as the programs take them.
    pub fn environment(&self, database_url: &str) -> [(&'static str, String); 2] {
        [
            ("DATABASE_URL", database_url.to_owned()),
            ("REDIS_URL", self.redis.url()),
        ]
    }

    async fn exists(&self, name: &str) -> bool {
        sqlx::query_scalar("select exists (select from pg_database where datname = $1)")
            .bind(name)
            .fetch_one(&self.admin)
            .await
            .expect("an answer")
    }

    /// A fresh copy of a template, which is made first unless it is there. Redis is
    /// emptied, and Postgres has written everything out.
    pub async fn database(&self, template: &Template) -> Database {
        if !self.exists(template.name).await {
            self.fill(template).await;
        }
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let name = format!("run_{number}");
        // A large database is copied by files where Postgres knows how: by the
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
        let pool = PgPoolOptions::new()
            .max_connections(ADMIN_CONNECTIONS)
            .connect(&url)
            .await
            .expect("a connection");
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

    /// Makes each sync of the write-ahead log take longer, for whoever connects to the
    /// database from now on. Postgres then waits in the place of the sync, with the
    /// others that wait to commit behind it (`commit_delay`).
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

    /// Throws a run's database away.
    pub async fn drop(&self, database: Database) {
        database.pool.close().await;
        self.execute(&format!("drop database {} with (force)", database.name))
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
        run(Command::new(env!("CARGO_BIN_EXE_tally"))
            .arg("migrate")
            .envs(self.environment(&url)))
        .await;
        let mut connection = PgConnection::connect(&url).await.expect("a connection");
        sqlx::query(
            "insert into item (name, audited_count, vote_count, counted_at)
             select 'item ' || n, $2, $3, case when $3 > 0 then now() - interval '1 hour' end
             from generate_series(1, $1) n",
        )
        .bind(template.items)
        .bind(if template.audited { template.count } else { 0 })
        .bind(template.saved_count())
        .execute(&mut connection)
        .await
        .expect("items");
        if template.votes() > 0 {
            fill_votes(&mut connection, template).await;
        }
        // As autovacuum would leave it.
        sqlx::raw_sql("vacuum analyze")
            .execute(&mut connection)
            .await
            .expect("vacuum");
        connection.close().await.expect("an end");
        // Under its name only now: what was cut off is not taken for whole.
        self.execute(&format!("alter database {making} rename to {}", template.name))
            .await;
    }

    pub async fn flush_redis(&self) {
        redis::cmd("FLUSHALL")
            .exec_async(&mut self.redis_connection().await)
            .await
            .expect("Redis answers");
    }

    pub async fn redis_connection(&self) -> redis::aio::MultiplexedConnection {
        redis::Client::open(self.redis.url())
            .expect("a URL")
            .get_multiplexed_async_connection_with_config(
                &redis::AsyncConnectionConfig::new().set_response_timeout(Some(REDIS_ANSWER_LIMIT)),
            )
            .await
            .expect("Redis answers")
    }

    /// How many bytes Redis' data take.
    pub async fn redis_bytes(&self) -> u64 {
        let info: redis::InfoDict = redis::cmd("INFO")
            .arg("memory")
            .query_async(&mut self.redis_connection().await)
            .await
            .expect("Redis answers");
        info.get("used_memory").expect("a number")
    }

    /// Where the write-ahead log is, in bytes.
    pub async fn wal_bytes(&self) -> i64 {
        sqlx::query_scalar("select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
            .fetch_one(&self.admin)
            .await
            .expect("a position")
    }
}

/// Fills the ledger. The secondary indexes are dropped first and made again after,
/// which takes half the time.
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
        "insert into vote (item_id, created_at)
         select 1 + n % $1, now() - interval '1 day' from generate_series(0, $2 - 1) n",
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
    if template.audited {
        sqlx::query("update watermark set vote_id = (select max(id) from vote), votes = $1")
            .bind(template.votes())
            .execute(&mut *connection)
            .await
            .expect("a watermark");
    }
}

/// Runs a program to its end; it must succeed. Returns what it printed.
pub async fn run(command: &mut Command) -> String {
    let output = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .await
        .expect("it runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
