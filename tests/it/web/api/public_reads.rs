//! Lists, searches and histories that anyone may ask for, and what they must leave alone: votes, and the
//! probes of load balancers.

use std::collections::BTreeSet;
use std::net::IpAddr;

use futures_util::future::join_all;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::helpers::eventually;
use crate::helpers::stores::{blocker, until_blocked};
use crate::helpers::tally::Tally;
use crate::web::api::problems::assert_leads_to_its_section;
use tally::web::ProblemKind;

/// Keeps histories waiting, and nothing else.
const LOCK_CHANGES: &str = "lock table recent_change in access exclusive mode";
/// The statement of a history.
const HISTORY: &str = "-- What votes changed";
/// The statement that waits for a poll's last votes.
const IS_FINAL: &str = "select poll_is_final";

/// Asks for this again and again, over more connections than any pool has.
fn fill_public_reads(tally: &Tally, path: &str) -> JoinSet<()> {
    let mut readers = JoinSet::new();
    for _ in 0..12 {
        let (http, url) = (tally.http.clone(), format!("{}{path}", tally.base));
        readers.spawn(async move {
            loop {
                let _ = http.get(&url).send().await;
            }
        });
    }
    readers
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_who_take_all_connections_of_public_reads_delay_no_vote_and_no_probe() {
    let tally = Tally::start().await;
    for at in 0..20 {
        let fields = json!({ "name": format!("item {at}"), "key": format!("item-{at}") });
        tally.item_with(fields).await;
    }
    let watched = tally.item("watched").await;
    let pool = tally.stores.pool();
    let lock = blocker(&pool, LOCK_CHANGES).await;
    let readers = fill_public_reads(&tally, &format!("/v1/items/{watched}/history"));
    until_blocked(&pool, HISTORY).await;
    assert_votes_and_probes_pass(&tally).await;
    until_blocked(&pool, HISTORY).await;
    drop(readers);
    lock.rollback().await.expect("a rollback");
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_a_poll_whose_last_votes_are_waited_for_delay_no_vote_and_no_probe() {
    let tally = Tally::start().await;
    for at in 0..20 {
        let fields = json!({ "name": format!("item {at}"), "key": format!("item-{at}") });
        tally.item_with(fields).await;
    }
    let poll = json!({ "title": "x", "choices": ["a", "b"], "closes_at": "2100-01-01T00:00:00Z" });
    let (status, poll) = tally.post("/v1/polls", &poll).await;
    assert_eq!(status, StatusCode::CREATED, "{poll}");
    let pool = tally.stores.pool();
    let close = format!("update rule set closes_at = now() where id = {}", poll["id"]);
    sqlx::query(&close).execute(&pool).await.expect("it closes");
    let lock = blocker(
        &pool,
        &format!("select from rule where id = {} for update", poll["id"]),
    )
    .await;
    let readers = fill_public_reads(&tally, &format!("/v1/polls/{}", poll["id"]));
    until_blocked(&pool, IS_FINAL).await;
    assert_votes_and_probes_pass(&tally).await;
    until_blocked(&pool, IS_FINAL).await;
    drop(readers);
    lock.rollback().await.expect("a rollback");
}

/// Votes by keys that no server has looked up yet, over two servers.
async fn assert_votes_and_probes_pass(tally: &Tally) {
    // A server that has looked up no key yet.
    let other = tally.another_server().await;
    for at in 0..20 {
        for base in [&tally.base, &other] {
            let vote = json!({ "voter_id": format!("voter at {base}") });
            let path = format!("/v1/items/key:item-{at}/votes");
            let (status, answer) = tally
                .send_to(base, reqwest::Method::POST, &path, Some(&vote))
                .await;
            assert_eq!(status, StatusCode::CREATED, "{answer}");
        }
        let (status, answer) = tally.get("/health/ready").await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_fills_public_reads_lets_another_address_in() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let pool = tally.stores.pool();
    let lock = blocker(&pool, LOCK_CHANGES).await;
    let readers = fill_public_reads(&tally, &format!("/v1/items/{item}/history"));
    until_blocked(&pool, HISTORY).await;
    let elsewhere = reqwest::Client::builder()
        .no_proxy()
        .local_address(IpAddr::from([127, 0, 0, 2]))
        .build()
        .expect("a client");
    for path in ["/v1/items", "/v1/polls", "/v1/items?search=x"] {
        let answer = elsewhere.get(format!("{}{path}", tally.base)).send().await;
        assert_eq!(answer.expect("an answer").status(), StatusCode::OK, "{path}");
    }
    until_blocked(&pool, HISTORY).await;
    drop(readers);
    lock.rollback().await.expect("a rollback");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_asks_for_many_lists_at_once_gets_429() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let pool = tally.stores.pool();
    let lock = blocker(&pool, LOCK_CHANGES).await;
    let mut asked = JoinSet::new();
    for _ in 0..40 {
        let get = tally.http.get(format!("{}/v1/items/{item}/history", tally.base));
        asked.spawn(async move {
            let answer = get.send().await.expect("an answer");
            let retry_after = answer.headers().get("retry-after").cloned();
            (
                answer.status(),
                retry_after,
                answer.json::<Value>().await.expect("JSON"),
            )
        });
    }
    // Those beyond the limit are answered while the others wait.
    let mut refused = 0;
    while refused < 24 {
        let (status, retry_after, problem) = asked.join_next().await.expect("answers").expect("no panic");
        if status == StatusCode::TOO_MANY_REQUESTS {
            assert_eq!(retry_after.expect("a header"), "1");
            let kind = assert_leads_to_its_section(&tally, &problem).await;
            assert_eq!(kind, ProblemKind::TooManyListsOfAddress);
            refused += 1;
        } else {
            // It waited for Postgres for too long.
            assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{problem}");
        }
    }
    lock.rollback().await.expect("a rollback");
    asked.join_all().await;
    let (status, answer) = tally.get(&format!("/v1/items/{item}/history")).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}

/// Every route that reads many rows for anyone, with what it answers to an address that asks for too much. Lists of
/// all top items are not among them: one statement at a time reads them for all who ask.
const TAKE_A_PLACE: [(&str, &str, StatusCode); 13] = [
    ("/v1/items", "", StatusCode::TOO_MANY_REQUESTS),
    ("/v1/items", "?search=x", StatusCode::TOO_MANY_REQUESTS),
    ("/v1/items", "?name=x", StatusCode::TOO_MANY_REQUESTS),
    ("/v1/items/top", "?key_prefix=x", StatusCode::TOO_MANY_REQUESTS),
    ("/v1/feed", "?voter_id=ada&items=1", StatusCode::TOO_MANY_REQUESTS),
    ("/v1/polls", "", StatusCode::TOO_MANY_REQUESTS),
    ("/v1/polls", "?search=x", StatusCode::TOO_MANY_REQUESTS),
    ("/v1/items/{id}/history", "", StatusCode::TOO_MANY_REQUESTS),
    ("/v1/polls/{id}/votes", "", StatusCode::TOO_MANY_REQUESTS),
    ("/v1/items/{id}/votes", "", StatusCode::TOO_MANY_REQUESTS),
    ("/v1/polls/{id}/history", "", StatusCode::TOO_MANY_REQUESTS),
    // The page of all items and polls.
    ("/", "", StatusCode::SERVICE_UNAVAILABLE),
    ("/", "?search=x", StatusCode::SERVICE_UNAVAILABLE),
];

/// The paths whose description says that an address may ask for too many lists.
fn described_as_lists() -> BTreeSet<String> {
    let description: Value = serde_json::from_str(tally::web::description()).expect("JSON");
    let paths = description["paths"].as_object().expect("paths");
    let lists = paths.iter().filter(|(_, path)| {
        let refusal = &path["get"]["responses"]["429"];
        refusal.to_string().contains("too-many-lists-of-address")
    });
    lists.map(|(path, _)| path.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_list_search_history_and_page_of_them_takes_one_of_an_addresss_places() {
    let named: BTreeSet<String> = TAKE_A_PLACE
        .iter()
        .filter(|(path, ..)| *path != "/")
        .map(|(path, ..)| (*path).to_owned())
        .collect();
    assert_eq!(named, described_as_lists());

    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let (_, poll) = tally
        .post(
            "/v1/polls",
            &json!({ "title": "Lunch?", "choices": ["soup", "salad"] }),
        )
        .await;
    let pool = tally.stores.pool();
    let lock = blocker(&pool, LOCK_CHANGES).await;
    // They take all places of this address, and those in which requests wait.
    let readers: Vec<JoinSet<()>> = (0..2)
        .map(|_| fill_public_reads(&tally, &format!("/v1/items/{item}/history")))
        .collect();
    until_blocked(&pool, HISTORY).await;
    let asked = ["*/*", "text/csv"]
        .map(|accept| TAKE_A_PLACE.map(|(path, query, status)| (path, query, status, accept)));
    // Each waits for a place before it is refused, so all ask at once.
    join_all(
        asked
            .as_flattened()
            .iter()
            .map(async |(path, query, status, accept)| {
                let id = match path.starts_with("/v1/polls") {
                    true => poll["id"].to_string(),
                    false => item.to_string(),
                };
                let url = format!("{}{}{query}", tally.base, path.replace("{id}", &id));
                eventually(&format!("{path}{query} is refused"), async || {
                    let get = tally.http.get(&url).header("accept", *accept);
                    let answer = get.send().await.expect("an answer");
                    (answer.status() == *status).then_some(())
                })
                .await;
            }),
    )
    .await;
    // What reads a few rows goes on.
    for path in [
        format!("/v1/items/{item}"),
        format!("/v1/polls/{}", poll["id"]),
        "/v1/items/top".to_owned(),
    ] {
        assert_eq!(tally.get(&path).await.0, StatusCode::OK, "{path}");
    }
    drop(readers);
    lock.rollback().await.expect("a rollback");
    for (path, query, _) in TAKE_A_PLACE.iter().filter(|(path, ..)| !path.contains('{')) {
        let url = format!("{}{path}{query}", tally.base);
        eventually("the places are free again", async || {
            let answer = tally.http.get(&url).send().await.expect("an answer");
            (answer.status() == StatusCode::OK).then_some(())
        })
        .await;
    }
}
