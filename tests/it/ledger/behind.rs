//! Which items a worker looks at that enters an epoch.

use tally::domain::ItemId;

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
    let mut after = 0;
    let mut pages = 0;
    loop {
        let page = ledger
            .items_behind_audit(1, &[0], after, 4)
            .await
            .expect("a page");
        found.extend(page.items);
        let Some(last) = page.last else { break };
        after = last;
        pages += 1;
    }
    assert_eq!((found, pages), (items[1..5].to_vec(), 2));
    let odd = ledger.items_behind_audit(2, &[1], 0, 100).await.expect("a page");
    let of_odd: Vec<ItemId> = items[1..5]
        .iter()
        .copied()
        .filter(|item| item.get() % 2 == 1)
        .collect();
    assert_eq!(odd.items, of_odd);
}
