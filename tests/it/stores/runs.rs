//! The run of Postgres in which an id was given out, and what must not reach another one.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tally::domain::VoidingId;

use super::failovers::{TwoPrimaries, number};
use crate::helpers::eventually;
use crate::helpers::stores::Stores;

#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_of_a_voiding_that_was_read_in_the_old_primary_takes_back_no_vote_in_the_new_one() {
    let two = TwoPrimaries::start().await;
    let run = two.found.run;
    assert!(run.is_some());
    let (old, new) = (two.old.pool(), two.new.pool());
    for pool in [&old, &new] {
        sqlx::raw_sql(
            "insert into item (name) values ('voted on');
             insert into vote (item_id, voter_id) select max(id), 'ada' from item;
             insert into voiding (voter_id, reason, until_vote_id) values ('ada', 'x', 1000)",
        )
        .execute(pool)
        .await
        .expect("a vote");
    }
    let mut writer = two.ledger.writer();
    let id = VoidingId(1);
    let chunk = writer.void(id, run).await.expect("the old primary takes it");
    assert_eq!(chunk.votes, 1);
    two.switch();
    // The first try may find its connection cut.
    eventually("a connection to the new primary", async || {
        match writer.void(id, run).await {
            Err(error) if error.is_of_other_run() => Some(()),
            Err(_) => None,
            Ok(chunk) => panic!("{chunk:?}"),
        }
    })
    .await;
    writer.undo(id, run).await.expect_err("another primary");
    assert_eq!(number(&new, "select count(*) from voided").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_ends_with_a_crash_of_one_process() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    if number(&pool, "select current_setting('server_version_num')::bigint").await < 150_000 {
        return;
    }
    let before = number(&pool, "select postgres_run()").await;
    assert_eq!(number(&pool, "select postgres_run()").await, before);
    let process = number(
        &pool,
        "select pid::bigint from pg_stat_activity where backend_type = 'walwriter'",
    )
    .await;
    let process = Pid::from_raw(i32::try_from(process).expect("a process"));
    kill(process, Signal::SIGKILL).expect("it runs");
    eventually("another run", async || {
        let run: i64 = sqlx::query_scalar("select postgres_run()")
            .fetch_one(&pool)
            .await
            .ok()?;
        (run != before).then_some(())
    })
    .await;
}
