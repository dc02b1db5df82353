//! Reads with the tag of an earlier answer, links between pages, and CSV.

use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::helpers::eventually;
use crate::helpers::stores::blocker;
use crate::helpers::tally::Tally;

/// The longest time of a read that must not wait for Postgres.
const UNBLOCKED: Duration = Duration::from_millis(400);

struct Read {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Read {
    fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).map(|value| value.to_str().expect("text"));
        value.unwrap_or_default()
    }

    fn tag(&self) -> String {
        self.header("etag").to_owned()
    }
}

/// Reads a path of a server with these headers.
async fn read(tally: &Tally, base: &str, path: &str, headers: &[(&str, &str)]) -> Read {
    let mut request = tally.http.get(format!("{base}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = request.send().await.expect("an answer");
    let (status, headers) = (answer.status(), answer.headers().clone());
    let body = answer.text().await.expect("a text");
    Read {
        status,
        headers,
        body,
    }
}

/// A poll of two choices, without votes. Returns its path, and its choices.
async fn poll(tally: &Tally) -> (String, [i64; 2]) {
    let new = json!({ "title": "x", "choices": ["a", "b"] });
    let (status, poll) = tally.post("/v1/polls", &new).await;
    assert_eq!(status, StatusCode::CREATED);
    let choice = |at: usize| poll["choices"][at]["item_id"].as_i64().expect("an id");
    (format!("/v1/polls/{}", poll["id"]), [choice(0), choice(1)])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_with_its_tag_gets_304_from_either_server_until_a_vote_changes_the_answer() {
    let tally = Tally::start().await;
    let other = tally.another_server().await;
    let item = tally.item("x").await;
    let (poll, [choice, _]) = poll(&tally).await;
    for (path, voted) in [
        (format!("/v1/items/{item}"), item.get()),
        ("/v1/items?limit=5".to_owned(), item.get()),
        (format!("/v1/items?ids={choice},{item}"), item.get()),
        (poll, choice),
    ] {
        for turn in 0..3 {
            // The saved part of a count may change by itself, so the test waits until both answers
            // agree.
            eventually("both servers have the same", async || {
                let first = read(&tally, &tally.base, &path, &[]).await;
                assert_eq!(first.status, StatusCode::OK, "{path}");
                assert!(first.tag().starts_with("W/\""), "{path}");
                assert_eq!(first.header("cache-control"), "no-cache");
                assert!(first.header("vary").contains("accept"));
                let tag = first.tag();
                let mut same = true;
                for base in [&tally.base, &other, &other, &tally.base] {
                    let again = read(&tally, base, &path, &[("if-none-match", &tag)]).await;
                    same &= again.status == StatusCode::NOT_MODIFIED;
                    if same {
                        assert_eq!((again.tag(), again.body.as_str()), (tag.clone(), ""), "{path}");
                    }
                }
                same.then_some(())
            })
            .await;
            let tag = read(&tally, &tally.base, &path, &[]).await.tag();
            // Both servers know the tag.
            for base in [&tally.base, &other] {
                read(&tally, base, &path, &[("if-none-match", &tag)]).await;
            }
            let votes = format!("/v1/items/{voted}/votes");
            let (status, _) = tally
                .post(&votes, &json!({ "voter_id": format!("{path} {turn}") }))
                .await;
            assert_eq!(status, StatusCode::CREATED);
            // Each server shows the change at once.
            for base in [&tally.base, &other] {
                let changed = read(&tally, base, &path, &[("if-none-match", &tag)]).await;
                assert_eq!(changed.status, StatusCode::OK, "{path}");
                assert_ne!(changed.tag(), tag, "{path}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_not_changed_is_304_without_postgres_even_if_it_is_not_saved() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let (poll, [choice, _]) = poll(&tally).await;
    // No worker runs: nothing of this is saved.
    tally.vote(item, "ada").await;
    let votes = format!("/v1/items/{choice}/votes");
    tally.post(&votes, &json!({ "voter_id": "ada" })).await;
    for path in [
        format!("/v1/items/{item}"),
        "/v1/items".to_owned(),
        format!("/v1/items?ids={item},{choice}"),
        poll,
    ] {
        // The server remembers the answer for half a second only.
        eventually("a 304 while Postgres answers nobody", async || {
            let tag = read(&tally, &tally.base, &path, &[]).await.tag();
            read(&tally, &tally.base, &path, &[("if-none-match", &tag)]).await;
            let lock = blocker(&tally.pool, "lock table item, rule in access exclusive mode").await;
            let headers = [("if-none-match", tag.as_str())];
            let again = timeout(UNBLOCKED, read(&tally, &tally.base, &path, &headers)).await;
            lock.rollback().await.expect("a rollback");
            let status = again.ok()?.status;
            (status == StatusCode::NOT_MODIFIED).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_are_read_as_rfc_9110_says_and_invalid_ones_are_ignored() {
    let tally = Tally::start().await;
    let path = format!("/v1/items/{}", tally.item("x").await);
    let tag = read(&tally, &tally.base, &path, &[]).await.tag();
    let strong = tag.trim_start_matches("W/").to_owned();
    for (sent, expected) in [
        (tag.clone(), StatusCode::NOT_MODIFIED),
        (strong, StatusCode::NOT_MODIFIED),
        (format!("\"x\", {tag}"), StatusCode::NOT_MODIFIED),
        ("*".to_owned(), StatusCode::NOT_MODIFIED),
        ("W/\"0000000000000000\"".to_owned(), StatusCode::OK),
        ("nonsense".to_owned(), StatusCode::OK),
        (String::new(), StatusCode::OK),
    ] {
        let again = read(&tally, &tally.base, &path, &[("if-none-match", &sent)]).await;
        assert_eq!(again.status, expected, "{sent}");
    }
    // CSV is another answer, with another tag.
    let csv = [("accept", "text/csv"), ("if-none-match", tag.as_str())];
    let again = read(&tally, &tally.base, "/v1/items", &csv).await;
    assert_eq!(again.status, StatusCode::OK);
    // An unknown item stays unknown, whatever the request carries.
    let none = read(&tally, &tally.base, "/v1/items/999", &[("if-none-match", "*")]).await;
    assert_eq!(none.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_link_to_the_next_one_with_the_same_parameters() {
    let tally = Tally::start().await;
    for at in 0..5 {
        tally.item(if at == 2 { "other" } else { "a b&c" }).await;
    }
    let mut path = "/v1/items?limit=2&name=a%20b%26c&after=0".to_owned();
    let mut seen = Vec::new();
    loop {
        let page = read(&tally, &tally.base, &path, &[]).await;
        let body: Value = serde_json::from_str(&page.body).expect("JSON");
        for item in body["items"].as_array().expect("items") {
            seen.push(item["id"].as_i64().expect("an id"));
        }
        let link = page.header("link");
        assert_eq!(link.is_empty(), body["next_after"].is_null(), "{link}");
        let Some(next) = link.strip_prefix('<').and_then(|link| link.split_once('>')) else {
            break;
        };
        assert_eq!(next.1, "; rel=\"next\"");
        path = next.0.to_owned();
    }
    assert_eq!(seen, [1, 2, 4, 5]);
    let all = read(&tally, &tally.base, "/v1/items?ids=1,2", &[]).await;
    assert_eq!(all.header("link"), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_results_come_as_csv_to_who_asks_for_it() {
    let tally = Tally::start().await;
    let (_, item) = tally
        .post("/v1/items", &json!({ "name": "a, \"b\" é", "key": "k" }))
        .await;
    let votes = format!("/v1/items/{}/votes", item["id"]);
    for value in [1, 1, -1] {
        tally.post(&votes, &json!({ "value": value })).await;
    }
    let csv = [("accept", "text/csv")];
    let list = read(&tally, &tally.base, "/v1/items", &csv).await;
    assert!(list.header("content-type").starts_with("text/csv"));
    assert_eq!(
        list.body,
        "\u{feff}id,name,key,vote_count,up_count,down_count,current,poll_id\r\n1,\"a, \"\"b\"\" é\",k,1,2,1,true,\r\n"
    );
    // A single item has no CSV.
    let one = read(&tally, &tally.base, &format!("/v1/items/{}", item["id"]), &csv).await;
    assert_eq!(one.header("content-type"), "application/json");
    assert!(serde_json::from_str::<Value>(&one.body).is_ok(), "{}", one.body);
    let (poll, [first, second]) = poll(&tally).await;
    for (choice, voters) in [(first, 3), (second, 1)] {
        for voter in 0..voters {
            let path = format!("/v1/items/{choice}/votes");
            let voter = format!("{choice} {voter}");
            tally.post(&path, &json!({ "voter_id": voter })).await;
        }
    }
    let results = read(&tally, &tally.base, &poll, &csv).await;
    assert_eq!(
        results.body,
        format!("\u{feff}item_id,name,vote_count,share\r\n{first},a,3,0.75\r\n{second},b,1,0.25\r\n")
    );
    let tag = results.tag();
    let again = [csv[0], ("if-none-match", &tag)];
    let again = read(&tally, &tally.base, &poll, &again).await;
    assert_eq!(again.status, StatusCode::NOT_MODIFIED);
    // No name or key is a formula, and each number is a number.
    tally
        .post(
            "/v1/items",
            &json!({ "name": "=HYPERLINK(\"//x\")", "key": "-k" }),
        )
        .await;
    let list = read(&tally, &tally.base, "/v1/items?search=hyperlink", &csv).await;
    let line = list.body.lines().last().unwrap_or_default();
    assert!(
        line.contains(",\"'=HYPERLINK(\"\"//x\"\")\",'-k,0,0,0,true,"),
        "{line}"
    );
    // Hidden counts are left out.
    let hidden = json!({ "title": "x", "choices": ["a"], "results_before_close": false,
        "closes_at": "2999-01-01T00:00:00Z" });
    let (_, hidden) = tally.post("/v1/polls", &hidden).await;
    let choice = &hidden["choices"][0]["item_id"];
    let path = format!("/v1/items/{choice}/votes");
    tally.post(&path, &json!({ "voter_id": "ada" })).await;
    let results = read(&tally, &tally.base, &format!("/v1/polls/{}", hidden["id"]), &csv).await;
    assert_eq!(results.body.lines().last(), Some(&*format!("{choice},a,,")));
    let list = read(&tally, &tally.base, &format!("/v1/items?ids={choice}"), &csv).await;
    assert_eq!(
        list.body.lines().last(),
        Some(&*format!("{choice},a,,,,,true,{}", hidden["id"]))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_304_is_sent_for_the_same_answer_alone() {
    let mut tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.vote(item, "ada").await;
    let path = format!("/v1/items/{item}");
    let tag = read(&tally, &tally.base, &path, &[]).await.tag();
    let same = read(&tally, &tally.base, &path, &[("if-none-match", &tag)]).await;
    assert_eq!(same.status, StatusCode::NOT_MODIFIED);
    tally.stores.redis.crash().await;
    // The live count of 1 is lost, and the saved count is 0.
    let changed = eventually("an answer without Redis", async || {
        let read = read(&tally, &tally.base, &path, &[("if-none-match", &tag)]).await;
        (read.status == StatusCode::OK).then_some(read)
    })
    .await;
    let body: Value = serde_json::from_str(&changed.body).expect("JSON");
    assert_eq!(
        (&body["current"], &body["vote_count"]),
        (&json!(false), &json!(0))
    );
}
