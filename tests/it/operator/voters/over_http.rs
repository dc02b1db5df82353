//! Edits of voters over HTTP.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::held;
use crate::helpers::eventually;
use crate::helpers::tally::Tally;
use crate::rules::assert_rules_hold;

/// Waits until nobody works on this edit any more. Returns it.
async fn ended(tally: &Tally, id: &Value) -> Value {
    let path = format!("/v1/voter-edits/{id}");
    eventually("the edit has ended", async || {
        let (_, edit) = tally.get(&path).await;
        (edit["under_way"] == false).then_some(edit)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn voters_are_shown_merged_renamed_and_erased_and_each_edit_is_listed() {
    let tally = Tally::start().await;
    let [item, other] = [tally.item("x").await, tally.item("y").await];
    for voter in ["ada", "ada2"] {
        tally.vote(item, voter).await;
    }
    tally.vote(other, "ada").await;
    let edit = async |mut body: Value| {
        if body["dry_run"].is_null() {
            body["dry_run"] = json!(false);
        }
        tally.post("/v1/voter-edits", &body).await
    };
    let merge = json!({ "kind": "merge", "voter_id": "ada", "to_voter_id": "ada2" });
    let mut asked = merge.clone();
    asked["dry_run"] = json!(true);
    let (status, dry) = edit(asked).await;
    assert_eq!(status, StatusCode::OK, "{dry}");
    assert_eq!(
        (
            &dry["rows"],
            &dry["held_votes"],
            &dry["items"],
            &dry["items_of_both"],
            &dry["complete"]
        ),
        (&json!(2), &json!(2), &json!(2), &json!(1), &json!(true))
    );
    let (status, made) = edit(merge).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{made}");
    let merged = ended(&tally, &made["id"]).await;
    assert_eq!(
        (
            &merged["state"],
            &merged["moved_rows"],
            &merged["taken_back_votes"]
        ),
        (&json!("done"), &json!(3), &json!(1)),
        "{merged}"
    );
    assert_eq!(tally.live_count(item).await, Some(1));
    let (_, made) = edit(json!({ "kind": "rename", "voter_id": "ada2", "to_voter_id": "Ada" })).await;
    assert_eq!(ended(&tally, &made["id"]).await["state"], "done");
    assert_eq!(
        held(&tally.pool).await,
        [format!("{item}: Ada 1"), format!("{other}: Ada 1")]
    );
    tally.vote(item, "bob").await;
    let (_, made) = edit(json!({ "kind": "rename", "voter_id": "bob", "to_voter_id": "Ada" })).await;
    assert_eq!(ended(&tally, &made["id"]).await["state"], "refused");
    let (_, made) = edit(json!({ "kind": "erase", "voter_id": "Ada" })).await;
    let erased = ended(&tally, &made["id"]).await;
    assert_eq!(
        (&erased["state"], &erased["voter_id"]),
        (&json!("done"), &Value::Null)
    );
    let nobody = erased["to_voter_id"].as_str().expect("a random id");
    assert!(nobody.starts_with("erased-"));
    let (_, list) = tally.get("/v1/voter-edits?limit=3").await;
    let text = list.to_string();
    assert!(!text.contains("Ada") && !text.contains("ada"), "{text}");
    assert_eq!(list["next_before"], 2, "{list}");
    let (_, first) = tally.get("/v1/voter-edits?before=2").await;
    let text = first.to_string();
    assert!(!text.contains("ada") && text.contains(nobody), "{text}");
    let (status, again) = tally.send(Method::POST, "/v1/voter-edits/4/resume", None).await;
    assert_eq!((status, &again["state"]), (StatusCode::OK, &json!("done")));
    assert_rules_hold(&tally.pool).await;
    for item in [item, other] {
        tally.assert_exact_when_quiescent(item).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_an_edit_is_said_with_what_would_be_right() {
    let tally = Tally::start().await;
    for (body, field, part) in [
        (
            json!({ "kind": "forget", "voter_id": "ada" }),
            "kind",
            "\"erase\"",
        ),
        (json!({ "kind": "erase", "voter_id": "" }), "voter_id", "empty"),
        (
            json!({ "kind": "erase", "voter_id": "ada", "to_voter_id": "bob" }),
            "to_voter_id",
            "takes none",
        ),
        (
            json!({ "kind": "merge", "voter_id": "ada" }),
            "to_voter_id",
            "missing",
        ),
        (
            json!({ "kind": "merge", "voter_id": "ada", "to_voter_id": "ada" }),
            "to_voter_id",
            "own id",
        ),
        (
            json!({ "kind": "rename", "voter_id": "ada", "to_voter_id": "" }),
            "to_voter_id",
            "to_voter_id is empty",
        ),
        (
            json!({ "kind": "erase", "voter_id": "ada", "after": 1 }),
            "after",
            "dry run",
        ),
    ] {
        let mut body = body;
        body["dry_run"] = json!(false);
        let (status, said) = tally.post("/v1/voter-edits", &body).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{body}: {said}");
        assert!(
            said["detail"]
                .as_str()
                .is_some_and(|detail| detail.contains(part)),
            "{body}: {said}"
        );
        assert!(said.to_string().contains(field), "{said}");
    }
    let (status, said) = tally.get("/v1/voter-edits/7").await;
    assert_eq!(
        (status, &said["type"]),
        (StatusCode::NOT_FOUND, &json!("/problems/unknown-voter-edit"))
    );
    // Work that others have not ended.
    sqlx::raw_sql(
        "insert into voiding (voter_id, reason, until_vote_id) values ('ada', 'x', 1000);
         insert into voter_edit (kind, from_voter_id, to_voter_id, until_vote_id) values ('merge', 'cy', 'bob', 1000)",
    )
    .execute(&tally.pool)
    .await
    .expect("Postgres answers");
    for (voter, problem) in [("ada", "voiding-under-way"), ("bob", "voter-edit-under-way")] {
        let (status, said) = tally
            .post(
                "/v1/voter-edits",
                &json!({ "kind": "erase", "voter_id": voter, "dry_run": false }),
            )
            .await;
        assert_eq!(
            (status, &said["type"]),
            (StatusCode::CONFLICT, &json!(format!("/problems/{problem}")))
        );
    }
}
