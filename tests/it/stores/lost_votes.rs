//! Acknowledged votes that are gone after a failover: which they were, found once and stored once.

use reqwest::{Method, StatusCode};
use serde_json::json;
use tally::domain::ItemId;
use tally::ledger::Role;

use super::failovers::{fail_over, lag_from_now_on, number, send};
use crate::helpers::eventually;
use crate::helpers::tally::{Tally, server_ledger, vote};

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_votes_that_the_new_primary_does_not_have_are_noted_with_their_items_and_times() {
    let mut tally = Tally::start().await;
    let [kept, lost, ruled] = [tally.item("kept").await, tally.item("lost").await, {
        let item = json!({ "name": "ruled", "max_votes": 10 });
        let (status, made) = send(&tally, Method::POST, "/v1/items", item).await;
        assert_eq!(status, StatusCode::CREATED, "{made}");
        ItemId::new(made["id"].as_i64().expect("an id")).expect("positive")
    }];
    for _ in 0..3 {
        tally.add(kept, 1).await;
    }
    lag_from_now_on(&mut tally).await;
    // The restart in between lost nothing.
    let before_loss: String = sqlx::query_scalar("select clock_timestamp()::text")
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers");
    for _ in 0..4 {
        tally.add(lost, 1).await;
    }
    assert_eq!(tally.vote(ruled, "ada").await.0, StatusCode::CREATED);
    tally.add(kept, 1).await;
    let losses = async |tally: &Tally| number(&tally.pool, "select count(*) from loss").await;
    assert_eq!(losses(&tally).await, 0);
    fail_over(&mut tally).await;
    // Others get the ids again, one of them on the same item.
    for item in [lost, kept, kept] {
        sqlx::query("insert into vote (item_id, value) values ($1, 1)")
            .bind(item.get())
            .execute(&tally.pool)
            .await
            .expect("a vote");
    }
    eventually("the loss is noted", async || {
        (losses(&tally).await > 0).then_some(())
    })
    .await;
    let (votes, items, is_whole, is_since, is_ordered): (i64, i64, bool, bool, bool) = sqlx::query_as(
        "select vote_total, item_total, is_whole, first_stored_at > $1::timestamptz,
                first_stored_at <= last_stored_at and last_stored_at < found_at
         from loss",
    )
    .bind(before_loss)
    .fetch_one(&tally.pool)
    .await
    .expect("one loss");
    assert_eq!(
        (votes, items, is_whole, is_since, is_ordered),
        (6, 3, true, true, true)
    );
    let of_items: Vec<(i64, i64)> =
        sqlx::query_as("select item_id, vote_total from loss_item order by item_id")
            .fetch_all(&tally.pool)
            .await
            .expect("Postgres answers");
    let mut wanted = vec![(kept.get(), 1), (lost.get(), 4), (ruled.get(), 1)];
    wanted.sort_unstable();
    assert_eq!(of_items, wanted);
    tally.wait_until_ready("ready").await;
    let (status, shown) = tally.get("/v1/status").await;
    assert_eq!(
        (
            status,
            &shown["lost_votes"]["total"],
            &shown["lost_votes"]["whole"]
        ),
        (StatusCode::OK, &json!(6), &json!(true))
    );
    let lost_votes = &shown["lost_votes"];
    let most = json!({ "item_id": lost.get(), "total": 4 });
    assert_eq!(
        (
            &lost_votes["items"][0],
            lost_votes["items"].as_array().map(Vec::len)
        ),
        (&most, Some(3))
    );
    let times = ["first_stored_at", "last_stored_at", "found_at"].map(|name| lost_votes[name].as_str());
    assert!(
        times[0] > Some("2020") && times[0] <= times[1] && times[1] < times[2],
        "{lost_votes}"
    );
    if crate::telemetry::is_alone() {
        assert_eq!(crate::helpers::metrics::metric("tally_lost_votes_total"), 6.0);
    }
    let audited = tally.worker().losses().await.expect("Postgres answers");
    assert!(
        audited.lines().is_some_and(|lines| {
            lines.contains("6 votes") && lines.contains(&format!("of item {lost} (4 votes), item "))
        }),
        "{audited:?}"
    );
    // Another restart loses nothing, and finds nothing a second time.
    eventually("votes are stored again", async || {
        tally.vote(lost, "bob").await.0.is_success().then_some(())
    })
    .await;
    tally.stores.postgres.crash().await;
    tally.stores.postgres.start().await.expect("Postgres starts");
    eventually("votes are stored again", async || {
        tally.vote(lost, "cy").await.0.is_success().then_some(())
    })
    .await;
    assert_eq!(losses(&tally).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn votes_that_survived_a_crash_and_went_with_the_next_failover_are_found_once_and_stored_once() {
    let mut tally = Tally::start().await;
    let item = tally.item("x").await;
    lag_from_now_on(&mut tally).await;
    let server = server_ledger(&tally.stores.login_url(Role::Server));
    let mut writer = server.writer();
    let votes = [vote(item, None), vote(item, Some("ada"))];
    writer.insert(&votes, &[]).await.expect("an insert");
    // Ada's is a repeat.
    writer.insert(&votes, &[]).await.expect("an insert");
    let find = async || eventually("Postgres answers", async || server.find_loss().await.ok()).await;
    assert_eq!(find().await, None);
    tally.stores.postgres.crash().await;
    tally.stores.postgres.start().await.expect("Postgres starts");
    assert_eq!(find().await, None, "they are there");
    assert!(!server.may_have_losses());
    fail_over(&mut tally).await;
    let loss = find().await.expect("a loss");
    assert_eq!((loss.votes, loss.item_total(), loss.is_whole), (3, 1, false));
    assert_eq!(find().await, None, "once");
    server.store_losses().await.expect("Postgres answers");
    server.store_losses().await.expect("Postgres answers");
    let stored = server.losses().await.expect("Postgres answers");
    assert_eq!(stored.votes, 3);
    assert!(stored.times.is_some() && !stored.are_whole);
}
