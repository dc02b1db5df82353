//! The audit: what it finds, what it counts as in flight, and what it repairs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tally::domain::{Count, CountToSave, Revision};
use tally::sync::{Repair, SyncError, SyncOptions};

use super::{epoch, unsaved, writer_that_counts_not};
use crate::helpers::eventually;
use crate::helpers::stores::{blocker, refuse, refuse_no_more, until_blocked};
use crate::helpers::tally::{Tally, options};

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_finds_nothing_wrong_when_nothing_failed_and_moves_the_watermark() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    for _ in 0..10 {
        tally.add(item, 1).await;
    }
    tally.worker().flush().await.expect("a flush");
    let report = tally.worker().audit(Repair::Yes).await.expect("an audit");
    assert_eq!(
        (report.items, report.votes, report.right_items, report.wrong_items),
        (1, 10, 1, 0)
    );
    let again = tally.worker().audit(Repair::Yes).await.expect("an audit");
    assert_eq!((again.votes, again.wrong_items), (10, 0));
    // The audit rolls up as far as the server has recorded its votes as counted, now and then.
    let worker = tally.worker();
    let votes = eventually("the watermark moves", async || {
        worker.audit(Repair::Yes).await.expect("an audit");
        let (watermark, votes): (i64, i64) = sqlx::query_as("select vote_id, vote_total from watermark")
            .fetch_one(&tally.pool)
            .await
            .expect("the watermark");
        (watermark > 0).then_some(votes)
    })
    .await;
    assert!(votes > 0 && votes <= 10, "{votes}");
    tally.add(item, 1).await;
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_finds_and_repairs_a_live_count_that_is_wrong_either_way() {
    let tally = Tally::start().await;
    for wrong in [3, -2_i64] {
        let item = tally.item("x").await;
        tally.add(item, 1).await;
        tally.worker().flush().await.expect("a flush");
        tally.change_counter(item, |parts| parts.count += wrong).await;
        let found = tally.worker().audit(Repair::No).await.expect("an audit");
        assert_eq!((found.wrong_items, found.wrong_votes), (1, wrong.unsigned_abs()));
        let repaired = tally.worker().audit(Repair::Yes).await.expect("an audit");
        assert_eq!(repaired.repaired_items, 1);
        tally.assert_exact_when_quiescent(item).await;
        assert_eq!(
            tally
                .worker()
                .audit(Repair::No)
                .await
                .expect("an audit")
                .wrong_items,
            0
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_finds_down_votes_that_are_wrong_although_their_sum_is_right() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    for value in [1, -1, -1] {
        tally.add(item, value).await;
    }
    tally.worker().flush().await.expect("a flush");
    let counts = async || {
        let counter = tally.counters.read(&[item]).await.expect("Redis").remove(0);
        let live = counter.count.map(|(count, _)| count);
        (live, tally.saved(item).await.saved_count)
    };
    let right = Count { net: -1, downs: 2 };
    assert_eq!(counts().await, (Some(right), right));
    // An audit begins with a roll-up, which saves the items of new votes that have no live count.
    tally.roll_up_all().await;
    tally.change_counter(item, |parts| parts.downs += 1).await;
    for wrong in ["of the live count", "of the saved count"] {
        let found = tally.worker().audit(Repair::Yes).await.expect("an audit");
        assert_eq!((found.wrong_items, found.wrong_votes), (1, 2), "{wrong}");
        tally.worker().flush_until_quiescent().await.expect("a flush");
        let (live, saved) = counts().await;
        assert_eq!((live.unwrap_or(right), saved), (right, right), "{wrong}");
        sqlx::query("update item set down_count = 3")
            .execute(&tally.pool)
            .await
            .expect("an update");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_finds_a_saved_count_that_was_changed_by_hand() {
    let tally = Tally::start().await;
    let (with_live, without) = (tally.item("x").await, tally.item("y").await);
    tally.add(with_live, 1).await;
    tally.worker().flush().await.expect("a flush");
    sqlx::query("update item set vote_count = 42")
        .execute(&tally.pool)
        .await
        .expect("an update");
    let found = tally.worker().audit(Repair::Yes).await.expect("an audit");
    assert_eq!(
        (found.wrong_items, found.wrong_votes, found.repaired_items),
        (2, 41 + 42, 2)
    );
    tally.worker().flush_until_quiescent().await.expect("a flush");
    assert_eq!(
        (
            tally.saved_count(with_live).await,
            tally.saved_count(without).await
        ),
        (1, 0)
    );
}

/// A batch writer stores a vote and stops.
/// Its uncounted votes are in flight until it has stalled for too long.
#[tokio::test(flavor = "multi_thread")]
async fn the_audit_takes_votes_for_in_flight_until_their_writer_has_stalled_for_too_long() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let _writer = writer_that_counts_not(&tally, item).await;
    let report = tally.worker().audit(Repair::Yes).await.expect("an audit");
    assert_eq!((report.in_flight_items, report.wrong_items), (1, 0));
    let impatient = tally.worker_with(SyncOptions {
        writer_stall_limit: Duration::from_millis(1),
        ..options()
    });
    let report = impatient.audit(Repair::Yes).await.expect("an audit");
    assert_eq!(
        (report.in_flight_items, report.wrong_items, report.wrong_votes),
        (0, 1, 1)
    );
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn votes_of_items_whose_rows_someone_has_locked_are_rolled_up_and_audited() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    tally.worker().flush().await.expect("a flush");
    let locked = blocker(
        &tally.pool,
        &format!("select from item where id = {item} for update"),
    )
    .await;
    // Once the vote is recorded as counted, an audit rolls it up.
    eventually("the vote is rolled up", async || {
        let report = tally.worker().audit(Repair::No).await.expect("an audit");
        assert_eq!((report.votes, report.right_items, report.wrong_items), (1, 1, 0));
        let audited = sqlx::query_scalar::<_, i64>("select vote_count from audited_count");
        let audited = audited
            .fetch_optional(&tally.pool)
            .await
            .expect("Postgres answers");
        (audited == Some(1)).then_some(())
    })
    .await;
    locked.rollback().await.expect("an end");
    tally.assert_exact_when_quiescent(item).await;
}

/// For example, while someone builds an index.
#[tokio::test(flavor = "multi_thread")]
async fn an_audit_compares_though_someone_has_locked_what_a_roll_up_writes() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    tally.worker().flush().await.expect("a flush");
    let locked = blocker(&tally.pool, "lock table audited_count in share mode").await;
    // Once the vote is recorded as counted, an audit tries to roll it up.
    let ended = Arc::new(AtomicUsize::new(0));
    let auditing = tokio::spawn({
        let (worker, ended) = (tally.worker(), Arc::clone(&ended));
        async move {
            loop {
                let report = worker.audit(Repair::No).await.expect("an audit");
                assert_eq!((report.votes, report.right_items, report.wrong_items), (1, 1, 0));
                ended.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    until_blocked(&tally.pool, "-- Adds sums of votes").await;
    let before = ended.load(Ordering::SeqCst);
    eventually("that audit has ended well", async || {
        assert!(!auditing.is_finished(), "an audit failed");
        (ended.load(Ordering::SeqCst) > before).then_some(())
    })
    .await;
    auditing.abort();
    locked.rollback().await.expect("an end");
    tally.assert_exact_when_quiescent(item).await;
}

/// Only someone else's lock lets an audit go on without its roll-up.
#[tokio::test(flavor = "multi_thread")]
async fn an_audit_that_cannot_roll_up_fails() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    refuse(&tally.pool, "update on watermark").await;
    let failed = eventually("there is a vote to roll up", async || {
        tally.worker().audit(Repair::No).await.err()
    })
    .await;
    assert!(matches!(failed, SyncError::Ledger(_)), "{failed}");
    refuse_no_more(&tally.pool).await;
    tally.assert_exact_when_quiescent(item).await;
}

/// The first chunk has 100,000 ids.
#[tokio::test(flavor = "multi_thread")]
async fn an_audit_rolls_up_all_votes_however_many_chunks_they_are() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    sqlx::raw_sql(&format!(
        "insert into vote (item_id) values ({item});
         select setval('vote_id_seq', 250000);
         insert into vote (item_id) values ({item})"
    ))
    .execute(&tally.pool)
    .await
    .expect("votes");
    tally.worker().audit(Repair::Yes).await.expect("an audit");
    let rolled_up: (i64, i64) =
        sqlx::query_as("select watermark.vote_id, audited_count.vote_count from watermark, audited_count")
            .fetch_one(&tally.pool)
            .await
            .expect("Postgres answers");
    assert_eq!(rolled_up, (250_001, 2));
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn audits_under_voting_find_nothing_wrong() {
    let tally = Tally::start().await;
    let items = [tally.item("x").await, tally.item("y").await];
    let (auditing, flushing) = (tally.worker(), tally.worker());
    let audits = tokio::spawn(async move {
        for _ in 0..3 {
            let report = auditing.audit(Repair::Yes).await.expect("an audit");
            assert_eq!(report.wrong_items, 0, "{report:?}");
            flushing.flush_shared().await.expect("a flush");
        }
    });
    let mut value = 1;
    while !audits.is_finished() {
        futures_util::future::join_all(items.iter().map(|item| tally.add(*item, value))).await;
        value = -value;
    }
    audits.await.expect("nothing wrong");
    for item in items {
        tally.assert_exact_when_quiescent(item).await;
    }
}

/// A worker reads a count and stalls.
/// Redis fails over to one whose clock is behind. Then the worker writes the count.
#[tokio::test(flavor = "multi_thread")]
async fn the_audit_finds_a_late_write_that_is_ahead_of_a_slower_clock() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let worker = tally.worker();
    let revision = unsaved(&tally, item).await.revision;
    worker.flush_until_quiescent().await.expect("a flush");
    let late = CountToSave {
        item_id: item,
        count: 5.into(),
        revision: Revision::from_micros(revision.micros() + 1_000_000),
    };
    worker
        .write(&[late], epoch(&tally).await)
        .await
        .expect("Postgres answers");
    let report = worker.audit(Repair::Yes).await.expect("an audit");
    assert_eq!((report.wrong_items, report.wrong_votes), (1, 4));
    worker.flush_until_quiescent().await.expect("a flush");
    assert_eq!(tally.saved_count(item).await, 1);
    let report = worker.audit(Repair::No).await.expect("an audit");
    assert_eq!(report.right_items, 1);
}
