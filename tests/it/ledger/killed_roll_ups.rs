//! Roll-ups of workers that are killed.

use std::time::Duration;

use tally::ledger::Pacing;

use super::connections::behind_a_proxy;
use super::items;
use crate::helpers::eventually;
use crate::helpers::stores::Stores;
use crate::helpers::tally::{ledger, roll_up_lease};

/// The statements of a roll-up, by a part of their texts, in their order.
const STATEMENTS: [&str; 15] = [
    "begin",
    "select token from incarnation",
    "select vote_id as watermark",
    "select min(id) from vote",
    "-- The sums of the votes",
    "-- As sum_votes.sql, by item and span",
    "select true as \"is_held!\"",
    "select vote_id from watermark for no key update",
    "select seqcache",
    "-- Adds sums of votes",
    "-- Adds to the recent changes",
    "-- Adds to the changes of items by day",
    "-- Adds to the changes of all items",
    "update watermark set vote_id",
    "set reached_at",
];

/// A worker is killed before each statement of a roll-up, and before and after its commit.
#[tokio::test(flavor = "multi_thread")]
async fn each_vote_is_in_the_audited_counts_and_in_what_changed_when_or_in_neither_wherever_a_worker_dies() {
    const ITEMS: i64 = 3;
    let stores = Stores::start().await;
    let pool = stores.pool();
    items(&pool, ITEMS).await;
    // By item: what is rolled up, what changed on its days, and what is to be rolled up.
    let sums = async || -> Vec<(i64, i64, i64)> {
        sqlx::query_as(
            "select coalesce((select vote_count from audited_count where item_id = item.id), 0),
                    coalesce((select sum(ups - downs)::bigint from (
                        select item_id, ups, downs from recent_change
                        union all
                        select item_id, ups, downs from day_change) as changed where item_id = item.id), 0),
                    (select coalesce(sum(value), 0) from vote, watermark
                     where item_id = item.id and vote.id <= watermark.vote_id)
             from item order by id",
        )
        .fetch_all(&pool)
        .await
        .expect("Postgres answers")
    };
    let mut killed_at: Vec<(&str, bool)> = STATEMENTS.iter().map(|text| (*text, false)).collect();
    // Not the setting `read committed` of a new connection.
    killed_at.extend([("commit\0", false), ("commit\0", true)]);
    for (at, (text, is_executed)) in killed_at.into_iter().enumerate() {
        // Of three spans, one of them on an earlier day.
        sqlx::query(
            "insert into vote (item_id, value, created_at)
             select item.id, value, now() - hours * interval '1 hour'
             from item, unnest('{1, 1, -1}'::int[], '{0, 72, 2}'::int[]) as cast_then (value, hours)",
        )
        .execute(&pool)
        .await
        .expect("votes");
        let (proxy, killed) = behind_a_proxy(&stores, Duration::from_secs(60)).await;
        let lease = roll_up_lease(&killed).await;
        // Another ledger reads it: over a connection that knows a statement already, its text does not pass again.
        let other = ledger(&stores.database_url);
        let safe = other.safe_vote_id().await.expect("a safe id");
        tokio::select! {
            // The trap is set first.
            biased;
            () = proxy.trap(text, is_executed) => {}
            // A commit that the proxy lets through may be answered before the trap says so.
            ended = killed.roll_up_votes(&lease, &safe, 100, Pacing::Spread) => {
                assert!(is_executed && ended.is_ok(), "{text}: {ended:?}");
            }
        }
        if is_executed {
            eventually("it is committed", async || {
                let (.., rolled_up) = sums().await[0];
                (rolled_up == 1 + i64::try_from(at).ok()?).then_some(())
            })
            .await;
        }
        proxy.cut();
        eventually("its connections are gone", async || {
            let gone = "select from pg_stat_activity where application_name like 'behind a proxy%'";
            let found = sqlx::query(gone).fetch_optional(&pool).await;
            found.expect("Postgres answers").is_none().then_some(())
        })
        .await;
        let after_its_death = sums().await;
        for (audited, changed, truth) in &after_its_death {
            assert_eq!((audited, changed), (truth, truth), "{text}: {after_its_death:?}");
        }
        let total = "select coalesce(sum(ups - downs), 0)::bigint from total_change";
        let total: i64 = sqlx::query_scalar(total).fetch_one(&pool).await.expect("a sum");
        assert_eq!(
            total,
            after_its_death.iter().map(|(.., truth)| truth).sum::<i64>(),
            "{text}"
        );
        // Another worker takes over when the lease has run out.
        sqlx::query("update job set holder = null, lease_until = null")
            .execute(&pool)
            .await
            .expect("the owner may");
        let next = ledger(&stores.database_url);
        let lease = roll_up_lease(&next).await;
        let safe = next.safe_vote_id().await.expect("a safe id");
        let rolled_up = next.roll_up_votes(&lease, &safe, 100, Pacing::Spread).await;
        assert_eq!(rolled_up.expect("a roll-up").is_none(), is_executed, "{text}");
        next.give_back_jobs().await.expect("Postgres answers");
        let all = 1 + i64::try_from(at).expect("a few");
        assert_eq!(sums().await, vec![(all, all, all); 3], "{text}");
    }
}
