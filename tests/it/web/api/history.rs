//! Recent changes of counts.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::helpers::tally::Tally;
use crate::web::api::lists::{poll, read};
use crate::web::api::top_lists::{earlier, summed, votes};

#[tokio::test(flavor = "multi_thread")]
async fn votes_that_no_worker_has_summed_are_in_no_part_of_a_history() {
    let tally = Tally::start().await;
    let item = tally.item("x").await.get();
    let path = format!("/v1/items/{item}/history?over=hour");
    let before = read(&tally, &path).await;
    assert_eq!(before["as_of"], Value::Null, "{before}");
    for votes_so_far in [3, 6] {
        votes(&tally, item, 3, 0).await;
        let not_summed = read(&tally, &path).await;
        assert_eq!(
            not_summed["total"]["vote_count"],
            votes_so_far - 3,
            "{not_summed}"
        );
        drop(summed(&tally).await);
        let history = read(&tally, &path).await;
        assert_eq!(history["total"]["vote_count"], votes_so_far, "{history}");
        let spans = history["spans"].as_array().expect("spans").iter();
        let changes = spans.filter_map(|span| span["change"]["vote_count"].as_i64());
        assert_eq!(changes.sum::<i64>(), votes_so_far, "{history}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_has_what_changed_in_each_span_and_nothing_of_hidden_results() {
    let tally = Tally::start().await;
    let item = tally.item("x").await.get();
    votes(&tally, item, 4, 1).await;
    earlier(&tally.pool, "true", "3 days").await;
    votes(&tally, item, 2, 1).await;
    earlier(&tally.pool, "id > 5", "5 hours").await;
    votes(&tally, item, 3, 0).await;
    let secret = json!({
        "title": "Board", "choices": ["yes"], "closes_at": "2100-01-01T00:00:00Z", "results_before_close": false
    });
    let secret = poll(&tally, secret).await;
    let open = poll(&tally, json!({ "title": "x", "choices": ["a", "b"] })).await;
    for poll in [&secret, &open] {
        let path = format!("/v1/polls/{}/votes/ada", poll["id"]);
        let choice = json!({ "items": [poll["choices"][0]["item_id"]] });
        tally.send(Method::PUT, &path, Some(&choice)).await;
    }
    drop(summed(&tally).await);

    let changes = |history: &Value| -> Vec<(i64, i64, i64)> {
        let spans = history["spans"].as_array().expect("spans").iter();
        let number = |value: &Value| value.as_i64().expect("a number");
        spans
            .map(|span| {
                let change = &span["change"];
                (
                    number(&change["vote_count"]),
                    number(&change["up_count"]),
                    number(&change["down_count"]),
                )
            })
            .collect()
    };
    let path = format!("/v1/items/{item}/history");
    let day = read(&tally, &path).await;
    assert_eq!(day["over"], "day");
    assert_eq!(changes(&day), [(1, 2, 1), (3, 3, 0)], "{day}");
    let hour = read(&tally, &format!("{path}?over=hour")).await;
    assert_eq!(changes(&hour), [(3, 3, 0)], "{hour}");
    assert!(hour["as_of"].is_string() && hour["since"].as_str() > day["since"].as_str());
    // Both end with the same counts, those of all votes.
    let total =
        |net: i64, ups: i64, downs: i64| json!({ "vote_count": net, "up_count": ups, "down_count": downs });
    assert_eq!(
        (&day["total"], &hour["total"]),
        (&total(7, 9, 2), &total(7, 9, 2))
    );

    let history = read(&tally, &format!("/v1/polls/{}/history", open["id"])).await;
    assert_eq!(changes(&history["choices"][0]), [(1, 1, 0)], "{history}");
    assert_eq!(changes(&history["choices"][1]), [], "{history}");
    assert_eq!(history["choices"][0]["total"], total(1, 1, 0), "{history}");
    assert_eq!(history["choices"][1]["total"], total(0, 0, 0), "{history}");
    let hidden = read(&tally, &format!("/v1/polls/{}/history", secret["id"])).await;
    assert_eq!(hidden["choices"], Value::Null, "{hidden}");
    let choice = secret["choices"][0]["item_id"].as_i64().expect("an id");
    let hidden = read(&tally, &format!("/v1/items/{choice}/history")).await;
    assert_eq!(
        (&hidden["spans"], &hidden["total"]),
        (&Value::Null, &Value::Null),
        "{hidden}"
    );

    for (path, status) in [
        ("/v1/items/999999/history", StatusCode::NOT_FOUND),
        ("/v1/polls/999999/history", StatusCode::NOT_FOUND),
        (&format!("{path}?over=week"), StatusCode::UNPROCESSABLE_ENTITY),
    ] {
        assert_eq!(tally.get(path).await.0, status, "{path}");
    }
}
