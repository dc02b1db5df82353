//! Items and polls that are open on a closed server.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tally::domain::{ItemId, Scope};
use tally::ledger::Role;
use tally::web::access::Open;

use super::credentials::{cookie, knows_voters};
use super::{api_key, send_as};
use crate::helpers::eventually;
use crate::helpers::programs::{TALLY, command_as, run, text};
use crate::helpers::tally::Tally;
use crate::web::access::Credential;

async fn closed() -> (Tally, Credential) {
    let tally = Tally::start_with(|options| {
        options.access.open = Open::default();
        knows_voters(options);
    })
    .await;
    let (_, key) = api_key(&tally, &[Scope::Admin]).await;
    let admin = Credential::Bearer(key.as_str().to_owned());
    (tally, admin)
}

async fn open(tally: &Tally, admin: &Credential, path: &str, to: &[&str]) {
    let body = json!({ "open": to });
    let path = format!("{path}/access");
    let (status, problem) = send_as(tally, &tally.base, (Method::PUT, &path), admin, Some(&body)).await;
    assert_eq!(status, StatusCode::OK, "{problem}");
    let (status, shown) = tally.get(&path).await;
    assert_eq!((status, &shown["open"]), (StatusCode::OK, &json!(to)), "{path}");
}

/// The status of a vote without a credential, and the problem that refuses it.
async fn vote(tally: &Tally, base: &str, item: ItemId, body: Value) -> (StatusCode, String) {
    let path = format!("/v1/items/{item}/votes");
    send_as(tally, base, (Method::POST, &path), &Credential::None, Some(&body)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_takes_what_it_is_open_to_and_its_neighbour_does_not() {
    let (tally, admin) = closed().await;
    let (item, neighbour) = (tally.item("x").await, tally.item("y").await);
    let path = format!("/v1/items/{item}");
    let (anonymous, of_ada) = (json!({}), json!({ "voter_id": "ada" }));
    let missing = (StatusCode::UNAUTHORIZED, "credential-missing".to_owned());
    for (to, takes_anonymous, takes_voters) in [
        (&[][..], false, false),
        (&["anonymous"], true, false),
        (&["voters"], false, true),
        (&["anonymous", "voters"], true, true),
        (&[], false, false),
    ] {
        open(&tally, &admin, &path, to).await;
        for (body, is_taken) in [(&anonymous, takes_anonymous), (&of_ada, takes_voters)] {
            let got = vote(&tally, &tally.base, item, body.clone()).await;
            assert_eq!(got.0.is_success(), is_taken, "{to:?} {body}: {got:?}");
            assert!(is_taken || got == missing, "{to:?} {body}: {got:?}");
            let got = vote(&tally, &tally.base, neighbour, body.clone()).await;
            assert_eq!(got, missing, "{to:?} {body}");
            let mut one = body.clone();
            one["item_id"] = json!(item.get());
            let mut other = body.clone();
            other["item_id"] = json!(neighbour.get());
            let batch = json!({ "votes": [other, one, { "item_id": 999 }] });
            let (status, answer) = tally.post("/v1/votes", &batch).await;
            assert_eq!(status, StatusCode::OK);
            let statuses: Vec<u64> = answer["results"]
                .as_array()
                .expect("results")
                .iter()
                .map(|result| result["status"].as_u64().expect("a status"))
                .collect();
            assert_eq!((statuses[0], statuses[2]), (401, 401), "{answer}");
            assert_eq!(statuses[1] < 300, is_taken, "{answer}");
        }
        let of_voter = format!("{path}/votes/eve");
        for (method, body) in [
            (Method::PUT, Some(json!({ "value": -1 }))),
            (Method::GET, None),
            (Method::DELETE, None),
        ] {
            let request = (method.clone(), of_voter.as_str());
            let got = send_as(&tally, &tally.base, request, &Credential::None, body.as_ref()).await;
            assert_eq!(got.0.is_success(), takes_voters, "{method} {to:?}: {got:?}");
        }
        // A voter's own credential fixes the voter, however open an item is.
        let (status, problem) = send_as(
            &tally,
            &tally.base,
            (Method::POST, &format!("{path}/votes")),
            &cookie("eve"),
            Some(&of_ada),
        )
        .await;
        assert_eq!(
            (status, problem.as_str()),
            (StatusCode::FORBIDDEN, "not-your-vote")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_poll_takes_selections_and_votes_on_its_choices_of_voters_only() {
    let (tally, admin) = closed().await;
    let body = json!({ "title": "p", "choices": ["a", "b"] });
    let (status, _) = send_as(
        &tally,
        &tally.base,
        (Method::POST, "/v1/polls"),
        &admin,
        Some(&body),
    )
    .await;
    assert_eq!(status, StatusCode::CREATED);
    let (_, poll) = tally.get("/v1/polls/1").await;
    let choice = poll["choices"][0]["item_id"].as_i64().and_then(ItemId::new);
    let choice = choice.expect("an item");
    let selection = json!({ "items": [choice.get()] });
    let ask = async |method: Method, body: Option<&Value>| {
        let request = (method, "/v1/polls/1/votes/ada");
        send_as(&tally, &tally.base, request, &Credential::None, body).await
    };
    assert_eq!(ask(Method::PUT, Some(&selection)).await.1, "credential-missing");
    let anonymous = json!({ "open": ["anonymous"] });
    let request = (Method::PUT, "/v1/polls/1/access");
    let (status, problem) = send_as(&tally, &tally.base, request, &admin, Some(&anonymous)).await;
    assert_eq!(
        (status, problem.as_str()),
        (StatusCode::UNPROCESSABLE_ENTITY, "invalid-value")
    );
    open(&tally, &admin, "/v1/polls/1", &["voters"]).await;
    for (method, body) in [
        (Method::PUT, Some(&selection)),
        (Method::GET, None),
        (Method::DELETE, None),
    ] {
        let (status, problem) = ask(method.clone(), body).await;
        assert_eq!(status, StatusCode::OK, "{method}: {problem}");
    }
    let (status, problem) = vote(&tally, &tally.base, choice, json!({ "voter_id": "eve" })).await;
    assert_eq!(status, StatusCode::CREATED, "{problem}");
    assert_eq!(
        vote(&tally, &tally.base, choice, json!({})).await.1,
        "credential-missing"
    );
    // A choice is opened and closed with its poll. A choice open by itself could draw votes from
    // the others.
    let path = format!("/v1/items/{choice}/access");
    for to in [json!({ "open": ["voters"] }), json!({ "open": [] })] {
        let request = (Method::PUT, path.as_str());
        let (status, problem) = send_as(&tally, &tally.base, request, &admin, Some(&to)).await;
        assert_eq!(
            (status, problem.as_str()),
            (StatusCode::UNPROCESSABLE_ENTITY, "invalid-value")
        );
    }
    let (_, shown) = tally.get(&path).await;
    assert_eq!(shown["open"], json!(["voters"]));
    open(&tally, &admin, "/v1/polls/1", &[]).await;
    let closed = vote(&tally, &tally.base, choice, json!({ "voter_id": "eve" })).await;
    assert_eq!(closed.1, "credential-missing");
    // An unknown poll is no more open than a closed one.
    let nowhere = (Method::PUT, "/v1/polls/999/votes/ada");
    let got = send_as(&tally, &tally.base, nowhere, &Credential::None, Some(&selection)).await;
    assert_eq!(got.1, "credential-missing");
    for path in [
        "/v1/polls/999/access",
        "/v1/items/999/access",
        "/v1/items/key:no/access",
    ] {
        let (status, _) = tally.get(path).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
        let to = json!({ "open": ["voters"] });
        let (status, _) = send_as(&tally, &tally.base, (Method::PUT, path), &admin, Some(&to)).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_follows_within_its_limit() {
    let (tally, admin) = closed().await;
    let item = tally.item("x").await;
    let other = tally
        .another_server_with(|options| options.access.open = Open::default())
        .await;
    assert_eq!(
        vote(&tally, &other, item, json!({})).await.1,
        "credential-missing"
    );
    let path = format!("/v1/items/{item}");
    open(&tally, &admin, &path, &["anonymous"]).await;
    eventually("the other server takes the vote", async || {
        let (status, _) = vote(&tally, &other, item, json!({})).await;
        (status == StatusCode::CREATED).then_some(())
    })
    .await;
    open(&tally, &admin, &path, &[]).await;
    eventually("the other server refuses it", async || {
        let (status, _) = vote(&tally, &other, item, json!({})).await;
        (status == StatusCode::UNAUTHORIZED).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_opens_and_closes_items_and_polls() {
    let (tally, _) = closed().await;
    let item = tally.item("x").await;
    let (_, key) = api_key(&tally, &[Scope::Admin]).await;
    let access = async |arguments: &[&str]| {
        let mut command = command_as(TALLY, Some((&tally.stores, Role::Server)));
        command.arg("item").arg("access").arg(item.to_string());
        command.args(arguments).args(["--json", "--url", &tally.base]);
        command.env("TALLY_API_KEY", key.as_str());
        let output = run(command).await;
        (
            output.status.success(),
            text(&output.stdout) + &text(&output.stderr),
        )
    };
    for (arguments, said) in [
        (&[][..], json!({ "open": [] })),
        (
            &["--open", "anonymous,voters"],
            json!({ "open": ["anonymous", "voters"] }),
        ),
        (&["--open", "voters"], json!({ "open": ["voters"] })),
        (&[], json!({ "open": ["voters"] })),
        (&["--closed"], json!({ "open": [] })),
    ] {
        let (done, text) = access(arguments).await;
        assert!(done, "{text}");
        assert_eq!(
            serde_json::from_str::<Value>(text.trim()).ok(),
            Some(said),
            "{arguments:?}"
        );
    }
    let (done, said) = access(&["--open", "everyone"]).await;
    assert!(!done && said.contains("anonymous and voters"), "{said}");
}
