//! The address of a vote's client is kept as a keyed hash for a while.
//! Operators void votes by it.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tally::domain::Scope;
use tally::ledger::Role;
use tally::web::ServerOptions;
use tally::web::access::Proxies;

use super::api_key;
use crate::helpers::programs::{TALLY, command_as, run, text};
use crate::helpers::tally::Tally;
use crate::rules::assert_rules_hold;
use crate::rules::voiding::void;

const BOT: &str = "203.0.113.7";
const OTHER: &str = "198.51.100.1";

fn key(digit: char) -> String {
    digit.to_string().repeat(64)
}

/// Lets a server keep addresses by these keys, and believe a local proxy.
fn keeping(keys: &str) -> impl FnOnce(&mut ServerOptions) {
    let keys = keys.parse().expect("keys");
    move |options| {
        options.voting.address_keys = Some(keys);
        options.access.proxies = Proxies {
            networks: "127.0.0.0/8".parse().expect("networks"),
            ..Proxies::default()
        };
    }
}

/// Sends a request from this address, perhaps with a backend's credential.
async fn send_from(
    tally: &Tally,
    base: &str,
    address: &str,
    bearer: Option<&str>,
    (method, path): (Method, &str),
    body: &Value,
) -> (StatusCode, Value) {
    let mut request = tally.http.request(method, format!("{base}{path}"));
    request = request.header("x-forwarded-for", address).json(body);
    if let Some(key) = bearer {
        request = request.bearer_auth(key);
    }
    let answer = request.send().await.expect("an answer");
    (answer.status(), answer.json().await.unwrap_or_default())
}

async fn kept(tally: &Tally) -> i64 {
    sqlx::query_scalar("select count(*) from vote_address")
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers")
}

/// Runs `tally void` with these keys of addresses. Returns the answer.
async fn void_by(tally: &Tally, keys: &str, arguments: &[&str]) -> Value {
    let mut command = command_as(TALLY, Some((&tally.stores, Role::Operator)));
    command.env("TALLY_ADDRESS_KEYS", keys).arg("void");
    command.args(arguments).arg("--json");
    let output = run(command).await;
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let last = said.lines().last().expect("a line");
    serde_json::from_str(last).expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn votes_of_a_client_are_voided_by_its_address_however_they_were_cast_and_those_of_others_stay() {
    let keys = key('a');
    let tally = Tally::start_with(keeping(&keys)).await;
    let plain = tally.item("x").await;
    let limited = tally.item_with(json!({ "max_votes": 9, "numbered": true })).await;
    let poll = json!({ "title": "x", "choices": ["a", "b"] });
    let (_, poll) = tally.post("/v1/polls", &poll).await;
    let choice = poll["choices"][0]["item_id"].clone();
    let by_ballot = json!({ "title": "x", "choices": ["a", "b"], "by_ballot": true });
    let (_, by_ballot) = tally.post("/v1/polls", &by_ballot).await;
    let (_, made) = tally
        .post(
            &format!("/v1/polls/{}/ballots", by_ballot["id"]),
            &json!({ "count": 2 }),
        )
        .await;
    let bought = by_ballot["choices"][0]["item_id"].clone();
    let votes_of = |item: &Value| format!("/v1/items/{item}/votes");
    for (at, (address, voter)) in [(BOT, "bot"), (OTHER, "ada")].into_iter().enumerate() {
        let send = async |method: Method, path: &str, body: Value| {
            let (status, answer) = send_from(&tally, &tally.base, address, None, (method, path), &body).await;
            assert!(status.is_success(), "{path}: {answer}");
        };
        let plain = json!(plain);
        let limited = json!(limited);
        // One each: without a voter, with one, by a rule, with a ballot, in a batch, a change, a
        // selection.
        send(Method::POST, &votes_of(&plain), json!({})).await;
        send(Method::POST, &votes_of(&plain), json!({ "voter_id": voter })).await;
        send(Method::POST, &votes_of(&limited), json!({ "voter_id": voter })).await;
        let ballot = json!({ "ballot": made["ballots"][at] });
        send(Method::POST, &votes_of(&bought), ballot).await;
        let batch = json!({ "votes": [
            { "item_id": plain, "value": -1 },
            { "item_id": plain, "value": 7 },
            { "item_id": limited, "voter_id": format!("{voter} 2") },
        ] });
        send(Method::POST, "/v1/votes", batch).await;
        let path = format!("{}/{voter}", votes_of(&plain));
        send(Method::PUT, &path, json!({ "value": -1 })).await;
        let path = format!("/v1/polls/{}/votes/{voter}", poll["id"]);
        send(Method::PUT, &path, json!({ "items": [choice] })).await;
    }
    // The bot's held votes: two without a voter, one changed, three by rules, one selection. The
    // vote that it replaced keeps its address, too.
    assert_eq!(kept(&tally).await, 2 * 8);

    let by_address = ["--address", BOT, "--reason", "a bot"];
    let dry = void_by(&tally, &keys, &by_address).await;
    // The vote that the bot replaced is no longer held.
    assert_eq!((&dry["votes"], &dry["sum"]), (&json!(7), &json!(3)), "{dry}");
    let none = void_by(&tally, &key('b'), &by_address).await;
    assert_eq!(none["votes"], 0, "without the key nobody finds a client");
    let voided = void_by(&tally, &keys, &[&by_address[..], &["--apply"]].concat()).await;
    assert_eq!(voided["voided_votes"], 7, "{voided}");

    let expected = [
        (json!(plain), -1),
        (json!(limited), 2),
        (choice.clone(), 1),
        (bought.clone(), 1),
    ];
    for (item, count) in &expected {
        let item = tally.get(&format!("/v1/items/{item}")).await.1;
        assert_eq!(item["vote_count"], *count, "{item}");
    }
    assert_rules_hold(&tally.pool).await;
    let again = void_by(&tally, &keys, &by_address).await;
    assert_eq!(again["votes"], 0, "nothing is voided twice");

    // A vote that is cast again belongs to the same client.
    let id = voided["voiding"].to_string();
    let (done, undone) = void(&tally, &["--undo", &id]).await;
    assert!(done && undone["restored_votes"] == 7, "{undone}");
    let on_plain = ["--item", &plain.to_string()];
    let dry = void_by(&tally, &keys, &[&by_address[..], &on_plain].concat()).await;
    assert_eq!(dry["votes"], 3, "{dry}");
    for item in [plain, limited] {
        tally.assert_exact_when_quiescent(item).await;
    }
    let details: String =
        sqlx::query_scalar("select string_agg(details::text, ' ') from act where what = 'voiding.create'")
            .fetch_one(&tally.pool)
            .await
            .expect("Postgres answers");
    assert!(details.contains(r#""of_an_address": true"#), "{details}");
    assert!(!details.contains(BOT), "{details}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_kept_without_keys_of_secret_polls_of_backends_and_of_retractions() {
    let tally = Tally::start().await;
    let keeping = tally.another_server_with(keeping(&key('a'))).await;
    let item = tally.item("x").await;
    let limited = tally.item_with(json!({ "max_votes": 9 })).await;
    let votes = format!("/v1/items/{item}/votes");
    for path in [&votes, &format!("/v1/items/{limited}/votes")] {
        let (status, _) = tally.post(path, &json!({ "voter_id": "ada" })).await;
        assert_eq!(status, StatusCode::CREATED);
    }
    assert_eq!(kept(&tally).await, 0);

    let secret = json!({ "title": "x", "choices": ["a", "b"], "by_ballot": true, "secret": true });
    let (_, poll) = tally.post("/v1/polls", &secret).await;
    let path = format!("/v1/polls/{}/ballots", poll["id"]);
    let (_, made) = tally.post(&path, &json!({ "count": 1 })).await;
    let path = format!("/v1/items/{}/votes", poll["choices"][0]["item_id"]);
    let ballot = json!({ "ballot": made["ballots"][0] });
    let (_, backend) = api_key(&tally, &[Scope::Vote]).await;
    let held = format!("{votes}/ada");
    for (bearer, request, body) in [
        (None, (Method::POST, path.as_str()), ballot),
        (
            Some(backend.as_str()),
            (Method::POST, votes.as_str()),
            json!({ "voter_id": "bob" }),
        ),
        (
            Some(backend.as_str()),
            (Method::POST, "/v1/votes"),
            json!({ "votes": [{ "item_id": item }] }),
        ),
        (None, (Method::DELETE, held.as_str()), json!({})),
        // A repeat stores no vote.
        (None, (Method::POST, votes.as_str()), json!({ "voter_id": "bob" })),
    ] {
        let path = request.1.to_owned();
        let (status, answer) = send_from(&tally, &keeping, BOT, bearer, request, &body).await;
        assert!(status.is_success(), "{path}: {answer}");
        assert_eq!(kept(&tally).await, 0, "{path}");
    }
    // One vote with an address shows that this server keeps addresses.
    let request = (Method::POST, votes.as_str());
    send_from(&tally, &keeping, BOT, None, request, &json!({})).await;
    assert_eq!(kept(&tally).await, 1);
    // A decided vote keeps its address, once.
    let path = format!("/v1/items/{limited}/votes");
    for expected in [StatusCode::CREATED, StatusCode::OK] {
        let (request, body) = ((Method::POST, path.as_str()), json!({ "voter_id": "cy" }));
        let (status, answer) = send_from(&tally, &keeping, BOT, None, request, &body).await;
        assert_eq!(status, expected, "{answer}");
        assert_eq!(kept(&tally).await, 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_found_by_each_key_by_its_ipv6_network_and_by_one_of_its_votes() {
    let tally = Tally::start_with(keeping(&key('a'))).await;
    let rotated = [key('b'), key('a')].join(",");
    let later = tally.another_server_with(keeping(&rotated)).await;
    let item = tally.item("x").await;
    let path = format!("/v1/items/{item}/votes");
    let vote = async |base: &str, address: &str| {
        let request = (Method::POST, path.as_str());
        let (status, answer) = send_from(&tally, base, address, None, request, &json!({})).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
        answer["vote_id"].to_string()
    };
    vote(&tally.base, "2001:db8:0:1::1").await;
    vote(&later, "2001:db8:0:1:ffff::2").await;
    let last = vote(&later, "2001:db8:0:1::3").await;
    vote(&later, "2001:db8:0:2::1").await;
    let client = ["--address", "2001:db8:0:1:1234::", "--reason", "a bot"];
    for (keys, votes) in [(&rotated, 3), (&key('b'), 2), (&key('a'), 1)] {
        assert_eq!(void_by(&tally, keys, &client).await["votes"], votes);
    }
    // An operator who knows one of the client's votes needs no key. That vote's hash is of one key
    // only.
    let (done, dry) = void(&tally, &["--address-of", &last, "--reason", "a bot"]).await;
    assert!(done && dry["votes"] == 2, "{dry}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hashes_of_addresses_are_deleted_when_they_are_old_also_those_that_voidings_looked_for() {
    let keys = key('a');
    let tally = Tally::start_with(keeping(&keys)).await;
    let item = tally.item("x").await;
    let path = format!("/v1/items/{item}/votes");
    for _ in 0..3 {
        let request = (Method::POST, path.as_str());
        send_from(&tally, &tally.base, BOT, None, request, &json!({})).await;
    }
    let by_address = ["--address", BOT, "--reason", "a bot", "--apply"];
    void_by(&tally, &keys, &by_address).await;
    let by_voter = ["--voter", "ada", "--reason", "x", "--apply"];
    void_by(&tally, &keys, &by_voter).await;
    void_by(&tally, &keys, &by_address).await;
    // Two votes and all voidings but the last become older than a month.
    for statement in [
        "update vote_address set noted_at = noted_at - interval '31 days' where vote_id <= 2",
        "update voiding set created_at = created_at - interval '31 days' where id <= 2",
    ] {
        sqlx::query(statement)
            .execute(&tally.pool)
            .await
            .expect("Postgres answers");
    }
    let worker = tally.worker();
    let month = Duration::from_secs(30 * 86_400);
    worker
        .delete_old_addresses(month)
        .await
        .expect("the stores answer");
    assert_eq!(kept(&tally).await, 1);
    let left: Vec<Option<i32>> =
        sqlx::query_scalar("select cardinality(address_hashes) from voiding order by id")
            .fetch_all(&tally.pool)
            .await
            .expect("Postgres answers");
    // The second voiding has no address, and stays so.
    assert_eq!(left, [Some(0), None, Some(1)]);
    let run: Value = sqlx::query_scalar("select details from job_run where job = 'delete_addresses'")
        .fetch_one(&tally.pool)
        .await
        .expect("a run");
    assert_eq!(run, json!({ "addresses": 2 }));
    // The voiding itself is as before, and so are the counts.
    let (_, list) = tally.get("/v1/voidings").await;
    let first = &list["voidings"][2];
    assert_eq!(
        (&first["id"], &first["state"], &first["voided_votes"]),
        (&json!(1), &json!("voided"), &json!(3)),
        "{list}"
    );
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_cannot_be_looked_for_is_refused_in_one_line_that_says_why() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let (_, vote) = tally.vote(item, "ada").await;
    let vote = vote["vote_id"].to_string();
    for (arguments, keys, why) in [
        (&["--address", BOT][..], None, "--address-keys"),
        (&["--address", "a.example"], Some(key('a')), "a.example"),
        (&["--address", "203.0.113.0/24"], Some(key('a')), "203.0.113.0/24"),
        (
            &["--address", BOT],
            Some("5ec4e7".to_owned()),
            "64 hexadecimal digits",
        ),
        (&["--address-of", &vote], None, "no address is kept"),
        (&["--address-of", "0"], None, "a positive number"),
        (
            &["--address-of", &vote, "--address", BOT],
            Some(key('a')),
            "cannot be used with",
        ),
    ] {
        let mut command = command_as(TALLY, Some((&tally.stores, Role::Operator)));
        command.arg("void").args(arguments).args(["--reason", "a bot"]);
        if let Some(keys) = keys {
            command.env("TALLY_ADDRESS_KEYS", keys);
        }
        let output = run(command).await;
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(said.contains(why), "{arguments:?}: {said}");
        assert!(!said.contains("5ec4e7"), "{said}");
    }
}
