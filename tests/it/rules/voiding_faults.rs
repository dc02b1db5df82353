//! Voidings that are stopped, cut off or refused in the middle.
//! They continue where they were, and counts come right.

use serde_json::json;
use tally::domain::{Moment, VoteFilter};
use tally::ledger::{OperatorLedger, Role};
use tally::votes::{self, Direction, VoidingError};
use testkit::proxy::Proxy;
use tokio::sync::oneshot;

use super::assert_rules_hold;
use super::voiding::{create_voiding, of_item, void, voider};
use crate::helpers::eventually;
use crate::helpers::programs::{TALLY, command_as, start};
use crate::helpers::stores::{blocker, cut_blocked, pass_next_vote_id, refuse, refuse_no_more};
use crate::helpers::tally::{Tally, redis};

#[tokio::test(flavor = "multi_thread")]
async fn a_voiding_that_is_killed_goes_on_where_it_was_and_counts_come_right() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    // One vote is counted, so that there is a live count that can be wrong.
    tally.vote(item, "ada").await;
    sqlx::query(
        "insert into vote (item_id, voter_id) select $1, 'v' || number from generate_series(1, 6000) as number",
    )
    .bind(item.get())
    .execute(&tally.pool)
    .await
    .expect("votes");
    let mut command = command_as(TALLY, Some((&tally.stores, Role::Operator)));
    let item_text = item.to_string();
    command.args(["void", "--item", &item_text, "--reason", "x", "--apply"]);
    let mut program = start(command, &tally.stores, "void");
    let voided = async || -> i64 {
        sqlx::query_scalar("select count(*) from voided")
            .fetch_one(&tally.pool)
            .await
            .expect("Postgres answers")
    };
    eventually("a part is voided", async || (voided().await > 0).then_some(())).await;
    // Chunks wait for this lock: none is stored from here on.
    let held = blocker(&tally.pool, "select pg_advisory_xact_lock(7416153282)").await;
    program.kill().await.expect("it is killed");
    held.rollback().await.expect("an end");
    let done = voided().await;
    assert!(done < 6001, "it was not through");
    let (_, resumed) = void(&tally, &["--resume", "1"]).await;
    assert_eq!(
        (&resumed["done"], &resumed["voided_votes"]),
        (&json!(true), &json!(6001))
    );
    assert_eq!(tally.ledger_sum(item).await, 0);
    tally
        .worker()
        .recover_crashed_writers()
        .await
        .expect("a recovery");
    tally.assert_exact_when_quiescent(item).await;
    assert_rules_hold(&tally.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_whose_connection_is_cut_is_tried_again() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.vote(item, "ada").await;
    let (ledger, _) = voider(&tally).await;
    let id = create_voiding(&ledger, &of_item(item)).await;
    // Chunks wait for this lock.
    let held = blocker(&tally.pool, "select pg_advisory_xact_lock(7416153282)").await;
    let mut command = command_as(TALLY, Some((&tally.stores, Role::Operator)));
    command.args(["void", "--resume", &id.0.to_string()]);
    let mut program = start(command, &tally.stores, "void");
    cut_blocked(&tally.pool, "query like '%void_votes%'").await;
    held.rollback().await.expect("an end");
    let ended = program.wait().await.expect("it ends");
    assert_eq!(ended, 0, "{}", program.output());
    assert!(program.output().contains("trying again"), "{}", program.output());
    assert_eq!(tally.ledger_sum(item).await, 0);
    tally.assert_exact_when_quiescent(item).await;
    assert_rules_hold(&tally.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_that_fails_again_and_again_ends_the_voiding_which_can_be_resumed() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.vote(item, "ada").await;
    refuse(&tally.pool, "insert on voided").await;
    let mut command = command_as(TALLY, Some((&tally.stores, Role::Operator)));
    let item_text = item.to_string();
    command.args(["void", "--item", &item_text, "--reason", "x", "--apply"]);
    let mut program = start(command, &tally.stores, "void");
    let ended = program.wait().await.expect("it ends");
    assert_eq!(ended, 1, "{}", program.output());
    let further_tries = program.output().matches("trying again").count();
    assert_eq!(further_tries, 9, "{}", program.output());
    assert_eq!(tally.ledger_sum(item).await, 1);
    refuse_no_more(&tally.pool).await;
    let (done, resumed) = void(&tally, &["--resume", "1"]).await;
    assert!(done && resumed["voided_votes"] == 1, "{resumed}");
    tally.assert_exact_when_quiescent(item).await;
    assert_rules_hold(&tally.pool).await;
}

/// Someone set the sequence back: the watermark would miss rows up to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_with_one_id_not_beyond_the_watermark_is_not_stored() {
    let tally = Tally::start().await;
    let [item, other] = [tally.item("x").await, tally.item("y").await];
    // The first id of a chunk belongs to one of two rows of an item.
    for (item, voter) in [(item, "ada"), (item, "bob"), (other, "ada")] {
        tally.vote(item, voter).await;
    }
    let (ledger, mut voider) = voider(&tally).await;
    let of_all = VoteFilter {
        cast_from: Some(Moment::from_micros(0)),
        ..VoteFilter::default()
    };
    let id = create_voiding(&ledger, &of_all).await;
    let stored = async || -> i64 {
        sqlx::query_scalar("select count(*) from vote")
            .fetch_one(&tally.pool)
            .await
            .expect("Postgres answers")
    };
    let mut expected = 3;
    for direction in [Direction::Void, Direction::Undo] {
        pass_next_vote_id(&tally.pool).await;
        assert!(voider.voiding_chunk(id, direction).await.is_err());
        assert_eq!(stored().await, expected);
        // The failed chunk has used up its ids.
        assert!(voider.voiding_chunk(id, direction).await.is_ok());
        expected += 3;
        assert_eq!(stored().await, expected);
        // A note of counted votes need not wait for the end of this chunk.
        assert!(ledger.as_server().batches_under_way().is_empty());
    }
}

/// A worker rebuilds the counts when Redis is back.
#[tokio::test(flavor = "multi_thread")]
async fn votes_are_voided_while_redis_is_unavailable_too() {
    let mut tally = Tally::start().await;
    let item = tally.item("x").await;
    for voter in ["ada", "bob"] {
        tally.vote(item, voter).await;
    }
    tally.stores.redis.stop().await;
    let (done, voided) = void(&tally, &["--voter", "ada", "--reason", "x", "--apply"]).await;
    assert!(done && voided["voided_votes"] == 1, "{voided}");
    assert_eq!(tally.ledger_sum(item).await, 1);
    tally.stores.redis.start().await.expect("Redis starts");
    tally.wait_until_ready("ready").await;
    let worker = tally.worker();
    worker.recover_crashed_writers().await.expect("a recovery");
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_whose_counting_is_cut_off_is_counted_by_recovery() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.vote(item, "ada").await;
    tally.worker().flush().await.expect("a flush");
    let proxy = Proxy::start(tally.stores.redis.port()).await.expect("a proxy");
    let (port, proxied) = (tally.stores.redis.port(), proxy.port());
    let url = tally.stores.redis_login_url(Role::Operator);
    let redis = redis(&url.replace(&format!(":{port}"), &format!(":{proxied}")));
    let ledger = OperatorLedger::new(tally.stores.login_url(Role::Operator), "test").expect("a URL");
    let filter = VoteFilter {
        item_id: Some(item),
        ..VoteFilter::default()
    };
    let until = ledger.last_vote().await.expect("Postgres answers");
    let id = ledger
        .create_voiding(&filter, "x", until)
        .await
        .expect("a voiding");
    let (stop, stopped) = oneshot::channel::<()>();
    let working = tokio::spawn(async move {
        let stopped = async { drop(stopped.await) };
        votes::run_voiding(&ledger, &redis, id, Direction::Void, stopped, |_| {}).await
    });
    // The call that counts the chunk never arrives.
    proxy.trap(&format!("tally:{{{item}}}"), false).await;
    drop(stop);
    let ended = working.await.expect("no panic");
    assert!(matches!(ended, Err(VoidingError::Stopped)), "{ended:?}");
    proxy.cut();
    let worker = tally.worker();
    eventually("its connection is gone", async || {
        worker.recover_crashed_writers().await.expect("the stores answer")
    })
    .await;
    tally.assert_exact_when_quiescent(item).await;
}
