//! Crashed-writer recovery finds what a dead server stored and did not count.

use std::time::Duration;
use tally::domain::VoteSource;

use redis::AsyncCommands;
use sqlx::Connection;
use tally::ledger::{Pacing, Role};
use tally::sync::Repair;
use tally::votes::ProgressNotes;
use testkit::stores::redis_connection;
use tokio::time::Instant;

use super::{command, writer_that_counts_not};
use crate::helpers::eventually;
use crate::helpers::stores::{LOCK_VOTES, blocker, until_blocked};
use crate::helpers::tally::{
    Tally, connected, ledger, live_counts, live_counts_limited_to, roll_up_lease, vote, vote_queue,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_is_recovered_once_its_connection_is_gone_and_not_before() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let worker = tally.worker();
    let finalized = worker.recover_crashed_writers().await.expect("the stores answer");
    assert_eq!(finalized, None, "the server lives");
    assert_eq!(tally.live_count(item).await, Some(1));
    // Its connections end, as if its machine had failed, but the server goes on.
    sqlx::query(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'tally writer %'",
    )
    .execute(&tally.pool)
    .await
    .expect("Postgres answers");
    eventually("the lost connections are seen", async || {
        worker.recover_crashed_writers().await.expect("the stores answer")
    })
    .await;
    // The server lives and has counted its vote, whether or not it could record that.
    worker.flush_until_quiescent().await.expect("a flush");
    assert_eq!(tally.saved_count(item).await, 1);
    let finalized = worker.recover_crashed_writers().await.expect("the stores answer");
    assert_eq!(finalized, None, "a batch writer is recovered once");
}

/// Another worker was quicker. Otherwise all votes there are would be looked at.
#[tokio::test(flavor = "multi_thread")]
async fn writers_that_are_forgotten_by_now_left_no_votes() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let ledger = ledger(&tally.stores.login_url(Role::Worker));
    let (after, last) = ledger
        .ids_left_by(&["tally writer of another time".to_owned()])
        .await
        .expect("Postgres answers");
    assert!(after == last && last.get() > 0, "{after:?} {last:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn once_rebuilds_the_counts_that_a_redis_without_its_data_does_not_have() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    tally.worker().flush().await.expect("a flush");
    tally.add(item, 1).await;
    command(&tally, &["FLUSHALL"]).await;
    let (_, audit) = tally.worker().once().await.expect("the stores answer");
    assert_eq!((audit.votes, audit.wrong_items), (2, 0));
    assert_eq!(tally.saved_count(item).await, 2);
}

/// For an operator who runs `--once` from cron, no other worker does the rest.
#[tokio::test(flavor = "multi_thread")]
async fn once_saves_what_a_dead_server_left_uncounted() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    // An epoch that began only now would look at all items.
    tally.worker().once().await.expect("the stores answer");
    let writer = writer_that_counts_not(&tally, item).await;
    writer.close().await.expect("an end");
    eventually("its connection is gone", async || {
        let is_there: bool = sqlx::query_scalar(
            "select exists (select from pg_stat_activity where application_name = 'tally writer that counts not')",
        )
        .fetch_one(&tally.pool)
        .await
        .ok()?;
        (!is_there).then_some(())
    })
    .await;
    let (_, audit) = tally.worker().once().await.expect("the stores answer");
    assert_eq!((audit.votes, audit.wrong_items), (2, 0));
    assert_eq!(tally.saved_count(item).await, 2);
}

/// Postgres' clock plays no part, and a late worker finds the same.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_server_left_uncounted_is_found_by_its_ids_whatever_the_clock_says() {
    let tally = Tally::start().await;
    let (counted, left) = (tally.item("counted").await, tally.item("left").await);
    for item in [counted, left] {
        tally.add(item, 1).await;
    }
    sqlx::raw_sql(&format!(
        "insert into writer_connection (name, counted_vote_id)
         select 'tally writer of the dead', last_value from vote_id_seq;
         insert into vote (item_id, created_at) values ({left}, now() - interval '10 minutes')"
    ))
    .execute(
        &mut tally
            .stores
            .pool()
            .acquire()
            .await
            .expect("a connection")
            .detach(),
    )
    .await
    .expect("a vote that nobody counts");
    // Another worker's audit in between does not hide it.
    let ledger = &tally.ledger;
    let safe = ledger.safe_vote_id().await.expect("a safe id");
    let lease = roll_up_lease(ledger).await;
    ledger
        .roll_up_votes(&lease, &safe, 100, Pacing::Spread)
        .await
        .expect("a roll-up");
    let worker = tally.worker();
    let recovered = worker.recover_crashed_writers().await.expect("the stores answer");
    assert_eq!(recovered, Some(1), "not the item whose votes are counted");
    assert_eq!(tally.live_count(left).await, None);
    assert_eq!(tally.live_count(counted).await, Some(1));
    tally.assert_exact_when_quiescent(left).await;
}

/// The audit has looked for dead servers while this one still lived.
/// Then the audit waits for another writer's vote before it rolls up.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_left_uncounted_that_dies_during_an_audit_is_found_afterwards() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let worker = tally.worker();
    worker.flush_until_quiescent().await.expect("a flush");
    let dying = writer_that_counts_not(&tally, item).await;
    let writing = blocker(&tally.pool, "lock table vote in row exclusive mode").await;
    let auditing = tokio::spawn({
        let worker = tally.worker();
        async move { worker.audit(Repair::No).await.expect("an audit") }
    });
    let is_true = async |condition: &str| {
        let asked = format!("select {condition}");
        let is_so: bool = sqlx::query_scalar(&asked)
            .fetch_one(&tally.pool)
            .await
            .expect("Postgres answers");
        is_so.then_some(())
    };
    eventually("the audit waits for who writes votes", async || {
        is_true(
            "exists (select from pg_stat_activity
                     where query like '%virtualtransaction%' and pid <> pg_backend_pid())",
        )
        .await
    })
    .await;
    dying.close().await.expect("an end");
    eventually("the connection is gone", async || {
        is_true("not exists (select from pg_stat_activity where application_name = 'tally writer that counts not')")
            .await
    })
    .await;
    writing.rollback().await.expect("an end");
    auditing.await.expect("no panic");
    let recovered = worker.recover_crashed_writers().await.expect("the stores answer");
    assert_eq!(recovered, Some(1));
    assert_eq!(tally.live_count(item).await, None);
    worker.flush_until_quiescent().await.expect("a flush");
    assert_eq!(tally.saved_count(item).await, 2);
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_server_stopped_in_order_nothing_has_to_be_rebuilt() {
    let mut tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    // The reads open a connection of the server's pool on each thread. These connections end with
    // the threads, before the last note.
    let reads = (0..16).map(|_| tally.get("/v1/items"));
    futures_util::future::join_all(reads).await;
    tally.stop().await;
    let recovered = eventually("the closed connections are seen", async || {
        let worker = tally.worker();
        worker.recover_crashed_writers().await.expect("the stores answer")
    })
    .await;
    assert_eq!(recovered, 0);
    assert_eq!(tally.live_count(item).await, Some(1));
}

/// A batch writer's vote is not counted, however many votes others have counted.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_says_that_its_votes_are_counted_only_when_none_is_in_hand_or_suspect() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    // The server's own connections are not open yet: nobody has voted over them.
    let least_counted = async || -> i64 {
        sqlx::query_scalar("select coalesce(min(counted_vote_id), -1) from writer_connection")
            .fetch_one(&tally.pool)
            .await
            .expect("Postgres answers")
    };
    let live_counts = connected(live_counts(&tally)).await;
    let queue = vote_queue(&tally, &live_counts);
    let mut progress = ProgressNotes::new(tally.server_ledger.clone(), live_counts.clone());
    queue
        .cast(vote(item, None), VoteSource::default())
        .await
        .expect("a vote");
    progress.note().await.expect("Postgres answers");
    assert_eq!(least_counted().await, 1);
    let blocker = blocker(&tally.pool, LOCK_VOTES).await;
    let voting = tokio::spawn(async move { queue.cast(vote(item, None), VoteSource::default()).await });
    until_blocked(&tally.pool, "").await;
    // Meanwhile others draw ids.
    let draw_ids = async || {
        sqlx::query("select nextval('vote_id_seq') from generate_series(1, 10)")
            .execute(&tally.pool)
            .await
            .expect("ids");
    };
    draw_ids().await;
    progress.note().await.expect("Postgres answers");
    assert_eq!(least_counted().await, 1, "a batch is under way");
    // A note waits for the end of a batch for a while.
    let noted_from: String = sqlx::query_scalar("select clock_timestamp()::text")
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers");
    let end_batch = async {
        eventually("the note has read how far ids are drawn", async || {
            let has_read: bool = sqlx::query_scalar(
                "select exists (select from pg_stat_activity
                                where state = 'idle' and query like 'select last_value, is_called%'
                                  and query_start > $1::timestamptz)",
            )
            .bind(&noted_from)
            .fetch_one(&tally.pool)
            .await
            .ok()?;
            has_read.then_some(())
        })
        .await;
        blocker.rollback().await.expect("a rollback");
    };
    let (noted, ()) = tokio::join!(progress.note(), end_batch);
    noted.expect("Postgres answers");
    voting.await.expect("no panic").expect("a vote");
    let counted = least_counted().await;
    assert!(counted > 10, "{counted}");
    live_counts.suspect_later([item], Instant::now() + Duration::from_secs(3600));
    draw_ids().await;
    progress.note().await.expect("Postgres answers");
    assert_eq!(least_counted().await, counted, "an item is suspect");
}

/// A server may not have heard yet that the counts are in another Redis, and may end before it does.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_says_that_its_votes_are_counted_only_while_the_counts_are_in_its_redis() {
    const MARK: &str = "tally:entering:x";
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let live_counts = connected(live_counts(&tally)).await;
    let queue = vote_queue(&tally, &live_counts);
    let mut progress = ProgressNotes::new(tally.server_ledger.clone(), live_counts.clone());
    let mut redis = redis_connection(&tally.stores.redis_url())
        .await
        .expect("Redis answers");
    // Returns whether a vote is noted as counted.
    let mut votes = 0;
    let mut is_noted = async || {
        votes += 1;
        queue
            .cast(vote(item, None), VoteSource::default())
            .await
            .expect("a vote");
        progress.note().await.expect("Postgres answers");
        let counted: i64 = sqlx::query_scalar("select max(counted_vote_id) from writer_connection")
            .fetch_one(&tally.pool)
            .await
            .expect("Postgres answers");
        counted == votes
    };
    let note_entry = async |entry: &str| {
        sqlx::query("update epoch_entry set entry = $1")
            .bind(entry)
            .execute(&tally.pool)
            .await
            .expect("the owner may");
    };
    assert!(is_noted().await, "no worker has come yet");
    // What was counted meanwhile is left to recovery first, at most once a second.
    let mut expect = async |is_here: bool, is_again: bool, what: &str| {
        if is_again {
            assert!(!is_noted().await, "{what}: first");
            eventually(what, async || is_noted().await.then_some(())).await;
        }
        assert_eq!([is_noted().await, is_noted().await], [is_here; 2], "{what}");
    };
    let worker = tally.worker();
    worker.enter_epoch().await.expect("the stores answer");
    expect(true, false, "a worker has entered this Redis").await;
    let entry: String = sqlx::query_scalar("select entry from epoch_entry")
        .fetch_one(&tally.pool)
        .await
        .expect("an entry");
    note_entry(MARK).await;
    expect(false, false, "a worker is entering another one").await;
    let _: () = redis.set(MARK, "").await.expect("it is set");
    expect(true, true, "a worker is entering this one").await;
    note_entry("x:5:another").await;
    expect(false, false, "workers were in another one").await;
    note_entry(&entry).await;
    expect(true, true, "they are back").await;
    let _: () = redis.del("tally:epoch").await.expect("it is removed");
    expect(false, false, "this one has lost its data").await;
    worker.enter_epoch().await.expect("the stores answer");
    expect(true, true, "a worker has entered it again").await;
}

/// The server no longer knows which counts are wrong, but it knows since when.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_too_many_suspects_leaves_its_latest_votes_to_recovery_and_goes_on() {
    let tally = Tally::start().await;
    let (first, second) = (tally.item("first").await, tally.item("second").await);
    let live_counts = connected(live_counts_limited_to(&tally, 1)).await;
    let queue = vote_queue(&tally, &live_counts);
    let mut progress = ProgressNotes::new(tally.server_ledger.clone(), live_counts.clone());
    for item in [first, second] {
        queue
            .cast(vote(item, None), VoteSource::default())
            .await
            .expect("a vote");
    }
    progress.note().await.expect("Postgres answers");
    // Both counts are suspect, and the server remembers only one.
    let due = Instant::now();
    live_counts.suspect_later([first, second], due);
    live_counts.repaired().await;
    queue
        .cast(vote(second, None), VoteSource::default())
        .await
        .expect("a vote");
    progress.note().await.expect("Postgres answers");
    let worker = tally.worker();
    // Nobody votes meanwhile.
    let recovered = eventually("the abandoned connection is seen", async || {
        worker.recover_crashed_writers().await.expect("the stores answer")
    })
    .await;
    assert!(recovered > 0, "votes after the last note");
    assert_eq!(
        tally.live_count(second).await,
        None,
        "it was rebuilt by nobody yet"
    );
    queue
        .cast(vote(first, None), VoteSource::default())
        .await
        .expect("a vote");
    progress.note().await.expect("Postgres answers");
    let (last, _) = tally
        .server_ledger
        .last_vote_id()
        .await
        .expect("Postgres answers");
    let progress = tally.ledger.progress().await.expect("Postgres answers");
    assert!(
        progress.writers.iter().any(|writer| writer.counted == last),
        "progress is noted again: {progress:?}"
    );
    tally.assert_exact_when_quiescent(first).await;
    tally.assert_exact_when_quiescent(second).await;
}
