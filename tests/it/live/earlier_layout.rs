//! The upgrade from the version before the key prefix.
//! Tally does not read that version's keys in Redis. The first pass of the new worker makes every
//! count right.

use redis::AsyncCommands;

use crate::helpers::tally::Tally;

/// A counter of the former version: fields and values.
fn former_counter(count: &str) -> [(&'static str, String); 4] {
    [
        ("count", count.to_owned()),
        ("rev", "1790000000000000".to_owned()),
        ("saved", "1790000000000000".to_owned()),
        ("seeded", "1790000000".to_owned()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_upgrade_every_count_is_right_whatever_the_former_version_left_in_redis() {
    let tally = Tally::start().await;
    let (saved, behind, never) = (
        tally.item("saved").await,
        tally.item("behind").await,
        tally.item("never saved").await,
    );
    let mut redis = tally.stores.redis_connection().await;
    let mut former = Vec::new();
    // The ledger has 3 votes on each item. The former version's live counts had all 3, but not all
    // were saved.
    for (item, saved_count) in [(saved, 3), (behind, 2), (never, 0)] {
        sqlx::query("insert into vote (item_id) select $1 from generate_series(1, 3)")
            .bind(item.get())
            .execute(&tally.pool)
            .await
            .expect("votes");
        sqlx::query(
            "update item set vote_count = $2, counted_at = case when $2 > 0 then now() end where id = $1",
        )
        .bind(item.get())
        .bind(saved_count)
        .execute(&tally.pool)
        .await
        .expect("a saved count");
        let key = format!("item:{{{item}}}");
        let () = redis
            .hset_multiple(&key, &former_counter("3"))
            .await
            .expect("Redis answers");
        former.push(key);
    }
    // The epoch of the former version: run, replication and token of these stores, without a
    // layout.
    let current = tally.epoch().await.current;
    let token = tally.ledger.incarnation().await.expect("Postgres answers");
    let () = redis
        .set("tally:epoch", format!("{current}:{token}"))
        .await
        .expect("Redis answers");

    // A vote before the worker's first pass.
    assert_eq!(tally.add(saved, 1).await, Some(4));
    let worker = tally.worker();
    // Rebuilt are the live count of `saved`, and the other two, which are behind.
    assert_eq!(worker.enter_epoch().await.expect("the stores answer"), Some(3));
    assert_eq!(worker.enter_epoch().await.expect("the stores answer"), None);
    for (item, count) in [(saved, 4), (behind, 3), (never, 3)] {
        tally.assert_exact_when_quiescent(item).await;
        assert_eq!(tally.saved_count(item).await, count);
    }
    for (item, count) in [(saved, 5), (behind, 4), (never, 4)] {
        assert_eq!(tally.add(item, 1).await, Some(count));
        tally.assert_exact_when_quiescent(item).await;
    }
    for key in former {
        let fields: usize = redis.hlen(&key).await.expect("Redis answers");
        assert_eq!(fields, 4, "{key} is nobody's now, and stays as it was");
    }
}
