//! Throttles: how often voters may vote, over several servers.

use std::net::SocketAddr;

use futures_util::future::join_all;
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use tally::domain::{ItemId, Scope};
use tally::web::access::{CreateItems, Proxies};

use crate::helpers::eventually;
use crate::helpers::metrics::metric;
use crate::helpers::tally::Tally;
use crate::telemetry::passes_alone;
use crate::web::access::api_key;

pub(super) async fn start(throttles: &str) -> Tally {
    Tally::start_with(|options| options.voting.throttles = throttles.parse().expect("throttles")).await
}

pub(super) async fn with_another(throttles: &str) -> (Tally, [String; 2]) {
    let tally = start(throttles).await;
    let other = tally
        .another_server_with(|options| options.voting.throttles = throttles.parse().expect("throttles"))
        .await;
    let bases = [tally.base.clone(), other];
    (tally, bases)
}

pub(super) async fn vote(tally: &Tally, base: &str, item: ItemId, voter: Option<&str>) -> Response {
    let request = tally.http.post(format!("{base}/v1/items/{item}/votes"));
    let body = json!({ "voter_id": voter });
    request.json(&body).send().await.expect("an answer")
}

pub(super) async fn statuses(answers: impl IntoIterator<Item = Response>) -> (usize, usize) {
    let mut totals = (0, 0);
    for answer in answers {
        match answer.status() {
            StatusCode::CREATED | StatusCode::OK => totals.0 += 1,
            StatusCode::TOO_MANY_REQUESTS => totals.1 += 1,
            other => panic!("{other} {}", answer.text().await.expect("a text")),
        }
    }
    totals
}

/// The keys of the windows in Redis.
async fn windows(tally: &Tally) -> Vec<String> {
    let mut redis = tally.stores.redis_connection().await;
    redis::cmd("KEYS")
        .arg("tally:throttle:*")
        .query_async(&mut redis)
        .await
        .expect("Redis answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_as_many_of_200_clients_on_two_servers_vote_as_each_window_takes() {
    // Ten seconds are long enough: no window ends while the attempts arrive.
    let (tally, bases) = with_another("item:70/10s").await;
    for round in 0..3 {
        let item = tally.item("x").await;
        let votes = (0..200).map(|client| {
            let voter = format!("{round}-{client}");
            let base = &bases[client % 2];
            let tally = &tally;
            async move { vote(tally, base, item, Some(&voter)).await }
        });
        let answers = join_all(votes).await;
        assert_eq!(statuses(answers).await, (70, 130));
        assert_eq!(tally.ledger_sum(item).await, 70);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_window_ends_and_the_next_one_takes_attempts_on_each_server() {
    let (tally, bases) = with_another("item:1/1s").await;
    let item = tally.item("x").await;
    for base in bases.iter().cycle().take(6) {
        for status in [StatusCode::CREATED, StatusCode::TOO_MANY_REQUESTS] {
            eventually("a window begins, or is full", async || {
                let answer = vote(&tally, base, item, None).await;
                (answer.status() == status).then_some(())
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_attempt_says_when_to_come_again_stores_nothing_and_takes_nothing_of_other_windows() {
    if passes_alone("votes::throttles::a_refused_attempt_says_when_to_come_again_stores_nothing_and_takes_nothing_of_other_windows").await {
        return;
    }
    let tally = start("voter:1/1h,item:2/2h").await;
    let item = tally.item("x").await;
    let first = vote(&tally, &tally.base, item, Some("zoe")).await;
    assert_eq!(first.status(), StatusCode::CREATED);
    for _ in 0..5 {
        let refused = vote(&tally, &tally.base, item, Some("zoe")).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        let header = |name: &str| {
            let value = refused.headers().get(name).expect("the header");
            value.to_str().expect("a text").to_owned()
        };
        let after: u64 = header("retry-after").parse().expect("whole seconds");
        assert!((1..=3600).contains(&after), "{after}");
        assert_eq!(header("ratelimit-policy"), "\"voter:1/3600s\";q=1;w=3600");
        assert_eq!(header("ratelimit"), format!("\"voter:1/3600s\";r=0;t={after}"));
        let problem: Value = refused.json().await.expect("JSON");
        assert_eq!(problem["retry_after_seconds"], after);
    }
    // Zoe's refused attempts did not take the item's second place.
    let second = vote(&tally, &tally.base, item, Some("eve")).await;
    assert_eq!(second.status(), StatusCode::CREATED);
    let third = vote(&tally, &tally.base, item, Some("bob")).await;
    assert_eq!(third.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(third.headers()["ratelimit-policy"], "\"item:2/7200s\";q=2;w=7200");
    // Bob's refused attempt did not take his own place.
    let elsewhere = tally.item("y").await;
    let other = vote(&tally, &tally.base, elsewhere, Some("bob")).await;
    assert_eq!(other.status(), StatusCode::CREATED);
    assert_eq!(tally.ledger_sum(item).await, 2);
    for (by, refusals) in [("voter", 5.0), ("item", 1.0), ("address", 0.0)] {
        assert_eq!(metric(&format!("tally_throttled_total{{by=\"{by}\"}}")), refusals);
    }
    for key in windows(&tally).await {
        let mut redis = tally.stores.redis_connection().await;
        let left: i64 = redis::cmd("PTTL")
            .arg(&key)
            .query_async(&mut redis)
            .await
            .expect("Redis answers");
        assert!((1..=7_200_000).contains(&left), "{key}: {left}");
        // "zoe" cannot stand in the hexadecimal hash by chance.
        assert!(!key.contains("zoe") && !key.contains("127.0.0.1"), "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_request_that_votes_takes_a_place_and_reading_takes_none() {
    let tally = start("voter:1/1h").await;
    let item = tally.item("x").await;
    let poll = json!({ "title": "p", "choices": ["a"] });
    let (_, poll) = tally.post("/v1/polls", &poll).await;
    let (choice, poll) = (&poll["choices"][0]["item_id"], &poll["id"]);
    let votes = format!("/v1/items/{item}/votes");
    for (number, (method, path)) in [
        (Method::POST, votes.clone()),
        (Method::PUT, format!("{votes}/VOTER")),
        (Method::DELETE, format!("{votes}/VOTER")),
        (Method::PUT, format!("/v1/polls/{poll}/votes/VOTER")),
        (Method::DELETE, format!("/v1/polls/{poll}/votes/VOTER")),
        (Method::POST, "/v1/votes".to_owned()),
    ]
    .into_iter()
    .enumerate()
    {
        let voter = format!("voter {number}");
        let body = match (method.as_str(), path.as_str()) {
            ("POST", "/v1/votes") => Some(json!({ "votes": [{ "item_id": item.get(), "voter_id": voter }] })),
            ("POST", _) => Some(json!({ "voter_id": voter })),
            ("PUT", path) if path.contains("polls") => Some(json!({ "items": [choice] })),
            ("PUT", _) => Some(json!({ "value": 1 })),
            _ => None,
        };
        let path = path.replace("VOTER", &voter.replace(' ', "%20"));
        let attempt = async || {
            let (status, answer) = tally.send(method.clone(), &path, body.as_ref()).await;
            match answer["results"][0]["status"].as_u64() {
                Some(of_vote) => (of_vote, answer),
                None => (status.as_u16().into(), answer),
            }
        };
        let (first, answer) = attempt().await;
        assert!(first < 300, "{method} {path}: {answer}");
        let (second, answer) = attempt().await;
        assert_eq!(second, 429, "{method} {path}: {answer}");
        let of_poll = format!("/v1/polls/{poll}/votes/{}", voter.replace(' ', "%20"));
        for path in [of_poll, format!("/v1/items/{item}"), format!("/v1/polls/{poll}")] {
            let (status, _) = tally.send(Method::GET, &path, None).await;
            assert_eq!(status, StatusCode::OK, "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn votes_of_a_batch_are_throttled_one_by_one_in_their_order() {
    let tally = start("voter:2/1h,item:4/1h").await;
    let (x, y) = (tally.item("x").await, tally.item("y").await);
    let entry = |item: ItemId, voter: &str| json!({ "item_id": item.get(), "voter_id": voter });
    let batch = json!({ "votes": [
        entry(x, "ada"), entry(y, "ada"), entry(x, "ada"), entry(x, "eve"),
        { "item_id": 999_999 }, entry(x, "bob"), entry(x, "cy"), entry(x, "di"),
    ]});
    let (status, answer) = tally.post("/v1/votes", &batch).await;
    assert_eq!(status, StatusCode::OK);
    let results: Vec<i64> = answer["results"]
        .as_array()
        .expect("results")
        .iter()
        .map(|result| result["status"].as_i64().expect("a status"))
        .collect();
    assert_eq!(results, [201, 201, 429, 201, 404, 201, 201, 429], "{answer}");
    assert!(
        answer["results"][2]["retry_after_seconds"]
            .as_i64()
            .expect("seconds")
            > 0
    );
    assert_eq!((tally.ledger_sum(x).await, tally.ledger_sum(y).await), (4, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_throttled_vote_makes_no_item() {
    let tally = Tally::start_with(|options| {
        options.voting.throttles = "voter:1/1h".parse().expect("throttles");
        options.voting.creates = CreateItems::Any;
    })
    .await;
    let body = json!({ "voter_id": "ada" });
    let (status, _) = tally.post("/v1/items/key:one/votes", &body).await;
    assert_eq!(status, StatusCode::CREATED);
    let (status, _) = tally.post("/v1/items/key:two/votes", &body).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    let batch = json!({ "votes": [{ "item_id": "key:three", "voter_id": "ada" }] });
    let (_, answer) = tally.post("/v1/votes", &batch).await;
    assert_eq!(answer["results"][0]["status"], 429, "{answer}");
    let items: i64 = sqlx::query_scalar("select count(*) from item")
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(items, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_counts_for_its_client_and_not_for_a_backend_or_a_proxy() {
    let tally = Tally::start_with(|options| {
        options.voting.throttles = "address:2/1h".parse().expect("throttles");
    })
    .await;
    let item = tally.item("x").await;
    let behind = tally
        .another_server_with(|options| {
            options.voting.throttles = "address:2/1h".parse().expect("throttles");
            options.access.proxies = Proxies {
                networks: "127.0.0.0/8".parse().expect("networks"),
                ..Proxies::default()
            };
        })
        .await;
    let (_, key) = api_key(&tally, &[Scope::Vote]).await;
    let from = async |base: &str, forwarded: Option<&str>, key: Option<&str>| {
        let mut request = tally.http.post(format!("{base}/v1/items/{item}/votes"));
        if let Some(address) = forwarded {
            request = request.header("x-forwarded-for", address);
        }
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        request.send().await.expect("an answer").status()
    };
    // A forwarding header from a client that is no proxy is ignored: these are one client.
    assert_eq!(
        from(&tally.base, Some("192.0.2.1"), None).await,
        StatusCode::CREATED
    );
    assert_eq!(
        from(&tally.base, Some("192.0.2.2"), None).await,
        StatusCode::CREATED
    );
    let third = from(&tally.base, Some("192.0.2.3"), None).await;
    assert_eq!(third, StatusCode::TOO_MANY_REQUESTS);
    // A backend votes for many voters.
    for _ in 0..4 {
        let status = from(&tally.base, None, Some(key.as_str())).await;
        assert_eq!(status, StatusCode::CREATED);
    }
    // Behind a proxy, each client counts by itself, and an IPv6 network counts as one. The server
    // ignores addresses that a client made up.
    for (forwarded, status) in [
        ("192.0.2.1", StatusCode::CREATED),
        ("9.9.9.9, 192.0.2.1", StatusCode::CREATED),
        ("8.8.8.8, 192.0.2.1", StatusCode::TOO_MANY_REQUESTS),
        ("192.0.2.2", StatusCode::CREATED),
        ("2001:db8::1", StatusCode::CREATED),
        ("2001:db8::2", StatusCode::CREATED),
        ("2001:db8::3", StatusCode::TOO_MANY_REQUESTS),
        ("2001:db8:0:1::3", StatusCode::CREATED),
    ] {
        assert_eq!(from(&behind, Some(forwarded), None).await, status, "{forwarded}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_address_of_a_connection_is_the_clients() {
    let tally = start("address:1/1h").await;
    let item = tally.item("x").await;
    let from = async |address: &str| {
        let local: SocketAddr = format!("{address}:0").parse().expect("an address");
        let client = reqwest::Client::builder()
            .local_address(local.ip())
            .no_proxy()
            .build();
        let request = client
            .expect("a client")
            .post(format!("{}/v1/items/{item}/votes", tally.base));
        request.send().await.expect("an answer").status()
    };
    assert_eq!(from("127.0.0.2").await, StatusCode::CREATED);
    assert_eq!(from("127.0.0.3").await, StatusCode::CREATED);
    assert_eq!(from("127.0.0.2").await, StatusCode::TOO_MANY_REQUESTS);
}
