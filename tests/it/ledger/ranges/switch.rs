//! The moment in which the ledger becomes one in ranges, and what may happen before it.

use std::sync::Mutex;
use std::sync::mpsc;

use reqwest::{Method, StatusCode};
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tally::domain::ItemId;
use tally::ledger::{LedgerError, OwnerLedger, Partitioned, RANGE_LEAST_IDS};
use tokio::task::JoinHandle;

use super::{differences, draw, number, split};
use crate::helpers::eventually;
use crate::helpers::stores::{blocker, until_blocked};
use crate::helpers::tally::Tally;

/// Prepares the switch, as `tally migrate --partition` does, with no row copied.
const PREPARE: &str = "select begin_ranges(10000);
                       alter table vote validate constraint vote_is_first_range;
                       alter table vote_of_voter_filled add constraint vote_of_voter_filled_pkey primary key (id)";
const SWITCH: &str = "select is_done from enter_ranges(10000, 0, 1000000)";

#[tokio::test(flavor = "multi_thread")]
async fn votes_and_reads_that_wait_behind_the_switch_do_not_stop_it() {
    let tally = Tally::start().await;
    let plain = tally.item("x").await;
    let numbered = tally.item_with(json!({ "numbered": true })).await;
    for item in [plain, numbered] {
        assert_eq!(tally.vote(item, "ada").await.0, StatusCode::CREATED);
    }
    sqlx::raw_sql(PREPARE)
        .execute(&tally.pool)
        .await
        .expect("prepared");
    let mut connection = PgConnection::connect(&tally.stores.database_url)
        .await
        .expect("Postgres answers");

    // A vote is being stored. The switch waits for it, and all others wait behind the switch.
    let aside = tally.stores.pool();
    let storing = blocker(&aside, "lock table vote in row exclusive mode").await;
    let switching = async {
        let mut transaction = connection.begin().await.expect("a transaction");
        let is_done: bool = sqlx::query_scalar(SWITCH)
            .fetch_one(&mut *transaction)
            .await
            .expect("no deadlock");
        transaction.rollback().await.expect("an end");
        is_done
    };
    let vote = |item: ItemId, voter: &'static str| {
        let tally = &tally;
        async move { tally.vote(item, voter).await.0 }
    };
    let held = format!("/v1/feed?voter_id=ada&items={plain}");
    let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    let others = async {
        until_blocked(&tally.pool, "select is_done").await;
        tokio::join!(
            vote(plain, "bob"),
            vote(numbered, "bob"),
            tally.send(Method::GET, &held, None),
            number(&aside, "select count(*) from report.votes"),
            async {
                eventually("they wait", async || {
                    (number(&tally.pool, waiting).await >= 5).then_some(())
                })
                .await;
                storing.rollback().await.expect("an end");
            }
        )
    };
    let (is_done, (of_plain, of_numbered, (feed, _), rows, ())) = tokio::join!(switching, others);
    assert!(is_done);
    assert_eq!(
        (of_plain, of_numbered, feed),
        (StatusCode::CREATED, StatusCode::CREATED, StatusCode::OK)
    );
    assert!(rows >= 2, "{rows} votes");
    split(&tally).await;
    assert_eq!(differences(&tally.pool).await, 0);
    for item in [plain, numbered] {
        tally.assert_exact_when_quiescent(item).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_changed_while_the_ledger_is_copied_is_seen_at_the_switch() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.vote(item, "ada").await;
    let run = async |statements: &'static str| sqlx::raw_sql(statements).execute(&tally.pool).await;
    run("create role a_reader; create role a_former_reader; grant select on vote to a_former_reader")
        .await
        .expect("roles");
    run(PREPARE).await.expect("prepared");
    run("revoke select on vote from a_former_reader; grant select on vote, vote_of_voter to a_reader")
        .await
        .expect("rights");
    run("create table own (id bigint references vote)")
        .await
        .expect("a table");
    let refused = run(SWITCH).await.expect_err("a foreign key").to_string();
    assert!(
        refused.contains("the foreign key own_id_fkey of own refers to vote"),
        "{refused}"
    );
    run("drop table own").await.expect("it is dropped");
    run(SWITCH).await.expect("it is done");
    for (table, reader, may) in [
        ("vote", "a_reader", true),
        ("vote_of_voter", "a_reader", true),
        ("vote", "a_former_reader", false),
    ] {
        let query = format!("select has_table_privilege('{reader}', '{table}', 'select')::int::bigint");
        assert_eq!(
            number(&tally.pool, &query).await,
            i64::from(may),
            "{reader} {table}"
        );
    }
    let with_vacuum = "select count(*) from pg_class where relname = 'vote_of_voter' and reloptions::text not like '%autovacuum_enabled%'";
    assert_eq!(number(&tally.pool, with_vacuum).await, 1);
    run("drop owned by a_reader, a_former_reader; drop role a_reader, a_former_reader")
        .await
        .expect("roles");
}

/// A split that waits once it has copied the first votes.
struct Paused {
    splitting: JoinHandle<Result<Partitioned, LedgerError>>,
    /// Dropped, it lets the split go on.
    go_on: mpsc::Sender<()>,
}

async fn split_until_copied(tally: &Tally) -> Paused {
    let owner = OwnerLedger::new(&tally.stores.database_url, "test").expect("a URL");
    let (has_copied, copied) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let splitting = tokio::spawn(async move {
        let progress = |_, _| {
            has_copied.send(()).ok();
            tokio::task::block_in_place(|| may_go_on.lock().expect("nobody panics").recv().ok());
        };
        owner.partition(RANGE_LEAST_IDS, progress).await
    });
    let waiting = tokio::task::spawn_blocking(move || copied.recv());
    waiting.await.expect("a thread").expect("it copies");
    Paused { splitting, go_on }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_split_that_would_come_too_late_gives_up_before_votes_reach_its_end() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.vote(item, "ada").await;
    let Paused { splitting, go_on } = split_until_copied(&tally).await;
    let report = blocker(&tally.pool, "select count(*) from vote").await;
    let end = "select substring(pg_get_constraintdef(oid), '\\d+')::bigint
               from pg_constraint where conname = 'vote_is_first_range'";
    draw(&tally.pool, number(&tally.pool, end).await - 1000).await;
    drop(go_on);
    let removes = "select count(*) from pg_stat_activity where query = 'select end_split()'";
    eventually("the switch is given up", async || {
        (number(&tally.pool, removes).await == 1).then_some(())
    })
    .await;
    report.rollback().await.expect("an end");
    let refused = splitting
        .await
        .expect("it ends")
        .expect_err("too late")
        .to_string();
    assert!(
        refused.contains("votes come faster than the ledger can be split"),
        "{refused}"
    );
    let limits = "select count(*) from pg_constraint where conname = 'vote_is_first_range'";
    assert_eq!(number(&tally.pool, limits).await, 0);
    assert_eq!(tally.vote(item, "bob").await.0, StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_of_a_split_that_was_killed_ends_in_the_midst_of_a_long_statement() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.vote(item, "ada").await;
    let Paused { splitting, go_on } = split_until_copied(&tally).await;
    // Its next statement takes as long as the index of a large ledger.
    let long = blocker(&tally.pool, "lock table vote_of_voter_filled").await;
    drop(go_on);
    until_blocked(&tally.pool, "alter table vote_of_voter_filled").await;
    splitting.abort();
    let turns = "select count(*) from pg_locks where locktype = 'advisory' and granted and objsubid = 1
                 and classid = (7416153285 >> 32)::oid and objid = (7416153285 & 4294967295)::oid";
    eventually("the next one may begin", async || {
        (number(&tally.pool, turns).await == 0).then_some(())
    })
    .await;
    long.rollback().await.expect("an end");
    split(&tally).await;
    assert_eq!(differences(&tally.pool).await, 0);
}
