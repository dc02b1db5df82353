//! Failovers to a standby that lagged. The new primary gives ids out a second time, to items with
//! other keys. Nothing that a server remembers of the old primary may then be used.

use std::process::Command;
use std::time::Duration;

use futures_util::future::join_all;
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use sqlx::PgPool;
use tally::domain::{
    self, Actor, Digest, Edit, Found, IdempotencyKey, ItemId, ItemKey, ItemName, NewItem, OpenTo, PollId,
    Scope, VoteRequest, VoteSource, VotedOn, Who,
};
use tally::ledger::{LedgerError, Role, ServerLedger};
use tally::votes::{CastError, SeedBackoff, VoteQueue};
use testkit::proxy::Proxy;
use tokio::time::timeout;

use crate::helpers::eventually;
use crate::helpers::stores::Stores;
use crate::helpers::tally::{Tally, live_counts_of, server_ledger, vote};
use crate::web::access::api_key;
use tally::live::Seeding;

/// Items that the standby does not get.
const LOST_ITEMS: usize = 40;
/// Longer than a stream takes to end. No test measures it.
const STREAM_LIMIT: Duration = Duration::from_secs(60);

fn data(tally: &Tally, name: &str) -> std::path::PathBuf {
    tally.stores.folder().join("postgres").join(name)
}

/// Makes a standby that has everything up to now, and gets nothing any more.
pub(super) async fn lag_from_now_on(tally: &mut Tally) {
    tally.stores.postgres.stop().await;
    let copied = Command::new("cp")
        .arg("-a")
        .args([data(tally, "data"), data(tally, "standby")])
        .status()
        .expect("cp runs");
    assert!(copied.success());
    std::fs::write(data(tally, "standby").join("standby.signal"), "").expect("a file");
    tally.stores.postgres.start().await.expect("Postgres starts");
    tally.wait_until_ready("ready").await;
}

/// The primary is lost, and its address leads to the standby, which is promoted.
pub(super) async fn fail_over(tally: &mut Tally) {
    tally.stores.postgres.crash().await;
    std::fs::rename(data(tally, "data"), data(tally, "lost")).expect("it is moved");
    std::fs::rename(data(tally, "standby"), data(tally, "data")).expect("it is moved");
    tally.stores.postgres.start().await.expect("the standby starts");
    let promoted: bool = eventually("the standby is promoted", async || {
        sqlx::query_scalar("select pg_promote()")
            .fetch_one(&tally.pool)
            .await
            .ok()
    })
    .await;
    assert!(promoted);
}

/// Sends a request over a connection of its own, so that each thread gets some.
pub(super) async fn send(tally: &Tally, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let request = client.request(method.clone(), format!("{}{path}", tally.base));
    let request = if method == Method::GET {
        request
    } else {
        request.json(&body)
    };
    let answer = request.send().await.expect("an answer");
    let status = answer.status();
    let text = answer.text().await.expect("a body");
    (status, serde_json::from_str(&text).unwrap_or_default())
}

/// Makes an item or a poll, and has every thread remember its key.
async fn made_and_remembered(tally: &Tally, path: &str, body: Value) -> i64 {
    let (status, made) = send(tally, Method::POST, path, body.clone()).await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    let key = body["key"].as_str().expect("a key");
    for _ in 0..4 {
        let path = format!("{path}/key:{key}");
        assert_eq!(
            send(tally, Method::GET, &path, Value::Null).await.0,
            StatusCode::OK
        );
    }
    made["id"].as_i64().expect("an id")
}

pub(super) async fn number(pool: &PgPool, statement: &str) -> i64 {
    sqlx::query_scalar(statement)
        .fetch_one(pool)
        .await
        .expect("Postgres answers")
}

/// Waits for the end of a stream.
async fn ends(mut stream: Response) {
    while let Ok(Some(_)) = timeout(STREAM_LIMIT, stream.chunk()).await.expect("it ends") {}
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_that_names_a_key_reaches_what_was_given_its_id_after_a_failover() {
    let mut tally = Tally::start().await;
    let early = made_and_remembered(&tally, "/v1/items", json!({ "name": "x", "key": "early" })).await;
    lag_from_now_on(&mut tally).await;
    let mut lost = Vec::new();
    for at in 0..LOST_ITEMS {
        let item = json!({ "name": "lost", "key": format!("lost-{at}"), "by_ballot": at % 4 == 3 });
        lost.push(made_and_remembered(&tally, "/v1/items", item).await);
    }
    let poll = json!({ "title": "lost", "key": "lost", "choices": ["a", "b"] });
    let poll = made_and_remembered(&tally, "/v1/polls", poll).await;
    let choice = number(&tally.pool, "select max(id) from item").await;
    let stream = tally
        .http
        .get(format!("{}/v1/items/key:lost-0/stream", tally.base));
    let stream = stream.send().await.expect("an answer");
    assert_eq!(stream.status(), StatusCode::OK);

    fail_over(&mut tally).await;
    // Another server makes others, before this one has reached the new primary.
    for (at, id) in lost.iter().enumerate() {
        let made: i64 = sqlx::query_scalar(
            "with made as (
                 insert into rule (by_ballot) select true where $2 returning id
             )
             insert into item (name, key, rule_id) values ('new', 'new-' || $1, (select id from made))
             returning id",
        )
        .bind(i64::try_from(at).expect("a few"))
        .bind(at % 4 == 3)
        .fetch_one(&tally.pool)
        .await
        .expect("it is made");
        assert_eq!(made, *id, "ids are given out again");
    }
    let made = number(
        &tally.pool,
        "with made as (insert into rule (title, key, max_choices) values ('new', 'new', 1) returning id)
         insert into item (name, rule_id)
         select name, id from made, unnest(array['a', 'b']) as one (name) returning rule_id",
    )
    .await;
    assert_eq!(
        (made, number(&tally.pool, "select max(id) from item").await),
        (poll, choice)
    );

    let tally_ = &tally;
    let votes = (0..LOST_ITEMS).map(async |at| {
        let path = format!("/v1/items/key:lost-{at}/votes");
        let body = json!({ "voter_id": format!("voter-{at}") });
        match at % 4 {
            0 => send(tally_, Method::POST, &path, body).await,
            1 => send(tally_, Method::PUT, &format!("{path}/ada"), json!({ "value": 1 })).await,
            2 => {
                let batch = json!({ "votes": [{ "item_id": format!("key:lost-{at}"), "voter_id": "bob" }] });
                let (status, answer) = send(tally_, Method::POST, "/v1/votes", batch).await;
                let result = &answer["results"][0];
                let of_vote = result["status"]
                    .as_u64()
                    .and_then(|status| u16::try_from(status).ok());
                let of_vote = of_vote.and_then(|status| StatusCode::from_u16(status).ok());
                (of_vote.unwrap_or(status), result.clone())
            }
            _ => {
                let path = format!("/v1/items/key:lost-{at}/ballots");
                send(tally_, Method::POST, &path, json!({ "count": 1 })).await
            }
        }
    });
    let edits = (0..4).map(async |at| {
        let path = format!("/v1/items/key:lost-{at}");
        let edited = send(tally_, Method::PATCH, &path, json!({ "name": "edited" })).await;
        assert!(!edited.0.is_success(), "{edited:?}");
        send(
            tally_,
            Method::PUT,
            &format!("{path}/access"),
            json!({ "open": ["voters"] }),
        )
        .await
    });
    let reads = (0..LOST_ITEMS).map(async |at| {
        send(
            tally_,
            Method::GET,
            &format!("/v1/items/key:lost-{at}"),
            Value::Null,
        )
        .await
    });
    let selection = async {
        let path = "/v1/polls/key:lost/votes/ada";
        send(tally_, Method::PUT, path, json!({ "items": [choice] })).await
    };
    let (votes, edits, reads, selection) =
        tokio::join!(join_all(votes), join_all(edits), join_all(reads), selection);
    for (status, answer) in votes.into_iter().chain(edits).chain(reads).chain([selection]) {
        // Whoever comes early is asked to come again; then there is no such key.
        assert!(
            [StatusCode::SERVICE_UNAVAILABLE, StatusCode::NOT_FOUND].contains(&status),
            "{status} {answer}"
        );
    }
    ends(stream).await;
    eventually("the server knows that the items are gone", async || {
        let path = "/v1/items/key:lost-0/votes";
        let (status, _) = send(&tally, Method::POST, path, json!({ "voter_id": "eve" })).await;
        (status == StatusCode::NOT_FOUND).then_some(())
    })
    .await;
    for (what, statement) in [
        ("votes", "select count(*) from vote"),
        (
            "edited items",
            "select count(*) from item where name = 'edited' or is_hidden",
        ),
        ("open items", "select count(*) from open_item"),
        ("ballots", "select count(*) from ballot"),
    ] {
        assert_eq!(number(&tally.pool, statement).await, 0, "{what}");
    }
    // What the standby had goes on.
    let vote = json!({ "voter_id": "ada" });
    let (status, answer) = eventually("votes are stored again", async || {
        let answer = send(&tally, Method::POST, "/v1/items/key:early/votes", vote.clone()).await;
        answer.0.is_success().then_some(answer)
    })
    .await;
    assert_eq!((status, &answer["item_id"]), (StatusCode::CREATED, &json!(early)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_key_that_the_new_primary_does_not_have_ends_with_the_failover() {
    let mut tally =
        Tally::start_with(|options| options.access.open = tally::web::access::Open::default()).await;
    lag_from_now_on(&mut tally).await;
    let (_, key) = api_key(&tally, &[Scope::Admin]).await;
    let make = async |tally: &Tally| {
        let url = format!("{}/v1/items", tally.base);
        let request = tally.http.post(url).bearer_auth(key.as_str());
        let answer = request.json(&json!({ "name": "x" })).send().await;
        answer.expect("an answer").status()
    };
    assert_eq!(make(&tally).await, StatusCode::CREATED);
    fail_over(&mut tally).await;
    // Its first statement over a new connection shows the server that this is another Postgres.
    tally.wait_until_ready("ready").await;
    let status = eventually("the server asks the new primary", async || {
        let status = make(&tally).await;
        (status != StatusCode::SERVICE_UNAVAILABLE).then_some(status)
    })
    .await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
}

/// Two primaries whose ids were given to different items, and a ledger that reaches one of them.
pub(super) struct TwoPrimaries {
    pub(super) old: Stores,
    pub(super) new: Stores,
    proxy: Proxy,
    pub(super) ledger: ServerLedger,
    /// The item that a key names in the old one, by an id that another item has in the new one.
    pub(super) found: Found<ItemId>,
}

impl TwoPrimaries {
    pub(super) async fn start() -> Self {
        let (old, new) = tokio::join!(Stores::start(), Stores::start());
        let port = old.postgres.port();
        let proxy = Proxy::start(port).await.expect("a proxy");
        let url = old
            .database_url
            .replace(&format!(":{port}"), &format!(":{}", proxy.port()));
        let ledger = server_ledger(&url);
        let item = |key: &str| NewItem {
            key: Some(ItemKey::parse(key.to_owned()).expect("a key")),
            ..ItemName::parse("x".to_owned()).expect("a name").into()
        };
        let of_new = server_ledger(&new.database_url).create_item(&item("other")).await;
        ledger.create_item(&item("wanted")).await.expect("an item");
        let wanted = ItemKey::parse("wanted".to_owned()).expect("a key");
        let found = ledger.item_with_key(&wanted).await.expect("Postgres answers");
        let found = found.expect("it was made");
        assert_eq!(found.id, of_new.expect("an item").id);
        Self {
            old,
            new,
            proxy,
            ledger,
            found,
        }
    }

    /// The address leads to the new primary from now on.
    pub(super) fn switch(&self) {
        self.proxy.point_to(self.new.postgres.port());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_writer_that_reaches_another_primary_takes_no_vote_whose_key_the_old_one_knew() {
    let two = TwoPrimaries::start().await;
    let live_counts = live_counts_of(&two.new.redis_login_url(Role::Server), Seeding::All);
    let queue = VoteQueue::start(&two.ledger, &live_counts, &SeedBackoff::default(), 1, None);
    let Found { id, run } = two.found;
    let of_run = queue.only_in(run);
    of_run
        .cast(vote(id, Some("ada")), VoteSource::default())
        .await
        .expect("the old primary takes it");
    two.switch();
    let once = || VoteRequest::CastOnce {
        vote: vote(id, Some("bob")),
        ballot: None,
        key: Some(IdempotencyKey {
            key: Digest::of(&[b"key"]),
            body: Digest::of(&[b"body"]),
        }),
    };
    let set = || VoteRequest::Set {
        item_id: id,
        voter_id: vote(id, Some("bob")).voter_id.expect("a voter"),
        value: Some(domain::Value::UP),
    };
    let select = || VoteRequest::Select {
        poll_id: PollId::new(1).expect("positive"),
        voter_id: vote(id, Some("bob")).voter_id.expect("a voter"),
        items: vec![id],
    };
    // The first try may find its connection cut.
    let refused = eventually("a connection to the new primary", async || {
        let answer = of_run.cast(vote(id, Some("bob")), VoteSource::default()).await;
        (answer != Err(CastError::Unconfirmed)).then_some(answer)
    })
    .await;
    assert_eq!(refused, Err(CastError::OtherRun));
    for request in [once(), set(), select()] {
        let refused = eventually("a connection to the new primary", async || {
            let answer = of_run.decide(request.clone(), VoteSource::default()).await;
            (answer != Err(CastError::Unconfirmed)).then_some(answer)
        })
        .await;
        assert_eq!(refused, Err(CastError::OtherRun), "{request:?}");
    }
    let pool = two.new.pool();
    assert_eq!(number(&pool, "select count(*) from vote").await, 0);
    // A vote of a client that names the id is between votes that name a key.
    let votes = [run, None, run].map(|run| queue.only_in(run));
    let votes = votes
        .iter()
        .map(|queue| queue.cast(vote(id, None), VoteSource::default()));
    let answers = join_all(votes).await;
    assert_eq!(
        answers.iter().map(Result::is_ok).collect::<Vec<_>>(),
        [false, true, false]
    );
    assert_eq!(number(&pool, "select count(*) from vote").await, 1);
    assert_eq!(number(&two.old.pool(), "select count(*) from vote").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_with_an_id_from_another_primary_does_nothing() {
    let two = TwoPrimaries::start().await;
    let Found { id, run } = two.found;
    let ledger = two.ledger.only_in(run);
    let item = VotedOn::Item(id);
    let edit = Edit {
        is_hidden: Some(true),
        ..Edit::default()
    };
    let to = OpenTo {
        anonymous: true,
        voters: true,
    };
    let anyone = Actor {
        who: Who::Anyone,
        address: None,
    };
    let calls = async || {
        [
            ledger.edit(anyone, item, &edit).await.map(drop),
            ledger.set_open(anyone, item, to).await.map(drop),
            ledger.add_ballots(anyone, item, &[], None).await.map(drop),
        ]
    };
    assert!(calls().await.iter().all(Result::is_ok), "in the old primary");
    two.switch();
    for call in calls().await {
        let error = call.expect_err("another primary");
        assert!(matches!(error, LedgerError::Postgres(_)), "{error}");
    }
    eventually("the new primary answers", async || two.ledger.owner().await.ok()).await;
    for call in calls().await {
        let error = call.expect_err("another primary").to_string();
        assert!(error.contains("looked up before Postgres failed over"), "{error}");
    }
    let pool = two.new.pool();
    assert_eq!(
        number(&pool, "select count(*) from item where is_hidden").await,
        0
    );
    assert_eq!(number(&pool, "select count(*) from open_item").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_began_in_the_old_primary_and_ended_in_the_new_one_fails() {
    let two = TwoPrimaries::start().await;
    let key = ItemKey::parse("wanted".to_owned()).expect("a key");
    let read = async |is_switched: bool| {
        let read = async {
            let found = two.ledger.item_with_key(&key).await?;
            if is_switched {
                two.switch();
                eventually("the new primary answers", async || two.ledger.owner().await.ok()).await;
            }
            Ok::<_, LedgerError>(found)
        };
        two.ledger.in_one_run(true, read).await
    };
    assert_eq!(read(false).await.expect("one primary"), Some(two.found));
    let error = read(true).await.expect_err("two primaries");
    assert!(matches!(error, LedgerError::OtherRun(_)), "{error}");
    assert_eq!(read(false).await.expect("one primary"), None);
}
