//! A Postgres and a Redis for one test.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sqlx::postgres::PgPoolOptions;
use sqlx::{PgPool, Postgres, Transaction};
use tally::app;
use tally::dev::{Durability, PrivatePostgres, PrivateRedis, usable_folder};
use tally::ledger::Role;
use tempfile::TempDir;

const SECRET: &str = "a-test-has-no-secrets";

pub struct Stores {
    pub postgres: PrivatePostgres,
    pub redis: PrivateRedis,
    /// Of the login that owns the tables: for migrations and a test's own look.
    pub database_url: String,
    folder: TempDir,
}

fn base() -> PathBuf {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(base).expect("a folder for tests");
    usable_folder(&base.canonicalize().expect("a folder for tests")).expect("a folder for Postgres")
}

/// A migrated Postgres, stopped, which each test copies: initdb takes longer than
/// most tests. The lock makes one test process make it.
async fn template() -> PrivatePostgres {
    let folder = base().join("template");
    std::fs::create_dir_all(&folder).expect("a folder for the template");
    let lock = File::create(folder.join("lock")).expect("a lock");
    lock.lock().expect("the lock");
    let mut template =
        PrivatePostgres::new(&folder.join("postgres"), SECRET, Durability::ProcessOnly).expect("a free port");
    let done = folder.join("done");
    // A template of other migrations, or of other grants, is made anew.
    let made_of = migrations() + include_str!("../../../src/ledger/sql/roles.sql");
    if std::fs::read_to_string(&done).ok().as_deref() != Some(made_of.as_str()) {
        let _ = std::fs::remove_dir_all(folder.join("postgres"));
        template.start().await.expect("Postgres starts");
        let url = template.create_database("tally").await.expect("a database");
        app::migrate(&url, "test").await.expect("the migrations run");
        template.stop().await;
        std::fs::write(&done, made_of).expect("a note");
    }
    template
}

fn migrations() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("migrations")
        .flatten()
        .map(|file| file.path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| std::fs::read_to_string(file).expect("a migration"))
        .collect()
}

impl Stores {
    pub async fn start() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("stores-")
            .tempdir_in(base())
            .expect("a folder");
        // tempfile makes it ours alone; Postgres may run as someone else.
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).expect("permissions");
        let mut postgres =
            PrivatePostgres::new(&folder.path().join("postgres"), SECRET, Durability::ProcessOnly)
                .expect("a free port");
        postgres
            .copy_from(&template().await)
            .await
            .expect("a copy of the template");
        postgres.start().await.expect("Postgres starts");
        postgres.create_logins().await.expect("logins");
        // Of its own: should two tests draw one port, neither takes the other's Redis for
        // its own.
        let secret = format!("{SECRET}-{:016x}", rand::random::<u64>());
        let mut redis = PrivateRedis::new(&folder.path().join("redis"), &secret)
            .expect("a free port")
            .persistent();
        redis.start().await.expect("Redis starts");
        let database_url = postgres.url("tally");
        Self {
            postgres,
            redis,
            database_url,
            folder,
        }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The URL of the login with this role, which may do what that role may.
    pub fn login_url(&self, role: Role) -> String {
        self.postgres.login_url(role, "tally")
    }

    pub fn redis_url(&self) -> String {
        self.redis.url()
    }

    /// A pool for a test's own look into the tables.
    pub fn pool(&self) -> PgPool {
        PgPoolOptions::new()
            .max_connections(2)
            .connect_lazy(&self.database_url)
            .expect("a URL")
    }

    /// A connection for a test's own look into Redis.
    pub async fn redis_connection(&self) -> redis::aio::MultiplexedConnection {
        redis::Client::open(self.redis_url())
            .expect("a URL")
            .get_multiplexed_async_connection()
            .await
            .expect("Redis answers")
    }
}

/// Keeps all others from the whole ledger, as a [`blocker`].
pub const LOCK_VOTES: &str = "lock table vote in share row exclusive mode";

/// Runs a statement in a transaction of its own: whoever needs what it has locked waits
/// until that is rolled back.
pub async fn blocker(pool: &PgPool, statement: &str) -> Transaction<'static, Postgres> {
    let mut blocker = pool.begin().await.expect("a transaction");
    sqlx::query(statement)
        .execute(&mut *blocker)
        .await
        .expect("a lock");
    blocker
}

/// Waits until a statement that begins like this one waits for a lock.
pub async fn until_blocked(pool: &PgPool, statement: &str) {
    super::eventually(&format!("{statement:?} waits for a lock"), async || {
        let waits: bool = sqlx::query_scalar(
            "select exists (select from pg_stat_activity
                            where wait_event_type = 'Lock' and starts_with(query, $1))",
        )
        .bind(statement)
        .fetch_one(pool)
        .await
        .ok()?;
        waits.then_some(())
    })
    .await;
}
