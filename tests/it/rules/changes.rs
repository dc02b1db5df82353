//! A voter's vote on an item: set, changed, taken back and shown.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tally::domain::ItemId;

use super::assert_rules_hold;
use crate::helpers::stores::until_blocked;
use crate::helpers::tally::Tally;

fn path(item: ItemId, voter: &str) -> String {
    format!("/v1/items/{item}/votes/{voter}")
}

async fn put(tally: &Tally, item: ItemId, voter: &str, value: i64) -> (StatusCode, Value) {
    tally
        .send(Method::PUT, &path(item, voter), Some(&json!({ "value": value })))
        .await
}

async fn delete(tally: &Tally, item: ItemId, voter: &str) -> (StatusCode, Value) {
    tally.send(Method::DELETE, &path(item, voter), None).await
}

/// The value, whether it was repeated, and the counts: net, up and down.
fn said(answer: &Value) -> (i64, bool, [i64; 3]) {
    let number = |name: &str| {
        answer[name]
            .as_i64()
            .unwrap_or_else(|| panic!("{name}: {answer}"))
    };
    let counts = ["vote_count", "up_count", "down_count"].map(number);
    (number("value"), answer["repeated"] == true, counts)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vote_is_set_changed_and_taken_back_each_idempotently_and_the_counts_follow() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let (status, first) = put(&tally, item, "ada", 1).await;
    assert_eq!(
        (status, said(&first)),
        (StatusCode::CREATED, (1, false, [2, 2, 0]))
    );
    let (status, same) = put(&tally, item, "ada", 1).await;
    assert_eq!((status, said(&same)), (StatusCode::OK, (1, true, [2, 2, 0])));
    assert_eq!(same["vote_id"], first["vote_id"]);
    let (status, changed) = put(&tally, item, "ada", -1).await;
    assert_eq!((status, said(&changed)), (StatusCode::OK, (-1, false, [0, 1, 1])));
    let shown = tally.get(&path(item, "ada")).await;
    let held = json!({ "vote_id": changed["vote_id"], "item_id": item, "voter_id": "ada", "value": -1 });
    assert_eq!(shown, (StatusCode::OK, held));
    let (status, back) = delete(&tally, item, "ada").await;
    assert_eq!((status, said(&back)), (StatusCode::OK, (0, false, [1, 1, 0])));
    let (status, again) = delete(&tally, item, "ada").await;
    assert_eq!((status, said(&again)), (StatusCode::OK, (0, true, [1, 1, 0])));
    assert_eq!(again["vote_id"], Value::Null);
    let (status, none) = tally.get(&path(item, "ada")).await;
    assert_eq!(
        (status, &none["title"]),
        (StatusCode::NOT_FOUND, &json!("No vote"))
    );
    tally.assert_exact_when_quiescent(item).await;
    assert_rules_hold(&tally.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_took_a_vote_back_votes_again_and_who_holds_one_repeats_it() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    assert_eq!(tally.vote(item, "ada").await.0, StatusCode::CREATED);
    delete(&tally, item, "ada").await;
    let votes = format!("/v1/items/{item}/votes");
    let (status, again) = tally
        .post(&votes, &json!({ "voter_id": "ada", "value": -1 }))
        .await;
    assert_eq!(
        (status, said(&again)),
        (StatusCode::CREATED, (-1, false, [-1, 0, 1]))
    );
    let (status, repeat) = tally
        .post(&votes, &json!({ "voter_id": "ada", "value": 1 }))
        .await;
    assert_eq!((status, said(&repeat)), (StatusCode::OK, (-1, true, [-1, 0, 1])));
    assert_eq!(repeat["vote_id"], again["vote_id"]);
    tally.assert_exact_when_quiescent(item).await;
    assert_rules_hold(&tally.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_gets_its_count_where_there_is_no_live_count() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    put(&tally, item, "ada", -1).await;
    let mut redis = tally.stores.redis_connection().await;
    for (value, counts) in [(1, [1, 1, 0]), (1, [1, 1, 0]), (-1, [-1, 0, 1])] {
        let () = redis::cmd("FLUSHALL")
            .query_async(&mut redis)
            .await
            .expect("Redis answers");
        assert_eq!(said(&put(&tally, item, "ada", value).await.1).2, counts);
    }
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_voter_can_stand_in_a_path_percent_encoded() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    for (encoded, voter) in [
        ("a%2Fb", "a/b"),
        ("50%25", "50%"),
        ("%C3%A9", "é"),
        ("a+b", "a+b"),
        ("%20", " "),
    ] {
        let (status, answer) = put(&tally, item, encoded, 1).await;
        assert_eq!(
            (status, &answer["voter_id"]),
            (StatusCode::CREATED, &json!(voter)),
            "{encoded}"
        );
        let (status, repeat) = tally.vote(item, voter).await;
        assert_eq!(
            (status, &repeat["repeated"]),
            (StatusCode::OK, &json!(true)),
            "{encoded}"
        );
    }
    for (encoded, status, word) in [
        ("%FF", 400, "UTF-8"),
        ("50%", 400, "hexadecimal"),
        ("%zz", 400, "hexadecimal"),
        ("%00", 422, "control"),
        (&"a".repeat(129), 422, "129 bytes"),
    ] {
        let (got, problem) = put(&tally, item, encoded, 1).await;
        assert_eq!(got.as_u16(), status, "{problem}");
        assert_eq!(problem["field"], "voter_id");
        assert!(
            problem["detail"].as_str().expect("text").contains(word),
            "{problem}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_cannot_be_says_why_and_stores_nothing() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let unknown = ItemId::new(item.get() + 1).expect("positive");
    for (item, body, status, word) in [
        (item, json!({ "value": 0 }), 422, "DELETE"),
        (item, json!({ "value": 2 }), 422, "1 or -1"),
        (item, json!({}), 400, "missing"),
        (item, json!({ "value": 1, "voter_id": "bob" }), 400, "voter_id"),
        (unknown, json!({ "value": 1 }), 404, "no item"),
    ] {
        let (got, problem) = tally.send(Method::PUT, &path(item, "ada"), Some(&body)).await;
        assert_eq!(got.as_u16(), status, "{body}: {problem}");
        assert!(
            problem["detail"].as_str().expect("text").contains(word),
            "{problem}"
        );
    }
    assert_eq!(delete(&tally, unknown, "ada").await.0, StatusCode::NOT_FOUND);
    assert_eq!(delete(&tally, item, "ada?x=1").await.0, StatusCode::BAD_REQUEST);
    assert_eq!(tally.get(&path(unknown, "ada")).await.0, StatusCode::NOT_FOUND);
    assert_eq!(tally.ledger_sum(item).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_without_down_votes_takes_none_by_any_way() {
    let tally = Tally::start().await;
    let item = tally.item_with(json!({ "down_votes": false })).await;
    assert_eq!(
        tally.get(&format!("/v1/items/{item}")).await.1["down_votes"],
        false
    );
    let votes = format!("/v1/items/{item}/votes");
    // The first time the server does not know the item, the second time it does.
    for _ in 0..2 {
        for body in [json!({ "value": -1 }), json!({ "value": -1, "voter_id": "ada" })] {
            let (status, problem) = tally.post(&votes, &body).await;
            assert_eq!(
                (status.as_u16(), &problem["field"]),
                (422, &json!("value")),
                "{problem}"
            );
        }
        assert_eq!(put(&tally, item, "ada", -1).await.0.as_u16(), 422);
        tally.add(item, 1).await;
    }
    assert_eq!(put(&tally, item, "ada", 1).await.0, StatusCode::CREATED);
    assert_eq!(put(&tally, item, "ada", -1).await.0.as_u16(), 422);
    assert_eq!(tally.ledger_sum(item).await, 3);
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vote_is_changed_1000_times_at_the_most_and_can_still_be_taken_back() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    sqlx::query(
        "insert into vote (item_id, voter_id, value, change_number)
         select $1, 'ada', 1 - 2 * (number % 2), number from generate_series(0, 998) as number",
    )
    .bind(item.get())
    .execute(&tally.pool)
    .await
    .expect("changes");
    let (status, problem) = put(&tally, item, "ada", -1).await;
    assert_eq!(
        (status.as_u16(), &problem["title"]),
        (409, &json!("Too many changes"))
    );
    assert_eq!(delete(&tally, item, "ada").await.0, StatusCode::OK);
    assert_eq!(put(&tally, item, "ada", 1).await.0.as_u16(), 409);
    assert_rules_hold(&tally.pool).await;
    tally.assert_exact_when_quiescent(item).await;
}

/// A change and a retraction both saw the vote, and the retraction was first.
/// The change finds nothing to take back, but has stored its vote. A retry would be a repeat of
/// itself, or store one more vote over a third one.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_beside_a_retraction_takes_effect_once_and_is_a_new_vote() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    assert_eq!(put(&tally, item, "ada", 1).await.0, StatusCode::CREATED);
    let mut retraction = tally.pool.begin().await.expect("a transaction");
    let outcomes: Vec<String> = sqlx::query_scalar(
        "select (cast_votes('{1}', '{null}', array[$1], '{ada}', '{0}', '{f}', '{f}')).outcomes",
    )
    .bind(item.get())
    .fetch_one(&mut *retraction)
    .await
    .expect("a decision");
    assert_eq!(outcomes, ["stored"]);
    let (http, url) = (tally.http.clone(), format!("{}{}", tally.base, path(item, "ada")));
    let changing = tokio::spawn(async move {
        let answer = http.put(url).json(&json!({ "value": -1 })).send().await;
        let answer = answer.expect("an answer");
        (answer.status(), answer.json::<Value>().await.expect("JSON"))
    });
    until_blocked(&tally.pool, "-- Stores votes that need a decision").await;
    retraction.commit().await.expect("a commit");
    let (status, changed) = changing.await.expect("it ends");
    assert_eq!(
        (status, &changed["repeated"]),
        (StatusCode::CREATED, &Value::Null)
    );
    let (_, held) = tally.get(&path(item, "ada")).await;
    assert_eq!(
        (&held["vote_id"], &held["value"]),
        (&changed["vote_id"], &json!(-1))
    );
    assert_rules_hold(&tally.pool).await;
}
