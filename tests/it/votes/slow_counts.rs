//! Exact counts that are slow to read do not delay votes on other items.

use std::task::Poll;
use tally::domain::VoteSource;

use sqlx::Executor;
use tally::ledger::Role;
use tally::votes::{SeedBackoff, VoteQueue};
use tokio::time::Instant;

use crate::helpers::eventually;
use crate::helpers::metrics::metric;
use crate::helpers::stores::{LOCK_VOTES, blocker, read_plainly, read_under, until_blocked};
use crate::helpers::tally::{Tally, connected, live_counts, server_ledger, vote};
use crate::telemetry::passes_alone;

#[tokio::test(flavor = "multi_thread")]
async fn an_item_whose_exact_count_cannot_be_read_in_time_holds_up_no_vote_on_other_items() {
    if passes_alone(
        "votes::slow_counts::an_item_whose_exact_count_cannot_be_read_in_time_holds_up_no_vote_on_other_items",
    )
    .await
    {
        return;
    }
    let tally = Tally::start().await;
    let (counted, missing) = (tally.item("counted").await, tally.item("missing").await);
    tally.add(counted, 1).await;
    let live_counts = connected(live_counts(&tally)).await;
    // The server's own login, whose reads can be made slow.
    let server = server_ledger(&tally.stores.login_url(Role::Server));
    let backoff = SeedBackoff::default();
    let queue = VoteQueue::start(&server, &live_counts, &backoff, 1, None);
    let cast = async |item_id| match queue.cast(vote(item_id, None), VoteSource::default()).await {
        Ok(tally::votes::Cast::Accepted { count, .. }) => count,
        other => panic!("{other:?}"),
    };
    // Both batch writers have a connection.
    let votes = futures_util::future::join_all((0..2000).map(|_| cast(counted))).await;
    assert!(votes.iter().all(Option::is_some));
    let writers = async || -> Vec<i32> {
        sqlx::query_scalar(
            "select pid from pg_stat_activity where application_name like 'tally writer %' order by 1",
        )
        .fetch_all(&tally.pool)
        .await
        .expect("Postgres answers")
    };
    let before = writers().await;
    // Only exact counts are slow. The statement that stores votes reads the watermark, too.
    tally
        .pool
        .execute(
            "create function is_read() returns boolean language plpgsql as $$
             begin
                 if current_query() like '%exact counts%' then perform pg_sleep(600); end if;
                 return true;
             end $$",
        )
        .await
        .expect("the owner may");
    read_under(&tally.pool, "watermark", "is_read()").await;
    let timeouts = metric("tally_seed_timeouts_total");
    let begun = Instant::now();
    assert_eq!(cast(missing).await, None, "its exact count is not read in time");
    eventually("a worker is asked to rebuild the count", async || {
        tally.counters.read(&[missing]).await.ok()?.remove(0).rebuild
    })
    .await;
    assert_eq!(backoff.may_read(begun), None, "nobody tries again at once");
    assert!(metric("tally_seed_timeouts_total") > timeouts);
    assert!(cast(counted).await.is_some(), "the other item has its count");
    let after = writers().await;
    assert!(
        before.iter().all(|pid| after.contains(pid)),
        "no connection was given up"
    );
    read_plainly(&tally.pool, "watermark").await;
    eventually("the item is counted again", async || cast(missing).await).await;
    tally.assert_exact_when_quiescent(missing).await;
    tally.assert_exact_when_quiescent(counted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_items_of_a_batch_whose_exact_counts_are_read_too_slowly_are_left_to_be_rebuilt() {
    let tally = Tally::start().await;
    let counted = tally.item("counted").await;
    let (slow, first, second) = (
        tally.item("slow").await,
        tally.item("first").await,
        tally.item("second").await,
    );
    let live_counts = connected(live_counts(&tally)).await;
    // The server's own login, whose reads can be made slow.
    let server = server_ledger(&tally.stores.login_url(Role::Server));
    let backoff = SeedBackoff::default();
    let queue = VoteQueue::start(&server, &live_counts, &backoff, 1, None);
    sqlx::raw_sql(&format!(
        "create function is_read(item bigint) returns boolean language plpgsql as $$
         begin
             if item = {slow} and current_query() like '%exact counts%' then perform pg_sleep(600); end if;
             return true;
         end $$"
    ))
    .execute(&tally.pool)
    .await
    .expect("the owner may");
    read_under(&tally.pool, "item", "is_read(id)").await;
    let blocker = blocker(&tally.pool, LOCK_VOTES).await;
    let under_way = tokio::spawn({
        let queue = queue.clone();
        async move { queue.cast(vote(counted, None), VoteSource::default()).await }
    });
    until_blocked(&tally.pool, "").await;
    // What waits behind that item is the next batch. A request joins the queue at its first poll.
    let items = [slow, first, second];
    let mut waiting = Box::pin(futures_util::future::join_all(
        items.map(|item| queue.cast(vote(item, None), VoteSource::default())),
    ));
    let handed_in = std::future::poll_fn(|task| Poll::Ready(waiting.as_mut().poll(task).is_pending()));
    assert!(handed_in.await);
    blocker.rollback().await.expect("a rollback");
    for answer in waiting.await {
        assert!(
            matches!(answer, Ok(tally::votes::Cast::Accepted { count: None, .. })),
            "{answer:?}"
        );
    }
    let answer = under_way.await.expect("no panic");
    assert!(
        matches!(answer, Ok(tally::votes::Cast::Accepted { count: Some(_), .. })),
        "{answer:?}"
    );
    eventually("a worker is asked to rebuild all of them", async || {
        let counters = tally.counters.read(&items).await.ok()?;
        counters.iter().all(|one| one.rebuild.is_some()).then_some(())
    })
    .await;
    read_plainly(&tally.pool, "item").await;
    for item in items {
        tally.assert_exact_when_quiescent(item).await;
    }
}
