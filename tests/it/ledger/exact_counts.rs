//! Exact counts: each vote beyond the watermark is read once, and all who ask share a read.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use sqlx::{PgPool, Postgres, Transaction};
use tally::domain::{Count, ItemId};
use tally::ledger::{LedgerError, Pacing, Role};
use tally::votes::TailReading;
use tokio::time::Instant;

use super::{item, vote};
use crate::helpers::eventually;
use crate::helpers::stores::{Stores, blocker, read_plainly, read_under, until_blocked};
use crate::helpers::tally::{ledger, roll_up_lease, server_ledger};

/// Votes that are written by hand, in transactions that end in any order.
async fn begin_vote(
    stores: &Stores,
    item: ItemId,
    value: i16,
    change_number: i16,
) -> Transaction<'static, Postgres> {
    let mut transaction = stores.pool().begin().await.expect("a transaction");
    sqlx::query("insert into vote (item_id, value, change_number) values ($1, $2, $3)")
        .bind(item.get())
        .bind(value)
        .bind(change_number)
        .execute(&mut *transaction)
        .await
        .expect("a vote");
    transaction
}

async fn sum(stores: &Stores, item: ItemId) -> Count {
    let (net, downs) = sqlx::query_as(
        "select coalesce(sum(value), 0),
                count(*) filter (where value < 0 and change_number % 2 = 0)
                - count(*) filter (where value > 0 and change_number % 2 = 1)
         from vote where item_id = $1",
    )
    .bind(item.get())
    .fetch_one(&stores.pool())
    .await
    .expect("a sum");
    Count { net, downs }
}

#[tokio::test]
async fn votes_count_once_in_whatever_order_they_are_committed_and_rolled_up() {
    let stores = Stores::start().await;
    let (worker, server) = (ledger(&stores.database_url), server_ledger(&stores.database_url));
    let lease = roll_up_lease(&worker).await;
    let (x, y) = (item(&server).await, item(&server).await);
    let exact = async || {
        let mut seen = Vec::new();
        for ledger_counts in [
            worker.exact_counts(&[x, y]).await.expect("counts"),
            server.exact_counts(&[x, y]).await.expect("counts"),
        ] {
            let mut counts: Vec<_> = ledger_counts.iter().map(|one| (one.item_id, one.count)).collect();
            counts.sort_unstable_by_key(|(item, _)| *item);
            seen.push(counts);
        }
        let sums = vec![(x, sum(&stores, x).await), (y, sum(&stores, y).await)];
        assert_eq!(seen, [sums.clone(), sums.clone()]);
        sums
    };
    for round in 0..3 {
        let first = begin_vote(&stores, x, 1, 0).await;
        let second = begin_vote(&stores, y, -1, 0).await;
        let lost = begin_vote(&stores, x, -1, 0).await;
        exact().await;
        begin_vote(&stores, x, 1, 1)
            .await
            .commit()
            .await
            .expect("a commit");
        begin_vote(&stores, x, -1, 0)
            .await
            .commit()
            .await
            .expect("a commit");
        exact().await;
        second.commit().await.expect("a commit");
        exact().await;
        lost.rollback().await.expect("a rollback");
        first.commit().await.expect("a commit");
        exact().await;
        if round > 0 {
            let safe = worker.safe_vote_id().await.expect("a safe id");
            let late = begin_vote(&stores, y, 1, 0).await;
            worker
                .roll_up_votes(&lease, &safe, 3, Pacing::Spread)
                .await
                .expect("a roll-up");
            exact().await;
            late.commit().await.expect("a commit");
            worker
                .roll_up_votes(&lease, &safe, 1_000_000, Pacing::Spread)
                .await
                .expect("a roll-up");
        }
        let counts = exact().await;
        assert_ne!(counts[0].1, Count::ZERO);
    }
}

/// As a server does while no worker rolls up.
#[tokio::test]
async fn behind_a_watermark_that_stands_still_a_server_reads_on_by_itself_and_counts_stay_exact() {
    const VOTES: i64 = 130_000;
    let stores = Stores::start().await;
    let (worker, server) = (ledger(&stores.database_url), server_ledger(&stores.database_url));
    let x = item(&server).await;
    let add_votes = async || {
        sqlx::query("insert into vote (item_id) select $1 from generate_series(1, $2)")
            .bind(x.get())
            .bind(VOTES)
            .execute(&stores.pool())
            .await
            .expect("votes");
    };
    let unread = async || {
        let tail = server.tail_progress().await.expect("an answer");
        tail.drawn.get() - tail.read.get()
    };
    let mut patient = TailReading::new(server.clone(), Duration::MAX);
    let mut reading = TailReading::new(server.clone(), Duration::from_millis(50));
    for round in 1..=2 {
        add_votes().await;
        patient.read_on().await.expect("a look");
        assert_eq!(unread().await, VOTES, "a watermark that was just seen may move");
        until_read(&mut reading, &unread).await;
        let counts = server.exact_counts(&[x]).await.expect("counts");
        assert_eq!(counts[0].count.net, VOTES * round);
    }
    let lease = roll_up_lease(&worker).await;
    let safe = worker.safe_vote_id().await.expect("a safe id");
    let rolling_up = worker.roll_up_votes(&lease, &safe, VOTES, Pacing::Spread).await;
    rolling_up.expect("a roll-up").expect("votes");
    add_votes().await;
    until_read(&mut reading, &unread).await;
    let counts = server.exact_counts(&[x]).await.expect("counts");
    assert_eq!(counts[0].count.net, VOTES * 3);
}

async fn until_read(reading: &mut TailReading, unread: &impl AsyncFn() -> i64) {
    eventually("all votes are read", async || {
        reading.read_on().await.expect("reads");
        (unread().await == 0).then_some(())
    })
    .await;
}

/// A writer that stalls, with ids that repeats left unused before it and behind it.
#[tokio::test]
async fn behind_unused_ids_a_server_reads_what_it_can_and_pauses_and_counts_stay_exact() {
    const VOTES: i64 = 12_000;
    let stores = Stores::start().await;
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    let execute = async |statement: String| {
        sqlx::raw_sql(&statement)
            .execute(&stores.pool())
            .await
            .expect("an answer");
    };
    let stalled = begin_vote(&stores, x, 1, 0).await;
    for _ in 0..3 {
        execute(format!(
            "insert into vote (item_id) select {x} from generate_series(1, {VOTES});
             select setval('vote_id_seq', last_value + 5000) from vote_id_seq"
        ))
        .await;
    }
    // The end of each call shows that it does not try for ever.
    let mut reading = TailReading::new(server.clone(), Duration::ZERO);
    reading.read_on().await.expect("reads");
    reading.read_on().await.expect("a pause");
    let counts = server.exact_counts(&[x]).await.expect("counts");
    assert_eq!(counts[0].count.net, VOTES * 3);
    stalled.commit().await.expect("a commit");
    let mut reading = TailReading::new(server.clone(), Duration::ZERO);
    reading.read_on().await.expect("reads");
    let counts = server.exact_counts(&[x]).await.expect("counts");
    assert_eq!(counts[0].count.net, VOTES * 3 + 1);
}

/// A restored database, for example: its watermark is another one.
#[tokio::test]
async fn what_was_read_is_read_again_when_the_watermark_went_back() {
    let stores = Stores::start().await;
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    let execute = async |statement: &str| {
        sqlx::raw_sql(statement)
            .execute(&stores.pool())
            .await
            .expect("an answer");
    };
    let mut writer = server.writer();
    writer
        .insert(&[vote(x, None), vote(x, None)], &[])
        .await
        .expect("an insert");
    let count = async || server.exact_counts(&[x]).await.expect("counts")[0].count.net;
    assert_eq!(count().await, 2);
    execute("update watermark set vote_id = 2").await;
    assert_eq!(count().await, 0, "the votes are in no audited count");
    execute("update watermark set vote_id = 1").await;
    assert_eq!(count().await, 1);
}

/// Has each read of exact counts draw a number, and wait until this transaction ends.
async fn block_reads(pool: &PgPool) -> Transaction<'static, Postgres> {
    sqlx::raw_sql(
        "create sequence reads;
         grant all on sequence reads to tally_server;
         create function is_read() returns boolean language plpgsql as $$
         begin
             if current_query() like '%exact counts%' then
                 perform nextval('reads');
                 perform pg_advisory_xact_lock_shared(1);
             end if;
             return true;
         end $$",
    )
    .execute(pool)
    .await
    .expect("the owner may");
    read_under(pool, "watermark", "is_read()").await;
    blocker(pool, "select pg_advisory_xact_lock(1)").await
}

#[tokio::test(flavor = "multi_thread")]
async fn all_who_ask_during_a_read_share_the_next_one() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    let server = server_ledger(&stores.login_url(Role::Server));
    let x = item(&server_ledger(&stores.database_url)).await;
    let blocking = block_reads(&pool).await;
    let first = tokio::spawn({
        let server = server.clone();
        async move { server.exact_counts(&[x]).await }
    });
    until_blocked(&pool, "").await;
    let items = [x];
    let mut later: Vec<_> = (0..50).map(|_| Box::pin(server.exact_counts(&items))).collect();
    // Each of them has joined those who wait once it was polled.
    poll_fn(|context| {
        for question in &mut later {
            assert!(question.as_mut().poll(context).is_pending());
        }
        Poll::Ready(())
    })
    .await;
    let cancelled = server.writer().exact_counts(&[x], &[], Instant::now()).await;
    assert!(matches!(cancelled, Err(LedgerError::Cancelled)), "{cancelled:?}");
    blocking.rollback().await.expect("an end");
    assert_eq!(first.await.expect("no panic").expect("counts").len(), 1);
    for answer in join_all(later).await {
        assert_eq!(answer.expect("counts").len(), 1);
    }
    let reads: i64 = sqlx::query_scalar("select last_value from reads")
        .fetch_one(&pool)
        .await
        .expect("a number");
    assert!((2..=5).contains(&reads), "{reads} reads for 51 questions");
    read_plainly(&pool, "watermark").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_read_that_is_cut_off_gets_an_answer_by_another() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    let server = server_ledger(&stores.login_url(Role::Server));
    let x = item(&server_ledger(&stores.database_url)).await;
    let blocking = block_reads(&pool).await;
    // One that gives up at its deadline, one whose task ends, and one that waits.
    let writer = server.writer();
    let gives_up = tokio::spawn(async move {
        // A busy machine takes a while until the read waits for its lock.
        let soon = Instant::now() + Duration::from_secs(3);
        writer.exact_counts(&[x], &[], soon).await
    });
    until_blocked(&pool, "").await;
    // They wait longer than the first one.
    let ask = || {
        let writer = server.writer();
        let late = Instant::now() + Duration::from_secs(60);
        tokio::spawn(async move { writer.exact_counts(&[x], &[], late).await })
    };
    let (ends, waits) = (ask(), ask());
    let given_up = gives_up.await.expect("no panic");
    assert!(matches!(given_up, Err(LedgerError::Cancelled)), "{given_up:?}");
    until_blocked(&pool, "").await;
    ends.abort();
    blocking.rollback().await.expect("an end");
    let answer = waits.await.expect("no panic").expect("counts");
    assert_eq!(answer.len(), 1);
    read_plainly(&pool, "watermark").await;
    eventually("a later read is answered", async || {
        server.exact_counts(&[x]).await.ok()
    })
    .await;
}

/// More unused ids than are asked for with each read.
const UNUSED_IDS: i64 = 2500;

async fn draw_ids(stores: &Stores) {
    sqlx::query("select nextval('vote_id_seq') from generate_series(1, $1)")
        .bind(UNUSED_IDS)
        .execute(&stores.pool())
        .await
        .expect("ids");
}

#[tokio::test]
async fn a_transaction_that_stalls_behind_many_unused_ids_keeps_no_exact_count_back() {
    let stores = Stores::start().await;
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    let stalled = begin_vote(&stores, x, 1, 0).await;
    let mut writer = server.writer();
    for round in 1..=3 {
        draw_ids(&stores).await;
        writer.insert(&[vote(x, None)], &[]).await.expect("an insert");
        let counts = server.exact_counts(&[x]).await.expect("counts");
        assert_eq!(counts[0].count.net, round);
    }
    stalled.commit().await.expect("a commit");
    let counts = server.exact_counts(&[x]).await.expect("counts");
    assert_eq!(counts[0].count.net, 4);
}

#[tokio::test]
async fn a_vote_whose_id_was_taken_for_unused_counts_when_the_sequence_was_set_back() {
    let stores = Stores::start().await;
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    draw_ids(&stores).await;
    let count = async || server.exact_counts(&[x]).await.expect("counts")[0].count.net;
    begin_vote(&stores, x, 1, 0)
        .await
        .commit()
        .await
        .expect("a commit");
    assert_eq!(count().await, 1);
    sqlx::query("select setval('vote_id_seq', 1000)")
        .execute(&stores.pool())
        .await
        .expect("it is set");
    begin_vote(&stores, x, 1, 0)
        .await
        .commit()
        .await
        .expect("a commit");
    assert_eq!(count().await, 2);
    assert_eq!(count().await, 2);
}
