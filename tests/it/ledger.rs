//! What the database itself holds in place.

use tally::domain::{CountToSave, ItemId, NewVote, Outcome, Rev, TransactionId, Value, VoterId};
use tally::ledger::FOLD_LIMIT_IDS;

use crate::helpers::stores::Stores;
use crate::helpers::tally::ledger;

fn vote(item: ItemId, voter: Option<&str>) -> NewVote {
    let voter_id = voter.map(|voter| VoterId::parse(voter.to_owned()).expect("a voter"));
    NewVote {
        item_id: item,
        voter_id,
        value: Value::UP,
    }
}

fn words(outcomes: &[Outcome]) -> Vec<&'static str> {
    outcomes
        .iter()
        .map(|outcome| match outcome {
            Outcome::Accepted(_) => "accepted",
            Outcome::Repeated(_) => "repeated",
            Outcome::UnknownItem => "unknown",
            Outcome::Unread => "unread",
        })
        .collect()
}

async fn item(ledger: &tally::ledger::Ledger) -> ItemId {
    let name = tally::domain::ItemName::parse("x".to_owned()).expect("a name");
    ledger.create_item(&name).await.expect("an item").id
}

#[tokio::test]
async fn a_batch_is_decided_vote_by_vote_in_its_order() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let x = item(&ledger).await;
    let nowhere = ItemId::new(999).expect("positive");
    let mut writer = ledger.writer();
    let first = writer.insert(&[vote(x, Some("ada"))]).await.expect("an insert");
    let batch = [
        vote(x, Some("bob")),
        vote(nowhere, Some("bob")),
        vote(x, Some("ada")),
        vote(x, None),
        vote(x, Some("bob")),
        vote(x, None),
    ];
    let second = writer.insert(&batch).await.expect("an insert");
    assert_eq!(
        words(&second.outcomes),
        [
            "accepted", "unknown", "repeated", "accepted", "repeated", "accepted"
        ]
    );
    let id = |outcome: Outcome| match outcome {
        Outcome::Accepted(vote) | Outcome::Repeated(vote) => vote.id,
        Outcome::UnknownItem | Outcome::Unread => 0,
    };
    assert_eq!(
        id(second.outcomes[2]),
        id(first.outcomes[0]),
        "a repeat names the first vote"
    );
    assert_eq!(
        id(second.outcomes[4]),
        id(second.outcomes[0]),
        "in the same batch as well"
    );
    assert!(second.transaction > first.transaction);
}

#[tokio::test]
async fn a_batch_is_told_as_stored_even_if_what_its_repeats_repeat_cannot_be_read() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let x = item(&ledger).await;
    // Whatever comes after an insert on the same connection finds no table.
    sqlx::raw_sql(
        "create function hide() returns trigger language plpgsql as
         $$ begin perform set_config('search_path', 'nowhere', false); return null; end $$;
         create trigger hide after insert on vote for each statement execute function hide()",
    )
    .execute(&stores.pool())
    .await
    .expect("a trigger");
    let mut writer = ledger.writer();
    let batch = [vote(x, Some("ada")), vote(x, Some("ada")), vote(x, None)];
    let inserted = writer.insert(&batch).await.expect("it is committed");
    assert_eq!(words(&inserted.outcomes), ["accepted", "unread", "accepted"]);
    // The next batch gets a connection that is in order.
    sqlx::raw_sql("drop trigger hide on vote")
        .execute(&stores.pool())
        .await
        .expect("no trigger");
    let again = writer.insert(&[vote(x, Some("ada"))]).await.expect("an insert");
    assert_eq!(words(&again.outcomes), ["repeated"]);
}

#[tokio::test]
async fn two_batches_of_the_same_voters_at_once_store_each_vote_once() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let (x, y) = (item(&ledger).await, item(&ledger).await);
    for round in 0..30 {
        let batch = |reverse: bool| {
            let mut votes: Vec<NewVote> = (0..100)
                .map(|voter| {
                    vote(
                        if voter % 2 == 0 { x } else { y },
                        Some(&format!("{round}-{voter}")),
                    )
                })
                .collect();
            // In opposite orders, which would deadlock if the statement kept them.
            if reverse {
                votes.reverse();
            }
            votes
        };
        let (mut one, mut other) = (ledger.writer(), ledger.writer());
        let (forth, back) = (batch(false), batch(true));
        let (one, other) = tokio::join!(one.insert(&forth), other.insert(&back));
        let outcomes = [
            one.expect("an insert").outcomes,
            other.expect("an insert").outcomes,
        ]
        .concat();
        assert_eq!(
            words(&outcomes)
                .iter()
                .filter(|word| **word == "accepted")
                .count(),
            100
        );
        assert_eq!(
            words(&outcomes)
                .iter()
                .filter(|word| **word == "repeated")
                .count(),
            100
        );
    }
}

#[tokio::test]
async fn the_ledger_is_append_only_and_items_are_permanent() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let x = item(&ledger).await;
    ledger
        .writer()
        .insert(&[vote(x, Some("ada"))])
        .await
        .expect("an insert");
    let pool = stores.pool();
    for statement in [
        "update vote set value = 2",
        "delete from vote",
        "truncate vote",
        "delete from item",
        "truncate item",
        "update item set id = default",
        "insert into vote (item_id, value) values (1, 0)",
        "insert into item (name) values ('')",
        "insert into watermark (one) values (false)",
    ] {
        assert!(
            sqlx::query(statement).execute(&pool).await.is_err(),
            "{statement}"
        );
    }
}

#[tokio::test]
async fn an_exact_count_comes_with_a_snapshot_that_sees_its_votes() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let x = item(&ledger).await;
    let before = ledger.exact_counts(&[x]).await.expect("counts").remove(0);
    let inserted = ledger
        .writer()
        .insert(&[vote(x, None), vote(x, None)])
        .await
        .expect("an insert");
    let after = ledger.exact_counts(&[x]).await.expect("counts").remove(0);
    assert_eq!((before.count, after.count), (0, 2));
    assert!(!before.snapshot.sees(inserted.transaction));
    assert!(after.snapshot.sees(inserted.transaction));
    assert!(after.snapshot.sees(TransactionId(1)));
}

#[tokio::test]
async fn a_count_is_saved_only_forward_in_counted_at() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let x = item(&ledger).await;
    let save = async |count, rev| {
        let one = CountToSave {
            item_id: x,
            count,
            rev: Rev::from_micros(rev),
        };
        let saved = ledger.save_counts(&[one]).await.expect("a save");
        let item = ledger.item_reader().read(&[x]).await.expect("Postgres").remove(0);
        (
            saved.contains(x),
            item.saved_count,
            item.counted_at.map(Rev::micros),
        )
    };
    let micros = 1_795_222_231_361_714;
    assert_eq!(
        save(5, micros).await,
        (true, 5, Some(micros)),
        "to the microsecond"
    );
    assert_eq!(
        save(4, micros - 1).await,
        (false, 5, Some(micros)),
        "an older one is turned away"
    );
    assert_eq!(
        save(5, micros - 1).await,
        (true, 5, Some(micros)),
        "the same count is saved already"
    );
    assert_eq!(save(6, micros).await, (true, 6, Some(micros)));
    assert_eq!(save(7, micros + 1).await, (true, 7, Some(micros + 1)));
}

/// Makes this many items and returns their ids.
async fn items(pool: &sqlx::PgPool, number: i64) -> Vec<ItemId> {
    let ids: Vec<i64> =
        sqlx::query_scalar("insert into item (name) select 'x' from generate_series(1, $1) returning id")
            .bind(number)
            .fetch_all(pool)
            .await
            .expect("items");
    ids.into_iter().filter_map(ItemId::new).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_that_save_the_same_items_in_opposite_orders_both_succeed_and_the_newest_stays() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let items = items(&stores.pool(), 1000).await;
    let counts = |rev: i64| -> Vec<CountToSave> {
        let of_item = |item: &ItemId| CountToSave {
            item_id: *item,
            count: rev,
            rev: Rev::from_micros(rev),
        };
        items.iter().map(of_item).collect()
    };
    for round in 0..20 {
        let (older, mut newer) = (counts(1 + 2 * round), counts(2 + 2 * round));
        newer.reverse();
        let (older, newer) = tokio::join!(ledger.save_counts(&older), ledger.save_counts(&newer));
        older.expect("a save");
        let newer = newer.expect("a save");
        assert!(items.iter().all(|item| newer.contains(*item)));
        let newest: i64 = sqlx::query_scalar("select count(*) from item where vote_count = $1")
            .bind(2 + 2 * round)
            .fetch_one(&stores.pool())
            .await
            .expect("a count");
        assert_eq!(newest, 1000, "an older count came after a newer one");
    }
}

#[tokio::test]
async fn of_a_page_only_what_is_now_held_is_told_as_saved() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let items = items(&stores.pool(), 3).await;
    let count = |at: usize, count, rev| CountToSave {
        item_id: items[at],
        count,
        rev: Rev::from_micros(rev),
    };
    let first = [count(0, 5, 20), count(1, 5, 20)];
    ledger.save_counts(&first).await.expect("a save");
    let nowhere = CountToSave {
        item_id: ItemId::new(999).expect("positive"),
        ..count(0, 5, 10)
    };
    // The first is older and differs, the second older and the same, the third new.
    let page = [count(0, 4, 10), count(1, 5, 10), count(2, 7, 10), nowhere];
    let saved = ledger.save_counts(&page).await.expect("a save");
    let saved: Vec<bool> = page.iter().map(|one| saved.contains(one.item_id)).collect();
    assert_eq!(saved, [false, true, true, false]);
}

#[tokio::test]
async fn a_page_of_counts_is_saved_by_one_index_lookup_an_item() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    let explain = format!("explain {}", include_str!("../../src/ledger/sql/save_counts.sql"));
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
        .persistent(false)
        .fetch_all(&mut *connection)
        .await
        .expect("a plan");
    let plan = plan.join("\n");
    assert!(plan.contains("Nested Loop"), "{plan}");
    assert!(plan.contains("Index Cond: (id = given.id)"), "{plan}");
}

#[tokio::test(flavor = "multi_thread")]
async fn saves_and_folds_that_race_for_the_same_items_lose_nothing_of_each_other() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let pool = stores.pool();
    let items = items(&pool, 200).await;
    let saving = tokio::spawn({
        let (ledger, items) = (ledger.clone(), items.clone());
        async move {
            for rev in 1..=200 {
                let of_item = |item: &ItemId| CountToSave {
                    item_id: *item,
                    count: rev,
                    rev: Rev::from_micros(rev),
                };
                let page: Vec<CountToSave> = items.iter().rev().map(of_item).collect();
                ledger.save_counts(&page).await.expect("a save");
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
        // In portions that end in the midst of the items.
        while ledger
            .fold_votes(safe, std::time::Duration::ZERO, 70)
            .await
            .expect("a fold")
            .is_some()
        {}
    }
    saving.await.expect("no panic");
    let wrong: i64 =
        sqlx::query_scalar("select count(*) from item where audited_count <> $1 or vote_count <> 200")
            .bind(rounds)
            .fetch_one(&pool)
            .await
            .expect("a count");
    assert_eq!(wrong, 0);
}

#[tokio::test]
async fn a_young_vote_in_the_middle_of_a_portion_stops_the_fold_before_it() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let x = item(&ledger).await;
    // The fourth is of a batch that began late and drew its id early.
    sqlx::query(
        "insert into vote (item_id, created_at)
         select $1, now() - case when n = 4 then interval '1 minute' else interval '1 day' end
         from generate_series(1, 9) n",
    )
    .bind(x.get())
    .execute(&stores.pool())
    .await
    .expect("votes");
    let safe = ledger.safe_vote_id().await.expect("a safe id");
    let fold = async |in_flight_secs, limit_ids| {
        let in_flight_limit = std::time::Duration::from_secs(in_flight_secs);
        let folded = ledger
            .fold_votes(safe, in_flight_limit, limit_ids)
            .await
            .expect("a fold");
        folded.map(|folded| (folded.watermark, folded.votes, folded.is_young_next))
    };
    assert_eq!(fold(3600, 2).await, Some((2, 2, false)), "a portion without it");
    assert_eq!(fold(3600, 7).await, Some((3, 3, true)));
    assert_eq!(fold(3600, 7).await, None, "it is still young");
    assert_eq!(ledger.exact_counts(&[x]).await.expect("counts")[0].count, 9);
    assert_eq!(fold(1, 7).await, Some((9, 9, false)), "it is not any more");
    assert_eq!(ledger.exact_counts(&[x]).await.expect("counts")[0].count, 9);
}

#[tokio::test]
async fn the_watermark_waits_for_a_transaction_that_drew_an_earlier_id() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let x = item(&ledger).await;
    // A transaction that has drawn id 1 and is slow to commit, and a later vote that is not.
    let pool = stores.pool();
    let mut slow = pool.begin().await.expect("a transaction");
    sqlx::query("insert into vote (item_id) values ($1)")
        .bind(x.get())
        .execute(&mut *slow)
        .await
        .expect("a row");
    ledger.writer().insert(&[vote(x, None)]).await.expect("an insert");
    let waiting = tokio::spawn({
        let ledger = ledger.clone();
        async move { ledger.safe_vote_id().await }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    slow.commit().await.expect("a commit");
    let safe = waiting.await.expect("no panic").expect("a safe id");
    assert_eq!(safe, 2);
    let folded = ledger
        .fold_votes(safe, std::time::Duration::ZERO, FOLD_LIMIT_IDS)
        .await
        .expect("a fold")
        .expect("votes");
    assert_eq!((folded.watermark, folded.votes), (2, 2));
    assert_eq!(ledger.exact_counts(&[x]).await.expect("counts")[0].count, 2);
    assert_eq!(
        ledger
            .fold_votes(safe, std::time::Duration::ZERO, FOLD_LIMIT_IDS)
            .await
            .expect("a fold"),
        None
    );
}

#[tokio::test]
async fn exact_counts_stay_exact_while_audits_fold_the_votes_under_them() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let x = item(&ledger).await;
    let mut writer = ledger.writer();
    let folding = tokio::spawn({
        let ledger = ledger.clone();
        async move {
            for _ in 0..100 {
                let safe = ledger.safe_vote_id().await.expect("a safe id");
                ledger
                    .fold_votes(safe, std::time::Duration::ZERO, FOLD_LIMIT_IDS)
                    .await
                    .expect("a fold");
            }
        }
    });
    let mut stored = 0;
    while !folding.is_finished() {
        writer
            .insert(&[vote(x, None), vote(x, None), vote(x, None)])
            .await
            .expect("an insert");
        stored += 3;
        assert_eq!(ledger.exact_counts(&[x]).await.expect("counts")[0].count, stored);
    }
    folding.await.expect("no panic");
    assert_eq!(ledger.vote_total().await.expect("a total"), stored);
}

#[tokio::test]
async fn a_reader_whose_connection_was_ended_reads_on_over_another() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let x = item(&ledger).await;
    let mut reader = ledger.item_reader();
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
async fn an_item_that_was_not_there_takes_votes_over_the_same_connection_once_it_is() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let x = item(&ledger).await;
    let y = ItemId::new(x.get() + 1).expect("positive");
    let mut writer = ledger.writer();
    for voter in [None, Some("ada")] {
        let batch = [vote(y, voter), vote(x, voter), vote(y, None)];
        let before = writer.insert(&batch).await.expect("an insert");
        assert_eq!(words(&before.outcomes), ["unknown", "accepted", "unknown"]);
    }
    assert_eq!(item(&ledger).await, y);
    let nowhere = ItemId::new(999).expect("positive");
    for voter in [None, Some("bob")] {
        // Known, not yet known, and not there at all.
        let batch = [vote(x, voter), vote(y, voter), vote(nowhere, voter)];
        let after = writer.insert(&batch).await.expect("an insert");
        assert_eq!(words(&after.outcomes), ["accepted", "accepted", "unknown"]);
    }
    let counts = ledger.exact_counts(&[x, y]).await.expect("counts");
    assert_eq!(counts.iter().map(|one| one.count).sum::<i64>(), 6);
}

/// What takes a database's place after a failover or a restore may lack an item.
#[tokio::test]
async fn what_is_known_of_items_ends_with_the_connection() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let x = item(&ledger).await;
    let mut writer = ledger.writer();
    writer.insert(&[vote(x, None)]).await.expect("an insert");
    let pool = stores.pool();
    sqlx::raw_sql(
        "alter table item disable trigger item_is_permanent; delete from item;
         alter table item enable trigger item_is_permanent",
    )
    .execute(&pool)
    .await
    .expect("no item");
    sqlx::raw_sql(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'tally lane %'",
    )
    .execute(&pool)
    .await
    .expect("no connection");
    writer.insert(&[vote(x, None)]).await.expect_err("it was ended");
    for voter in [None, Some("ada")] {
        let inserted = writer.insert(&[vote(x, voter)]).await.expect("an insert");
        assert_eq!(words(&inserted.outcomes), ["unknown"]);
    }
    assert_eq!(ledger.vote_total().await.expect("a total"), 1);
}
