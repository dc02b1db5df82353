//! What a Postgres can have wrong.

use sqlx::{Executor, PgPool};
use tally::dev::{Durability, PrivatePostgres};
use testkit::stores::{SECRET, owner_pool};

use super::{finds, finds_nothing, well_installation};
use crate::helpers::stores::{Stores, blocker};

/// Statements that break something, what the doctor then says, and statements that mend it. `{login}` is the
/// server's login.
const BROKEN: [(&str, &str, &str); 16] = [
    (
        "alter role {login} set synchronous_commit = off",
        "has synchronous_commit=off",
        "alter role {login} reset synchronous_commit",
    ),
    (
        "alter role {login} set default_transaction_read_only = on",
        "has default_transaction_read_only=on",
        "alter role {login} reset default_transaction_read_only",
    ),
    (
        "alter database tally set synchronous_commit = off",
        "each login has synchronous_commit=off",
        "alter database tally reset synchronous_commit",
    ),
    (
        "alter system set synchronous_standby_names = 'nobody'; select pg_reload_conf()",
        "no synchronous standby is shown",
        "alter system reset synchronous_standby_names; select pg_reload_conf()",
    ),
    (
        "alter system set default_transaction_read_only = on; select pg_reload_conf()",
        "default_transaction_read_only is on",
        "alter system reset default_transaction_read_only; select pg_reload_conf()",
    ),
    (
        "alter system set autovacuum = off; select pg_reload_conf()",
        "autovacuum is off",
        "alter system reset autovacuum; select pg_reload_conf()",
    ),
    (
        "alter table item set (autovacuum_enabled = false)",
        "autovacuum is off",
        "alter table item reset (autovacuum_enabled)",
    ),
    (
        "select pg_create_physical_replication_slot('forgotten', true)",
        "replication slots that nobody uses (forgotten)",
        "select pg_drop_replication_slot('forgotten')",
    ),
    (
        "insert into loss (token, vote_total, first_stored_at, last_stored_at, first_vote_id, last_vote_id, item_total, is_whole)
         values ('x', 7, now(), now(), 1, 7, 1, true)",
        "7 acknowledged votes were lost",
        "truncate loss, loss_item",
    ),
    (
        "insert into job_run (fencing_number, job, worker, started_at, ended_at, outcome, details)
         values (1000000000, 'audit', 'x', now(), now(), 'done', '{\"wrong_items\": 3}')",
        "the last audit found wrong counts",
        "delete from job_run where fencing_number = 1000000000",
    ),
    (
        "alter role {login} createdb",
        "logins that may do more than these need: {login}",
        "alter role {login} nocreatedb",
    ),
    (
        "grant select on vote to public; grant usage on sequence vote_id_seq to public",
        "every login has rights on vote, vote_id_seq",
        "revoke all on vote from public; revoke all on sequence vote_id_seq from public",
    ),
    (
        "alter role all set synchronous_commit = off",
        "each login has synchronous_commit=off",
        "alter role all reset synchronous_commit",
    ),
    (
        "alter sequence vote_id_seq cache 10",
        "has cache 10",
        "alter sequence vote_id_seq cache 1",
    ),
    (
        "insert into item (name) select 'x' from generate_series(1, 5); select setval('item_id_seq', 1)",
        "say select setval('item_id_seq'",
        "select setval('item_id_seq', (select max(id) from item))",
    ),
    (
        "create table applied as select * from _sqlx_migrations; update _sqlx_migrations set checksum = 'x' where version = (select max(version) from applied)",
        "another version of Tally has made this database",
        "update _sqlx_migrations set checksum = applied.checksum from applied where applied.version = _sqlx_migrations.version; drop table applied",
    ),
];

async fn execute(pool: &PgPool, statements: &str) {
    for statement in statements.split("; ") {
        sqlx::raw_sql(statement)
            .execute(pool)
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}

/// The login that has this role.
async fn login(pool: &PgPool, role: &str) -> String {
    let logins =
        "select rolname::text from pg_roles where pg_has_role(oid, $1::name, 'member') and rolcanlogin
                  and not rolsuper limit 1";
    sqlx::query_scalar(logins)
        .bind(role)
        .fetch_one(pool)
        .await
        .expect("a login")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doctor_finds_each_thing_that_is_broken_in_postgres_and_nothing_once_it_is_mended() {
    let (stores, _programs) = well_installation().await;
    let pool = stores.pool();
    let login = login(&pool, "tally_server").await;
    for (breaks, words, mends) in BROKEN {
        execute(&pool, &breaks.replace("{login}", &login)).await;
        finds(&stores, &words.replace("{login}", &login)).await;
        // Also while this session would be read-only.
        let mends = mends.replace("{login}", &login);
        execute(&pool, &mends).await;
    }
    finds_nothing(&stores).await;

    let lock = blocker(&pool, "lock table vote in access exclusive mode").await;
    finds(&stores, "strong locks").await;
    finds(&stores, "sessions wait for a table").await;
    lock.rollback().await.expect("a rollback");
    // More dead rows than live ones.
    execute(
        &pool,
        "alter table item set (autovacuum_enabled = false); \
         insert into item (name) select 'x' from generate_series(1, 60000); \
         update item set name = 'y'; update item set name = 'z'; select pg_stat_force_next_flush()",
    )
    .await;
    finds(&stores, "more dead rows than live ones").await;
    execute(&pool, "alter table item reset (autovacuum_enabled); vacuum item").await;
    finds_nothing(&stores).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doctor_finds_a_worker_that_is_gone_and_a_postgres_that_is_gone_or_full() {
    let (mut stores, [server, worker]) = well_installation().await;
    let pool = stores.pool();
    drop(worker);
    finds(&stores, "no worker runs").await;
    execute(&pool, "update job set succeeded_at = now() - interval '2 hours'").await;
    finds(&stores, "the job roll_up last ended well 72").await;
    finds(&stores, "the last audit ended well 72").await;
    execute(&pool, "select setval('vote_id_seq', 600000)").await;
    finds(&stores, "vote ids wait to be rolled up").await;
    drop(server);
    let limit: i64 = sqlx::query_scalar("select current_setting('max_connections')::bigint")
        .fetch_one(&pool)
        .await
        .expect("a setting");
    let mut others = Vec::new();
    for _ in 0..limit * 88 / 100 {
        others.push(
            <sqlx::PgConnection as sqlx::Connection>::connect(&stores.database_url)
                .await
                .expect("a connection"),
        );
    }
    finds(&stores, " connections are used").await;
    drop(others);
    stores.postgres.stop().await;
    finds(&stores, "wrong: \"Postgres: ").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doctor_finds_what_is_wrong_with_standbys_archives_and_prepared_transactions() {
    let mut stores = Stores::start().await;
    let pool = stores.pool();
    execute(
        &pool,
        "alter system set archive_mode = on; alter system set archive_command = 'false'; \
         alter system set max_prepared_transactions = 5",
    )
    .await;
    drop(pool);
    stores.postgres.stop().await;
    stores.postgres.start().await.expect("it starts");
    let pool = stores.pool();
    // It is found once it is a minute old, while all else is looked at.
    let mut session = pool.acquire().await.expect("a connection");
    (&mut *session)
        .execute("begin; create table forgotten (); prepare transaction 'forgotten'")
        .await
        .expect("a statement");
    drop(session);
    finds(&stores, "no WAL was archived yet").await;
    execute(&pool, "select pg_switch_wal()").await;
    finds(&stores, "WAL is not archived: the last try failed").await;
    execute(
        &pool,
        "alter system set archive_command = 'true'; select pg_reload_conf()",
    )
    .await;

    let folder = stores.folder().join("standby");
    let worker = format!(
        "grant pg_read_all_stats to {}",
        login(&pool, "tally_worker").await
    );
    execute(&pool, &worker).await;
    let mut standby = PrivatePostgres::new(&folder, SECRET, Durability::ProcessOnly).expect("a port");
    standby.follow(&stores.postgres).await.expect("a backup");
    standby.start().await.expect("it starts");
    finds(&stores, "no standby is synchronous").await;
    // It has what is written, and does not apply it.
    let paused = owner_pool(&standby.url("postgres")).expect("a URL");
    execute(&paused, "select pg_wal_replay_pause()").await;
    execute(
        &pool,
        "create table large as select repeat(md5(i::text), 30) as text from generate_series(1, 80000) as i",
    )
    .await;
    finds(&stores, "MB of WAL behind").await;
    execute(&paused, "select pg_wal_replay_resume()").await;
    drop(paused);
    // Its own database: a standby, and then one that was promoted.
    let of_standby = [(
        "DATABASE_URL",
        stores.database_url.replace(
            &format!(":{}/", stores.postgres.port()),
            &format!(":{}/", standby.port()),
        ),
    )];
    let of_standby: Vec<(&str, &str)> = of_standby
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    super::finds_with(&stores, &of_standby, "is a standby and takes no writes").await;
    standby.stop().await;
    finds(&stores, "prepared transactions are open").await;
    execute(&pool, "rollback prepared 'forgotten'").await;
}
