//! Exact counts, and saves of live counts.

use std::collections::HashSet;

use sqlx::PgPool;
use tally::domain::{CountDelta, CountToSave, ItemId, Revision, TransactionId};
use tally::ledger::{LedgerError, Overtaken, RebuiltCount, Role, SaveOutcome, SavedState};

use super::{item, items, vote};
use crate::helpers::eventually;
use crate::helpers::stores::{Stores, blocker};
use crate::helpers::tally::{ledger, server_ledger};

#[tokio::test]
async fn an_exact_count_comes_with_a_snapshot_that_sees_its_votes() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    let before = ledger.exact_counts(&[x]).await.expect("counts").remove(0);
    let inserted = server
        .writer()
        .insert(&[vote(x, None), vote(x, None)], &[])
        .await
        .expect("an insert");
    let after = ledger.exact_counts(&[x]).await.expect("counts").remove(0);
    assert_eq!((before.count, after.count), (0.into(), 2.into()));
    assert!(!before.snapshot.sees(inserted.transaction));
    assert!(after.snapshot.sees(inserted.transaction));
    assert!(after.snapshot.sees(TransactionId(1)));
}

#[tokio::test]
async fn a_reader_whose_connection_was_ended_reads_over_another() {
    let stores = Stores::start().await;
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    let mut reader = server.item_reader();
    assert_eq!(reader.read(&[x]).await.expect("an item").len(), 1);
    let ended: i64 = sqlx::query_scalar(
        "select count(*) filter (where pg_terminate_backend(pid))
         from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()",
    )
    .fetch_one(&stores.pool())
    .await
    .expect("Postgres answers");
    assert!(ended > 0);
    assert_eq!(reader.read(&[x]).await.expect("an item").len(), 1);
    let unknown = ItemId::new(i64::MAX).expect("positive");
    assert!(reader.read(&[unknown]).await.expect("no item").is_empty());
}

#[tokio::test]
async fn a_count_is_saved_only_forward_in_counted_at() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let epoch = ledger.epoch_number().await.expect("an epoch");
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    let save = async |count, revision| {
        let one = CountToSave {
            item_id: x,
            count,
            revision: Revision::from_micros(revision),
        };
        let saved = ledger.save_counts(&[one], epoch).await.expect("a save");
        let item = server.item_reader().read(&[x]).await.expect("Postgres").remove(0);
        (
            saved.contains(x),
            item.saved_count,
            item.counted_at.map(Revision::micros),
        )
    };
    let micros = 1_795_222_231_361_714;
    assert_eq!(
        save(5.into(), micros).await,
        (true, 5.into(), Some(micros)),
        "to the microsecond"
    );
    assert_eq!(
        save(4.into(), micros - 1).await,
        (false, 5.into(), Some(micros)),
        "an older one is refused"
    );
    assert_eq!(
        save(6.into(), micros).await,
        (false, 5.into(), Some(micros)),
        "another count with the same revision is refused"
    );
    assert_eq!(
        save(5.into(), micros).await,
        (true, 5.into(), Some(micros)),
        "the same count may be saved twice"
    );
    assert_eq!(
        save(7.into(), micros + 1).await,
        (true, 7.into(), Some(micros + 1))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn audited_counts_are_saved_over_those_before_unless_somebody_has_written_the_row_or_another_epoch_began()
 {
    let stores = Stores::start().await;
    // The worker's own login, with its rights.
    let worker = ledger(&stores.login_url(Role::Worker));
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    worker.check().await.expect("a database that is fit");
    let audit = async |count: i64| {
        sqlx::query(
            "insert into audited_count values ($1, $2, 0)
             on conflict (item_id) do update set vote_count = excluded.vote_count",
        )
        .bind(x.get())
        .bind(count)
        .execute(&stores.pool())
        .await
        .expect("the owner may");
    };
    let (revision, later) = (Revision::from_micros(1_000_000), Revision::from_micros(2_000_000));
    let save = async |sum: i64, revision, before: &SavedState| {
        let sums = [CountDelta {
            item_id: x,
            delta: sum.into(),
        }];
        let saved = worker.save_audited_counts(&sums, revision, before).await;
        let item = server.item_reader().read(&[x]).await.expect("Postgres").remove(0);
        let is_saved = saved.expect("a save").is_none();
        (is_saved, item.saved_count.net, item.counted_at)
    };
    let before = worker.saved_state().await.expect("Postgres answers");
    audit(3).await;
    assert_eq!(save(3, revision, &before).await, (true, 3, Some(revision)));
    audit(5).await;
    assert_eq!(
        save(2, later, &before).await,
        (false, 3, Some(revision)),
        "the row was written since"
    );
    let now = worker.saved_state().await.expect("Postgres answers");
    assert_eq!(
        save(1, later, &now).await,
        (false, 3, Some(revision)),
        "the saved count was not the audited one before"
    );
    assert_eq!(save(2, later, &now).await, (true, 5, Some(later)));
    audit(6).await;
    let now = worker.saved_state().await.expect("Postgres answers");
    worker.begin_epoch(1, &[]).await.expect("Postgres answers");
    assert_eq!(
        save(1, later, &now).await,
        (false, 5, Some(later)),
        "another epoch"
    );
    let now = worker.saved_state().await.expect("Postgres answers");
    let above = Revision::from_micros(later.micros() + 1);
    assert_eq!(
        save(1, revision, &now).await,
        (true, 6, Some(above)),
        "above the last revision"
    );
}

/// How many deadlocks there were in this database, of connections that have ended.
async fn deadlocks(pool: &PgPool) -> i64 {
    sqlx::query_scalar("select deadlocks from pg_stat_database where datname = current_database()")
        .fetch_one(pool)
        .await
        .expect("a number")
}

/// On a busy machine one may wait for the other for longer than for a lock: then it saves the rest later, as it does
/// in a worker.
#[tokio::test(flavor = "multi_thread")]
async fn two_workers_that_save_the_same_items_in_opposite_orders_meet_no_deadlock_and_the_newest_stays() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    // A deadlock is found as such before the wait for a lock ends.
    sqlx::raw_sql(
        "do $$ begin
             execute format('alter database %I set deadlock_timeout = %L', current_database(), '10ms');
         end $$",
    )
    .execute(&pool)
    .await
    .expect("a superuser may");
    pool.close().await;
    let pool = stores.pool();
    let ledger = ledger(&stores.database_url);
    let epoch = ledger.epoch_number().await.expect("an epoch");
    let items = items(&pool, 1000).await;
    let counts = |revision: i64| -> Vec<CountToSave> {
        let of_item = |item: &ItemId| CountToSave {
            item_id: *item,
            count: revision.into(),
            revision: Revision::from_micros(revision),
        };
        items.iter().map(of_item).collect()
    };
    for round in 0..20 {
        let (older, mut newer) = (counts(1 + 2 * round), counts(2 + 2 * round));
        newer.reverse();
        let (older, mut saved) = tokio::join!(
            ledger.save_counts(&older, epoch),
            ledger.save_counts(&newer, epoch)
        );
        older.expect("a save");
        eventually("the newer counts are saved", async || {
            let all = saved.as_ref().expect("a save");
            if items.iter().all(|item| all.contains(*item)) {
                return Some(());
            }
            let SaveOutcome::Some { locked, .. } = all else {
                panic!("not all were saved, and it says so");
            };
            let left = items.iter().filter(|item| !all.contains(**item));
            assert!(
                left.into_iter().all(|item| locked.contains(item)),
                "none is left out but locked ones"
            );
            saved = ledger.save_counts(&newer, epoch).await;
            None
        })
        .await;
        let newest: i64 = sqlx::query_scalar("select count(*) from item where vote_count = $1")
            .bind(2 + 2 * round)
            .fetch_one(&pool)
            .await
            .expect("a count");
        assert_eq!(newest, 1000, "an older count came after a newer one");
    }
    ledger.close().await;
    drop(ledger);
    // Postgres counts a deadlock of this test's own, so it has counted any other.
    let mut one = blocker(&pool, "update item set name = name where id = 1").await;
    let mut other = blocker(&pool, "update item set name = name where id = 2").await;
    let (first, second) = tokio::join!(
        sqlx::query("update item set name = name where id = 2").execute(&mut *one),
        sqlx::query("update item set name = name where id = 1").execute(&mut *other)
    );
    assert!(first.is_err() != second.is_err(), "one of them is ended");
    one.rollback().await.expect("an end");
    other.rollback().await.expect("an end");
    pool.close().await;
    let pool = stores.pool();
    eventually("those of the workers have ended", async || {
        let left: i64 =
            sqlx::query_scalar("select count(*) from pg_stat_activity where application_name = 'test'")
                .fetch_one(&pool)
                .await
                .ok()?;
        (left == 0).then_some(())
    })
    .await;
    eventually("this deadlock is counted", async || {
        (deadlocks(&pool).await > 0).then_some(())
    })
    .await;
    assert_eq!(deadlocks(&pool).await, 1);
}

#[tokio::test]
async fn only_those_counts_of_a_page_that_their_items_now_have_are_reported_as_saved() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let epoch = ledger.epoch_number().await.expect("an epoch");
    let items = items(&stores.pool(), 3).await;
    let count = |at: usize, count, revision| CountToSave {
        item_id: items[at],
        count,
        revision: Revision::from_micros(revision),
    };
    let first = [count(0, 5.into(), 20), count(1, 5.into(), 20)];
    ledger.save_counts(&first, epoch).await.expect("a save");
    let nowhere = CountToSave {
        item_id: ItemId::new(999).expect("positive"),
        ..count(0, 5.into(), 10)
    };
    // The first two counts are older than those in Postgres, the third is new.
    let page = [
        count(0, 4.into(), 10),
        count(1, 5.into(), 10),
        count(2, 7.into(), 10),
        nowhere,
    ];
    let saved = ledger.save_counts(&page, epoch).await.expect("a save");
    let saved: Vec<bool> = page.iter().map(|one| saved.contains(one.item_id)).collect();
    assert_eq!(saved, [false, false, true, false]);
}

#[tokio::test]
async fn beside_a_locked_row_counts_are_saved_only_forward_and_in_their_epoch_too() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let epoch = ledger.epoch_number().await.expect("an epoch");
    let pool = stores.pool();
    let items = items(&pool, 3).await;
    let page = |revision, counts: [i64; 3]| {
        let one = |at: usize| CountToSave {
            item_id: items[at],
            count: counts[at].into(),
            revision: Revision::from_micros(revision),
        };
        [0, 1, 2].map(one)
    };
    let save = async |revision, counts| {
        let page = page(revision, counts);
        let saved = ledger.save_counts(&page, epoch).await.expect("a save");
        items
            .iter()
            .map(|item| saved.contains(*item))
            .collect::<Vec<bool>>()
    };
    let stored = async || -> Vec<i64> {
        sqlx::query_scalar("select vote_count from item order by id")
            .fetch_all(&pool)
            .await
            .expect("Postgres answers")
    };
    let locked = blocker(
        &pool,
        &format!("select from item where id = {} for update", items[2]),
    )
    .await;
    assert_eq!(save(20, [5, 6, 7]).await, [true, true, false]);
    assert_eq!(save(10, [1, 2, 3]).await, [false; 3], "they are older");
    assert_eq!(stored().await, [5, 6, 0]);
    // As if a worker had stopped before it marked the counts saved.
    assert_eq!(save(20, [5, 6, 7]).await, [true, true, false]);
    sqlx::query("update epoch set number = number + 1")
        .execute(&pool)
        .await
        .expect("an epoch");
    let ended = ledger.save_counts(&page(30, [8, 9, 10]), epoch).await;
    assert!(
        matches!(ended, Err(LedgerError::Overtaken(Overtaken::EpochEnded))),
        "{ended:?}"
    );
    assert_eq!(stored().await, [5, 6, 0]);
    locked.rollback().await.expect("an end");
}

#[tokio::test]
async fn an_exact_count_is_saved_only_in_its_epoch_and_beside_the_saved_count_that_was_read_with_it() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    let votes = [vote(x, None), vote(x, None)];
    server.writer().insert(&votes, &[]).await.expect("an insert");
    let exact = ledger.exact_counts(&[x]).await.expect("counts").remove(0);
    let rebuilt = |revision| RebuiltCount {
        exact: exact.clone(),
        revision: Revision::from_micros(revision),
    };
    let saved = async || {
        let item = server.item_reader().read(&[x]).await.expect("Postgres").remove(0);
        (item.saved_count, item.counted_at.map(Revision::micros))
    };
    let ended = ledger.epoch_number().await.expect("an epoch");
    ledger.begin_epoch(1, &[]).await.expect("an epoch");
    let late = ledger.save_rebuilt_counts(&[rebuilt(10)], ended).await;
    assert!(
        matches!(late, Err(LedgerError::Overtaken(Overtaken::EpochEnded))),
        "{late:?}"
    );
    assert_eq!(saved().await, (0.into(), None));

    let epoch = ledger.epoch_number().await.expect("an epoch");
    let written = ledger.save_rebuilt_counts(&[rebuilt(10)], epoch).await;
    assert_eq!(written.expect("a save"), HashSet::from([x]));
    assert_eq!(saved().await, (2.into(), Some(10)));
    // A later revision does not help: another count was saved after this one was read.
    let written = ledger.save_rebuilt_counts(&[rebuilt(20)], epoch).await;
    assert_eq!(written.expect("a save"), HashSet::new());
    assert_eq!(saved().await, (2.into(), Some(10)));
}

#[tokio::test]
async fn a_page_of_counts_is_saved_by_one_index_lookup_an_item() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    let explain = format!(
        "explain {}",
        include_str!("../../../src/ledger/sql/save_counts.sql")
    );
    items(&pool, 20_000).await;
    let mut connection = pool.acquire().await.expect("a connection");
    sqlx::raw_sql(
        "analyze item; set enable_seqscan = off; set enable_bitmapscan = off;
         set plan_cache_mode = force_custom_plan",
    )
    .execute(&mut *connection)
    .await
    .expect("settings");
    let page: Vec<i64> = (1..=10_000).collect();
    let plan: Vec<String> = sqlx::query_scalar(&explain)
        .bind(&page)
        .bind(&page)
        .bind(&page)
        .bind(0_i64)
        .bind(&page)
        .persistent(false)
        .fetch_all(&mut *connection)
        .await
        .expect("a plan");
    let plan = plan.join("\n");
    assert!(plan.contains("Nested Loop"), "{plan}");
    assert!(plan.contains("Index Cond: (id = given.id)"), "{plan}");
}

/// Postgres keeps old row versions for such a transaction.
/// The worker saves less often meanwhile.
#[tokio::test]
async fn a_transaction_that_has_read_a_table_is_open_until_it_ends_unless_it_is_a_vacuum() {
    let stores = Stores::start().await;
    let (ledger, pool) = (ledger(&stores.database_url), stores.pool());
    let mut names = Vec::new();
    for (statement, is_open) in [
        ("select from item", true),
        ("select from vote", true),
        ("lock table item in share update exclusive mode", false),
    ] {
        let mut transaction = blocker(&pool, statement).await;
        let name: String = sqlx::query_scalar(
            "select virtualtransaction from pg_locks
             where locktype = 'virtualxid' and pid = pg_backend_pid()",
        )
        .fetch_one(&mut *transaction)
        .await
        .expect("a name");
        let open = ledger.open_transactions().await.expect("Postgres answers");
        assert_eq!(
            open.contains(&name),
            is_open,
            "{statement}: {name} among {open:?}"
        );
        transaction.rollback().await.expect("an end");
        let open = ledger.open_transactions().await.expect("Postgres answers");
        assert!(!open.contains(&name), "{statement}: {name} has ended");
        assert!(!names.contains(&name), "each has a name of its own");
        names.push(name);
    }
}
