//! Choices that are added to a poll, and polls that are made from others.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tally::domain::{ItemId, PollId, PollState};

use super::assert_rules_hold;
use crate::helpers::eventually;
use crate::helpers::stores::until_blocked;
use crate::helpers::tally::Tally;
use crate::web::streams::Reader;

async fn poll(tally: &Tally, fields: Value) -> Value {
    let mut body = json!({ "title": "Lunch?", "choices": ["soup", "salad"] });
    for (name, value) in fields.as_object().expect("fields") {
        body[name] = value.clone();
    }
    let (status, poll) = tally.post("/v1/polls", &body).await;
    assert_eq!(status, StatusCode::CREATED, "{poll}");
    poll
}

async fn add(tally: &Tally, base: &str, poll: &Value, name: &str) -> (StatusCode, Value) {
    let path = format!("/v1/polls/{}/choices", poll["id"]);
    let body = json!({ "name": name });
    tally.send_to(base, Method::POST, &path, Some(&body)).await
}

fn names(poll: &Value) -> Vec<&str> {
    let choices = poll["choices"].as_array().expect("choices").iter();
    choices.map(|one| one["name"].as_str().expect("a name")).collect()
}

fn ids(poll: &Value) -> Vec<ItemId> {
    let choices = poll["choices"].as_array().expect("choices").iter();
    choices
        .map(|one| ItemId::new(one["item_id"].as_i64().expect("an id")).expect("positive"))
        .collect()
}

/// The choices' counts and the turnout, as a poll shows them.
fn counts(poll: &Value) -> (Vec<i64>, i64) {
    let choices = poll["choices"].as_array().expect("choices").iter();
    let counts = choices.map(|one| one["vote_count"].as_i64().expect("a count"));
    (counts.collect(), poll["voter_count"].as_i64().expect("a turnout"))
}

async fn acts(tally: &Tally) -> Vec<(String, Option<String>, String)> {
    sqlx::query_as("select outcome, target, details::text from act where what = 'choice.create' order by id")
        .fetch_all(&tally.pool)
        .await
        .expect("Postgres answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_choice_that_is_added_takes_votes_on_every_server_and_shows_in_streams_that_are_open() {
    let tally = Tally::start().await;
    let other = tally.another_server().await;
    let poll = poll(&tally, json!({ "key": "lunch" })).await;
    let path = format!("/v1/polls/{}", poll["id"]);
    let stream = format!("/v1/stream?polls={}", poll["id"]);
    let id = poll["id"].as_i64().expect("an id");
    let select = async |base: &str, voter: &str, item: ItemId| {
        let body = json!({ "items": [item] });
        let path = format!("{path}/votes/{voter}");
        let (status, answer) = tally.send_to(base, Method::PUT, &path, Some(&body)).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    };
    // Both servers have read and decided of the poll.
    let old = ids(&poll);
    select(&tally.base, "ada", old[0]).await;
    select(&other, "bob", old[1]).await;
    let mut readers = Vec::new();
    for base in [&tally.base, &other] {
        let mut reader = Reader::open(&tally, base, &stream).await;
        reader
            .until("the poll", |reader| reader.polls.contains_key(&id))
            .await;
        readers.push(reader);
    }

    let (status, added) = add(&tally, &tally.base, &poll, "stew").await;
    assert_eq!(status, StatusCode::CREATED, "{added}");
    assert_eq!(names(&added), ["soup", "salad", "stew"]);
    assert_eq!(counts(&added), (vec![1, 1, 0], 2));
    let stew = ids(&added)[2];
    // On the other server at once. A vote moves there.
    let (_, shown) = tally.send_to(&other, Method::GET, &path, None).await;
    assert_eq!(shown, added);
    select(&other, "bob", stew).await;
    let vote = format!("/v1/items/{stew}/votes");
    let (status, answer) = tally
        .send_to(&other, Method::POST, &vote, Some(&json!({ "voter_id": "cy" })))
        .await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    for base in [&tally.base, &other] {
        let (_, shown) = tally.send_to(base, Method::GET, &path, None).await;
        assert_eq!(counts(&shown), (vec![1, 0, 2], 3), "{shown}");
    }
    for reader in &mut readers {
        reader
            .until("the new choice with its votes", |reader| {
                let shown = &reader.polls[&id];
                names(shown).len() == 3 && counts(shown) == (vec![1, 0, 2], 3)
            })
            .await;
    }
    // A stream of the choice alone, and a history of the poll.
    let mut reader = Reader::open(&tally, &other, &format!("/v1/stream?items={stew}")).await;
    reader
        .until("its votes", |reader| reader.count(stew.get()) == Some(2))
        .await;
    let (_, history) = tally.get(&format!("{path}/history")).await;
    assert_eq!(history["choices"].as_array().map(Vec::len), Some(3), "{history}");

    // Whoever does not know whether it was added asks again.
    for base in [&other, &tally.base] {
        let (status, again) = add(&tally, base, &poll, "stew").await;
        assert_eq!(
            (status, names(&again)),
            (StatusCode::OK, vec!["soup", "salad", "stew"])
        );
    }
    let details = format!("{{\"name\": \"stew\", \"item_id\": {stew}}}");
    assert_eq!(
        acts(&tally).await,
        [("done".to_owned(), Some(format!("poll:{id}")), details)]
    );
    tally.roll_up_all().await;
    for choice in ids(&added) {
        tally.assert_exact_when_quiescent(choice).await;
    }
    assert_rules_hold(&tally.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn choices_that_are_added_while_voters_of_two_servers_move_leave_every_count_exact() {
    const VOTERS: usize = 12;
    const ADDED: usize = 8;
    let tally = Tally::start().await;
    let other = tally.another_server().await;
    let poll = poll(&tally, json!({ "max_choices": 2 })).await;
    let path = format!("{}/v1/polls/{}", tally.base, poll["id"]);
    let (done, is_done) = tokio::sync::watch::channel(false);
    let mut voters = tokio::task::JoinSet::new();
    for voter in 0..VOTERS {
        let base = if voter % 2 == 0 {
            tally.base.clone()
        } else {
            other.clone()
        };
        let (http, path, is_done, id) = (
            tally.http.clone(),
            path.clone(),
            is_done.clone(),
            poll["id"].clone(),
        );
        voters.spawn(async move {
            // At least once more when all choices are there.
            for at in voter.. {
                let was_done = *is_done.borrow();
                let shown: Value = http
                    .get(&path)
                    .send()
                    .await
                    .expect("an answer")
                    .json()
                    .await
                    .expect("JSON");
                let choices = ids(&shown);
                // The newest choice, and another one.
                let mut items = vec![*choices.last().expect("a choice"), choices[at % choices.len()]];
                items.dedup();
                let put = http.put(format!("{base}/v1/polls/{id}/votes/voter-{voter}"));
                let answer = put
                    .json(&json!({ "items": items }))
                    .send()
                    .await
                    .expect("an answer");
                assert_eq!(answer.status(), StatusCode::OK, "{items:?}");
                if was_done {
                    return items;
                }
            }
            unreachable!("voters go on until all choices are there")
        });
    }
    for number in 0..ADDED {
        let base = if number % 2 == 0 { &other } else { &tally.base };
        let (status, added) = add(&tally, base, &poll, &format!("choice {number}")).await;
        assert_eq!(status, StatusCode::CREATED, "{added}");
        assert_eq!(names(&added).len(), 3 + number);
    }
    done.send_replace(true);
    let mut expected = vec![0; 2 + ADDED];
    let (_, shown) = tally.get(&format!("/v1/polls/{}", poll["id"])).await;
    let all = ids(&shown);
    for items in voters.join_all().await {
        for item in items {
            expected[all.iter().position(|one| *one == item).expect("a choice")] += 1;
        }
    }
    assert!(
        expected[1 + ADDED] >= VOTERS as i64,
        "each holds the newest: {expected:?}"
    );
    eventually("every server shows all votes", async || {
        for base in [&tally.base, &other] {
            let path = format!("/v1/polls/{}", poll["id"]);
            let (_, shown) = tally.send_to(base, Method::GET, &path, None).await;
            if counts(&shown) != (expected.clone(), VOTERS as i64) {
                return None;
            }
        }
        Some(())
    })
    .await;
    tally.roll_up_all().await;
    for choice in all {
        tally.assert_exact_when_quiescent(choice).await;
    }
    assert_rules_hold(&tally.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn final_results_have_a_choice_that_was_added_before_the_close_and_committed_after_it() {
    let tally = Tally::start().await;
    let poll = poll(&tally, json!({})).await;
    let id = PollId::new(poll["id"].as_i64().expect("an id")).expect("positive");
    let path = format!("/v1/polls/{id}");
    let mut reader = Reader::open(&tally, &tally.base, &format!("{path}/stream")).await;
    reader
        .until("the poll", |reader| reader.polls.contains_key(&id.get()))
        .await;
    // Long enough for the choice and its vote.
    sqlx::query("update rule set closes_at = clock_timestamp() + interval '3 s'")
        .execute(&tally.pool)
        .await
        .expect("a time");
    let mut adding = tally.pool.begin().await.expect("a transaction");
    let (outcome, stew): (String, i64) =
        sqlx::query_as("select outcome, item_id from add_choice($1, 'stew', 100)")
            .bind(id.get())
            .fetch_one(&mut *adding)
            .await
            .expect("a choice");
    assert_eq!(outcome, "added");
    let outcomes: Vec<String> = sqlx::query_scalar(
        "select (cast_votes('{1}', '{null}', array[$1], '{ada}', '{1}', '{t}', '{f}')).outcomes",
    )
    .bind(stew)
    .fetch_one(&mut *adding)
    .await
    .expect("a decision");
    assert_eq!(outcomes, ["stored"]);
    eventually("the poll is closed", async || {
        let poll = tally.server_ledger.poll(id).await.ok()??;
        (poll.state == PollState::Closed).then_some(())
    })
    .await;
    let (http, url) = (tally.http.clone(), format!("{}{path}", tally.base));
    let reading = tokio::spawn(async move {
        let answer = http.get(url).send().await.expect("an answer");
        answer.json::<Value>().await.expect("JSON")
    });
    until_blocked(&tally.pool, "select poll_is_final").await;
    adding.commit().await.expect("a commit");
    let shown = reading.await.expect("it ends");
    assert_eq!(
        (names(&shown), &shown["final"]),
        (vec!["soup", "salad", "stew"], &json!(true))
    );
    assert_eq!(counts(&shown), (vec![0, 0, 1], 1), "{shown}");
    reader
        .until("what is final", |reader| reader.polls[&id.get()]["final"] == true)
        .await;
    assert_eq!(reader.polls[&id.get()], shown);
    let (status, problem) = add(&tally, &tally.base, &poll, "bread").await;
    assert_eq!(
        (status, &problem["type"]),
        (StatusCode::CONFLICT, &json!("/problems/closed"))
    );
    // What is there already is answered at any time.
    assert_eq!(add(&tally, &tally.base, &poll, "stew").await.0, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_choice_that_may_not_be_added_is_refused_and_named() {
    let tally = Tally::start().await;
    let poll = poll(&tally, json!({})).await;
    for (name, says) in [
        (" soup ", "looks like"),
        ("so\u{200b}up", "looks like"),
        ("", "empty"),
        ("\u{7}", "control"),
        ("\u{200b}", "nobody can see"),
        (&"x".repeat(201), "201"),
    ] {
        let (status, problem) = add(&tally, &tally.base, &poll, name).await;
        assert_eq!(
            (status, &problem["type"], &problem["field"]),
            (
                StatusCode::UNPROCESSABLE_ENTITY,
                &json!("/problems/invalid-value"),
                &json!("name")
            ),
            "{name:?}: {problem}"
        );
        assert!(
            problem["detail"].as_str().expect("text").contains(says),
            "{name:?}: {problem}"
        );
    }
    // Case counts.
    assert_eq!(
        add(&tally, &tally.base, &poll, "Soup").await.0,
        StatusCode::CREATED
    );
    for path in ["/v1/polls/999/choices", "/v1/polls/key:none/choices"] {
        let (status, problem) = tally.post(path, &json!({ "name": "x" })).await;
        assert_eq!(
            (status, &problem["type"]),
            (StatusCode::NOT_FOUND, &json!("/problems/unknown-poll"))
        );
    }
    // An item's rule is no poll.
    let item = tally.item_with(json!({ "max_votes": 3 })).await;
    let rule: i64 = sqlx::query_scalar("select rule_id from item where id = $1")
        .bind(item.get())
        .fetch_one(&tally.pool)
        .await
        .expect("a rule");
    let (status, _) = tally
        .post(&format!("/v1/polls/{rule}/choices"), &json!({ "name": "x" }))
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let many: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    let full = self::poll(&tally, json!({ "choices": many })).await;
    let (status, problem) = add(&tally, &tally.base, &full, "one more").await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        problem["detail"].as_str().expect("text").contains("100 choices"),
        "{problem}"
    );
    // Two servers that add the same name, and two names that look the same, at once.
    let other = tally.another_server().await;
    for pair in [["bread", "bread"], ["a pie", "a  pie"]] {
        let (one, two) = tokio::join!(
            add(&tally, &tally.base, &poll, pair[0]),
            add(&tally, &other, &poll, pair[1])
        );
        let added = [&one, &two]
            .iter()
            .filter(|(status, _)| *status == StatusCode::CREATED)
            .count();
        assert_eq!(added, 1, "{one:?} {two:?}");
    }
    let (_, shown) = tally.get(&format!("/v1/polls/{}", poll["id"])).await;
    assert_eq!(names(&shown).len(), 5, "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_choice_is_added_to_polls_by_ballot_secret_hidden_and_early_ones_and_changes_no_vote_there() {
    let tally = Tally::start().await;
    let late = json!("2999-01-01T00:00:00Z");
    let hidden = json!({
        "by_ballot": true, "secret": true, "results_before_close": false, "closes_at": late
    });
    let poll = poll(&tally, hidden).await;
    let path = format!("/v1/polls/{}/ballots", poll["id"]);
    let (_, made) = tally.post(&path, &json!({ "count": 2 })).await;
    let cast = async |item: ItemId, at: usize| {
        let body = json!({ "ballot": made["ballots"][at] });
        tally.post(&format!("/v1/items/{item}/votes"), &body).await.0
    };
    assert_eq!(cast(ids(&poll)[0], 0).await, StatusCode::CREATED);
    let (status, added) = add(&tally, &tally.base, &poll, "stew").await;
    assert_eq!(status, StatusCode::CREATED, "{added}");
    let stew = ids(&added)[2];
    // A spent ballot moves no vote; one that was made before the choice buys a vote on it.
    assert_eq!(cast(stew, 0).await, StatusCode::CONFLICT);
    assert_eq!(cast(stew, 1).await, StatusCode::CREATED);
    let (_, item) = tally.get(&format!("/v1/items/{stew}")).await;
    assert_eq!(
        (&item["vote_count"], &item["by_ballot"], &item["poll_id"]),
        (&Value::Null, &json!(true), &poll["id"]),
        "{item}"
    );
    sqlx::query("update rule set closes_at = now()")
        .execute(&tally.pool)
        .await
        .expect("a close");
    let (_, shown) = tally.get(&format!("/v1/polls/{}", poll["id"])).await;
    assert_eq!(counts(&shown), (vec![1, 0, 1], 2), "{shown}");
    // Before it opens, too.
    let early = self::poll(&tally, json!({ "opens_at": late })).await;
    assert_eq!(
        add(&tally, &tally.base, &early, "stew").await.0,
        StatusCode::CREATED
    );
    assert_rules_hold(&tally.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_that_is_made_from_a_closed_one_has_its_choices_and_rules_and_nothing_else_of_it() {
    let tally = Tally::start().await;
    let old = json!({
        "key": "lunch", "max_choices": 2, "results_before_close": false, "opens_at": "2000-01-01T00:00:00Z",
        "closes_at": "2999-01-01T00:00:00Z"
    });
    let old = poll(&tally, old).await;
    add(&tally, &tally.base, &old, "stew").await;
    let selection = json!({ "items": [ids(&old)[0]] });
    let path = format!("/v1/polls/{}/votes/ada", old["id"]);
    assert_eq!(
        tally.send(Method::PUT, &path, Some(&selection)).await.0,
        StatusCode::OK
    );
    let edit = json!({ "closes_at": "2001-01-01T00:00:00Z", "hidden": true });
    let (status, closed) = tally
        .send(Method::PATCH, "/v1/polls/key:lunch", Some(&edit))
        .await;
    assert_eq!((status, &closed["state"]), (StatusCode::OK, &json!("closed")));

    let (status, problem) = tally.post("/v1/polls/key:lunch/copy", &json!({})).await;
    assert_eq!(
        (status, &problem["field"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!("closes_at")),
        "its results are hidden until it closes: {problem}"
    );
    let new = json!({ "key": "lunch-2", "closes_at": "2998-01-01T00:00:00Z" });
    let (status, copy) = tally.post("/v1/polls/key:lunch/copy", &new).await;
    assert_eq!(status, StatusCode::CREATED, "{copy}");
    assert_eq!(names(&copy), ["soup", "salad", "stew"]);
    for (field, value) in [
        ("title", json!("Lunch?")),
        ("key", json!("lunch-2")),
        ("state", json!("open")),
        ("max_choices", json!(2)),
        ("opens_at", Value::Null),
        ("results_before_close", json!(false)),
        ("final", json!(false)),
    ] {
        assert_eq!(copy[field], value, "{field}: {copy}");
    }
    assert!(copy["hidden"].is_null() && copy["id"] != old["id"], "{copy}");
    assert!(
        ids(&copy).iter().all(|item| !ids(&closed).contains(item)),
        "{copy}"
    );
    // With a key it is safe to ask again.
    let (status, again) = tally.post("/v1/polls/key:lunch/copy", &new).await;
    assert_eq!((status, &again["id"]), (StatusCode::OK, &copy["id"]));
    let other = json!({ "key": "lunch-2", "title": "Dinner?", "closes_at": "2998-01-01T00:00:00Z" });
    let (status, problem) = tally.post("/v1/polls/key:lunch/copy", &other).await;
    assert_eq!(
        (status, &problem["type"]),
        (StatusCode::CONFLICT, &json!("/problems/key-taken"))
    );
    let (status, _) = tally.post("/v1/polls/999/copy", &json!({})).await;
    assert_eq!(status, StatusCode::NOT_FOUND);

    // One by ballot is one by ballot again, without the ballots.
    let board = poll(&tally, json!({ "by_ballot": true, "secret": true })).await;
    let path = format!("/v1/polls/{}", board["id"]);
    let (_, made) = tally
        .post(&format!("{path}/ballots"), &json!({ "count": 1 }))
        .await;
    let (status, copy) = tally
        .post(&format!("{path}/copy"), &json!({ "title": "Board, again" }))
        .await;
    assert_eq!(status, StatusCode::CREATED, "{copy}");
    assert_eq!(
        (&copy["title"], &copy["by_ballot"], &copy["secret"]),
        (&json!("Board, again"), &json!(true), &json!(true))
    );
    let vote = format!("/v1/items/{}/votes", ids(&copy)[0]);
    let (status, _) = tally.post(&vote, &json!({ "ballot": made["ballots"][0] })).await;
    assert_eq!(status, StatusCode::CONFLICT);
}
