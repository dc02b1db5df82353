//! An item's throttle, and votes that make their item.

use futures_util::future::join_all;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tally::domain::Scope;
use tally::web::access::CreateItems;
use testkit::stores::redis_info;

use crate::helpers::tally::Tally;
use crate::web::access::api_key;

/// Two servers on which votes make items, and on which an item takes this many votes in an hour.
async fn two_servers(limit: usize) -> (Tally, [String; 2]) {
    let throttles = format!("voter:1/1h,item:{limit}/1h");
    let tally = Tally::start_with(|options| {
        options.voting.throttles = throttles.parse().expect("throttles");
        options.voting.creates = CreateItems::Any;
    })
    .await;
    let other = tally
        .another_server_with(|options| {
            options.voting.throttles = throttles.parse().expect("throttles");
            options.voting.creates = CreateItems::Any;
        })
        .await;
    let bases = [tally.base.clone(), other];
    (tally, bases)
}

/// The votes of the item of this key.
async fn votes_on(tally: &Tally, key: &str) -> i64 {
    sqlx::query_scalar("select count(*) from vote join item on item.id = vote.item_id where item.key = $1")
        .bind(key)
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers")
}

/// Sends three votes of new voters on an item, in one of three ways. Returns their statuses.
async fn three_votes(tally: &Tally, base: &str, reference: &str, round: usize, client: usize) -> Vec<u64> {
    let voters: Vec<String> = (0..3).map(|at| format!("{round}-{client}-{at}")).collect();
    match client % 3 {
        0 => {
            let votes: Vec<Value> = voters
                .iter()
                .map(|voter| json!({ "item_id": reference, "voter_id": voter }))
                .collect();
            let body = json!({ "votes": votes });
            let (status, answer) = tally.send_to(base, Method::POST, "/v1/votes", Some(&body)).await;
            assert_eq!(status, StatusCode::OK, "{answer}");
            let results = answer["results"].as_array().expect("results").iter();
            results.filter_map(|one| one["status"].as_u64()).collect()
        }
        way => {
            let votes = voters.iter().map(async |voter| {
                let path = format!("/v1/items/{reference}/votes");
                let (method, path, body) = match way {
                    1 => (Method::POST, path, json!({ "voter_id": voter })),
                    _ => (Method::PUT, format!("{path}/{voter}"), json!({ "value": 1 })),
                };
                let (status, _) = tally.send_to(base, method, &path, Some(&body)).await;
                status.as_u16().into()
            });
            join_all(votes).await
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn votes_that_make_their_item_take_the_places_of_its_throttle_on_two_servers_and_in_batches() {
    const LIMIT: usize = 5;
    let (tally, bases) = two_servers(LIMIT).await;
    for round in 0..4 {
        let key = format!("post-{round}");
        let reference = format!("key:{key}");
        let clients =
            (0..16).map(|client| three_votes(&tally, &bases[client % 2], &reference, round, client));
        let mut statuses = join_all(clients).await.concat();
        // The item is there by now: votes by its id have the same windows.
        let (_, item) = tally.get(&format!("/v1/items/{reference}")).await;
        let id = item["id"].to_string();
        for client in 16..20 {
            statuses.extend(three_votes(&tally, &bases[client % 2], &id, round, client).await);
        }
        let admitted = statuses.iter().filter(|status| **status == 201).count();
        let refused = statuses.iter().filter(|status| **status == 429).count();
        assert_eq!((admitted, refused), (LIMIT, 60 - LIMIT), "{statuses:?}");
        assert_eq!(votes_on(&tally, &key).await, 5);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vote_that_its_items_throttle_refuses_takes_no_place_of_its_voter() {
    let (tally, _) = two_servers(1).await;
    let votes: Vec<Value> = ["ada", "bob", "cy"]
        .iter()
        .map(|voter| json!({ "item_id": "key:one", "voter_id": voter }))
        .collect();
    let (_, answer) = tally.post("/v1/votes", &json!({ "votes": votes })).await;
    let results = answer["results"].as_array().expect("results").iter();
    let statuses: Vec<u64> = results.filter_map(|one| one["status"].as_u64()).collect();
    assert_eq!(statuses, [201, 429, 429], "{answer}");
    assert_eq!(answer["results"][1]["type"], "/problems/throttled");
    for (voter, expected) in [("ada", 429), ("bob", 201), ("cy", 429)] {
        let (status, _) = tally
            .post("/v1/items/key:two/votes", &json!({ "voter_id": voter }))
            .await;
        assert_eq!(status.as_u16(), expected, "{voter}");
    }
    let (status, _) = tally
        .post("/v1/items/key:three/votes", &json!({ "voter_id": "cy" }))
        .await;
    assert_eq!(status, StatusCode::CREATED, "cy still has a place");
}

#[tokio::test(flavor = "multi_thread")]
async fn votes_of_an_administrators_key_that_make_their_item_take_places_too() {
    let tally = Tally::start_with(|options| {
        options.voting.throttles = "item:2/1h".parse().expect("throttles");
    })
    .await;
    let (_, both) = api_key(&tally, &[Scope::Vote, Scope::Admin]).await;
    let votes = (0..12).map(async |_| {
        let url = format!("{}/v1/items/key:post/votes", tally.base);
        let request = tally.http.post(url).bearer_auth(both.as_str());
        request.send().await.expect("an answer").status()
    });
    let statuses = join_all(votes).await;
    let is_stored = |status: &&StatusCode| **status == StatusCode::CREATED;
    assert_eq!(statuses.iter().filter(is_stored).count(), 2, "{statuses:?}");
    // A vote that may make no item meets none.
    let (status, _) = tally.post("/v1/items/key:other/votes", &json!({})).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(votes_on(&tally, "post").await, 2);
}

/// How many scripts this Redis has run.
async fn scripts_run(tally: &Tally) -> u64 {
    let info = redis_info(&tally.stores.redis_url(), "commandstats").await;
    let calls: Option<String> = info.expect("Redis answers").get("cmdstat_evalsha");
    let calls = calls.expect("some ran");
    let calls = calls.split(',').find_map(|part| part.strip_prefix("calls="));
    calls.and_then(|calls| calls.parse().ok()).expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_votes_of_a_batch_that_make_their_item_ask_its_throttle_together() {
    const VOTES: usize = 300;
    let tally = Tally::start_with(|options| {
        options.voting.throttles = "item:200/1h".parse().expect("throttles");
        options.voting.creates = CreateItems::Any;
    })
    .await;
    let votes: Vec<Value> = (0..VOTES)
        .map(|at| json!({ "item_id": "key:one", "value": 1, "voter_id": at.to_string() }))
        .collect();
    let before = scripts_run(&tally).await;
    let (status, answer) = tally.post("/v1/votes", &json!({ "votes": votes })).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let run = scripts_run(&tally).await - before;
    assert!(run < VOTES as u64 / 10, "{run} scripts for {VOTES} votes");
    assert_eq!(votes_on(&tally, "one").await, 200);
}
