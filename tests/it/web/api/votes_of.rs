//! The votes of an item or a poll, for reports.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tally::domain::Scope;

use crate::helpers::eventually;
use crate::helpers::tally::Tally;
use crate::web::access::api_key;

/// Waits until every vote so far is rolled up.
async fn roll_up(tally: &Tally) {
    eventually("no vote is in flight", async || {
        tally.worker().roll_up().await.ok()?;
        let left: i64 = sqlx::query_scalar("select last_value - vote_id from vote_id_seq, watermark")
            .fetch_one(&tally.pool)
            .await
            .ok()?;
        (left <= 0).then_some(())
    })
    .await;
}

/// The ids of all pages of this length from here on, and the last `until`.
async fn pages(tally: &Tally, path: &str, after: i64, limit: usize) -> (Vec<i64>, i64) {
    let (mut after, mut ids) = (after, Vec::new());
    loop {
        let (status, page) = tally.get(&format!("{path}?after={after}&limit={limit}")).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        let rows = page["votes"].as_array().expect("rows");
        assert!(rows.len() <= limit);
        ids.extend(rows.iter().filter_map(|row| row["id"].as_i64()));
        match page["next_after"].as_i64() {
            Some(next) => {
                assert!(next > after, "{page}");
                after = next;
            }
            None => return (ids, page["until"].as_i64().expect("a number")),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_row_of_an_item_and_of_a_poll_comes_once_whatever_the_length_of_a_page() {
    let tally = Tally::start().await;
    let item = tally.item_with(json!({ "key": "post/1" })).await;
    let (_, poll) = tally
        .post("/v1/polls", &json!({ "title": "x", "choices": ["a", "b"] }))
        .await;
    let choice = |at: usize| poll["choices"][at]["item_id"].as_i64().expect("an id");
    let of_item = "/v1/items/key:post%2F1/votes";
    let of_poll = format!("/v1/polls/{}/votes", poll["id"]);
    tally.post(of_item, &json!({})).await;
    tally.post(of_item, &json!({ "voter_id": "=ada" })).await;
    tally
        .post(
            &format!("/v1/items/{}/votes", choice(0)),
            &json!({ "voter_id": "ada" }),
        )
        .await;
    tally
        .post(
            &format!("/v1/items/{}/votes", choice(1)),
            &json!({ "voter_id": "ada" }),
        )
        .await;
    let (status, said) = tally
        .send(
            Method::PUT,
            &format!("{of_item}/=ada"),
            Some(&json!({ "value": -1 })),
        )
        .await;
    assert_eq!(status, StatusCode::OK, "{said}");
    roll_up(&tally).await;
    for limit in [1, 2, 3, 1000] {
        assert_eq!(pages(&tally, of_item, 0, limit).await.0.len(), 4, "{limit}");
        assert_eq!(pages(&tally, &of_poll, 0, limit).await.0.len(), 3, "{limit}");
    }
    let (_, page) = tally.get(of_item).await;
    let row = |at: usize| {
        let row = &page["votes"][at];
        json!([
            row["item_id"],
            row["voter_id"],
            row["value"],
            row["change_number"],
            row["number"]
        ])
    };
    assert_eq!(row(0), json!([item.get(), null, 1, 0, null]));
    assert_eq!(row(1), json!([item.get(), "=ada", 1, 0, null]));
    // A change takes the vote back and casts another one.
    let mut changed = [row(2), row(3)].map(|row| row.to_string());
    changed.sort();
    assert_eq!(
        changed,
        [
            json!([item.get(), "=ada", -1, 1, null]),
            json!([item.get(), "=ada", -1, 2, null])
        ]
        .map(|row| row.to_string())
    );
    // What is new comes after the last page's `until`.
    let (_, until) = pages(&tally, of_item, 0, 2).await;
    tally.post(of_item, &json!({})).await;
    roll_up(&tally).await;
    assert_eq!(pages(&tally, of_item, until, 2).await.0.len(), 1);
    let csv = tally
        .http
        .get(format!("{}{of_item}?limit=2", tally.base))
        .header("accept", "text/csv");
    let answer = csv.send().await.expect("an answer");
    assert!(
        answer.headers()["link"]
            .to_str()
            .expect("a link")
            .contains("after=")
    );
    let text = answer.text().await.expect("a text");
    let lines: Vec<&str> = text.trim_start_matches('\u{feff}').lines().collect();
    assert_eq!(
        lines[0],
        "id,item_id,created_at,voter_id,value,change_number,number"
    );
    assert!(lines.len() == 3 && lines[2].contains(",'=ada,1,0,"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn votes_far_behind_those_of_others_are_found_page_by_page() {
    let tally = Tally::start().await;
    let (others, item) = (tally.item("x").await, tally.item("y").await);
    let votes = "insert into vote (item_id) select $1 from generate_series(1, $2)";
    for (item, votes_of) in [(others, 150_000), (item, 1)] {
        sqlx::query(votes)
            .bind(item.get())
            .bind(votes_of)
            .execute(&tally.pool)
            .await
            .expect("votes");
    }
    // A gap of ids that no page could go through.
    sqlx::query("select setval('vote_id_seq', 1000000000000)")
        .execute(&tally.pool)
        .await
        .expect("the owner may");
    sqlx::query(votes)
        .bind(item.get())
        .bind(1)
        .execute(&tally.pool)
        .await
        .expect("votes");
    roll_up(&tally).await;
    let path = format!("/v1/items/{item}/votes");
    let (_, first): (_, Value) = tally.get(&path).await;
    assert_eq!(first["votes"], json!([]));
    assert!(first["next_after"].is_i64(), "{first}");
    let (ids, until) = pages(&tally, &path, 0, 10).await;
    assert_eq!(ids, [150_001, 1_000_000_000_001]);
    assert_eq!(until, 1_000_000_000_001);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_voted_is_shown_to_an_api_key_for_reports_alone() {
    let tally = Tally::start_with(|options| options.access.open = Default::default()).await;
    let (_, report) = api_key(&tally, &[Scope::Report]).await;
    let (_, admin) = api_key(&tally, &[Scope::Admin, Scope::Vote]).await;
    for path in ["/v1/items/1/votes", "/v1/polls/1/votes"] {
        for (key, status) in [
            (Some(&report), StatusCode::NOT_FOUND),
            (Some(&admin), StatusCode::FORBIDDEN),
            (None, StatusCode::UNAUTHORIZED),
        ] {
            let mut request = tally.http.get(format!("{}{path}", tally.base));
            if let Some(key) = key {
                request = request.bearer_auth(key.as_str());
            }
            assert_eq!(
                request.send().await.expect("an answer").status(),
                status,
                "{path}"
            );
        }
        for query in ["after=-1", "limit=0", "limit=10001", "after=x", "before=3"] {
            let request = tally
                .http
                .get(format!("{}{path}?{query}", tally.base))
                .bearer_auth(report.as_str());
            let status = request.send().await.expect("an answer").status();
            assert!([400, 422].contains(&status.as_u16()), "{query}: {status}");
        }
    }
}
