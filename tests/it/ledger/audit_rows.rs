//! The votes that an audit and a seed read, compared with a model of a few lines.

use tally::domain::{Count, ItemId, VoteId};
use tally::ledger::Pacing;

use super::items;
use crate::helpers::stores::Stores;
use crate::helpers::tally::{ledger, roll_up_lease};

/// Rows of the ledger, by id: item, voter, value, change_number.
/// An odd change takes back the vote before it, with the opposite value.
const ROWS: [(usize, &str, i64, i64); 14] = [
    (0, "ada", 1, 0),
    (1, "ada", -1, 0),
    (0, "bob", -1, 0),
    (0, "bob", 1, 1),
    (1, "ada", 1, 1),
    (0, "ada", -1, 1),
    (0, "bob", -1, 2),
    (1, "bob", 1, 0),
    (0, "cy", -1, 0),
    (0, "ada", 1, 2),
    (1, "bob", -1, 1),
    (1, "cy", -1, 0),
    (0, "cy", 1, 1),
    (1, "bob", -1, 2),
];

/// The sums of the rows that raise an item's counts, and of those that lower them.
fn model(item: usize, rows: &[(usize, &str, i64, i64)]) -> (Count, Count) {
    let (mut raised, mut lowered) = (Count::ZERO, Count::ZERO);
    for (_, _, value, change) in rows.iter().filter(|row| row.0 == item) {
        if *value > 0 {
            raised.net += 1;
            lowered.downs += change % 2;
        } else {
            lowered.net += 1;
            raised.downs += 1 - change % 2;
        }
    }
    (raised, lowered)
}

#[tokio::test]
async fn rows_of_an_audit_have_the_exact_counts_and_those_in_flight_wherever_the_watermark_is() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    // Without indexes, no plan has the rows in the order of their ids by chance.
    sqlx::raw_sql("alter role all set enable_indexscan = off; alter role all set enable_bitmapscan = off")
        .execute(&pool)
        .await
        .expect("settings of all later connections");
    let ledger = ledger(&stores.database_url);
    let lease = roll_up_lease(&ledger).await;
    let items = items(&pool, 2).await;
    for (item, voter, value, change) in ROWS {
        sqlx::query("insert into vote (item_id, voter_id, value, change_number) values ($1, $2, $3, $4)")
            .bind(items[item].get())
            .bind(voter)
            .bind(value as i16)
            .bind(change as i16)
            .execute(&pool)
            .await
            .expect("a row");
    }
    // Its row now lies behind the other's on disk.
    sqlx::query("update item set name = 'y' where id = $1")
        .bind(items[0].get())
        .execute(&pool)
        .await
        .expect("the owner may");
    let backwards: Vec<ItemId> = items.iter().rev().copied().collect();
    let safe = ledger.safe_vote_id().await.expect("a safe id");
    let mut watermark = 0;
    loop {
        // Also for a reader who read what is in flight before the last roll-up.
        for after in 0..=ROWS.len() {
            let in_flight_after = VoteId::new(after as i64);
            let rows = ledger
                .audit_page(&backwards, in_flight_after)
                .await
                .expect("rows");
            assert_eq!(rows.len(), items.len());
            for (item, row) in rows.iter().enumerate() {
                assert_eq!(row.item_id, items[item], "in the order of their ids");
                let (raised, lowered) = model(item, &ROWS);
                assert_eq!(row.exact_count, raised + -lowered, "watermark {watermark}");
                let in_flight = model(item, &ROWS[after..]);
                assert_eq!(
                    (row.in_flight.up, row.in_flight.down),
                    in_flight,
                    "watermark {watermark}, in flight after {after}"
                );
                // No roll-up has saved anything.
                assert_eq!((row.unsaved.up, row.unsaved.down), (raised, lowered));
            }
        }
        let exact = ledger.exact_counts(&items).await.expect("counts");
        assert_eq!(exact.len(), items.len());
        for (item, id) in items.iter().enumerate() {
            let (raised, lowered) = model(item, &ROWS);
            let one = exact.iter().find(|one| one.item_id == *id).expect("the item");
            assert_eq!(one.count, raised + -lowered, "watermark {watermark}");
        }
        match ledger
            .roll_up_votes(&lease, &safe, 1, Pacing::Spread)
            .await
            .expect("a roll-up")
        {
            Some(_) => watermark += 1,
            None => break,
        }
    }
    assert_eq!(watermark, ROWS.len());
}
