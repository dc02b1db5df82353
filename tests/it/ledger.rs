//! What the database itself holds in place.

use tally::domain::{CountToSave, ItemId, NewVote, Outcome, Rev, TransactionId, Value, VoterId};

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
            saved.contains(&x),
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
        .fold_votes(safe, std::time::Duration::ZERO)
        .await
        .expect("a fold")
        .expect("votes");
    assert_eq!((folded.watermark, folded.votes), (2, 2));
    assert_eq!(ledger.exact_counts(&[x]).await.expect("counts")[0].count, 2);
    assert_eq!(
        ledger
            .fold_votes(safe, std::time::Duration::ZERO)
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
                    .fold_votes(safe, std::time::Duration::ZERO)
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
