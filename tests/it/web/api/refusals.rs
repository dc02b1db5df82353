//! Refused votes: each refusal says whether the vote is stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use nix::sys::signal::Signal;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tally::domain::{self, ItemId, Refusal, VoteRequest, VoteSource, VoterId};
use tally::votes::{AGAIN_LIMIT, Cast, CastError};
use tally::web::ProblemKind;
use tokio::time::Instant;

use crate::helpers::eventually;
use crate::helpers::stores::{LOCK_VOTES, blocker, until_blocked};
use crate::helpers::tally::{Tally, connected, live_counts, vote, vote_queue};
use crate::web::api::problems::assert_leads_to_its_section;

async fn assert_refused(
    tally: &Tally,
    (status, problem): &(StatusCode, Value),
    kind: ProblemKind,
    stored: &str,
) {
    assert_eq!(*status, StatusCode::SERVICE_UNAVAILABLE, "{problem}");
    assert_eq!(problem["stored"], stored, "{problem}");
    assert_eq!(assert_leads_to_its_section(tally, problem).await, kind);
}

async fn execute(tally: &Tally, statement: &str) {
    sqlx::query(statement)
        .execute(&tally.pool)
        .await
        .expect("a statement");
}

/// The voter's next try is stored or is a repeat, and counts once.
async fn assert_counts_once(tally: &Tally, item: ItemId, voter: &str) {
    eventually("the next try is answered", async || {
        tally.vote(item, voter).await.0.is_success().then_some(())
    })
    .await;
    assert_eq!(tally.vote(item, voter).await.0, StatusCode::OK);
    assert_eq!(tally.ledger_sum(item).await, 1);
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vote_that_postgres_rejects_is_not_stored() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    execute(&tally, "revoke insert on vote from tally_server").await;
    let grant = "grant insert (id, item_id, value, voter_id) on vote to tally_server";
    assert_refused(
        &tally,
        &tally.vote(item, "ada").await,
        ProblemKind::VoteNotStored,
        "no",
    )
    .await;
    assert_eq!(tally.ledger_sum(item).await, 0);
    execute(&tally, grant).await;
    assert_eq!(tally.vote(item, "ada").await.0, StatusCode::CREATED);
    assert_counts_once(&tally, item, "ada").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vote_whose_statement_postgres_cancels_at_its_limit_is_not_stored() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let limited = tally.item_with(json!({ "max_votes": 3 })).await;
    let blocker = blocker(&tally.pool, LOCK_VOTES).await;
    // The first vote is inserted, the second decided.
    let path = format!("/v1/items/{limited}/votes/ada");
    let value = json!({ "value": 1 });
    let (stored, decided) = tokio::join!(
        tally.vote(item, "ada"),
        tally.send(Method::PUT, &path, Some(&value))
    );
    for answer in [stored, decided] {
        assert_refused(&tally, &answer, ProblemKind::VoteNotStored, "no").await;
    }
    // No live count has to be dropped.
    assert_eq!(tally.get("/v1/status").await.1["suspect_items"], 0);
    blocker.rollback().await.expect("a rollback");
    assert_eq!(tally.ledger_sum(item).await, 0);
    assert_counts_once(&tally, item, "ada").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vote_whose_connection_is_cut_before_the_answer_is_unconfirmed() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let blocker = blocker(&tally.pool, LOCK_VOTES).await;
    let cut = async {
        until_blocked(&tally.pool, "").await;
        execute(
            &tally,
            "select pg_terminate_backend(pid) from pg_stat_activity
             where application_name like 'tally writer %' and wait_event_type = 'Lock'",
        )
        .await;
    };
    let (refused, ()) = tokio::join!(tally.vote(item, "ada"), cut);
    assert_refused(&tally, &refused, ProblemKind::VoteUnconfirmed, "unknown").await;
    blocker.rollback().await.expect("a rollback");
    assert_counts_once(&tally, item, "ada").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vote_that_postgres_does_not_answer_in_time_is_unconfirmed() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let blocker = blocker(&tally.pool, LOCK_VOTES).await;
    let freeze = async {
        until_blocked(&tally.pool, "").await;
        tally
            .stores
            .postgres
            .signal_all(Signal::SIGSTOP)
            .expect("Postgres runs");
    };
    let (refused, ()) = tokio::join!(tally.vote(item, "ada"), freeze);
    tally
        .stores
        .postgres
        .signal_all(Signal::SIGCONT)
        .expect("Postgres runs");
    assert_refused(&tally, &refused, ProblemKind::VoteUnconfirmed, "unknown").await;
    blocker.rollback().await.expect("a rollback");
    assert_counts_once(&tally, item, "ada").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_not_stored_if_others_of_its_voter_come_first_for_too_long() {
    let tally = Tally::start().await;
    let (item, other) = (tally.item("x").await, tally.item("y").await);
    let live_counts = connected(live_counts(&tally)).await;
    let queue = vote_queue(&tally, &live_counts);
    let set = |item_id, value| VoteRequest::Set {
        item_id,
        voter_id: VoterId::parse("ada".to_owned()).expect("a voter"),
        value: Some(value),
    };
    let blocker = blocker(&tally.pool, LOCK_VOTES).await;
    tokio::spawn({
        let (queue, request) = (queue.clone(), set(other, domain::Value::UP));
        async move { queue.decide(request, VoteSource::default()).await }
    });
    until_blocked(&tally.pool, "").await;
    // What waits behind that batch is the next one. A request joins the queue at its first poll.
    let mut waiting = Box::pin(futures_util::future::join(
        queue.decide(set(item, domain::Value::UP), VoteSource::default()),
        queue.decide(set(item, domain::Value::DOWN), VoteSource::default()),
    ));
    let handed_in = std::future::poll_fn(|task| Poll::Ready(waiting.as_mut().poll(task).is_pending()));
    assert!(handed_in.await);
    let since = Instant::now();
    eventually(
        "they have waited for longer than a request is asked again",
        async || (since.elapsed() > AGAIN_LIMIT).then_some(()),
    )
    .await;
    blocker.rollback().await.expect("a rollback");
    let (first, second) = waiting.await;
    assert!(matches!(first, Ok(Cast::Accepted { .. })), "{first:?}");
    assert_eq!(second, Err(CastError::Busy));
    assert_eq!(tally.ledger_sum(item).await, 1);
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voter_with_hundreds_of_requests_at_once_holds_up_nobody_else() {
    const REQUESTS: usize = 600;
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let live_counts = connected(live_counts(&tally)).await;
    let queue = vote_queue(&tally, &live_counts);
    let set = |voter: &str, value| VoteRequest::Set {
        item_id: item,
        voter_id: VoterId::parse(voter.to_owned()).expect("a voter"),
        value: Some(value),
    };
    let decide = |request| queue.decide(request, VoteSource::default());
    let decided = Arc::new(AtomicUsize::new(0));
    let many = (0..REQUESTS).map(|at| {
        let value = [domain::Value::UP, domain::Value::DOWN][at % 2];
        let (asked, decided) = (decide(set("ada", value)), decided.clone());
        async move {
            let answer = asked.await;
            decided.fetch_add(1, Ordering::Relaxed);
            answer
        }
    });
    let mut many = Box::pin(futures_util::future::join_all(many));
    let handed_in = std::future::poll_fn(|task| Poll::Ready(many.as_mut().poll(task).is_pending()));
    assert!(handed_in.await);
    let other = async {
        let answer = decide(set("bob", domain::Value::UP)).await;
        (answer, decided.load(Ordering::Relaxed))
    };
    let (answers, (other, before)) = tokio::join!(many, other);
    assert!(matches!(other, Ok(Cast::Accepted { .. })), "{other:?}");
    assert!(
        before < REQUESTS / 10,
        "{before} of the others were decided first"
    );
    // One after the other, as far as there was time.
    for answer in answers {
        let is_decided = matches!(
            answer,
            // Once the vote was changed as often as one may be, a request is refused, or repeats what is held.
            Ok(Cast::Accepted { .. }
                | Cast::Changed { .. }
                | Cast::Repeated { .. }
                | Cast::Refused(Refusal::TooManyChanges))
                | Err(CastError::Busy)
        );
        assert!(is_decided, "{answer:?}");
    }
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_of_a_vote_that_cannot_be_read_is_not_stored() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    assert_eq!(tally.vote(item, "ada").await.0, StatusCode::CREATED);
    // Only the search for the first vote reads this column.
    execute(&tally, "revoke select (value) on vote_of_voter from tally_server").await;
    assert_refused(
        &tally,
        &tally.vote(item, "ada").await,
        ProblemKind::VoteNotStored,
        "no",
    )
    .await;
    execute(&tally, "grant select (value) on vote_of_voter to tally_server").await;
    assert_counts_once(&tally, item, "ada").await;
}

/// `stores::outages` tests a full queue, and `web::problem` the refusal's words.
#[tokio::test(flavor = "multi_thread")]
async fn a_vote_that_comes_after_the_end_of_its_thread_is_not_stored() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let thread = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let queue = {
        let _inside = thread.enter();
        vote_queue(&tally, &live_counts(&tally))
    };
    tokio::task::spawn_blocking(move || thread.shutdown_timeout(Duration::from_secs(60)))
        .await
        .expect("the thread ends");
    assert_eq!(
        queue.cast(vote(item, None), VoteSource::default()).await,
        Err(CastError::Closing)
    );
    assert_eq!(tally.ledger_sum(item).await, 0);
}
