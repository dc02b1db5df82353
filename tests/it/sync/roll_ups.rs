//! Roll-ups: when a worker rolls up votes.

use std::time::Duration;

use crate::helpers::eventually;
use crate::helpers::tally::Tally;

/// Longer than any test takes.
const NEVER: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread")]
async fn votes_are_rolled_up_before_their_time_when_many_wait() {
    let tally = Tally::start().await;
    let item = tally.item("item").await;
    sqlx::query("insert into vote (item_id) select $1 from generate_series(1, 50000)")
        .bind(item.get())
        .execute(&tally.stores.pool())
        .await
        .expect("votes");
    tally.worker().until_roll_up(NEVER).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_few_votes_wait_a_worker_looks_again_and_again_rests_in_between_and_waits_for_its_time() {
    let tally = Tally::start().await;
    let worker = tally.worker();
    // When the worker's last look began, once it has ended.
    let look = async || -> Option<String> {
        sqlx::query_scalar(
            "select max(query_start)::text from pg_stat_activity
             where datname = current_database() and state = 'idle'
               and starts_with(query, 'select greatest(last_value')",
        )
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers")
    };
    let looks = async {
        for _ in 0..2 {
            let mut last = None;
            let rested_after = eventually("it rests after a look", async || {
                let now = look().await;
                let is_same = now.is_some() && now == last;
                last.clone_from(&now);
                now.filter(|_| is_same)
            })
            .await;
            eventually("it looks again", async || {
                look().await.filter(|now| *now != rested_after)
            })
            .await;
        }
    };
    tokio::select! {
        () = worker.until_roll_up(NEVER) => panic!("its time has not come"),
        () = looks => {}
    }
}

/// A worker may have been stopped for days.
#[tokio::test(flavor = "multi_thread")]
async fn votes_that_are_older_than_a_day_when_they_are_rolled_up_count_and_are_no_recent_change() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    for (hours, votes) in [(26, 40), (1, 5)] {
        sqlx::query(
            "insert into vote (item_id, created_at)
             select $1, now() - $2 * interval '1 hour' from generate_series(1, $3)",
        )
        .bind(item.get())
        .bind(hours)
        .bind(votes)
        .execute(&tally.pool)
        .await
        .expect("votes");
    }
    tally.worker().roll_up().await.expect("the stores answer");
    let sums: (i64, i64) =
        sqlx::query_as("select vote_count, (select sum(ups)::bigint from recent_change) from audited_count")
            .fetch_one(&tally.pool)
            .await
            .expect("Postgres answers");
    assert_eq!(sums, (45, 5));
}
