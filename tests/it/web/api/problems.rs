//! Each problem type is sent, and leads to its section of docs/problems.md.

use std::collections::HashSet;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tally::domain::Scope;
use tally::web::ProblemKind;
use tally::web::access::Open;

use crate::helpers::eventually;
use crate::helpers::stores::{LOCK_VOTES, blocker};
use crate::helpers::tally::Tally;
use crate::web::access::credentials::{
    AUDIENCE, ISSUER, SECRET, cookie, expired_token, forged_token, knows_voters, token, token_for,
};
use crate::web::access::{Credential, api_key};

/// Types that `bad_input`, `refusals`, `transport` and `streams` send and follow.
/// No test can have a server send `Internal`.
const ELSEWHERE: [ProblemKind; 8] = [
    ProblemKind::BodyTooSlow,
    ProblemKind::VoteUnconfirmed,
    ProblemKind::TooManyConnections,
    ProblemKind::TooManyStreams,
    ProblemKind::TooManyLists,
    ProblemKind::TooManyListsOfAddress,
    ProblemKind::TooManyStreamsOfAddress,
    ProblemKind::Internal,
];

/// Follows a problem's `type` to the section that explains it. Returns the type.
pub async fn assert_leads_to_its_section(tally: &Tally, problem: &Value) -> ProblemKind {
    let address = problem["type"].as_str().expect("a type");
    let kind = ProblemKind::ALL.iter().find(|kind| kind.address() == address);
    let kind = *kind.unwrap_or_else(|| panic!("{address} is in no table"));
    let status = kind.status().as_u16();
    assert_eq!(
        (&problem["status"], &problem["title"]),
        (&json!(status), &json!(kind.title())),
        "{problem}"
    );
    assert_ne!(problem["detail"].as_str().unwrap_or_default(), "", "{problem}");
    let section = section(tally, address).await;
    let says = format!(
        "## {}\n\nStatus {status}, title \"{}\".\n",
        kind.slug(),
        kind.title()
    );
    assert!(section.starts_with(&says), "{section}");
    assert_eq!(section.matches("\n## ").count(), 0, "one section: {section}");
    kind
}

/// The page that the server shows at this address.
async fn section(tally: &Tally, path: &str) -> String {
    let shown = tally.http.get(format!("{}{path}", tally.base)).send().await;
    let shown = shown.expect("an answer");
    assert_eq!(shown.status(), StatusCode::OK, "{path}");
    assert_eq!(shown.headers()["content-type"], "text/markdown; charset=utf-8");
    assert_eq!(shown.headers()["x-content-type-options"], "nosniff");
    assert!(shown.headers().contains_key("content-security-policy"), "{path}");
    shown.text().await.expect("text")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_shows_the_document_and_each_section_of_it_and_nothing_else() {
    let tally = Tally::start().await;
    let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/problems.md"));
    let document = document.expect("the document");
    assert_eq!(section(&tally, "/problems").await, document);
    let (introduction, _) = document.split_once("\n## ").expect("a section");
    let mut whole = introduction.to_owned();
    for kind in ProblemKind::ALL {
        whole += "\n";
        whole += &section(&tally, kind.address()).await;
        whole += "\n";
    }
    assert_eq!(whole, document, "the sections are all that there is");
    let wrong = [
        "/problems/",
        "/problems/Full",
        "/problems/fu",
        "/problems/full/",
        "/problems/%ff",
    ];
    for path in wrong {
        let (status, problem) = tally.get(path).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
        let kind = assert_leads_to_its_section(&tally, &problem).await;
        assert_eq!(kind, ProblemKind::NotFound, "{path}");
    }
    let (status, problem) = tally.send(Method::DELETE, "/problems/full", None).await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    assert_leads_to_its_section(&tally, &problem).await;
    let head = tally
        .http
        .head(format!("{}/problems/full", tally.base))
        .send()
        .await;
    assert_eq!(head.expect("an answer").status(), StatusCode::OK);
}

/// What reaches a voter says nothing of fields and settings; the hint beside it tells the developer all of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_another_audience_issuer_or_key_is_called_that_and_one_that_is_missing_too() {
    let tally = Tally::start_with(|options| {
        options.access.open = Open::default();
        knows_voters(options);
    })
    .await;
    let item = tally.item("x").await;
    let url = format!("{}/v1/items/{item}/votes", tally.base);
    let ask = async |token: Option<String>| {
        let mut request = tally.http.post(&url).json(&json!({}));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
        let problem: Value = answer.json().await.expect("JSON");
        let text = |name: &str| problem[name].as_str().expect(name).to_owned();
        (text("type"), text("detail"), text("hint"))
    };
    for (token, kind, detail, hint) in [
        (
            Some(token_for("shop", ISSUER, SECRET)),
            "credential-not-valid",
            "Your sign-in is not valid here.",
            format!("its aud is \"shop\"; this server takes \"{AUDIENCE}\""),
        ),
        (
            Some(token_for(AUDIENCE, "https://other.example", SECRET)),
            "credential-not-valid",
            "Your sign-in is not valid here.",
            format!("its iss is \"https://other.example\"; this server takes \"{ISSUER}\""),
        ),
        (
            Some(forged_token("ada")),
            "credential-not-valid",
            "Your sign-in is not valid here.",
            "its signature is by none of this server's keys".to_owned(),
        ),
        (
            Some(expired_token("ada")),
            "token-expired",
            "Your sign-in has expired.",
            "exp is over".to_owned(),
        ),
        (
            None,
            "credential-missing",
            "You need to sign in",
            "POST /v1/voter".to_owned(),
        ),
    ] {
        let (got, shown, hinted) = ask(token).await;
        assert_eq!(got, format!("/problems/{kind}"), "{hinted}");
        assert!(
            shown.starts_with(detail) && hinted.contains(&hint),
            "{shown} {hinted}"
        );
    }
    // A server without tokens says that.
    let without = tally
        .another_server_with(|options| options.access.open = Open::default())
        .await;
    let answer = tally.http.post(format!("{without}/v1/items/{item}/votes"));
    let answer = answer.bearer_auth(token("ada")).json(&json!({})).send().await;
    let problem: Value = answer.expect("an answer").json().await.expect("JSON");
    assert!(
        problem["hint"]
            .as_str()
            .expect("a hint")
            .contains("takes no voters' tokens"),
        "{problem}"
    );
}

/// The refusals of a Tally, as they come.
struct Refusals {
    tally: Tally,
    kinds: HashSet<ProblemKind>,
}

impl Refusals {
    /// Sends a request that must be refused with this problem.
    async fn add(&mut self, kind: ProblemKind, method: Method, path: &str, body: Option<Value>) {
        let (status, problem) = self.tally.send(method, path, body.as_ref()).await;
        self.check(kind, status, &problem).await;
    }

    async fn check(&mut self, kind: ProblemKind, status: StatusCode, problem: &Value) {
        let got = assert_leads_to_its_section(&self.tally, problem).await;
        assert_eq!(
            (got, status.as_u16()),
            (kind, kind.status().as_u16()),
            "{problem}"
        );
        self.kinds.insert(kind);
    }

    async fn execute(&self, statement: &str) {
        sqlx::raw_sql(statement)
            .execute(&self.tally.pool)
            .await
            .expect("a statement");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_problem_type_is_sent_and_leads_to_its_section() {
    let mut refusals = Refusals {
        tally: Tally::start().await,
        kinds: HashSet::new(),
    };
    rules_are_refused_beside_older_servers(&mut refusals).await;
    what_is_sent_is_refused(&mut refusals).await;
    rules_refuse(&mut refusals).await;
    callers_are_refused(&mut refusals).await;
    ballots_and_keys_are_refused(&mut refusals).await;
    operators_are_refused(&mut refusals).await;
    stores_that_do_not_answer_refuse(&mut refusals).await;
    for kind in ProblemKind::ALL {
        assert!(
            refusals.kinds.contains(kind) || ELSEWHERE.contains(kind),
            "nothing sends {kind:?}"
        );
    }
}

async fn rules_are_refused_beside_older_servers(refusals: &mut Refusals) {
    let connect = "insert into writer_connection (name) values ('tally writer of an older server')";
    refusals.execute(connect).await;
    let body = json!({ "name": "x", "max_votes": 1 });
    refusals
        .add(ProblemKind::OlderServers, Method::POST, "/v1/items", Some(body))
        .await;
    // Its connection is closed. A worker sees that and forgets the writer.
    let recovery = refusals.tally.worker().recover_crashed_writers().await;
    recovery.expect("a recovery");
}

async fn what_is_sent_is_refused(refusals: &mut Refusals) {
    let item = refusals.tally.item("x").await;
    let votes = format!("/v1/items/{item}/votes");
    let ada = format!("{votes}/ada");
    let batch = |votes: usize| json!({ "votes": vec![json!({ "item_id": item }); votes] });
    let large = json!({ "voter_id": "x".repeat(128 * 1024) });
    for (kind, method, path, body) in [
        (
            ProblemKind::Malformed,
            Method::POST,
            &*votes,
            Some(json!({ "value": "up" })),
        ),
        (ProblemKind::Malformed, Method::GET, "/v1/items/x", None),
        (ProblemKind::Malformed, Method::GET, "/v1/items?page=2", None),
        (ProblemKind::NotFound, Method::GET, "/nowhere", None),
        (ProblemKind::MethodNotAllowed, Method::DELETE, "/v1/items", None),
        (
            ProblemKind::BodyTooLarge,
            Method::POST,
            &*votes,
            Some(large.clone()),
        ),
        (
            ProblemKind::BatchTooLarge,
            Method::POST,
            "/v1/votes",
            Some(batch(1001)),
        ),
        (
            ProblemKind::BatchTooLarge,
            Method::POST,
            "/v1/votes",
            Some(json!({ "votes": [large] })),
        ),
        (
            ProblemKind::InvalidValue,
            Method::POST,
            "/v1/votes",
            Some(batch(0)),
        ),
        (
            ProblemKind::InvalidValue,
            Method::PUT,
            &*ada,
            Some(json!({ "value": 0 })),
        ),
        (ProblemKind::InvalidValue, Method::GET, "/v1/items?limit=0", None),
        (
            ProblemKind::FormatNotOffered,
            Method::GET,
            "/oembed?url=x&format=xml",
            None,
        ),
        (ProblemKind::UnknownItem, Method::GET, "/v1/items/999", None),
        (
            ProblemKind::UnknownItem,
            Method::POST,
            "/v1/items/999/votes",
            Some(json!({})),
        ),
        (ProblemKind::UnknownPoll, Method::GET, "/v1/polls/999", None),
        (
            ProblemKind::UnknownPoll,
            Method::PUT,
            "/v1/polls/999/votes/ada",
            Some(json!({ "items": [] })),
        ),
        (ProblemKind::UnknownVote, Method::GET, "/v1/votes/999", None),
        // The first id of cell 1.
        (
            ProblemKind::OtherCell,
            Method::GET,
            "/v1/items/1099511627777",
            None,
        ),
        (ProblemKind::NoVote, Method::GET, &*ada, None),
    ] {
        refusals.add(kind, method, path, body).await;
    }
    let text = refusals.tally.post_raw(&votes, "text/plain", "{}").await;
    let (status, problem) = (text.status(), text.json().await.expect("JSON"));
    refusals
        .check(ProblemKind::UnsupportedContentType, status, &problem)
        .await;
    // Each vote of a batch has a problem of its own.
    let body = json!({ "votes": [{ "item_id": 999 }] });
    let (_, answer) = refusals.tally.post("/v1/votes", &body).await;
    let problem = &answer["results"][0];
    refusals
        .check(ProblemKind::UnknownItem, StatusCode::NOT_FOUND, problem)
        .await;
    assert_eq!(refusals.tally.ledger_sum(item).await, 0, "nothing is stored");
}

async fn callers_are_refused(refusals: &mut Refusals) {
    let tally = &refusals.tally;
    let base = tally
        .another_server_with(|options| {
            options.access.open = Open::default();
            knows_voters(options);
        })
        .await;
    let Credential::Cookie(cookie) = cookie("eve") else {
        panic!("a cookie");
    };
    let (_, key) = api_key(tally, &[Scope::Report]).await;
    for (kind, header, value) in [
        (ProblemKind::CredentialMissing, "accept", "*/*".to_owned()),
        (
            ProblemKind::CredentialNotValid,
            "authorization",
            "Bearer x".to_owned(),
        ),
        (
            ProblemKind::NotAllowed,
            "authorization",
            format!("Bearer {}", key.as_str()),
        ),
        (
            ProblemKind::TokenExpired,
            "authorization",
            format!("Bearer {}", expired_token("ada")),
        ),
        (ProblemKind::NotYourVote, "cookie", cookie),
        (
            ProblemKind::ForeignOrigin,
            "origin",
            "https://evil.example".to_owned(),
        ),
    ] {
        let (path, body) = match kind {
            ProblemKind::NotYourVote => ("/v1/items/1/votes", json!({ "voter_id": "ada" })),
            _ => ("/v1/items", json!({ "name": "x" })),
        };
        let request = refusals.tally.http.post(format!("{base}{path}"));
        let request = request.header(header, value).json(&body);
        let answer = request.send().await.expect("an answer");
        let is_challenge = answer.headers().contains_key("www-authenticate");
        assert_eq!(is_challenge, answer.status() == StatusCode::UNAUTHORIZED);
        let (status, problem) = (answer.status(), answer.json().await.expect("JSON"));
        refusals.check(kind, status, &problem).await;
    }
    let throttled = refusals.tally.another_server_with(|options| {
        options.voting.throttles = "item:1/1h".parse().expect("throttles");
    });
    let url = format!("{}/v1/items/1/votes", throttled.await);
    for _ in 0..2 {
        let answer = refusals.tally.http.post(&url).send().await.expect("an answer");
        if answer.status() == StatusCode::TOO_MANY_REQUESTS {
            let (status, problem) = (answer.status(), answer.json().await.expect("JSON"));
            refusals.check(ProblemKind::Throttled, status, &problem).await;
        }
    }
    refusals
        .add(ProblemKind::NoVoter, Method::GET, "/v1/voter", None)
        .await;
    refusals
        .add(
            ProblemKind::UnknownApiKey,
            Method::DELETE,
            "/v1/api-keys/999",
            None,
        )
        .await;
}

async fn ballots_and_keys_are_refused(refusals: &mut Refusals) {
    let tally = &refusals.tally;
    let by_ballot = tally.item_with(json!({ "by_ballot": true })).await;
    let plain = tally.item_with(json!({ "key": "taken" })).await;
    let vote = |item: &dyn std::fmt::Display| format!("/v1/items/{item}/votes");
    let ballot = json!({ "ballot": "none" });
    for (kind, method, path, body) in [
        (
            ProblemKind::BallotMissing,
            Method::POST,
            vote(&by_ballot),
            json!({}),
        ),
        (
            ProblemKind::BallotNotTaken,
            Method::POST,
            vote(&plain),
            ballot.clone(),
        ),
        (
            ProblemKind::BallotNotValid,
            Method::POST,
            vote(&by_ballot),
            ballot,
        ),
        (
            ProblemKind::KeyTaken,
            Method::POST,
            "/v1/items".to_owned(),
            json!({ "name": "y", "key": "taken" }),
        ),
        (
            ProblemKind::NeverChanges,
            Method::PATCH,
            format!("/v1/items/{plain}"),
            json!({ "key": "other" }),
        ),
    ] {
        refusals.add(kind, method, &path, Some(body)).await;
    }
    for (body, status) in [(json!({}), 201), (json!({ "value": -1 }), 422)] {
        let url = format!("{}{}", refusals.tally.base, vote(&plain));
        let sent = refusals.tally.http.post(url).header("Idempotency-Key", "k");
        let answer = sent.json(&body).send().await.expect("an answer");
        assert_eq!(answer.status(), status);
        if status == 422 {
            let status = answer.status();
            let problem: Value = answer.json().await.expect("JSON");
            refusals
                .check(ProblemKind::IdempotencyKeyReused, status, &problem)
                .await;
        }
    }
}

async fn rules_refuse(refusals: &mut Refusals) {
    let tally = &refusals.tally;
    let full = tally.item_with(json!({ "max_votes": 1 })).await;
    let early = json!({ "opens_at": "2999-01-01T00:00:00Z" });
    let late = json!({ "closes_at": "2000-01-01T00:00:00Z" });
    let (early, late) = (tally.item_with(early).await, tally.item_with(late).await);
    let up_only = tally.item_with(json!({ "down_votes": false })).await;
    let changed = tally.item("x").await;
    let (_, poll) = tally
        .post("/v1/polls", &json!({ "title": "x", "choices": ["a", "b"] }))
        .await;
    let choices = [0, 1].map(|at| poll["choices"][at]["item_id"].clone());
    assert_eq!(tally.vote(full, "ada").await.0, StatusCode::CREATED);
    refusals
        .execute(&format!(
            "insert into vote (item_id, voter_id, value, change_number)
             select {changed}, 'ada', 1 - 2 * (number % 2), number from generate_series(0, 998) as number"
        ))
        .await;
    let vote = |item: &dyn std::fmt::Display| format!("/v1/items/{item}/votes");
    let selection = format!("/v1/polls/{}/votes/ada", poll["id"]);
    let down = json!({ "value": -1 });
    for (kind, method, path, body) in [
        (ProblemKind::Full, Method::POST, vote(&full), json!({})),
        (ProblemKind::NotOpenYet, Method::POST, vote(&early), json!({})),
        (ProblemKind::Closed, Method::POST, vote(&late), json!({})),
        (
            ProblemKind::ValueNotTaken,
            Method::POST,
            vote(&up_only),
            down.clone(),
        ),
        (
            ProblemKind::TooManyChanges,
            Method::PUT,
            vote(&changed) + "/ada",
            down,
        ),
        (
            ProblemKind::VoterMissing,
            Method::POST,
            vote(&choices[0]),
            json!({}),
        ),
        (
            ProblemKind::NotInPoll,
            Method::PUT,
            selection.clone(),
            json!({ "items": [full] }),
        ),
        (
            ProblemKind::TooManyChoices,
            Method::PUT,
            selection,
            json!({ "items": choices }),
        ),
    ] {
        refusals.add(kind, method, &path, Some(body)).await;
    }
}

async fn operators_are_refused(refusals: &mut Refusals) {
    let without = refusals
        .tally
        .another_server_with(|options| options.operator = None)
        .await;
    let (status, problem) = refusals
        .tally
        .send_to(&without, Method::GET, "/v1/trail", None)
        .await;
    refusals.check(ProblemKind::OperatorLogin, status, &problem).await;
    refusals
        .execute("insert into voiding (voter_id, reason, until_vote_id) values ('x', 'x', 1000)")
        .await;
    for (kind, path) in [
        (ProblemKind::UnknownVoiding, "/v1/voidings/999/undo"),
        (ProblemKind::VoidingNotDone, "/v1/voidings/1/undo"),
        (ProblemKind::UnknownVoterEdit, "/v1/voter-edits/999/resume"),
    ] {
        refusals.add(kind, Method::POST, path, None).await;
    }
    refusals
        .execute("insert into voter_edit (kind, from_voter_id, to_voter_id, until_vote_id) values ('merge', 'a', 'b', 1)")
        .await;
    let body = json!({ "kind": "erase", "voter_id": "b", "dry_run": false });
    refusals
        .add(
            ProblemKind::VoterEditUnderWay,
            Method::POST,
            "/v1/voter-edits",
            Some(body),
        )
        .await;
    // One vote waits for the ledger, and the queue has no place for another.
    let blocker = blocker(&refusals.tally.pool, LOCK_VOTES).await;
    let body = json!({ "voter_id": "y", "reason": "x", "dry_run": false });
    let (status, made) = refusals.tally.post("/v1/voidings", &body).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{made}");
    refusals
        .add(
            ProblemKind::VoidingUnderWay,
            Method::POST,
            "/v1/voidings",
            Some(body),
        )
        .await;
    blocker.rollback().await.expect("Postgres answers");
    let path = format!("/v1/voidings/{}", made["id"]);
    eventually("the voiding is done", async || {
        (refusals.tally.get(&path).await.1["under_way"] == false).then_some(())
    })
    .await;
}

async fn stores_that_do_not_answer_refuse(refusals: &mut Refusals) {
    let item = refusals.tally.item("x").await;
    refusals
        .execute("revoke insert on vote from tally_server; revoke select on rule, _sqlx_migrations from tally_server")
        .await;
    let votes = format!("/v1/items/{item}/votes");
    for (kind, method, path, body) in [
        (ProblemKind::VoteNotStored, Method::POST, &*votes, Some(json!({}))),
        (ProblemKind::Unavailable, Method::GET, "/v1/polls/1", None),
        (ProblemKind::NotReady, Method::GET, "/health/ready", None),
    ] {
        refusals.add(kind, method, path, body).await;
    }
}
