//! Which items a worker looks at that enters an epoch.

use tally::domain::ItemId;
use tally::ledger::ItemSpan;

use super::items;
use crate::helpers::stores::Stores;
use crate::helpers::tally::ledger;

#[tokio::test]
async fn items_whose_saved_counts_are_not_the_audited_ones_come_in_pages() {
    let stores = Stores::start().await;
    let (pool, ledger) = (stores.pool(), ledger(&stores.database_url));
    let items = items(&pool, 6).await;
    // Saved and audited: the same; another net; another number of down-votes; never audited; never saved; neither.
    for (item, saved, audited) in [
        (0, Some((5, 1)), Some((5, 1))),
        (1, Some((5, 1)), Some((6, 1))),
        (2, Some((5, 1)), Some((5, 2))),
        (3, Some((1, 0)), None),
        (4, None, Some((0, 3))),
        (5, None, None),
    ] {
        let id = items[item].get();
        if let Some((net, downs)) = saved {
            sqlx::query("update item set vote_count = $2, down_count = $3, counted_at = now() where id = $1")
                .bind(id)
                .bind(net)
                .bind(downs)
                .execute(&pool)
                .await
                .expect("a saved count");
        }
        if let Some((net, downs)) = audited {
            sqlx::query("insert into audited_count (item_id, vote_count, down_count) values ($1, $2, $3)")
                .bind(id)
                .bind(net)
                .bind(downs)
                .execute(&pool)
                .await
                .expect("an audited count");
        }
    }
    let mut found = Vec::new();
    let all = ItemSpan {
        divisor: 1,
        remainders: vec![0],
        after: 0,
        last: i64::MAX,
    };
    let mut rest = all.clone();
    let mut pages = 0;
    loop {
        let page = ledger.items_behind_audit(&rest, 4).await.expect("a page");
        found.extend(page.items);
        let Some(last) = page.last else { break };
        rest.after = last;
        pages += 1;
    }
    assert_eq!((found, pages), (items[1..5].to_vec(), 2));
    let up_to_third = ItemSpan {
        last: items[2].get(),
        ..all.clone()
    };
    let page = ledger
        .items_behind_audit(&up_to_third, 100)
        .await
        .expect("a page");
    assert_eq!(page.items, items[1..3]);
    let ends = ledger.first_and_last_item().await.expect("Postgres answers");
    assert_eq!(ends, (items[0].get(), items[5].get()));
    let odd = ItemSpan {
        divisor: 2,
        remainders: vec![1],
        ..all
    };
    let odd = ledger.items_behind_audit(&odd, 100).await.expect("a page");
    let of_odd: Vec<ItemId> = items[1..5]
        .iter()
        .copied()
        .filter(|item| item.get() % 2 == 1)
        .collect();
    assert_eq!(odd.items, of_odd);
}
