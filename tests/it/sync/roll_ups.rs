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
async fn votes_of_past_days_that_are_rolled_up_late_count_on_their_days() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    for (hours, votes) in [(50, 40), (1, 5)] {
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
    let sums: (i64, i64, i64, i64) = sqlx::query_as(
        "select vote_count, (select sum(ups)::bigint from recent_change),
                (select ups from day_change where day = ((now() - interval '50 hours') at time zone 'UTC')::date),
                (select sum(ups)::bigint from total_change)
         from audited_count",
    )
    .fetch_one(&tally.pool)
    .await
    .expect("Postgres answers");
    assert_eq!(sums, (45, 5, 40, 45));
}

/// Each row of the ledger is in one place only while days end, whatever it does.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_cast_and_taken_back_on_a_day_stays_the_same_while_it_ages() {
    let tally = Tally::start().await;
    for name in ["x", "y", "z"] {
        tally.item(name).await;
    }
    // Each vote is cast, taken back five hours later, and cast again; up and down; over the last four days.
    sqlx::query(
        "insert into vote (item_id, value, change_number, voter_id, created_at)
         select item.id, case change when 1 then -value else value end, change, 'v' || n || value,
                now() - n * interval '17 minutes' + change * interval '5 hours'
         from item, generate_series(1060, 5760 / 17 * 4) as n, unnest('{1, -1}'::int[]) as value,
              generate_series(0, 2) as change
         where n % item.id <> 1",
    )
    .execute(&tally.pool)
    .await
    .expect("votes");
    let worker = tally.worker();
    let changed = async || -> Vec<(i64, String, i64, i64, i64, i64)> {
        sqlx::query_as(
            "select item_id, day::text, sum(ups)::bigint, sum(downs)::bigint, sum(ups_taken_back)::bigint,
                    sum(downs_taken_back)::bigint
             from (
                 select item_id, (starts_at at time zone 'UTC')::date as day, ups, downs, ups_taken_back,
                        downs_taken_back
                 from recent_change
                 union all
                 select * from day_change
             ) as changed
             group by 1, day order by 1, day",
        )
        .fetch_all(&tally.pool)
        .await
        .expect("Postgres answers")
    };
    let truth: Vec<(i64, String, i64, i64, i64, i64)> = sqlx::query_as(
        "select item_id, (created_at at time zone 'UTC')::date::text as day,
                sum(case when change_number <> 1 and value > 0 then 1 when change_number = 1 and value < 0 then -1 else 0 end)::bigint,
                sum(case when change_number <> 1 and value < 0 then 1 when change_number = 1 and value > 0 then -1 else 0 end)::bigint,
                count(*) filter (where change_number = 1 and value < 0),
                count(*) filter (where change_number = 1 and value > 0)
         from vote group by 1, 2 order by 1, 2",
    )
    .fetch_all(&tally.pool)
    .await
    .expect("Postgres answers");
    assert!(truth.len() > 6, "{truth:?}");
    worker.roll_up().await.expect("the stores answer");
    assert_eq!(changed().await, truth);
    // The same as if they had been rolled up in time, and no worker had run since.
    sqlx::raw_sql(
        "insert into recent_change
         select item_id, date_bin('5 minutes', created_at, timestamptz 'epoch'),
                5, 0, 0, 0, 0 from vote on conflict do nothing;
         update recent_change set ups = ups + 2, downs = downs + 1, ups_taken_back = ups_taken_back + 3",
    )
    .execute(&tally.pool)
    .await
    .expect("the owner may");
    let before = changed().await;
    let is_old = "select count(*) from recent_change
                  where starts_at < date_trunc('day', now() - interval '25 hours', 'UTC')
                     or minutes = 5 and starts_at < now() - interval '125 minutes'";
    eventually("all that is old is merged", async || {
        worker.roll_up().await.expect("the stores answer");
        assert_eq!(changed().await, before);
        let old: i64 = sqlx::query_scalar(is_old).fetch_one(&tally.pool).await.ok()?;
        (old == 0).then_some(())
    })
    .await;
}
