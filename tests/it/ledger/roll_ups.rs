//! Roll-ups, while others vote, save counts and read them.

use tally::domain::{Count, CountToSave, ItemId, Revision};
use tally::ledger::{LedgerError, Overtaken, Pacing, ROLL_UP_LIMIT_IDS, SafeVoteId, SaveOutcome};

use super::{item, items, vote};
use crate::helpers::stores::{Stores, blocker, until_blocked};
use crate::helpers::tally::{ledger, roll_up_lease, server_ledger};

#[tokio::test(flavor = "multi_thread")]
async fn saves_and_roll_ups_that_race_for_the_same_items_lose_nothing_of_each_other() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let lease = roll_up_lease(&ledger).await;
    let pool = stores.pool();
    let items = items(&pool, 200).await;
    let saving = tokio::spawn({
        let (ledger, items) = (ledger.clone(), items.clone());
        async move {
            let epoch = ledger.epoch_number().await.expect("an epoch");
            for revision in 1..=200 {
                let of_item = |item: &ItemId| CountToSave {
                    item_id: *item,
                    count: revision.into(),
                    revision: Revision::from_micros(revision),
                };
                let page: Vec<CountToSave> = items.iter().rev().map(of_item).collect();
                ledger.save_counts(&page, epoch).await.expect("a save");
            }
        }
    });
    let mut rounds = 0;
    while !saving.is_finished() {
        sqlx::query("insert into vote (item_id) select id from item")
            .execute(&pool)
            .await
            .expect("votes");
        rounds += 1;
        let safe = ledger.safe_vote_id().await.expect("a safe id");
        // The chunks end in the middle of the items' votes.
        while ledger
            .roll_up_votes(&lease, &safe, 70, Pacing::Spread)
            .await
            .expect("a roll-up")
            .is_some()
        {}
    }
    saving.await.expect("no panic");
    let wrong: i64 = sqlx::query_scalar(
        "select count(*) from item join audited_count on item_id = item.id
             where audited_count.vote_count <> $1 or item.vote_count <> 200",
    )
    .bind(rounds)
    .fetch_one(&pool)
    .await
    .expect("a count");
    assert_eq!(wrong, 0);
}

/// A roll-up holds its rows for up to half a second.
#[tokio::test(flavor = "multi_thread")]
async fn a_save_does_not_wait_for_a_roll_up_of_its_item() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let lease = roll_up_lease(&ledger).await;
    let pool = stores.pool();
    let x = items(&pool, 1).await[0];
    sqlx::query("insert into vote (item_id) values ($1)")
        .bind(x.get())
        .execute(&pool)
        .await
        .expect("a vote");
    let safe = ledger.safe_vote_id().await.expect("a safe id");
    let rolling_up = blocker(&pool, &format!("insert into audited_count values ({x}, 0, 0)")).await;
    let waiting = tokio::spawn({
        let ledger = ledger.clone();
        // The save gives up after a while, and is retried until the row is free.
        async move {
            loop {
                if let Ok(Some(rolled_up)) = ledger.roll_up_votes(&lease, &safe, 1, Pacing::Spread).await {
                    return rolled_up;
                }
            }
        }
    });
    until_blocked(&pool, "-- Adds sums of votes").await;
    let epoch = ledger.epoch_number().await.expect("an epoch");
    let count = CountToSave {
        item_id: x,
        count: 1.into(),
        revision: Revision::from_micros(1),
    };
    let saved = ledger.save_counts(&[count], epoch).await.expect("a save");
    assert_eq!(saved, SaveOutcome::All);
    rolling_up.rollback().await.expect("an end");
    assert_eq!(waiting.await.expect("no panic").votes, 1);
}

#[tokio::test]
async fn what_is_summed_and_written_in_several_statements_is_summed_right() {
    const ITEMS: i64 = 600;
    const VOTES_EACH: i64 = 10;
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let lease = roll_up_lease(&ledger).await;
    let pool = stores.pool();
    items(&pool, ITEMS).await;
    // Each item's votes are spread over the whole ledger.
    sqlx::query(
        "insert into vote (item_id) select item.id from generate_series(1, $1) as n, item order by n",
    )
    .bind(VOTES_EACH)
    .execute(&pool)
    .await
    .expect("votes");
    let safe = ledger.safe_vote_id().await.expect("a safe id");
    for pacing in [Pacing::Spread, Pacing::AtOnce] {
        let rolled_up = ledger
            .roll_up_votes(&lease, &safe, ITEMS * VOTES_EACH / 2, pacing)
            .await;
        let rolled_up = rolled_up.expect("a roll-up").expect("votes");
        assert_eq!(rolled_up.votes, rolled_up.watermark.get());
    }
    let counts: Vec<(i64, i64)> =
        sqlx::query_as("select vote_count, count(*) from audited_count group by vote_count")
            .fetch_all(&pool)
            .await
            .expect("audited counts");
    assert_eq!(counts, [(VOTES_EACH, ITEMS)]);
}

#[tokio::test]
async fn a_roll_up_leaves_the_rest_to_the_next_and_gives_way_to_another() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let lease = roll_up_lease(&ledger).await;
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    let pool = stores.pool();
    sqlx::query("insert into vote (item_id) select $1 from generate_series(1, 9)")
        .bind(x.get())
        .execute(&pool)
        .await
        .expect("votes");
    let safe = ledger.safe_vote_id().await.expect("a safe id");
    let roll_up = async |limit_ids| {
        let rolled_up = ledger
            .roll_up_votes(&lease, &safe, limit_ids, Pacing::Spread)
            .await
            .expect("a roll-up");
        rolled_up.map(|rolled_up| (rolled_up.watermark.get(), rolled_up.votes))
    };
    assert_eq!(roll_up(2).await, Some((2, 2)));
    // Another worker moves the watermark while this one sums. This one gives way: at once, or after
    // it has waited too long for the lock.
    let mut other = pool.begin().await.expect("a transaction");
    sqlx::raw_sql(
        "update watermark set vote_id = 4, vote_total = 4; update audited_count set vote_count = 4",
    )
    .execute(&mut *other)
    .await
    .expect("an update");
    let moved = async {
        until_blocked(&pool, "select vote_id from watermark for no key update").await;
        other.commit().await.expect("a commit");
    };
    let late = async {
        loop {
            match ledger.roll_up_votes(&lease, &safe, 2, Pacing::Spread).await {
                Err(error) if error.is_lock_timeout() => {}
                ended => break ended.expect("a roll-up"),
            }
        }
    };
    let (late, ()) = tokio::join!(late, moved);
    // In the second case, the roll-up began after the commit.
    assert!(late.is_none() || late.is_some_and(|late| late.watermark.get() == 6));
    assert_eq!(roll_up(100).await, Some((9, 9)));
    assert_eq!(roll_up(100).await, None);
    assert_eq!(
        ledger.exact_counts(&[x]).await.expect("counts")[0].count,
        9.into()
    );
}

/// The failure must show at once, not only in the age of the job's last success.
#[tokio::test]
async fn a_roll_up_fails_while_someone_has_locked_the_watermark() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let lease = roll_up_lease(&ledger).await;
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    server
        .writer()
        .insert(&[vote(x, None)], &[])
        .await
        .expect("a vote");
    let pool = stores.pool();
    let safe = ledger.safe_vote_id().await.expect("a safe id");
    let roll_up = async || ledger.roll_up_votes(&lease, &safe, 100, Pacing::Spread).await;
    let other = blocker(&pool, "select from watermark for update").await;
    let error = roll_up().await.expect_err("a lock");
    assert!(error.is_lock_timeout(), "{error}");
    other.rollback().await.expect("a rollback");
    assert_eq!(roll_up().await.expect("a roll-up").expect("votes").votes, 1);
}

/// After a failover, a replica that lagged draws ids again.
/// The Postgres before it had drawn these ids, up to the safe one.
#[tokio::test]
async fn a_roll_up_does_nothing_in_another_postgres_than_the_one_that_gave_the_safe_id() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let lease = roll_up_lease(&ledger).await;
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    server
        .writer()
        .insert(&[vote(x, None)], &[])
        .await
        .expect("a vote");
    let safe = ledger.safe_vote_id().await.expect("a safe id");
    // A crash and a failover do this.
    sqlx::query("truncate incarnation")
        .execute(&stores.pool())
        .await
        .expect("a table of Tally's");
    let roll_up = async |safe: &SafeVoteId| ledger.roll_up_votes(&lease, safe, 100, Pacing::Spread).await;
    let refused = roll_up(&safe).await;
    assert!(
        matches!(refused, Err(LedgerError::Overtaken(Overtaken::OtherIncarnation))),
        "{refused:?}"
    );
    let next = ledger.safe_vote_id().await.expect("a safe id");
    assert_ne!(next.incarnation, safe.incarnation);
    let refused = roll_up(&safe).await;
    assert!(
        matches!(refused, Err(LedgerError::Overtaken(Overtaken::OtherIncarnation))),
        "{refused:?}"
    );
    assert_eq!(roll_up(&next).await.expect("a roll-up").expect("votes").votes, 1);
}

#[tokio::test]
async fn the_watermark_waits_for_a_transaction_that_drew_an_earlier_id() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let lease = roll_up_lease(&ledger).await;
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    // One transaction has drawn id 1 and commits late. A later vote commits first.
    let pool = stores.pool();
    let mut slow = pool.begin().await.expect("a transaction");
    sqlx::query("insert into vote (item_id) values ($1)")
        .bind(x.get())
        .execute(&mut *slow)
        .await
        .expect("a row");
    server
        .writer()
        .insert(&[vote(x, None)], &[])
        .await
        .expect("an insert");
    let waiting = tokio::spawn({
        let ledger = ledger.clone();
        async move { ledger.safe_vote_id().await }
    });
    // Long enough for more than one check.
    for _ in 0..20 {
        ledger.vote_total().await.expect("Postgres answers");
        assert!(!waiting.is_finished());
    }
    slow.commit().await.expect("a commit");
    let safe = waiting.await.expect("no panic").expect("a safe id");
    assert_eq!(safe.vote_id.get(), 2);
    let rolled_up = ledger
        .roll_up_votes(&lease, &safe, ROLL_UP_LIMIT_IDS, Pacing::Spread)
        .await
        .expect("a roll-up")
        .expect("votes");
    assert_eq!((rolled_up.watermark.get(), rolled_up.votes), (2, 2));
    assert_eq!(
        ledger.exact_counts(&[x]).await.expect("counts")[0].count,
        2.into()
    );
    assert_eq!(
        ledger
            .roll_up_votes(&lease, &safe, ROLL_UP_LIMIT_IDS, Pacing::Spread)
            .await
            .expect("a roll-up"),
        None
    );
}

#[tokio::test]
async fn exact_counts_stay_exact_while_audits_roll_up_the_votes() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let lease = roll_up_lease(&ledger).await;
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    let mut writer = server.writer();
    let rolling_up = tokio::spawn({
        let ledger = ledger.clone();
        async move {
            for _ in 0..100 {
                let safe = ledger.safe_vote_id().await.expect("a safe id");
                ledger
                    .roll_up_votes(&lease, &safe, ROLL_UP_LIMIT_IDS, Pacing::Spread)
                    .await
                    .expect("a roll-up");
            }
        }
    });
    let mut stored = 0;
    while !rolling_up.is_finished() {
        writer
            .insert(&[vote(x, None), vote(x, None), vote(x, None)], &[])
            .await
            .expect("an insert");
        stored += 3;
        assert_eq!(
            ledger.exact_counts(&[x]).await.expect("counts")[0].count,
            stored.into()
        );
    }
    rolling_up.await.expect("no panic");
    assert_eq!(ledger.vote_total().await.expect("a total"), stored);
}

#[tokio::test]
async fn down_votes_are_the_same_before_and_after_they_are_rolled_up_and_in_between() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let lease = roll_up_lease(&ledger).await;
    let pool = stores.pool();
    let item = items(&pool, 1).await[0];
    sqlx::query(
        "insert into vote (item_id, value, change_number, voter_id) values
             ($1, -1, 0, 'ada'), ($1, -1, 0, 'bob'), ($1, 1, 1, 'bob'),
             ($1, 1, 0, 'cy'), ($1, -1, 1, 'cy'), ($1, -1, 2, 'cy')",
    )
    .bind(item.get())
    .execute(&pool)
    .await
    .expect("votes");
    let safe = ledger.safe_vote_id().await.expect("a safe id");
    let exact = async || ledger.exact_counts(&[item]).await.expect("counts")[0].count;
    loop {
        assert_eq!(exact().await, Count { net: -2, downs: 2 });
        // Two ids at a time, so that a down-vote and its retraction are in different chunks.
        if ledger
            .roll_up_votes(&lease, &safe, 2, Pacing::Spread)
            .await
            .expect("a roll-up")
            .is_none()
        {
            break;
        }
    }
    let audited: (i64, i64) = sqlx::query_as("select vote_count, down_count from audited_count")
        .fetch_one(&pool)
        .await
        .expect("an item");
    assert_eq!(audited, (-2, 2));
}
