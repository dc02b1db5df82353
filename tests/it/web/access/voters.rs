//! Voters with credentials of their own: cookies and tokens.

use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use tally::domain::Scope;
use tally::ledger::Role;
use tally::web::access::Open;

use super::credentials::*;
use super::{Credential, api_key, send_as};
use crate::helpers::eventually;
use crate::helpers::programs::{TALLY, command_as, run, start_server_with, text};
use crate::helpers::stores::Stores;
use crate::helpers::tally::Tally;

/// A closed server that knows voters.
async fn closed(open: &str) -> Tally {
    let open: Open = open.parse().expect("names");
    Tally::start_with(|options| {
        options.access.open = open;
        knows_voters(options);
    })
    .await
}

async fn request(
    tally: &Tally,
    method: Method,
    path: &str,
    with: &Credential,
    body: Option<Value>,
) -> Response {
    let mut request = tally.http.request(method, format!("{}{path}", tally.base));
    match with {
        Credential::None => {}
        Credential::Bearer(token) => request = request.bearer_auth(token),
        Credential::Cookie(cookie) => request = request.header("cookie", cookie),
    }
    if let Some(body) = body {
        request = request.json(&body);
    }
    request.send().await.expect("an answer")
}

async fn json_of(response: Response) -> Value {
    response.json().await.expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_visitor_gets_a_cookie_votes_once_changes_the_vote_and_is_nobody_without_it() {
    let tally = closed("visitors").await;
    let item = tally.item("x").await;
    let votes = format!("/v1/items/{item}/votes");
    let nobody = request(&tally, Method::GET, "/v1/voter", &Credential::None, None).await;
    assert_eq!(nobody.status(), StatusCode::NOT_FOUND);
    let given = request(&tally, Method::POST, "/v1/voter", &Credential::None, None).await;
    assert_eq!(given.status(), StatusCode::CREATED);
    assert_eq!(given.headers()["cache-control"], "no-store");
    let set = given.headers()["set-cookie"].to_str().expect("text").to_owned();
    for attribute in [
        "__Host-voter=",
        "; Path=/",
        "; HttpOnly",
        "; Secure",
        "; SameSite=Lax",
        "; Max-Age=34560000",
    ] {
        assert!(set.contains(attribute), "{set}");
    }
    assert!(!set.contains("Domain"), "{set}");
    let voter = json_of(given).await["voter_id"]
        .as_str()
        .expect("a voter")
        .to_owned();
    let cookie = of_set_cookie(&set);
    // A voter with a cookie keeps it.
    let again = request(&tally, Method::POST, "/v1/voter", &cookie, None).await;
    assert_eq!(again.status(), StatusCode::OK);
    assert!(again.headers().get("set-cookie").is_none());
    assert_eq!(json_of(again).await["voter_id"], voter.as_str());
    let first = request(&tally, Method::POST, &votes, &cookie, None).await;
    assert_eq!(first.status(), StatusCode::CREATED);
    let first = json_of(first).await;
    assert_eq!(
        (&first["voter_id"], &first["vote_count"]),
        (&json!(voter), &json!(1))
    );
    let second = json_of(request(&tally, Method::POST, &votes, &cookie, None).await).await;
    assert_eq!(
        (&second["repeated"], &second["vote_count"]),
        (&json!(true), &json!(1))
    );
    let own = format!("{votes}/{voter}");
    let taken_back = request(&tally, Method::DELETE, &own, &cookie, None).await;
    assert_eq!(json_of(taken_back).await["vote_count"], 0);
    let without = request(&tally, Method::POST, &votes, &Credential::None, None).await;
    assert_eq!(without.status(), StatusCode::UNAUTHORIZED);
    let removed = request(&tally, Method::DELETE, "/v1/voter", &cookie, None).await;
    assert_eq!(removed.status(), StatusCode::NO_CONTENT);
    let set = removed.headers()["set-cookie"].to_str().expect("text");
    assert!(
        set.starts_with("__Host-voter=;") && set.contains("Max-Age=0"),
        "{set}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voters_own_credential_fixes_the_voter_in_each_kind_of_request() {
    let tally = closed("anonymous,voters").await;
    let item = tally.item("x").await;
    let (poll, choice) = {
        let made = tally
            .another_server_with(|options| options.access.open = Open::ALL)
            .await;
        let body = json!({ "title": "p", "choices": ["a"] });
        let answer = tally
            .http
            .post(format!("{made}/v1/polls"))
            .json(&body)
            .send()
            .await;
        let poll = json_of(answer.expect("an answer")).await;
        (poll["id"].clone(), poll["choices"][0]["item_id"].clone())
    };
    for ada in [cookie("ada"), Credential::Bearer(token("ada"))] {
        let votes = format!("/v1/items/{item}/votes");
        let selection = format!("/v1/polls/{poll}/votes");
        for (method, path, body) in [
            (Method::POST, votes.clone(), Some(json!({ "voter_id": "eve" }))),
            (Method::PUT, format!("{votes}/eve"), Some(json!({ "value": 1 }))),
            (Method::DELETE, format!("{votes}/eve"), None),
            (Method::GET, format!("{votes}/eve"), None),
            (
                Method::PUT,
                format!("{selection}/eve"),
                Some(json!({ "items": [choice] })),
            ),
            (Method::DELETE, format!("{selection}/eve"), None),
            (Method::GET, format!("{selection}/eve"), None),
        ] {
            let got = send_as(&tally, &tally.base, (method.clone(), &path), &ada, body.as_ref()).await;
            assert_eq!(
                got,
                (StatusCode::FORBIDDEN, "not-your-vote".to_owned()),
                "{method} {path}"
            );
        }
        let batch = json!({ "votes": [
            { "item_id": item.get() }, { "item_id": item.get(), "voter_id": "ada" },
            { "item_id": item.get(), "voter_id": "eve" },
        ]});
        let results = json_of(request(&tally, Method::POST, "/v1/votes", &ada, Some(batch)).await).await;
        assert_eq!(results["results"][0]["voter_id"], "ada", "{results}");
        assert_eq!(results["results"][1]["voter_id"], "ada", "{results}");
        assert_eq!(
            results["results"][2]["type"], "/problems/not-your-vote",
            "{results}"
        );
        let put = request(
            &tally,
            Method::PUT,
            &format!("{selection}/ada"),
            &ada,
            Some(json!({ "items": [choice] })),
        )
        .await;
        assert_eq!(put.status(), StatusCode::OK);
    }
    let (rows, of_others): (i64, i64) =
        sqlx::query_as("select count(*), count(*) filter (where voter_id is distinct from 'ada') from vote")
            .fetch_one(&tally.pool)
            .await
            .expect("Postgres answers");
    assert_eq!((rows, of_others), (2, 0), "one on the item and one in the poll");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authorization_header_counts_for_more_than_a_cookie_and_two_credentials_are_none() {
    let tally = closed("").await;
    let item = tally.item("x").await;
    let url = format!("{}/v1/items/{item}/votes", tally.base);
    let Credential::Cookie(of_eve) = cookie("eve") else {
        unreachable!()
    };
    let both = |token: String| tally.http.post(&url).bearer_auth(token).header("cookie", &of_eve);
    let answer = both(token("ada")).send().await.expect("an answer");
    assert_eq!(json_of(answer).await["voter_id"], "ada");
    let answer = both(forged_token("ada")).send().await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    let twice = both(token("ada")).header("authorization", format!("Bearer {}", token("ada")));
    assert_eq!(
        twice.send().await.expect("an answer").status(),
        StatusCode::BAD_REQUEST
    );
    let two = tally
        .http
        .post(&url)
        .header("cookie", format!("{of_eve}; {of_eve}"));
    assert_eq!(
        two.send().await.expect("an answer").status(),
        StatusCode::UNAUTHORIZED
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_gives_a_voter_a_cookie_and_nobody_else_names_one() {
    let tally = closed("visitors").await;
    let item = tally.item("x").await;
    let (_, vote) = api_key(&tally, &[Scope::Vote]).await;
    let (_, admin) = api_key(&tally, &[Scope::Admin]).await;
    let named = Some(json!({ "voter_id": "ada" }));
    let bearer = |key: &tally::domain::ApiKey| Credential::Bearer(key.as_str().to_owned());
    for (with, status) in [
        (Credential::None, StatusCode::UNAUTHORIZED),
        (bearer(&admin), StatusCode::FORBIDDEN),
        (cookie("eve"), StatusCode::FORBIDDEN),
        (forged_cookie("ada"), StatusCode::UNAUTHORIZED),
    ] {
        let answer = request(&tally, Method::POST, "/v1/voter", &with, named.clone()).await;
        assert_eq!(answer.status(), status, "{with:?}");
        assert!(answer.headers().get("set-cookie").is_none());
    }
    let given = request(&tally, Method::POST, "/v1/voter", &bearer(&vote), named).await;
    assert_eq!(given.status(), StatusCode::CREATED);
    let of_ada = of_set_cookie(given.headers()["set-cookie"].to_str().expect("text"));
    let votes = format!("/v1/items/{item}/votes");
    let cast = request(&tally, Method::POST, &votes, &of_ada, None).await;
    assert_eq!(json_of(cast).await["voter_id"], "ada");
    // A broken cookie does not prevent a new one.
    let renewed = request(&tally, Method::POST, "/v1/voter", &forged_cookie("ada"), None).await;
    assert_eq!(renewed.status(), StatusCode::CREATED);
    assert_ne!(json_of(renewed).await["voter_id"], "ada");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_cookies_rotate_without_logging_anyone_out() {
    let tally = Tally::start_with(|options| {
        options.access.open = Open::default();
        options.access.cookies = Some(keys(&['b', 'a']));
    })
    .await;
    let item = tally.item("x").await;
    let votes = format!("/v1/items/{item}/votes");
    let earlier = cookie_by(&keys(&['a']), "ada");
    let cast = request(&tally, Method::POST, &votes, &earlier, None).await;
    assert_eq!(cast.status(), StatusCode::CREATED);
    let set = cast.headers()["set-cookie"].to_str().expect("text").to_owned();
    let renewed = of_set_cookie(&set);
    let answer = request(&tally, Method::GET, "/v1/voter", &renewed, None).await;
    assert!(
        answer.headers().get("set-cookie").is_none(),
        "it is of the key that signs"
    );
    let after = tally
        .another_server_with(|options| {
            options.access.open = Open::default();
            options.access.cookies = Some(keys(&['b']));
        })
        .await;
    let path = (Method::GET, "/v1/voter");
    let (status, _) = send_as(&tally, &after, path.clone(), &renewed, None).await;
    assert_eq!(status, StatusCode::OK);
    let (status, problem) = send_as(&tally, &after, path, &earlier, None).await;
    assert_eq!(
        (status, problem.as_str()),
        (StatusCode::UNAUTHORIZED, "credential-not-valid")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_keys_there_are_no_cookies_and_no_tokens() {
    let tally = Tally::start().await;
    let got = send_as(
        &tally,
        &tally.base,
        (Method::POST, "/v1/voter"),
        &Credential::None,
        None,
    )
    .await;
    assert_eq!(got, (StatusCode::NOT_FOUND, "not-found".to_owned()));
    // On this server, such a cookie belongs to some other program.
    let item = tally.item("x").await;
    let votes = format!("/v1/items/{item}/votes");
    let cast = request(&tally, Method::POST, &votes, &cookie("ada"), None).await;
    assert_eq!(json_of(cast).await["voter_id"], Value::Null);
    let with_token = Credential::Bearer(token("ada"));
    let (status, problem) = send_as(&tally, &tally.base, (Method::POST, &votes), &with_token, None).await;
    assert_eq!(
        (status, problem.as_str()),
        (StatusCode::UNAUTHORIZED, "credential-not-valid")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_keys_is_read_anew_when_it_changes_and_a_broken_one_leaves_the_earlier_keys() {
    let folder = tempfile::tempdir().expect("a folder");
    let (one, jwk_of_one) = rsa_key(folder.path(), "one");
    let (other, jwk_of_other) = rsa_key(folder.path(), "other");
    let file = folder.path().join("keys.json");
    let write = |text: &str| {
        // As a deployment writes it: the whole file at once.
        let new = folder.path().join("new.json");
        std::fs::write(&new, text).expect("written");
        std::fs::rename(&new, &file).expect("renamed");
    };
    write(&json!({ "keys": [jwk_of_one] }).to_string());
    let stores = Stores::start().await;
    let settings = [
        ("TALLY_JWT_KEYS", file.to_str().expect("text")),
        ("TALLY_JWT_AUDIENCE", AUDIENCE),
        ("TALLY_JWT_ISSUER", ISSUER),
    ];
    let (program, base) = start_server_with(&stores, "server", &settings).await;
    let http = reqwest::Client::new();
    let who = async |token: &str| {
        let request = http.get(format!("{base}/v1/voter")).bearer_auth(token);
        request.send().await.expect("an answer").status()
    };
    let (by_one, by_other) = (rs256(&one, "one", "ada"), rs256(&other, "other", "ada"));
    assert_eq!(who(&by_one).await, StatusCode::OK);
    assert_eq!(who(&by_other).await, StatusCode::UNAUTHORIZED);
    // Another key under the right one's name: the signature decides, not the name.
    assert_eq!(who(&rs256(&other, "one", "ada")).await, StatusCode::UNAUTHORIZED);
    write("{ \"keys\": [");
    program.wait_for_line("the earlier keys stay valid").await;
    assert_eq!(who(&by_one).await, StatusCode::OK);
    write(&json!({ "keys": [jwk_of_one, jwk_of_other] }).to_string());
    eventually("the new key is believed", async || {
        (who(&by_other).await == StatusCode::OK).then_some(())
    })
    .await;
    assert_eq!(who(&by_one).await, StatusCode::OK);
    write(&json!({ "keys": [jwk_of_other] }).to_string());
    eventually("the old key is believed no more", async || {
        (who(&by_one).await == StatusCode::UNAUTHORIZED).then_some(())
    })
    .await;
    // A FIFO without a writer stops nothing: the log says what is there.
    std::fs::remove_file(&file).expect("removed");
    let made = std::process::Command::new("mkfifo").arg(&file).status();
    assert!(made.expect("mkfifo runs").success());
    program.wait_for_line("it is a FIFO, not a file").await;
    assert_eq!(who(&by_other).await, StatusCode::OK);
    // No key: the issuer has taken all of them back.
    write(&json!({ "keys": [] }).to_string());
    eventually("no key is believed", async || {
        (who(&by_other).await == StatusCode::UNAUTHORIZED).then_some(())
    })
    .await;
    program.wait_for_line("no usable key").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_voters_that_are_wrong_end_the_server_at_its_start_in_one_line_without_the_secret() {
    let stores = Stores::start().await;
    let secret = ("TALLY_JWT_SECRET", SECRET);
    let (audience, issuer) = (("TALLY_JWT_AUDIENCE", AUDIENCE), ("TALLY_JWT_ISSUER", ISSUER));
    let missing = ("TALLY_JWT_KEYS", "/nowhere/keys.json");
    for (settings, word) in [
        (vec![secret], "--jwt-audience"),
        (vec![secret, audience], "--jwt-issuer"),
        (
            vec![("TALLY_JWT_SECRET", "too short"), audience, issuer],
            "32 bytes",
        ),
        (vec![missing, audience, issuer], "/nowhere/keys.json"),
        (
            vec![("TALLY_JWT_KEYS", "/dev/zero"), audience, issuer],
            "a device",
        ),
        (
            vec![
                ("TALLY_JWT_SECRET", "\"a secret of thirty-two bytes or more\""),
                audience,
                issuer,
            ],
            "stands in quotes",
        ),
        (
            vec![secret, ("TALLY_JWT_AUDIENCE", "votes\r"), issuer],
            "ends with a line break",
        ),
        (vec![("TALLY_THROTTLE", "x:1/1s\r")], "ends with a line break"),
        (vec![secret, ("TALLY_JWT_AUDIENCE", ""), issuer], "--jwt-audience"),
        (vec![secret, audience, ("TALLY_JWT_ISSUER", "")], "--jwt-issuer"),
        (vec![("TALLY_COOKIE_KEYS", "5ec4e7")], "64 hexadecimal digits"),
    ] {
        let mut command = command_as(TALLY, Some((&stores, Role::Server)));
        command.arg("serve").env("TALLY_LISTEN", "127.0.0.1:0");
        command.envs(settings.iter().copied());
        let output = run(command).await;
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{settings:?}");
        assert!(said.contains(word), "{settings:?}: {said}");
        assert_eq!(said.trim().lines().count(), 1, "{said}");
        for (_, secret) in settings
            .iter()
            .filter(|(name, _)| name.ends_with("SECRET") || name.ends_with("COOKIE_KEYS"))
        {
            assert!(!said.contains(secret), "{said}");
        }
    }
}
