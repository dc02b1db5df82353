//! Ballots: one-time tokens, each worth one vote.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::assert_rules_hold;
use crate::helpers::eventually;
use crate::helpers::tally::Tally;
use tally::domain::ItemId;

/// A poll with two choices. Returns its path, and the choices.
async fn poll(tally: &Tally, fields: Value) -> (String, [ItemId; 2]) {
    let mut body = fields;
    body["title"] = json!("Lunch");
    body["choices"] = json!(["Soup", "Salad"]);
    let (status, poll) = tally.post("/v1/polls", &body).await;
    assert_eq!(status, StatusCode::CREATED, "{poll}");
    let choices = [0, 1].map(|at| {
        let id = poll["choices"][at]["item_id"].as_i64();
        ItemId::new(id.expect("an id")).expect("positive")
    });
    (format!("/v1/polls/{}", poll["id"]), choices)
}

/// New ballots of the item or poll at this path.
async fn ballots(tally: &Tally, path: &str, count: usize) -> Vec<String> {
    let (status, made) = tally
        .post(&format!("{path}/ballots"), &json!({ "count": count }))
        .await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    serde_json::from_value(made["ballots"].clone()).expect("ballots")
}

async fn cast(tally: &Tally, item: ItemId, ballot: &str) -> (StatusCode, Value) {
    tally
        .post(&format!("/v1/items/{item}/votes"), &json!({ "ballot": ballot }))
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ballot_buys_one_vote_and_the_same_again_is_answered_with_it() {
    let tally = Tally::start().await;
    let item = tally
        .item_with(json!({ "by_ballot": true, "numbered": true }))
        .await;
    let path = format!("/v1/items/{item}");
    assert_eq!(tally.get(&path).await.1["by_ballot"], true);
    let made = ballots(&tally, &path, 2).await;
    assert_ne!(made[0], made[1]);
    let (status, first) = cast(&tally, item, &made[0]).await;
    assert_eq!((status, &first["number"]), (StatusCode::CREATED, &json!(1)));
    let (status, again) = cast(&tally, item, &made[0]).await;
    assert_eq!((status, &again["repeated"]), (StatusCode::OK, &json!(true)));
    assert_eq!(again["vote_id"], first["vote_id"]);
    // A ballot that was spent on 1 does not buy -1.
    let votes = format!("{path}/votes");
    let (status, problem) = tally
        .post(&votes, &json!({ "ballot": made[0], "value": -1 }))
        .await;
    assert_eq!(status, StatusCode::CONFLICT, "{problem}");
    let (status, other) = tally
        .post(&votes, &json!({ "ballot": made[1], "value": -1 }))
        .await;
    assert_eq!(
        (status, &other["vote_count"], &other["down_count"]),
        (StatusCode::CREATED, &json!(0), &json!(1))
    );
    assert_rules_hold(&tally.pool).await;
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_ballot_stores_nothing_and_says_what_would_be_right() {
    let tally = Tally::start().await;
    let (path, [soup, salad]) = poll(&tally, json!({ "by_ballot": true })).await;
    let (other_path, [other, _]) = poll(&tally, json!({ "by_ballot": true })).await;
    let plain = tally.item("x").await;
    let [one, two] = <[String; 2]>::try_from(ballots(&tally, &path, 2).await).expect("two");
    let expired = json!({ "count": 1, "expires_at": "2001-01-01T00:00:00Z" });
    let (_, expired) = tally.post(&format!("{path}/ballots"), &expired).await;
    let expired = expired["ballots"][0].as_str().expect("a ballot").to_owned();
    let votes = |item| format!("/v1/items/{item}/votes");
    for (path, body, status, kind) in [
        (votes(other), json!({ "ballot": one }), 409, "ballot-not-valid"),
        (votes(soup), json!({ "ballot": expired }), 409, "ballot-not-valid"),
        (
            votes(soup),
            json!({ "ballot": "no such" }),
            409,
            "ballot-not-valid",
        ),
        (votes(soup), json!({}), 422, "ballot-missing"),
        (votes(soup), json!({ "voter_id": "ada" }), 422, "ballot-missing"),
        (votes(plain), json!({ "ballot": one }), 422, "ballot-not-taken"),
    ] {
        let (got, problem) = tally.post(&path, &body).await;
        assert_eq!(got, status, "{body}: {problem}");
        let named = problem["type"].as_str().unwrap_or_default();
        assert!(named.ends_with(kind), "{body}: {problem}");
    }
    let (status, problem) = tally
        .post(&votes(soup), &json!({ "ballot": one, "voter_id": "ada" }))
        .await;
    assert_eq!((status.as_u16(), &problem["field"]), (422, &json!("voter_id")));
    for (method, path, body) in [
        (
            Method::PUT,
            format!("{}/ada", votes(soup)),
            Some(json!({ "value": 1 })),
        ),
        (Method::DELETE, format!("{}/ada", votes(soup)), None),
        (
            Method::PUT,
            format!("{path}/votes/ada"),
            Some(json!({ "items": [salad] })),
        ),
    ] {
        let (status, problem) = tally.send(method, &path, body.as_ref()).await;
        assert_eq!(
            (status.as_u16(), &problem["field"]),
            (422, &json!("ballot")),
            "{path}"
        );
    }
    for (path, body) in [
        (
            "/v1/polls",
            json!({ "title": "x", "choices": ["a"], "secret": true }),
        ),
        (
            "/v1/polls",
            json!({ "title": "x", "choices": ["a"], "by_ballot": true, "max_choices": 2 }),
        ),
        (&format!("{other_path}/ballots"), json!({ "count": 0 })),
        (&format!("{other_path}/ballots"), json!({ "count": 1001 })),
        (&format!("/v1/items/{plain}/ballots"), json!({ "count": 1 })),
    ] {
        assert_eq!(
            tally.post(path, &body).await.0,
            StatusCode::UNPROCESSABLE_ENTITY,
            "{body}"
        );
    }
    let of_choice = format!("/v1/items/{soup}/ballots");
    let (status, problem) = tally.post(&of_choice, &json!({ "count": 1 })).await;
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(detail.contains(&format!("{path}/ballots")), "{problem}");
    let rows: i64 = sqlx::query_scalar("select count(*) from vote")
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(rows, 0);
    // No refusal has spent a ballot.
    for ballot in [&one, &two] {
        assert_eq!(cast(&tally, soup, ballot).await.0, StatusCode::CREATED);
    }
    assert_rules_hold(&tally.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_ballot_sent_a_thousand_times_to_two_servers_buys_one_vote() {
    let tally = Tally::start().await;
    let other = tally.another_server().await;
    for fields in [
        json!({ "by_ballot": true }),
        json!({ "by_ballot": true, "secret": true }),
    ] {
        let (path, choices) = poll(&tally, fields).await;
        let ballot = ballots(&tally, &path, 1).await.remove(0);
        let mut sending = JoinSet::new();
        for at in 0..200 {
            let http = tally.http.clone();
            let base = [&tally.base, &other][at % 2].clone();
            let ballot = ballot.clone();
            // The same ballot for both choices: it buys one of them.
            let url = format!("{base}/v1/items/{}/votes", choices[at / 2 % 2]);
            sending.spawn(async move {
                let (mut created, mut unanswered, mut answered) = (0, 0, 0);
                while answered < 5 {
                    let sent = http.post(&url).json(&json!({ "ballot": ballot })).send().await;
                    let status = sent.expect("an answer").status();
                    // Other requests came first each time. A retry is safe.
                    if status == StatusCode::SERVICE_UNAVAILABLE {
                        unanswered += 1;
                        continue;
                    }
                    assert!([200, 201, 409].contains(&status.as_u16()), "{status}");
                    answered += 1;
                    created += usize::from(status == StatusCode::CREATED);
                }
                (created, unanswered)
            });
        }
        let ended = sending.join_all().await.into_iter();
        let (created, unanswered) = ended.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        // The request that got no answer may have bought the vote.
        assert!(created == 1 || (created == 0 && unanswered > 0), "{created}");
        let rows: i64 = sqlx::query_scalar("select count(*) from vote where item_id = any($1)")
            .bind(choices.map(ItemId::get))
            .fetch_one(&tally.pool)
            .await
            .expect("Postgres answers");
        assert_eq!(rows, 1);
        assert_eq!(tally.get(&path).await.1["voter_count"], 1);
        for choice in choices {
            tally.assert_exact_when_quiescent(choice).await;
        }
    }
    assert_rules_hold(&tally.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_is_kept_says_which_ballot_bought_which_secret_vote() {
    let tally = Tally::start().await;
    let (path, [soup, salad]) = poll(&tally, json!({ "by_ballot": true, "secret": true })).await;
    let made = ballots(&tally, &path, 3).await;
    let (status, answer) = cast(&tally, soup, &made[0]).await;
    assert_eq!(status, StatusCode::CREATED);
    for hidden in ["vote_id", "voter_id", "number"] {
        assert!(answer[hidden].is_null(), "{answer}");
    }
    assert_eq!(cast(&tally, salad, &made[1]).await.0, StatusCode::CREATED);
    // A spent ballot looks like an unknown one.
    let (spent_status, spent) = cast(&tally, soup, &made[0]).await;
    let (unknown_status, unknown) = cast(&tally, soup, "unknown").await;
    assert_eq!((spent_status, spent), (unknown_status, unknown));
    let kept: Vec<Option<i64>> = sqlx::query_scalar("select vote_id from ballot")
        .fetch_all(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(kept, [None], "the one that is not spent");
    let rows: Vec<(i64, Option<String>)> = sqlx::query_as("select id, voter_id from vote")
        .fetch_all(&tally.pool)
        .await
        .expect("Postgres answers");
    for (id, voter) in rows {
        assert_eq!(voter, None);
        assert_eq!(
            tally.get(&format!("/v1/votes/{id}")).await.0,
            StatusCode::NOT_FOUND
        );
    }
    // The key would be stored beside the vote, and tell whose it is.
    let refused = tally
        .http
        .post(format!("{}/v1/items/{soup}/votes", tally.base))
        .header("Idempotency-Key", "k")
        .json(&json!({ "ballot": made[2] }))
        .send()
        .await
        .expect("an answer");
    assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(cast(&tally, soup, &made[2]).await.0, StatusCode::CREATED);
    assert_eq!(tally.get(&path).await.1["voter_count"], 3);
    // The report role reads everything but the ballots.
    let readable: bool = sqlx::query_scalar(
        "select has_table_privilege('tally_report', 'ballot', 'select')
             or has_any_column_privilege('tally_server', 'ballot', 'select')
             or has_any_column_privilege('tally_worker', 'ballot', 'select')",
    )
    .fetch_one(&tally.pool)
    .await
    .expect("Postgres answers");
    assert!(!readable);
    assert_rules_hold(&tally.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ballot_is_not_spent_without_a_vote_when_its_item_is_full_or_closed() {
    let tally = Tally::start().await;
    let item = tally
        .item_with(json!({ "by_ballot": true, "max_votes": 1, "closes_at": "2100-01-01T00:00:00Z" }))
        .await;
    let path = format!("/v1/items/{item}");
    let made = ballots(&tally, &path, 3).await;
    assert_eq!(cast(&tally, item, &made[0]).await.0, StatusCode::CREATED);
    let (status, problem) = cast(&tally, item, &made[1]).await;
    assert_eq!(status, StatusCode::CONFLICT, "{problem}");
    let now = json!({ "closes_at": "2001-01-01T00:00:00Z" });
    assert_eq!(
        tally.send(Method::PATCH, &path, Some(&now)).await.0,
        StatusCode::OK
    );
    eventually("it is closed", async || {
        let (status, problem) = cast(&tally, item, &made[2]).await;
        assert_eq!(status, StatusCode::CONFLICT);
        problem["title"]
            .as_str()
            .is_some_and(|title| title == "Closed")
            .then_some(())
    })
    .await;
    let unspent: i64 = sqlx::query_scalar("select count(*) from ballot where vote_id is null")
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(unspent, 2);
    // A spent ballot still repeats its vote after the close.
    assert_eq!(cast(&tally, item, &made[0]).await.0, StatusCode::OK);
    assert_rules_hold(&tally.pool).await;
}
