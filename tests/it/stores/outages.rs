//! Outages: stores become unavailable, stall and come back, under a running server.

use std::task::Poll;

use reqwest::StatusCode;
use serde_json::{Value, json};
use tally::counts::CountReader;
use tally::domain::{VoteRequest, VoteSource};
use tally::votes::{SeedBackoff, VoteQueue};

use crate::helpers::eventually;
use crate::helpers::metrics::metric;
use crate::helpers::stores::{LOCK_VOTES, blocker, cut_blocked, until_blocked};
use crate::helpers::tally::{Tally, connected, live_counts, vote, vote_queue};
use crate::telemetry::passes_alone;

/// Votes until an answer has a live count again.
async fn counts_are_back(tally: &Tally, item: tally::domain::ItemId) {
    eventually("live counts are back", async || tally.add(item, 1).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn voting_goes_on_without_redis_and_is_exact_when_it_returns() {
    let mut tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    tally.stores.redis.crash().await;
    for _ in 0..20 {
        assert_eq!(tally.add(item, 1).await, None, "stored, and not counted");
    }
    let (status, answer) = tally.get(&format!("/v1/items/{item}")).await;
    assert_eq!(
        (status, &answer["vote_count"]),
        (StatusCode::OK, &json!(0)),
        "from Postgres"
    );
    tally.wait_until_ready("degraded").await;
    assert_eq!(tally.get("/health/ready").await.1["redis"], "unavailable");
    tally.stores.redis.start().await.expect("Redis starts");
    tally.wait_until_ready("ready").await;
    // The append-only file brought back the count from before the outage, which is too low. It must
    // be invalidated before anything is added to it.
    assert_eq!(tally.add(item, 1).await, Some(22));
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_timed_out_leaves_a_suspect_and_is_not_sent_again() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    // The paused Redis has received the call. It executes the call when it resumes, after the
    // server has given up.
    tally.stores.redis.pause().expect("Redis runs");
    assert_eq!(tally.add(item, 1).await, None);
    assert_eq!(tally.add(item, 1).await, None);
    tally.stores.redis.resume().expect("Redis runs");
    counts_are_back(&tally, item).await;
    assert_eq!(tally.live_count(item).await, Some(tally.ledger_sum(item).await));
    tally.assert_exact_when_quiescent(item).await;
}

/// While a batch is counted, the next one waits, and grows; but not for a Redis that hangs.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_waits_for_a_redis_that_hangs_holds_up_no_other() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let live_counts = connected(live_counts(&tally)).await;
    let queue = vote_queue(&tally, &live_counts);
    let cast = || {
        let queue = queue.clone();
        tokio::spawn(async move { queue.cast(vote(item, None), VoteSource::default()).await })
    };
    let stored = async |votes| {
        eventually("the vote is stored", async || {
            (tally.ledger_sum(item).await == votes).then_some(())
        })
        .await;
    };
    // On a busy machine the server may have given Redis up before the second vote is stored.
    eventually(
        "the second vote is stored while the first one waits",
        async || {
            eventually("Redis answers", async || live_counts.answers().then_some(())).await;
            let before = tally.ledger_sum(item).await;
            tally.stores.redis.pause().expect("Redis runs");
            let first = cast();
            stored(before + 1).await;
            let second = cast();
            stored(before + 2).await;
            let is_waiting = !first.is_finished();
            tally.stores.redis.resume().expect("Redis runs");
            for vote in [first, second] {
                vote.await.expect("no panic").expect("a stored vote");
            }
            is_waiting.then_some(())
        },
    )
    .await;
    live_counts.repaired().await;
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_wiped_under_votes_costs_no_vote() {
    let tally = Tally::start().await;
    let items = [tally.item("x").await, tally.item("y").await];
    let mut redis = tally.stores.redis_connection().await;
    for round in 0..60 {
        if round % 5 == 0 {
            let () = redis::cmd("FLUSHALL")
                .query_async(&mut redis)
                .await
                .expect("Redis answers");
        }
        let votes = (0..8).map(|voter| tally.add(items[voter % 2], 1));
        futures_util::future::join_all(votes).await;
    }
    let worker = tally.worker();
    worker.enter_epoch().await.expect("an epoch");
    for item in items {
        tally.assert_exact_when_quiescent(item).await;
        assert_eq!(tally.saved_count(item).await, 240);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_postgres_a_vote_is_refused_and_nothing_of_it_is_stored() {
    let mut tally = Tally::start().await;
    let item = tally.item("x").await;
    let limited = tally.item_with(json!({ "max_votes": 2 })).await;
    tally.vote(item, "ada").await;
    tally.stores.postgres.crash().await;
    let (status, problem) = tally.vote(limited, "bob").await;
    assert_eq!(
        (status, &problem["stored"]),
        (StatusCode::SERVICE_UNAVAILABLE, &json!("no"))
    );
    let body = json!({ "voter_id": "bob" }).to_string();
    let response = tally
        .post_raw(&format!("/v1/items/{item}/votes"), "application/json", body)
        .await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["retry-after"], "1");
    let problem: Value = response.json().await.expect("JSON");
    assert!(
        !problem.to_string().contains("refused"),
        "the cause is not reported: {problem}"
    );
    eventually("ready says that Postgres is gone", async || {
        let (status, ready) = tally.get("/health/ready").await;
        (status == StatusCode::SERVICE_UNAVAILABLE && ready["postgres"] == "unavailable").then_some(())
    })
    .await;
    let (status, _) = tally.get(&format!("/v1/items/{item}")).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(tally.get("/health/live").await.0, StatusCode::OK);
    tally.stores.postgres.start().await.expect("Postgres starts");
    eventually("bob's vote is stored", async || {
        // An earlier try may be stored, although its answer came too late.
        tally.vote(item, "bob").await.0.is_success().then_some(())
    })
    .await;
    assert_eq!(tally.vote(item, "bob").await.0, StatusCode::OK);
    assert_eq!(tally.ledger_sum(item).await, 2);
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saved_count_of_an_item_that_was_read_before_is_read_without_postgres() {
    let mut tally = Tally::start().await;
    let (item, other, third) = (
        tally.item("x").await,
        tally.item("y").await,
        tally.item("z").await,
    );
    for item in [item, other, third] {
        tally.add(item, 1).await;
    }
    tally.worker().flush().await.expect("a flush");
    let live_counts = connected(live_counts(&tally)).await;
    // One thread, so that the same reader reads again.
    let thread = CountReader::start(&tally.server_ledger, &live_counts, 1);
    let read = async |item| thread.one(item).await.map(|read| read.expect("an item"));
    let from_postgres = read(item).await.expect("an answer");
    assert_eq!(
        (from_postgres.item.saved_count, from_postgres.live_count),
        (1.into(), Some(1.into()))
    );
    // While an item has votes to save, Redis has no saved count of it.
    tally.add(item, 1).await;
    let unsaved = read(item).await.expect("an answer");
    assert_eq!(
        (unsaved.item.saved_count, unsaved.live_count),
        (1.into(), Some(2.into()))
    );
    tally.worker().flush().await.expect("a flush");
    let saved = read(item).await.expect("an answer");
    assert_eq!(*saved.item, tally.saved(item).await, "as it is in Postgres");
    // Reads of other items over the same connection take nothing from the cache.
    read(third).await.expect("an answer");
    tally.stores.postgres.crash().await;
    let again = read(item).await.expect("an answer");
    assert_eq!((&again.item, again.live_count), (&saved.item, Some(2.into())));
    assert!(read(other).await.is_err(), "its name is not in the cache");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_unknown_outcome_leaves_its_items_suspect() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    // Postgres ends the connection while the statement waits.
    let blocker = blocker(&tally.pool, LOCK_VOTES).await;
    let path = format!("{}/v1/items/{item}/votes", tally.base);
    let waiting = tokio::spawn(tally.http.post(path).send());
    cut_blocked(&tally.pool, "application_name like 'tally writer %'").await;
    let response = waiting.await.expect("no panic").expect("an answer");
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    blocker.rollback().await.expect("a rollback");
    // After the statement's limit, the live count is invalidated.
    eventually("the suspect is finalized", async || {
        tally.live_count(item).await.is_none().then_some(())
    })
    .await;
    assert_eq!(tally.add(item, 1).await, Some(2));
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_cannot_seed_a_missing_count_leaves_its_item_suspect() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let rename = async |from: &str, to: &str| {
        let change = format!("alter table audited_count rename column {from} to {to}");
        let changed = sqlx::query(&change).execute(&tally.pool).await;
        changed.expect("the column has another name");
    };
    // Exact counts need this column, and votes do not.
    rename("down_count", "elsewhere").await;
    assert_eq!(tally.add(item, 1).await, None, "stored, and not counted");
    let mut redis = tally.stores.redis_connection().await;
    eventually("a worker is asked to rebuild the count", async || {
        let parts = testkit::counters::parts(&mut redis, &format!("tally:{{{item}}}"))
            .await
            .ok()?;
        (!parts.request.is_empty()).then_some(())
    })
    .await;
    // The saved count may be behind, and the exact count cannot be read. So the server shows
    // neither.
    let (status, problem) = tally.get(&format!("/v1/items/{item}")).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{problem}");
    rename("elsewhere", "down_count").await;
    assert_eq!(tally.add(item, 1).await, Some(2));
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn before_the_migrations_ready_says_so() {
    let tally = Tally::start().await;
    sqlx::query("delete from _sqlx_migrations")
        .execute(&tally.pool)
        .await
        .expect("a delete");
    let (status, ready) = tally.get("/health/ready").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        (&ready["migrations"], &ready["postgres"]),
        (&json!("pending"), &json!("ready"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn when_postgres_stalls_the_queue_is_bounded_and_further_votes_are_refused() {
    if passes_alone(
        "stores::outages::when_postgres_stalls_the_queue_is_bounded_and_further_votes_are_refused",
    )
    .await
    {
        return;
    }
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let blocker = blocker(&tally.pool, LOCK_VOTES).await;
    let live_counts = live_counts(&tally);
    let queue = vote_queue(&tally, &live_counts);
    let limit = tally::votes::QUEUE_LIMIT_VOTES + tally::votes::BATCH_LIMIT_VOTES;
    let votes: Vec<_> = (0..limit + 100)
        .map(|_| {
            let (queue, vote) = (queue.clone(), vote(item, None));
            tokio::spawn(async move { queue.cast(vote, VoteSource::default()).await })
        })
        .collect();
    // Only a refused vote can end while Postgres stands still.
    eventually("the further votes are refused", async || {
        let ended = votes.iter().filter(|vote| vote.is_finished()).count();
        (ended >= 100).then_some(())
    })
    .await;
    assert!(metric("tally_queue_depth_votes") > 0.0);
    blocker.rollback().await.expect("a rollback");
    let (mut stored, mut refused) = (1, 0);
    for vote in votes {
        match vote.await.expect("no panic") {
            Ok(_) => stored += 1,
            Err(tally::votes::CastError::QueueFull) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refused >= 100, "{refused} were refused");
    assert!(
        stored > tally::votes::QUEUE_LIMIT_VOTES as i64,
        "{stored} were stored: a queue that is not full refuses none"
    );
    assert_eq!(
        metric("tally_votes_total{outcome=\"refused\"}"),
        f64::from(refused)
    );
    assert_eq!(tally.ledger_sum(item).await, stored);
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_votes_of_one_request_fit_into_the_queue_of_any_of_many_threads() {
    let tally = Tally::start().await;
    let (item, limited) = (
        tally.item("x").await,
        tally.item_with(json!({ "numbered": true })).await,
    );
    let live_counts = connected(live_counts(&tally)).await;
    // As one of 64 threads, whose share of the queue is small.
    let backoff = SeedBackoff::default();
    let queue = VoteQueue::start(&tally.server_ledger, &live_counts, &backoff, 64, None);
    let blocker = blocker(&tally.pool, LOCK_VOTES).await;
    let number = tally::votes::BATCH_LIMIT_VOTES;
    let plain = (0..number).map(|_| queue.cast(vote(item, None), VoteSource::default()));
    let decided =
        (0..number).map(|_| queue.decide(VoteRequest::Cast(vote(limited, None)), VoteSource::default()));
    let mut votes = Box::pin(futures_util::future::join(
        futures_util::future::join_all(plain),
        futures_util::future::join_all(decided),
    ));
    // Each vote joins the queue at its first poll, and none can be stored yet.
    let first = std::future::poll_fn(|task| Poll::Ready(votes.as_mut().poll(task).is_pending()));
    assert!(first.await);
    blocker.rollback().await.expect("a rollback");
    let (plain, decided) = votes.await;
    for answer in plain.into_iter().chain(decided) {
        assert!(
            matches!(answer, Ok(tally::votes::Cast::Accepted { .. })),
            "{answer:?}"
        );
    }
}

/// When a thread of the server ends, its batch writers end, too.
/// They may be in the middle of a batch for which nobody waits any more.
#[tokio::test(flavor = "multi_thread")]
async fn the_items_of_a_batch_writer_that_ends_with_its_thread_are_rebuilt() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let live_counts = live_counts(&tally);
    let thread = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let queue = {
        let _inside = thread.enter();
        vote_queue(&tally, &live_counts)
    };
    // One vote for each batch writer in turn, which prepares the writer's statement. It could not
    // do so while the table is locked.
    for _ in 0..tally::votes::BATCH_WRITERS_PER_THREAD {
        queue
            .cast(vote(item, None), VoteSource::default())
            .await
            .expect("a vote");
    }
    let stored = i64::try_from(tally::votes::BATCH_WRITERS_PER_THREAD).expect("a number") + 1;
    let blocker = blocker(&tally.pool, LOCK_VOTES).await;
    thread.spawn(async move { queue.cast(vote(item, None), VoteSource::default()).await });
    until_blocked(&tally.pool, "").await;
    thread.shutdown_background();
    eventually("its item is suspect", async || {
        (live_counts.suspect_total() == 1).then_some(())
    })
    .await;
    blocker.rollback().await.expect("a rollback");
    eventually("the vote is stored all the same", async || {
        (tally.ledger_sum(item).await == stored).then_some(())
    })
    .await;
    live_counts.repaired().await;
    tally.assert_exact_when_quiescent(item).await;
}
