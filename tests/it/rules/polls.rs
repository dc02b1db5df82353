//! Polls: one choice, several, or any; selections, results and turnout.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tally::domain::{ItemId, PollId, PollState};

use super::assert_rules_hold;
use crate::helpers::eventually;
use crate::helpers::stores::until_blocked;
use crate::helpers::tally::Tally;

struct Poll<'a> {
    tally: &'a Tally,
    id: i64,
    choices: Vec<ItemId>,
}

impl<'a> Poll<'a> {
    /// A poll of these choices, with these further fields.
    async fn start(tally: &'a Tally, choices: &[&str], fields: Value) -> Self {
        let mut body = fields;
        body["title"] = json!("Lunch?");
        body["choices"] = json!(choices);
        let (status, poll) = tally.post("/v1/polls", &body).await;
        assert_eq!(status, StatusCode::CREATED, "{poll}");
        let names: Vec<&str> = array(&poll["choices"])
            .iter()
            .map(|one| text(&one["name"]))
            .collect();
        assert_eq!(names, choices, "in their order");
        let ids = array(&poll["choices"])
            .iter()
            .filter_map(|one| ItemId::new(one["item_id"].as_i64()?));
        Self {
            tally,
            id: poll["id"].as_i64().expect("an id"),
            choices: ids.collect(),
        }
    }

    fn path(&self, voter: &str) -> String {
        format!("/v1/polls/{}/votes/{voter}", self.id)
    }

    /// Sets a voter's selection to the choices with these numbers.
    async fn select(&self, voter: &str, choices: &[usize]) -> (StatusCode, Value) {
        let items: Vec<ItemId> = choices.iter().map(|at| self.choices[*at]).collect();
        let body = json!({ "items": items });
        self.tally.send(Method::PUT, &self.path(voter), Some(&body)).await
    }

    async fn shown(&self) -> Value {
        let (status, poll) = self.tally.get(&format!("/v1/polls/{}", self.id)).await;
        assert_eq!(status, StatusCode::OK, "{poll}");
        poll
    }

    /// The choices' counts and the turnout, as the poll shows them.
    async fn counts(&self) -> (Vec<i64>, i64) {
        let poll = self.shown().await;
        let counts = array(&poll["choices"])
            .iter()
            .map(|one| one["vote_count"].as_i64().expect("a count"));
        (counts.collect(), poll["voter_count"].as_i64().expect("a turnout"))
    }

    async fn assert_exact(&self) {
        for choice in &self.choices {
            self.tally.assert_exact_when_quiescent(*choice).await;
        }
        assert_rules_hold(&self.tally.pool).await;
    }
}

fn array(value: &Value) -> &Vec<Value> {
    value.as_array().expect("an array")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_one_choice_poll_another_vote_moves_the_vote_by_either_way() {
    let tally = Tally::start().await;
    let poll = Poll::start(&tally, &["soup", "salad"], json!({})).await;
    assert_eq!(poll.select("ada", &[0]).await.0, StatusCode::OK);
    assert_eq!(tally.vote(poll.choices[0], "bob").await.0, StatusCode::CREATED);
    assert_eq!(poll.counts().await, (vec![2, 0], 2));
    let (status, moved) = tally.vote(poll.choices[1], "ada").await;
    assert_eq!((status, &moved["vote_count"]), (StatusCode::CREATED, &json!(1)));
    assert_eq!(poll.counts().await, (vec![1, 1], 2));
    let (status, same) = poll.select("ada", &[1]).await;
    assert_eq!((status, &same["repeated"]), (StatusCode::OK, &json!(true)));
    let item = format!("/v1/items/{}/votes/bob", poll.choices[1]);
    let (status, set) = tally.send(Method::PUT, &item, Some(&json!({ "value": 1 }))).await;
    assert_eq!((status, &set["vote_count"]), (StatusCode::CREATED, &json!(2)));
    assert_eq!(poll.counts().await, (vec![0, 2], 2));
    let shown = poll.shown().await;
    assert_eq!(
        (&shown["choices"][0]["share"], &shown["choices"][1]["share"]),
        (&json!(0.0), &json!(1.0))
    );
    let (status, none) = tally.send(Method::DELETE, &poll.path("ada"), None).await;
    assert_eq!((status, &none["items"]), (StatusCode::OK, &json!([])));
    assert_eq!(poll.counts().await, (vec![0, 1], 1));
    assert_eq!(
        tally.get(&poll.path("bob")).await.1["items"],
        json!([poll.choices[1]])
    );
    poll.assert_exact().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_selection_is_set_whole_or_not_at_all() {
    let tally = Tally::start().await;
    let poll = Poll::start(&tally, &["a", "b", "c", "d"], json!({ "max_choices": 2 })).await;
    poll.select("ada", &[0, 1]).await;
    assert_eq!(poll.counts().await, (vec![1, 1, 0, 0], 1));
    let (status, problem) = poll.select("ada", &[1, 2, 3]).await;
    assert_eq!(
        (status, text(&problem["type"])),
        (StatusCode::CONFLICT, "/problems/too-many-choices")
    );
    // A vote on one more choice, by its item.
    assert_eq!(tally.vote(poll.choices[2], "ada").await.0, StatusCode::CONFLICT);
    poll.select("ada", &[1, 3, 3]).await;
    assert_eq!(poll.counts().await, (vec![0, 1, 0, 1], 1));
    let other = tally.item("elsewhere").await;
    for items in [json!([other]), json!([poll.choices[0], 999_999])] {
        let body = json!({ "items": items });
        let (status, problem) = tally.send(Method::PUT, &poll.path("ada"), Some(&body)).await;
        assert_eq!(
            (status.as_u16(), &problem["field"]),
            (422, &json!("items")),
            "{problem}"
        );
    }
    assert_eq!(poll.counts().await, (vec![0, 1, 0, 1], 1));
    let any = Poll::start(&tally, &["a", "b", "c"], json!({ "max_choices": 0 })).await;
    any.select("ada", &[0, 1, 2]).await;
    any.select("bob", &[2]).await;
    assert_eq!(any.counts().await, (vec![1, 1, 2], 2));
    any.select("ada", &[]).await;
    assert_eq!(any.counts().await, (vec![0, 0, 1], 1));
    poll.assert_exact().await;
    any.assert_exact().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_takes_votes_of_voters_only_and_an_unknown_one_is_404() {
    let tally = Tally::start().await;
    let poll = Poll::start(&tally, &["a", "b"], json!({})).await;
    let (status, problem) = tally
        .post(&format!("/v1/items/{}/votes", poll.choices[0]), &json!({}))
        .await;
    assert_eq!((status.as_u16(), &problem["field"]), (422, &json!("voter_id")));
    assert_eq!(tally.get("/v1/polls/999").await.0, StatusCode::NOT_FOUND);
    assert_eq!(
        tally.get("/v1/polls/999/votes/ada").await.0,
        StatusCode::NOT_FOUND
    );
    let body = json!({ "items": [poll.choices[0]] });
    assert_eq!(
        tally
            .send(Method::PUT, "/v1/polls/999/votes/ada", Some(&body))
            .await
            .0,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        tally
            .send(Method::DELETE, "/v1/polls/999/votes/ada", None)
            .await
            .0,
        StatusCode::NOT_FOUND
    );
    // An item's own rule is not a poll.
    tally.item_with(json!({ "max_votes": 1 })).await;
    assert_eq!(
        tally.get(&format!("/v1/polls/{}", poll.id + 1)).await.0,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn hidden_results_are_hidden_everywhere_until_the_close_and_final_after_it() {
    let tally = Tally::start().await;
    let fields = json!({ "closes_at": "2999-01-01T00:00:00Z", "results_before_close": false });
    let poll = Poll::start(&tally, &["a", "b"], fields).await;
    let (status, answer) = tally.vote(poll.choices[0], "ada").await;
    assert_eq!(
        (status, &answer["vote_count"]),
        (StatusCode::CREATED, &Value::Null)
    );
    poll.select("bob", &[1]).await;
    tally.worker().flush_until_quiescent().await.expect("a flush");
    let shown = poll.shown().await;
    assert_eq!(
        (&shown["state"], &shown["final"], &shown["voter_count"]),
        (&json!("open"), &json!(false), &Value::Null)
    );
    for choice in array(&shown["choices"]) {
        assert_eq!(
            (&choice["vote_count"], &choice["share"]),
            (&Value::Null, &Value::Null)
        );
    }
    for path in [format!("/v1/items/{}", poll.choices[0]), "/v1/items".to_owned()] {
        let (_, answer) = tally.get(&path).await;
        let item = answer.get("items").map_or(&answer, |items| &items[0]);
        for name in ["vote_count", "up_count", "down_count", "counted_at"] {
            assert_eq!(
                (&item[name], &item["saved"][name]),
                (&Value::Null, &Value::Null),
                "{path}: {name}"
            );
        }
    }
    sqlx::query("update rule set closes_at = now()")
        .execute(&tally.pool)
        .await
        .expect("a close");
    assert_eq!(tally.vote(poll.choices[0], "cy").await.0, StatusCode::CONFLICT);
    let shown = poll.shown().await;
    assert_eq!(
        (&shown["state"], &shown["final"]),
        (&json!("closed"), &json!(true))
    );
    assert_eq!(poll.counts().await, (vec![1, 1], 2));
    poll.assert_exact().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn final_results_wait_for_votes_that_were_granted_before_the_close() {
    let tally = Tally::start().await;
    let poll = Poll::start(&tally, &["a", "b"], json!({})).await;
    let id = PollId::new(poll.id).expect("positive");
    let ledger = &tally.server_ledger;
    assert!(!ledger.is_final(id).await.expect("an answer"), "it is open");
    // Long enough for a batch to be decided.
    sqlx::query("update rule set closes_at = clock_timestamp() + interval '3 s'")
        .execute(&tally.pool)
        .await
        .expect("a time");
    // This batch is decided before the close, and commits after it.
    let mut batch = tally.pool.begin().await.expect("a transaction");
    let outcomes: Vec<String> = sqlx::query_scalar(
        "select (cast_votes('{1}', '{null}', array[$1], '{ada}', '{1}', '{t}', '{f}')).outcomes",
    )
    .bind(poll.choices[0].get())
    .fetch_one(&mut *batch)
    .await
    .expect("a decision");
    assert_eq!(outcomes, ["stored"]);
    eventually("the poll is closed", async || {
        let poll = ledger.poll(id).await.ok()??;
        (poll.state == PollState::Closed).then_some(())
    })
    .await;
    let (http, path) = (tally.http.clone(), format!("{}/v1/polls/{id}", tally.base));
    let reading = tokio::spawn(async move {
        let answer = http.get(path).send().await.expect("an answer");
        answer.json::<Value>().await.expect("JSON")
    });
    until_blocked(&tally.pool, "select poll_is_final").await;
    batch.commit().await.expect("a commit");
    let shown = reading.await.expect("it ends");
    assert_eq!(
        (&shown["final"], &shown["choices"][0]["vote_count"]),
        (&json!(true), &json!(1))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_with_wrong_fields_is_not_made() {
    let tally = Tally::start().await;
    let hundred_and_one: Vec<String> = (0..101).map(|at| at.to_string()).collect();
    for (fields, status, field) in [
        (json!({ "choices": ["a"] }), 400, "title"),
        (json!({ "title": "x" }), 400, "choices"),
        (json!({ "title": "x", "choices": [] }), 422, "choices"),
        (
            json!({ "title": "x", "choices": hundred_and_one }),
            422,
            "choices",
        ),
        (json!({ "title": "x", "choices": ["a", " "] }), 422, "choices"),
        (json!({ "title": "x", "choices": ["a", 1] }), 400, "choices"),
        (json!({ "title": " ", "choices": ["a"] }), 422, "title"),
        (json!({ "choices": ["a"], "title": 5 }), 400, "title"),
        (
            json!({ "title": "x", "choices": ["a"], "max_choices": -1 }),
            422,
            "max_choices",
        ),
        (
            json!({ "title": "x", "choices": ["a"], "max_choices": 101 }),
            422,
            "max_choices",
        ),
        (
            json!({ "title": "x", "choices": ["a"], "results_before_close": false }),
            422,
            "results_before_close",
        ),
    ] {
        let (got, problem) = tally.post("/v1/polls", &fields).await;
        assert_eq!(
            (got.as_u16(), &problem["field"]),
            (status, &json!(field)),
            "{fields}: {problem}"
        );
    }
    let poll = Poll::start(&tally, &["a"], json!({})).await;
    for (body, status) in [
        (json!({ "items": "a" }), 400),
        (json!({ "items": [0] }), 422),
        (json!({}), 400),
    ] {
        let (got, problem) = tally.send(Method::PUT, &poll.path("ada"), Some(&body)).await;
        assert_eq!(
            (got.as_u16(), &problem["field"]),
            (status, &json!("items")),
            "{problem}"
        );
    }
}
