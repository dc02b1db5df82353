//! Top lists: which items come first, over all time, the last hour or day.

use std::sync::Arc;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::PgPool;
use tally::counts::TopLists;
use tally::domain::{Moment, TopBy, TopKind, TopOf, TopOver};
use tally::sync::Worker;

use crate::helpers::eventually;
use crate::helpers::stores::{Stores, blocker};
use crate::helpers::tally::{Tally, server_ledger};
use crate::rules::voiding::void;

/// Makes votes look as if they were cast this much earlier.
/// Only votes that are not rolled up yet.
pub async fn earlier(pool: &PgPool, votes: &str, interval: &str) {
    let mut transaction = pool.begin().await.expect("Postgres answers");
    // The ledger refuses changes of votes: the test switches that off to make a past.
    for statement in [
        "set local session_replication_role = replica".to_owned(),
        format!("update vote set created_at = created_at - interval '{interval}' where {votes}"),
    ] {
        sqlx::raw_sql(&statement)
            .execute(&mut *transaction)
            .await
            .expect("Postgres answers");
    }
    transaction.commit().await.expect("a commit");
}

/// Saves and rolls up all votes.
async fn roll_up(tally: &Tally, worker: &Worker) {
    eventually("they are rolled up", async || {
        worker.flush_unsaved().await.ok()?;
        worker.roll_up().await.ok()?;
        let (watermark, last): (i64, i64) =
            sqlx::query_as("select vote_id, (select max(id) from vote) from watermark")
                .fetch_one(&tally.pool)
                .await
                .ok()?;
        (watermark >= last).then_some(())
    })
    .await;
}

/// Saves and rolls up all votes, and starts a server that remembers no list. Returns its address.
pub async fn summed(tally: &Tally) -> String {
    roll_up(tally, &tally.worker()).await;
    tally.another_server().await
}

async fn top(tally: &Tally, base: &str, query: &str) -> Value {
    let path = format!("/v1/items/top{query}");
    let (status, list) = tally.send_to(base, Method::GET, &path, None).await;
    assert_eq!(status, StatusCode::OK, "{list}");
    list
}

/// The ids of a list, with the number that orders it.
fn order(list: &Value) -> Vec<(i64, i64)> {
    let of = |item: &Value| {
        let counts = item.get("change").unwrap_or(item);
        let by = match list["by"].as_str().expect("by") {
            "net" => counts["vote_count"].as_i64(),
            "up" => counts["up_count"].as_i64(),
            _ => Some(
                counts["up_count"].as_i64().expect("a count")
                    + counts["down_count"].as_i64().expect("a count"),
            ),
        };
        (item["id"].as_i64().expect("an id"), by.expect("a count"))
    };
    list["items"].as_array().expect("items").iter().map(of).collect()
}

pub async fn votes(tally: &Tally, item: i64, ups: usize, downs: usize) {
    for value in [vec![1; ups], vec![-1; downs]].concat() {
        let path = format!("/v1/items/{item}/votes");
        let (status, _) = tally.post(&path, &json!({ "value": value })).await;
        assert_eq!(status, StatusCode::CREATED);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn items_come_in_the_order_of_what_they_have_or_of_what_changed_in_the_last_hour_or_day() {
    let tally = Tally::start().await;
    let mut items = Vec::new();
    for name in ["old", "loved", "disputed", "quiet"] {
        items.push(tally.item(name).await.get());
    }
    let [old, loved, disputed, quiet] = items.try_into().expect("four");
    votes(&tally, old, 9, 0).await;
    earlier(&tally.pool, "true", "3 days").await;
    votes(&tally, disputed, 5, 6).await;
    earlier(&tally.pool, &format!("item_id = {disputed}"), "5 hours").await;
    votes(&tally, loved, 4, 0).await;
    votes(&tally, old, 1, 0).await;
    let base = summed(&tally).await;

    for (query, expected) in [
        ("", vec![(old, 10), (loved, 4), (quiet, 0), (disputed, -1)]),
        ("?by=up", vec![(old, 10), (disputed, 5), (loved, 4), (quiet, 0)]),
        ("?by=movement&limit=2&over=all", vec![(disputed, 11), (old, 10)]),
        ("?over=hour", vec![(loved, 4), (old, 1)]),
        ("?over=day", vec![(loved, 4), (old, 1), (disputed, -1)]),
        (
            "?over=day&by=movement",
            vec![(disputed, 11), (loved, 4), (old, 1)],
        ),
        ("?over=day&by=up&limit=1", vec![(disputed, 5)]),
    ] {
        let list = top(&tally, &base, query).await;
        assert_eq!(order(&list), expected, "{query}: {list}");
        assert!(list["as_of"].is_string(), "{list}");
        assert_eq!(
            list["since"].is_null(),
            !query.contains("hour") && !query.contains("day")
        );
    }
    // An item in the list of a time still shows its whole count.
    let list = top(&tally, &base, "?over=hour").await;
    assert_eq!(
        (&list["items"][1]["vote_count"], &list["items"][1]["name"]),
        (&json!(10), &json!("old"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_retractions_and_voidings_take_from_a_list_what_they_take_back() {
    let tally = Tally::start().await;
    let (one, other) = (tally.item("one").await.get(), tally.item("other").await.get());
    for item in [one, other] {
        for voter in ["ada", "bob", "cy"] {
            let path = format!("/v1/items/{item}/votes/{voter}");
            tally.send(Method::PUT, &path, Some(&json!({ "value": 1 }))).await;
        }
    }
    let path = |voter: &str| format!("/v1/items/{one}/votes/{voter}");
    tally
        .send(Method::PUT, &path("ada"), Some(&json!({ "value": -1 })))
        .await;
    tally.send(Method::DELETE, &path("bob"), None).await;
    let (done, _) = void(&tally, &["--voter", "cy", "--reason", "a bot", "--apply"]).await;
    assert!(done);
    let base = summed(&tally).await;
    for (by, expected) in [
        ("net", [(other, 2), (one, -1)]),
        ("up", [(other, 2), (one, 0)]),
        ("movement", [(other, 2), (one, 1)]),
    ] {
        for over in ["all", "hour", "day"] {
            let list = top(&tally, &base, &format!("?by={by}&over={over}")).await;
            assert_eq!(order(&list), expected, "{by} {over}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_polls_list_has_its_choices_alone_and_no_list_has_hidden_items_or_hidden_counts() {
    let tally = Tally::start().await;
    let item = tally.item("x").await.get();
    votes(&tally, item, 3, 0).await;
    let hidden = tally.item("hidden").await.get();
    votes(&tally, hidden, 9, 0).await;
    tally
        .send(
            Method::PATCH,
            &format!("/v1/items/{hidden}"),
            Some(&json!({ "hidden": true })),
        )
        .await;
    let poll = async |fields: Value| {
        let mut new = json!({ "title": "x", "choices": ["a", "b"] });
        for (name, value) in fields.as_object().expect("fields") {
            new[name] = value.clone();
        }
        let (status, poll) = tally.post("/v1/polls", &new).await;
        assert_eq!(status, StatusCode::CREATED, "{poll}");
        let choice = |at: usize| poll["choices"][at]["item_id"].as_i64().expect("an id");
        for (choice, voters) in [(choice(0), 1), (choice(1), 2)] {
            for voter in 0..voters {
                let path = format!("/v1/items/{choice}/votes");
                let voter = json!({ "voter_id": format!("{choice} {voter}") });
                assert_eq!(tally.post(&path, &voter).await.0, StatusCode::CREATED);
            }
        }
        (poll["id"].clone(), choice(0), choice(1))
    };
    let (open, a, b) = poll(json!({})).await;
    let (secret, ..) =
        poll(json!({ "results_before_close": false, "closes_at": "2999-01-01T00:00:00Z" })).await;
    // A single choice: all that is left of a poll whose other choices were not created.
    let (_, single) = tally
        .post("/v1/polls", &json!({ "title": "x", "choices": ["c"] }))
        .await;
    let c = single["choices"][0]["item_id"].as_i64().expect("an id");
    let voter = json!({ "voter_id": "ada" });
    tally.post(&format!("/v1/items/{c}/votes"), &voter).await;
    let base = summed(&tally).await;
    for over in ["all", "hour"] {
        let list = top(&tally, &base, &format!("?over={over}")).await;
        assert_eq!(order(&list), [(item, 3)], "{list}");
        let list = top(&tally, &base, &format!("?over={over}&choices=false")).await;
        assert_eq!(order(&list), [(item, 3)], "{list}");
        let list = top(&tally, &base, &format!("?over={over}&choices=true")).await;
        assert_eq!(order(&list), [(item, 3), (b, 2), (a, 1), (c, 1)], "{list}");
        let list = top(&tally, &base, &format!("?over={over}&poll={open}")).await;
        assert_eq!(order(&list), [(b, 2), (a, 1)], "{list}");
        assert_eq!(list["poll_id"], open);
        let list = top(&tally, &base, &format!("?over={over}&poll={}", single["id"])).await;
        assert_eq!(order(&list), [(c, 1)], "{list}");
        let list = top(&tally, &base, &format!("?over={over}&poll={secret}")).await;
        assert_eq!(list["items"], json!([]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_older_than_an_hour_is_kept_by_hours_and_what_is_of_an_earlier_day_by_days() {
    let tally = Tally::start().await;
    let item = tally.item("x").await.get();
    for (hours, ups) in [(50, 1), (23, 2), (5, 3), (0, 4)] {
        let last: Option<i64> = sqlx::query_scalar("select max(id) from vote")
            .fetch_one(&tally.pool)
            .await
            .expect("Postgres answers");
        votes(&tally, item, ups, 0).await;
        let new = format!("id > {}", last.unwrap_or_default());
        earlier(&tally.pool, &new, &format!("{hours} hours")).await;
    }
    let base = summed(&tally).await;
    let list = top(&tally, &base, "?over=day").await;
    assert_eq!(order(&list), [(item, 2 + 3 + 4)]);
    let rows: Vec<(i16, i64)> = sqlx::query_as("select minutes, ups from recent_change order by starts_at")
        .fetch_all(&tally.pool)
        .await
        .expect("Postgres answers");
    // The last votes may lie in two spans of five minutes.
    assert_eq!(rows[..2], [(60, 2), (60, 3)], "{rows:?}");
    let last: i64 = rows[2..].iter().map(|(_, ups)| ups).sum();
    assert_eq!(last, 4, "{rows:?}");
    assert!(rows[2..].iter().all(|(minutes, _)| *minutes == 5), "{rows:?}");
    // Two days later, all of it is in their days.
    sqlx::query("update recent_change set starts_at = starts_at - interval '50 hours'")
        .execute(&tally.pool)
        .await
        .expect("Postgres answers");
    tally.worker().roll_up().await.expect("the stores answer");
    let left: i64 = sqlx::query_scalar("select count(*) from recent_change where minutes = 60")
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers");
    tally.worker().roll_up().await.expect("the stores answer");
    let later: i64 = sqlx::query_scalar("select count(*) from recent_change")
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!((left, later), (0, 0));
    let days: i64 = sqlx::query_scalar("select sum(ups)::bigint from day_change")
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(days, 1 + 2 + 3 + 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_summed_up_by_hours_later_is_added_to_the_hour_that_is_there_already() {
    let tally = Tally::start().await;
    let item = tally.item("x").await.get();
    const HOUR: &str = "date_bin('1 hour', now() - interval '5 hours', timestamptz 'epoch')";
    sqlx::query(&format!(
        "insert into recent_change (item_id, starts_at, minutes, ups, downs)
         values ($1, {HOUR}, 60, 3, 1), ($1, {HOUR}, 5, 2, 4),
                ($1, {HOUR} + interval '5 minutes', 5, 10, 20)"
    ))
    .bind(item)
    .execute(&tally.pool)
    .await
    .expect("the owner may");
    tally.worker().roll_up().await.expect("the stores answer");
    let rows: Vec<(i16, i64, i64)> = sqlx::query_as("select minutes, ups, downs from recent_change")
        .fetch_all(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(rows, [(60, 15, 25)]);
}

/// The list of an hour begins with the whole five minutes in which the hour began.
#[tokio::test(flavor = "multi_thread")]
async fn votes_of_the_span_that_an_hour_begins_in_are_in_its_list_and_history_and_those_before_are_not() {
    let tally = Tally::start().await;
    let item = tally.item("x").await.get();
    const BEGINS: &str = "date_bin('5 minutes', now() - interval '1 hour', timestamptz 'epoch')";
    eventually("no span ends meanwhile", async || {
        let begins = async || -> f64 {
            sqlx::query_scalar(&format!("select extract(epoch from {BEGINS})::float8"))
                .fetch_one(&tally.pool)
                .await
                .expect("Postgres answers")
        };
        let before = begins().await;
        sqlx::raw_sql("delete from recent_change")
            .execute(&tally.pool)
            .await
            .ok()?;
        sqlx::query(&format!(
            "insert into recent_change (item_id, starts_at, minutes, ups, downs)
             values ($1, {BEGINS}, 5, 2, 0), ($1, {BEGINS} - interval '5 minutes', 5, 7, 0)"
        ))
        .bind(item)
        .execute(&tally.pool)
        .await
        .expect("the owner may");
        // A server that remembers no list.
        let base = tally.another_server().await;
        let list = top(&tally, &base, "?over=hour").await;
        let path = format!("/v1/items/{item}/history?over=hour");
        let (_, history) = tally.send_to(&base, Method::GET, &path, None).await;
        (begins().await.to_bits() == before.to_bits()).then(|| {
            assert_eq!(order(&list), [(item, 2)]);
            let spans = history["spans"].as_array().expect("spans").iter();
            let changes: Vec<&Value> = spans.map(|span| &span["change"]["vote_count"]).collect();
            assert_eq!(changes, [2], "{history}");
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_vote_is_in_a_list_once_however_many_workers_roll_up() {
    let tally = Tally::start().await;
    let item = tally.item("x").await.get();
    votes(&tally, item, 3, 0).await;
    earlier(&tally.pool, "true", "26 hours").await;
    for _ in 0..3 {
        votes(&tally, item, 2, 1).await;
        // Several workers at once, twice: one has the lease.
        let workers = [tally.worker(), tally.worker(), tally.worker()];
        let [one, two, three] = &workers;
        let (one, two, three) = tokio::join!(one.roll_up(), two.roll_up(), three.roll_up());
        for ended in [one, two, three] {
            ended.expect("the stores answer");
        }
        roll_up(&tally, &workers[0]).await;
    }
    let base = summed(&tally).await;
    let list = top(&tally, &base, "?over=day&by=movement").await;
    assert_eq!(order(&list), [(item, 9)]);
    let list = top(&tally, &base, "?by=movement").await;
    assert_eq!(order(&list), [(item, 12)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefix_of_keys_ranks_the_items_whose_keys_begin_with_it_byte_by_byte() {
    let tally = Tally::start().await;
    let mut items = Vec::new();
    for (key, ups) in [
        ("post-1", 1),
        ("post-\u{10ffff}x", 3),
        ("post-10:heart", 2),
        ("post.", 9),
        ("Post-1", 9),
        ("pos", 9),
        ("%", 5),
    ] {
        let item = tally.item_with(json!({ "key": key })).await.get();
        votes(&tally, item, ups, 0).await;
        items.push(item);
    }
    let without_key = tally.item("x").await.get();
    votes(&tally, without_key, 9, 0).await;
    let base = summed(&tally).await;
    for over in ["all", "hour"] {
        for (prefix, expected) in [
            ("post-", vec![(items[1], 3), (items[2], 2), (items[0], 1)]),
            ("post-1", vec![(items[2], 2), (items[0], 1)]),
            ("post-10:heart", vec![(items[2], 2)]),
            ("%25", vec![(items[6], 5)]),
            ("none", vec![]),
        ] {
            let list = top(&tally, &base, &format!("?over={over}&key_prefix={prefix}")).await;
            assert_eq!(order(&list), expected, "{over} {prefix}: {list}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tag_of_a_list_stays_until_something_but_its_time_changes() {
    let tally = Tally::start().await;
    let item = tally.item("x").await.get();
    votes(&tally, item, 2, 0).await;
    let base = summed(&tally).await;
    let url = format!("{base}/v1/items/top");
    let read = async |tag: Option<&str>| {
        let mut request = tally.http.get(&url);
        if let Some(tag) = tag {
            request = request.header("if-none-match", tag);
        }
        let answer = request.send().await.expect("an answer");
        let status = answer.status();
        let tag = answer.headers()["etag"].to_str().expect("text").to_owned();
        (status, tag, answer.text().await.expect("a text"))
    };
    let (_, tag, first) = read(None).await;
    // The server reads its list again after two seconds.
    eventually("the list is of a later time", async || {
        let (status, again, later) = read(None).await;
        assert_eq!((status, &again), (StatusCode::OK, &tag), "{first} {later}");
        (later != first).then_some(())
    })
    .await;
    let (status, again, body) = read(Some(&tag)).await;
    assert_eq!(
        (status, again, &*body),
        (StatusCode::NOT_MODIFIED, tag.clone(), "")
    );
    votes(&tally, item, 1, 0).await;
    roll_up(&tally, &tally.worker()).await;
    eventually("the list has the vote", async || {
        let (status, now, body) = read(Some(&tag)).await;
        assert_eq!(now == tag, status == StatusCode::NOT_MODIFIED, "{body}");
        (status == StatusCode::OK && body.contains("\"vote_count\":3")).then_some(())
    })
    .await;
}

/// A list says up to when it has votes. While nobody votes, that is a moment ago.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_as_of_the_last_roll_up_that_reached_all_votes_also_while_nobody_votes() {
    let tally = Tally::start().await;
    let item = tally.item("x").await.get();
    let as_of = async || -> Option<Moment> {
        // A server that remembers no list.
        let base = tally.another_server().await;
        let list = top(&tally, &base, "?over=hour").await;
        list["as_of"].as_str().map(|time| time.parse().expect("a time"))
    };
    let now = async || {
        let now = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
        let micros = sqlx::query_scalar(now).fetch_one(&tally.pool).await;
        Moment::from_micros(micros.expect("Postgres answers"))
    };
    assert_eq!(as_of().await, None);
    let worker = tally.worker();
    for ups in [1, 0] {
        votes(&tally, item, ups, 0).await;
        roll_up(&tally, &worker).await;
        let before = now().await;
        worker.roll_up().await.expect("the stores answer");
        let reached = as_of().await.expect("a time");
        assert!(before <= reached && reached <= now().await, "{before} {reached}");
    }
    let locked = blocker(&tally.pool, "lock table recent_change in share mode").await;
    votes(&tally, item, 1, 0).await;
    let failed = async || eventually("a roll-up fails", async || worker.roll_up().await.err()).await;
    failed().await;
    let reached = as_of().await;
    failed().await;
    assert_eq!(as_of().await, reached, "it reached nothing");
    locked.rollback().await.expect("an end");
}

#[tokio::test]
async fn lists_that_were_just_read_are_not_read_again() {
    let stores = Stores::start().await;
    let lists = TopLists::new(server_ledger(&stores.database_url));
    let read = async || {
        let of = async |by| {
            let kind = TopKind {
                by,
                over: TopOver::All,
                of: TopOf::Items {
                    with_choices: false,
                    key_prefix: None,
                },
            };
            let list = lists.get(kind).await.expect("Postgres answers");
            list.expect("of all items there is one")
        };
        [of(TopBy::Net).await, of(TopBy::Up).await]
    };
    // The server remembers them for two seconds only.
    eventually("both are remembered", async || {
        let (first, again) = (read().await, read().await);
        let mut pairs = first.iter().zip(&again);
        pairs.all(|(one, other)| Arc::ptr_eq(one, other)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_query_is_said() {
    let tally = Tally::start().await;
    let poll = json!({ "title": "x", "choices": ["a"], "key": "k" });
    tally.post("/v1/polls", &poll).await;
    assert_eq!(tally.get("/v1/items/top?poll=key:k").await.0, StatusCode::OK);
    for (query, status, said) in [
        ("?by=votes", 422, "net, up, movement"),
        ("?over=week", 422, "all, hour, day"),
        ("?limit=0", 422, "1 to 100"),
        ("?limit=101", 422, "1 to 100"),
        ("?poll=x", 400, "poll"),
        ("?poll=999", 404, "999"),
        ("?poll=key:k&choices=true", 400, "neither choices nor key_prefix"),
        ("?poll=key:k&key_prefix=a", 400, "neither choices nor key_prefix"),
        ("?choices=1", 400, "true or false"),
        ("?key_prefix=", 422, "key_prefix is empty"),
        ("?key_prefix=%07", 422, "key_prefix has a control character"),
        ("?since=1", 400, "since"),
    ] {
        let (got, problem) = tally.get(&format!("/v1/items/top{query}")).await;
        assert_eq!(got.as_u16(), status, "{query}: {problem}");
        assert!(problem["detail"].to_string().contains(said), "{query}: {problem}");
    }
}
