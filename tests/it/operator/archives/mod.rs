//! `tally archive`: votes of what has closed in files.

mod faults;
mod imported;
mod kills;
mod races;

use std::path::Path;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::PgPool;
use tally::domain::ItemId;
use tally::ledger::Role;

use crate::helpers::eventually;
use crate::helpers::programs::{Program, TALLY, command, operator, run, start_worker, text};
use crate::helpers::stores::Stores;
use crate::helpers::tally::Tally;
use crate::operator::exports::export;
use crate::reports::random_ledger;

/// Runs `tally archive`, which must succeed with one result.
async fn archive(stores: &Stores, arguments: &[&str]) -> Value {
    let (done, mut results, said) = operator(stores, &[&["archive"], arguments].concat()).await;
    assert!(done && results.len() == 1, "{arguments:?}: {results:?} {said}");
    results.remove(0)
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

async fn number(pool: &PgPool, query: &str) -> i64 {
    sqlx::query_scalar(query)
        .fetch_one(pool)
        .await
        .unwrap_or_else(|error| panic!("{error}: {query}"))
}

async fn lines(pool: &PgPool, query: &str) -> Vec<String> {
    sqlx::query_scalar(query)
        .fetch_all(pool)
        .await
        .unwrap_or_else(|error| panic!("{error}: {query}"))
}

async fn execute(pool: &PgPool, statements: &str) {
    sqlx::raw_sql(statements)
        .execute(pool)
        .await
        .unwrap_or_else(|error| panic!("{error}: {statements}"));
}

/// Waits until every vote is rolled up and in its item's saved or live count.
async fn until_rolled_up(tally: &Tally) {
    eventually("all votes are rolled up", async || {
        let query = "select last_value - saved_vote_id from vote_id_seq, watermark";
        (number(&tally.pool, query).await == 0).then_some(())
    })
    .await;
}

/// Lets these rules close two days ago.
async fn close(pool: &PgPool, condition: &str) {
    let statement =
        format!("update rule set opens_at = null, closes_at = now() - interval '2 days' where {condition}");
    execute(pool, &statement).await;
}

/// What an audit says of rules and changes, in words.
async fn faults(pool: &PgPool) -> Vec<String> {
    lines(
        pool,
        "select unnest(faults) from broken_rules(0, 1000000)
         union all select unnest(faults) from broken_changes(0, 1000000) order by 1",
    )
    .await
}

/// What analysts see, without the ledger's rows and what depends on when one looks.
async fn reports(pool: &PgPool) -> Vec<String> {
    let views = [
        "items",
        "polls",
        "poll_results",
        "votes_by_day",
        "votes_by_hour",
        "votes_by_quarter_hour",
        "item_votes_by_day",
        "poll_votes_by_day",
        "voidings",
    ];
    let views = views.map(|view| format!("select '{view} ' || one::text as line from report.{view} as one"));
    lines(pool, &format!("{} order by 1", views.join(" union all "))).await
}

/// Places, turnouts, and sums by items, as Tally keeps them.
async fn kept(pool: &PgPool) -> Vec<String> {
    lines(
        pool,
        "select 'place ' || place::text as line from place
         union all select format('poll %s: %s voters, %s ballots', id, voter_count, ballot_count) from rule
         union all select 'count ' || audited_count::text from audited_count
         union all select 'total ' || vote_total from watermark
         order by 1",
    )
    .await
}

/// What the API says of some items and polls.
async fn answers(tally: &Tally, items: &[i64], polls: &[i64]) -> Vec<Value> {
    let items = items.iter().map(|id| format!("/v1/items/{id}"));
    let polls = polls.iter().map(|id| format!("/v1/polls/{id}"));
    let mut all = Vec::new();
    for path in items.chain(polls) {
        let (status, mut answer) = tally.get(&path).await;
        assert_eq!(status, StatusCode::OK, "{path}: {answer}");
        // Whether a live count answers, or which one.
        for field in ["current", "counted_at", "revision"] {
            answer.as_object_mut().expect("an object").remove(field);
        }
        all.push(answer);
    }
    all
}

/// Runs `tally audit`, which must find every count right and no vote in flight. Returns what it says.
async fn audit(tally: &Tally) -> String {
    eventually("all counts are exact", async || {
        let mut audit = command(TALLY, Some(&tally.stores));
        audit.arg("audit");
        let said = text(&run(audit).await.stdout);
        assert!(said.contains("wrong              0 items"), "{said}");
        (said.contains("in flight          0 items") && said.contains("rebuilding         0 items"))
            .then_some(said)
    })
    .await
}

/// A Tally with a random ledger, in which most polls and limited items have closed, and a worker.
async fn start() -> (Tally, Program) {
    let tally = Tally::start().await;
    let seed: f64 = rand::random_range(-1.0..1.0);
    println!("seed {seed}");
    random_ledger(&tally.stores, 6000, seed).await;
    execute(&tally.pool, "update place set max_votes = max_votes + 1000").await;
    let worker = start_worker(&tally.stores, "worker", &[]);
    (tally, worker)
}

/// Numbered votes, changes and a selection, on an item and a poll of their own, which then close.
async fn numbered(tally: &Tally) -> (ItemId, i64) {
    let item = tally
        .item_with(json!({ "key": "n", "numbered": true, "max_votes": 9 }))
        .await;
    for voter in ["ada", "bob", "cyd"] {
        assert_eq!(tally.vote(item, voter).await.0, StatusCode::CREATED);
    }
    let path = format!("/v1/items/{item}/votes/bob");
    let (status, said) = tally.send(Method::DELETE, &path, None).await;
    assert_eq!(status, StatusCode::OK, "{said}");
    let poll = json!({ "title": "of two", "choices": ["a", "b", "c"], "max_choices": 2 });
    let (_, poll) = tally.post("/v1/polls", &poll).await;
    let choice = |at: usize| poll["choices"][at]["item_id"].clone();
    let path = format!("/v1/polls/{}/votes/ada", poll["id"]);
    for held in [[choice(0), choice(1)], [choice(1), choice(2)]] {
        let (status, said) = tally
            .send(Method::PUT, &path, Some(&json!({ "items": held })))
            .await;
        assert_eq!(status, StatusCode::OK, "{said}");
    }
    (item, poll["id"].as_i64().expect("an id"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_archived_counts_and_reads_as_before_and_the_audit_says_what_it_cannot_prove() {
    let (tally, _worker) = start().await;
    let stores = &tally.stores;
    let (item, poll) = numbered(&tally).await;
    close(&tally.pool, "id % 3 <> 0").await;
    until_rolled_up(&tally).await;
    let items = [1, 200, item.get()];
    let polls = [1, 2, 10, poll];
    audit(&tally).await;
    let before = (
        reports(&tally.pool).await,
        kept(&tally.pool).await,
        faults(&tally.pool).await,
        answers(&tally, &items, &polls).await,
    );
    let all = number(&tally.pool, "select count(*) from vote").await;
    let of_closed = "from vote join item on item.id = vote.item_id join rule on rule.id = item.rule_id
                     where rule.closes_at < now() - interval '1 hour'";
    let closed = number(&tally.pool, &format!("select count(*) {of_closed}")).await;
    assert!(closed > 300 && closed < all, "{closed} of {all}");
    let ids = lines(
        &tally.pool,
        &format!("select vote.id::text {of_closed} order by vote.id"),
    )
    .await;
    let folder = stores.folder().join("archives");
    std::fs::create_dir(&folder).expect("a folder");

    // A dry run changes nothing.
    let wanted = ["run", "--closed-before", "2999-01-01T00:00:00Z"];
    let dry = archive(stores, &[&wanted[..], &["--dry-run"]].concat()).await;
    assert_eq!((&dry["dry_run"], &dry["votes"]), (&json!(true), &json!(closed)));
    assert_eq!(number(&tally.pool, "select count(*) from archive").await, 0);

    let whole = [&wanted[..], &["--out", shown(&folder), "--apply"]].concat();
    let done = archive(stores, &whole).await;
    assert_eq!(
        (&done["state"], &done["votes"], &done["dropped_votes"]),
        (&json!("dropped"), &json!(closed), &json!(closed))
    );
    assert_eq!(
        number(&tally.pool, &format!("select count(*) {of_closed}")).await,
        0
    );
    assert_eq!(
        number(&tally.pool, "select count(*) from vote").await,
        all - closed
    );
    let after = (
        reports(&tally.pool).await,
        kept(&tally.pool).await,
        faults(&tally.pool).await,
        answers(&tally, &items, &polls).await,
    );
    assert_eq!(after, before);
    let said = audit(&tally).await;
    assert!(
        said.contains(&format!("{closed} votes are in files alone")),
        "{said}"
    );

    // The file has these votes, and its checksum is beside it.
    let file = folder.join("archive-1.csv");
    let content = std::fs::read_to_string(&file).expect("a file");
    let found = content
        .lines()
        .skip(2)
        .map(|line| line.split(',').next().expect("an id").to_owned());
    assert_eq!(found.collect::<Vec<_>>(), ids);
    let mut sums = tokio::process::Command::new("sha256sum");
    sums.args(["-c", "archive-1.csv.sha256"]).current_dir(&folder);
    assert!(run(sums).await.status.success());
    let verified = archive(stores, &["verify", shown(&file)]).await;
    assert_eq!(
        (&verified["ok"], &verified["votes"]),
        (&json!(true), &json!(closed))
    );
    let (_, head, _) = export(stores, Role::Report, &["votes"]).await;
    assert!(
        head.contains(&format!("\"archived_votes\":{closed}")),
        "{}",
        &head[..300]
    );

    // Redis comes back empty.
    let mut redis = stores.redis_connection().await;
    let () = redis::cmd("FLUSHALL")
        .query_async(&mut redis)
        .await
        .expect("Redis answers");
    audit(&tally).await;
    assert_eq!(answers(&tally, &items, &polls).await, before.3);
    // A sum that is changed is found.
    execute(
        &tally.pool,
        &format!("update place set taken = taken + 1 where item_id = {item}"),
    )
    .await;
    let now = faults(&tally.pool).await;
    assert_eq!(now.len(), before.2.len() + 1, "{now:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_archived_takes_no_vote_again_and_no_one_voids_it() {
    let (tally, _worker) = start().await;
    let stores = &tally.stores;
    let (item, poll) = numbered(&tally).await;
    let (_, first) = tally.vote(item, "ada").await;
    let vote = first["vote_id"].clone();
    let open = tally.item_with(json!({ "max_votes": 9 })).await;
    tally.vote(open, "ada").await;
    let void = ["void", "--voter", "cyd", "--reason", "x", "--apply"];
    let (done, voiding, said) = operator(stores, &void).await;
    assert!(done, "{said}");
    until_rolled_up(&tally).await;
    close(
        &tally.pool,
        &format!("id = {poll} or id = (select rule_id from item where id = {item})"),
    )
    .await;
    let folder = stores.folder();
    let poll = poll.to_string();
    let done = archive(
        stores,
        &[
            "run",
            "--item",
            "key:n",
            "--poll",
            &poll,
            "--out",
            shown(folder),
            "--apply",
        ],
    )
    .await;
    assert_eq!(
        (&done["state"], &done["items"], &done["polls"]),
        (&json!("dropped"), &json!(4), &json!(1))
    );
    // Also if someone sets the clock back.
    execute(
        &tally.pool,
        "update rule set closes_at = now() + interval '1 day' where archive_id is not null",
    )
    .await;
    let path = format!("/v1/items/{item}");
    for voter in ["ada", "new"] {
        let (status, said) = tally.vote(item, voter).await;
        assert_eq!(
            (status, &said["type"]),
            (StatusCode::CONFLICT, &json!("/problems/closed")),
            "{said}"
        );
    }
    let selection = json!({ "items": [] });
    let (status, said) = tally
        .send(
            Method::PUT,
            &format!("/v1/polls/{poll}/votes/ada"),
            Some(&selection),
        )
        .await;
    assert_eq!(
        (status, &said["type"]),
        (StatusCode::CONFLICT, &json!("/problems/closed")),
        "{said}"
    );
    for path in [&path, &format!("/v1/polls/{poll}")] {
        let edit = json!({ "closes_at": "2999-01-01T00:00:00Z" });
        let (status, said) = tally.send(Method::PATCH, path, Some(&edit)).await;
        assert_eq!(
            (status, &said["type"]),
            (StatusCode::CONFLICT, &json!("/problems/closed")),
            "{said}"
        );
    }
    let (status, said) = tally.get(&format!("/v1/votes/{vote}")).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{said}");
    assert!(
        said["detail"].as_str().expect("a text").contains("archive 1"),
        "{said}"
    );
    let (status, said) = tally.get(&format!("{path}/votes/ada")).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{said}");
    assert!(
        said["detail"]
            .as_str()
            .expect("a text")
            .contains("archived (archive 1)"),
        "{said}"
    );
    // Nobody votes by a file, either.
    let votes = folder.join("votes.csv");
    std::fs::write(&votes, format!("item_id,voter_id\n{item},eve\n")).expect("written");
    let (done, result, said) = operator(stores, &["import", "votes", shown(&votes)]).await;
    assert!(
        !done && said.contains("its votes are archived"),
        "{result:?} {said}"
    );
    // Voidings: of the item, of a voter who has other votes, and the undo of one that took a vote back.
    let (done, _, said) = operator(stores, &["void", "--item", "key:n", "--reason", "x"]).await;
    assert!(!done && said.contains("are in archive 1"), "{said}");
    let (status, said) = tally
        .post(
            "/v1/voidings",
            &json!({ "item": item, "reason": "x", "dry_run": false }),
        )
        .await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{said}");
    let (done, result, said) =
        operator(stores, &["void", "--voter", "ada", "--reason", "x", "--apply"]).await;
    assert!(done && said.contains("votes are archived"), "{said}");
    assert_eq!(result[0]["voided_votes"], 1, "{result:?}");
    let id = voiding[0]["voiding"].to_string();
    let (done, result, said) = operator(stores, &["void", "--undo", &id]).await;
    assert!(done, "{said}");
    assert_eq!(
        (&result[0]["restored_votes"], &result[0]["left_void"]),
        (&json!(0), &json!(1)),
        "{result:?}"
    );
    let why = lines(
        &tally.pool,
        &format!("select left_void from voided where voiding_id = {id}"),
    )
    .await;
    assert_eq!(why, ["archived"]);
    // What is archived is not archived again.
    let again = ["archive", "run", "--item", "key:n", "--dry-run"];
    let (done, _, said) = operator(stores, &again).await;
    assert!(!done && said.contains("is in archive 1 already"), "{said}");
    until_rolled_up(&tally).await;
    let (_, shown) = tally.get(&path).await;
    assert_eq!(shown["vote_count"], 1, "{shown}");
    audit(&tally).await;
}
