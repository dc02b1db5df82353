//! A ledger that is split into ranges of ids.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use reqwest::{Method, StatusCode};
use serde_json::json;
use sqlx::PgPool;
use tally::domain::ItemId;
use tally::ledger::{OwnerLedger, Partitioned, RANGE_LEAST_IDS};

use crate::helpers::programs::{TALLY, command, operator, run, start_worker, text};
use crate::helpers::stores::blocker;
use crate::helpers::tally::Tally;
use crate::rules::assert_rules_hold;
use crate::rules::voiding::void;

/// Splits the ledger, unless all tests have one in ranges.
async fn split(tally: &Tally) {
    let owner = OwnerLedger::new(&tally.stores.database_url, "test").expect("a URL");
    let done = owner
        .partition(RANGE_LEAST_IDS, |_, _| {})
        .await
        .expect("a split");
    assert!(matches!(done, Partitioned::Done { .. }), "{done:?}");
    assert_eq!(
        owner
            .partition(RANGE_LEAST_IDS, |_, _| {})
            .await
            .expect("an answer"),
        Partitioned::Already
    );
}

/// The first id behind this range.
async fn end_of(pool: &PgPool, range: i32) -> i64 {
    sqlx::query_scalar("select end_vote_id from vote_range where number = $1")
        .bind(range)
        .fetch_one(pool)
        .await
        .expect("ranges")
}

/// The next vote gets the id behind this one.
async fn draw(pool: &PgPool, id: i64) {
    sqlx::query("select setval('vote_id_seq', $1)")
        .bind(id)
        .execute(pool)
        .await
        .expect("the owner may");
}

/// The tables that have rows of votes, each once.
async fn tables(pool: &PgPool) -> Vec<String> {
    sqlx::query_scalar("select distinct tableoid::regclass::text from vote order by 1")
        .fetch_all(pool)
        .await
        .expect("Postgres answers")
}

/// Rows of voters that are in one of the two tables alone, or differ.
async fn differences(pool: &PgPool) -> i64 {
    sqlx::query_scalar(
        "select count(*)
         from (select * from vote where voter_id is not null) as one full join vote_of_voter as other on other.id = one.id
         where (one.item_id, one.created_at, one.value, one.change_number, one.voter_id, one.poll_id, one.number)
             is distinct from (other.item_id, other.created_at, other.value, other.change_number, other.voter_id,
                               other.poll_id, other.number)",
    )
    .fetch_one(pool)
    .await
    .expect("Postgres answers")
}

async fn number(pool: &PgPool, query: &str) -> i64 {
    sqlx::query_scalar(query)
        .fetch_one(pool)
        .await
        .expect("Postgres answers")
}

/// Votes, changes and retractions of a few voters and of nobody, until it is to end.
/// Returns how many rows were acknowledged as new.
async fn vote_at_random(tally: Arc<Tally>, items: Vec<ItemId>, seed: u64, ends: Arc<AtomicBool>) -> usize {
    let mut random = StdRng::seed_from_u64(seed);
    let mut created = 0;
    while !ends.load(Ordering::Relaxed) {
        let item = items[random.random_range(0..items.len())];
        let voter = format!("voter{}", random.random_range(0..40));
        let of_voter = format!("/v1/items/{item}/votes/{voter}");
        let value = if random.random_bool(0.5) { 1 } else { -1 };
        let (method, path, body) = match random.random_range(0..6) {
            0 | 1 => (Method::POST, format!("/v1/items/{item}/votes"), Some(json!({}))),
            2 | 3 => (
                Method::POST,
                format!("/v1/items/{item}/votes"),
                Some(json!({ "voter_id": voter })),
            ),
            4 => (Method::PUT, of_voter, Some(json!({ "value": value }))),
            _ => (Method::DELETE, of_voter, None),
        };
        let (status, said) = tally.send(method, &path, body.as_ref()).await;
        assert!(status.is_success(), "{path}: {status} {said}");
        created += usize::from(status == StatusCode::CREATED);
    }
    created
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_is_split_under_votes_and_none_is_refused_lost_or_counted_twice() {
    let tally = Arc::new(Tally::start().await);
    let mut items = Vec::new();
    for _ in 0..3 {
        items.push(tally.item("x").await);
    }
    items.push(tally.item_with(json!({ "numbered": true })).await);
    let ends = Arc::new(AtomicBool::new(false));
    let voting: Vec<_> = (0..4)
        .map(|seed| tokio::spawn(vote_at_random(tally.clone(), items.clone(), seed, ends.clone())))
        .collect();
    let rows = "select count(*) from vote";
    crate::helpers::eventually("there are votes", async || {
        (number(&tally.pool, rows).await > 200).then_some(())
    })
    .await;

    let mut migrating = command(TALLY, None);
    migrating
        .env("DATABASE_URL", &tally.stores.database_url)
        .args(["migrate", "--partition", "1000000"]);
    let done = run(migrating).await;
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(
        text(&done.stdout).contains("in ranges of 1000000 ids"),
        "{}",
        text(&done.stdout)
    );
    let split_at = number(&tally.pool, rows).await;
    crate::helpers::eventually("votes go on", async || {
        (number(&tally.pool, rows).await > split_at + 200).then_some(())
    })
    .await;
    ends.store(true, Ordering::Relaxed);
    let mut created = 0;
    for task in voting {
        created += task.await.expect("no vote is refused");
    }
    assert!(created > 0);
    for item in items {
        tally.assert_exact_when_quiescent(item).await;
    }
    assert_eq!(differences(&tally.pool).await, 0);
    assert_rules_hold(&tally.pool).await;
    let audit = tally
        .worker()
        .audit(tally::sync::Repair::No)
        .await
        .expect("an audit");
    assert_eq!(audit.wrong_items, 0);
    // Reports of before read all ranges.
    assert_eq!(
        number(&tally.pool, "select count(*) from report.votes").await,
        number(&tally.pool, rows).await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voters_vote_is_one_over_all_ranges_and_changes_of_it_may_lie_in_others() {
    let tally = Tally::start().await;
    let plain = tally.item("x").await;
    let limited = tally.item_with(json!({ "max_votes": 3, "numbered": true })).await;
    let (_, poll) = tally
        .post("/v1/polls", &json!({ "title": "x", "choices": ["a", "b"] }))
        .await;
    let choices: Vec<ItemId> = (0..2)
        .filter_map(|at| poll["choices"][at]["item_id"].as_i64().and_then(ItemId::new))
        .collect();
    let all = [plain, limited, choices[0]];
    for item in all {
        for voter in ["ada", "bob"] {
            assert_eq!(tally.vote(item, voter).await.0, StatusCode::CREATED);
        }
    }
    split(&tally).await;
    draw(&tally.pool, end_of(&tally.pool, 1).await - 1).await;
    assert_eq!(tally.ledger.add_ranges().await.expect("ranges"), 2);

    // In the second range.
    for item in all {
        let (status, said) = tally.vote(item, "ada").await;
        assert_eq!(status, StatusCode::OK, "ada has voted: {said}");
        assert_eq!(tally.vote(item, "cleo").await.0, StatusCode::CREATED);
    }
    let path = |item: ItemId, voter: &str| format!("/v1/items/{item}/votes/{voter}");
    let (status, _) = tally.send(Method::DELETE, &path(plain, "bob"), None).await;
    assert_eq!(status, StatusCode::OK);
    let change = json!({ "value": -1 });
    let (status, _) = tally.send(Method::PUT, &path(plain, "cleo"), Some(&change)).await;
    assert!(status.is_success());
    // A move takes back a choice of the first range.
    let selection = format!("/v1/polls/{}/votes/bob", poll["id"]);
    let (status, _) = tally
        .send(Method::PUT, &selection, Some(&json!({ "items": [choices[1]] })))
        .await;
    assert_eq!(status, StatusCode::OK);

    // In the third.
    draw(&tally.pool, end_of(&tally.pool, 2).await - 1).await;
    assert_eq!(tally.ledger.add_ranges().await.expect("a range"), 1);
    let (done, said) = void(&tally, &["--voter", "ada", "--reason", "a bot", "--apply"]).await;
    assert!(done && said["voided_votes"] == 3, "{said}");
    let voiding = said["voiding"].to_string();
    let (done, said) = void(&tally, &["--undo", &voiding]).await;
    assert!(done, "{said}");
    let (done, said, errors) = operator(&tally.stores, &["voter", "merge", "ada", "cleo", "--apply"]).await;
    assert!(done, "{said:?} {errors}");
    let (done, said, errors) = operator(&tally.stores, &["voter", "erase", "bob", "--apply"]).await;
    assert!(done, "{said:?} {errors}");
    for table in ["vote", "vote_of_voter"] {
        let left = format!("select count(*) from {table} where voter_id in ('ada', 'bob')");
        assert_eq!(number(&tally.pool, &left).await, 0, "{table}");
    }
    assert_eq!(
        tables(&tally.pool).await,
        ["vote_range_1", "vote_range_2", "vote_range_3"]
    );
    assert_eq!(differences(&tally.pool).await, 0);
    assert_rules_hold(&tally.pool).await;
    for item in all.into_iter().chain([choices[1]]) {
        tally.assert_exact_when_quiescent(item).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_range_is_made_in_time_and_without_it_votes_are_refused_and_not_lost() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    split(&tally).await;
    let last = end_of(&tally.pool, 1).await;
    draw(&tally.pool, last - 2 * RANGE_LEAST_IDS - 10).await;
    assert_eq!(
        tally.ledger.add_ranges().await.expect("an answer"),
        0,
        "it is not time"
    );
    draw(&tally.pool, last - 2).await;
    assert_eq!(tally.vote(item, "ada").await.0, StatusCode::CREATED);
    let (status, said) = tally.vote(item, "bob").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{said}");
    assert!(tally.ledger.add_ranges().await.expect("ranges") >= 2);
    assert_eq!(tally.ledger.add_ranges().await.expect("an answer"), 0);
    assert_eq!(end_of(&tally.pool, 2).await, last + RANGE_LEAST_IDS);
    crate::helpers::eventually("votes are stored again", async || {
        (tally.vote(item, "bob").await.0 == StatusCode::CREATED).then_some(())
    })
    .await;
    tally.assert_exact_when_quiescent(item).await;
    assert_eq!(tally.ledger_sum(item).await, 2);
    assert_eq!(tables(&tally.pool).await, ["vote_range_1", "vote_range_2"]);
    // Ids that nobody drew take no tables.
    draw(&tally.pool, 1_000_000_000).await;
    let made = tally.ledger.add_ranges().await.expect("ranges");
    assert!((1..=3).contains(&made), "{made} ranges");
    crate::helpers::eventually("votes are stored again", async || {
        (tally.vote(item, "cleo").await.0 == StatusCode::CREATED).then_some(())
    })
    .await;
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_follow_the_ledger_is_named_and_what_can_does() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.vote(item, "ada").await;
    sqlx::raw_sql(
        "create view of_an_analyst with (security_barrier) as select voter_id from vote;
         create role an_analyst;
         grant select on of_an_analyst to an_analyst;
         grant select (id, value) on vote to an_analyst;
         create role a_reader;
         alter default privileges grant all on tables to a_reader;
         alter default privileges grant all on sequences to a_reader",
    )
    .execute(&tally.pool)
    .await
    .expect("the owner may");
    let owner = OwnerLedger::new(&tally.stores.database_url, "test").expect("a URL");
    for (make, remove, words) in [
        (
            "create materialized view own as select count(*) from vote",
            "drop materialized view own",
            "the materialized view own reads vote",
        ),
        (
            "create function nothing() returns trigger language plpgsql as 'begin return null; end';
             create trigger own after insert on vote for each statement execute function nothing()",
            "drop function nothing cascade",
            "the trigger own is not Tally's",
        ),
        (
            "create rule own as on delete to vote do also notify own",
            "drop rule own on vote",
            "the rule own is not Tally's",
        ),
        (
            "create table own (id int); create rule own as on insert to own do also select 1 from vote",
            "drop table own",
            "the rule own of own names vote",
        ),
        (
            "create policy own on vote using (true)",
            "drop policy own on vote",
            "policy own on table vote is bound to the table vote",
        ),
        (
            "create table own (id bigint references vote)",
            "drop table own",
            "the foreign key own_id_fkey of own refers to vote",
        ),
        (
            "create publication own for table vote",
            "drop publication own",
            "the publication own has vote",
        ),
        (
            "create publication own for all tables",
            "drop publication own",
            "the publication own has vote",
        ),
        (
            "alter table vote enable row level security",
            "alter table vote disable row level security",
            "row level security of vote is on",
        ),
        (
            "create table own (id int); create policy own on own using (exists (select from vote))",
            "drop table own",
            "policy own on table own is bound to the table vote",
        ),
        (
            "alter table vote replica identity full",
            "alter table vote replica identity default",
            "vote has a replica identity",
        ),
        (
            "create view own as select vote from vote",
            "drop view own",
            "a view cannot follow vote",
        ),
        (
            "create view own as select id from item; create rule own as on delete to own do instead delete from vote",
            "drop view own",
            "the rule own of own names vote",
        ),
        (
            "create table own () inherits (vote)",
            "drop table own",
            "the table own inherits from vote",
        ),
        (
            "create function own() returns bigint language sql begin atomic select count(*) from vote; end",
            "drop function own",
            "function own() is bound to the table vote",
        ),
    ] {
        sqlx::raw_sql(make).execute(&tally.pool).await.expect(make);
        let refused = owner.partition(RANGE_LEAST_IDS, |_, _| {}).await;
        let why = refused.expect_err(make).to_string();
        assert!(why.contains(words), "{make}: {why}");
        sqlx::raw_sql(remove).execute(&tally.pool).await.expect(remove);
    }
    sqlx::raw_sql("create table vote_in_ranges (of_somebody_else int)")
        .execute(&tally.pool)
        .await
        .expect("the owner may");
    let refused = owner.partition(RANGE_LEAST_IDS, |_, _| {}).await;
    let why = refused.expect_err("a table has the name").to_string();
    assert!(why.contains("\"vote_in_ranges\" already exists"), "{why}");
    sqlx::raw_sql("drop table vote_in_ranges")
        .execute(&tally.pool)
        .await
        .expect("it is still there");
    let left: Vec<String> = sqlx::query_scalar(
        "select relname::text from pg_class where relname ~ '^vote_.*(range|filled)' and relkind in ('r', 'p')",
    )
    .fetch_all(&tally.pool)
    .await
    .expect("Postgres answers");
    assert_eq!(left, ["vote_range"]);

    split(&tally).await;
    tally.vote(item, "bob").await;
    assert_eq!(number(&tally.pool, "select count(*) from of_an_analyst").await, 2);
    let of_first: i64 = number(
        &tally.pool,
        "select count(*) from pg_class left join pg_attribute on attrelid = pg_class.oid and attacl is not null
         cross join aclexplode(coalesce(attacl, relacl)) as acl
         where relname ~ '^vote_range_[0-9]+$' and acl.grantee <> relowner
             or relname in ('vote', 'vote_of_voter', 'vote_id_seq') and acl.grantee = 'a_reader'::regrole",
    )
    .await;
    assert_eq!(
        of_first, 0,
        "nobody has rights on a range, and nobody new on the others"
    );
    let rights: (bool, bool, bool, Option<Vec<String>>) = sqlx::query_as(
        "select has_table_privilege('an_analyst', 'of_an_analyst', 'select'),
                has_column_privilege('an_analyst', 'vote', 'value', 'select'),
                has_column_privilege('an_analyst', 'vote', 'voter_id', 'select'),
                (select reloptions from pg_class where relname = 'of_an_analyst')",
    )
    .fetch_one(&tally.pool)
    .await
    .expect("Postgres answers");
    assert_eq!(
        rights,
        (true, true, false, Some(vec!["security_barrier=true".to_owned()]))
    );
    sqlx::raw_sql("drop owned by an_analyst, a_reader; drop role an_analyst, a_reader")
        .execute(&tally.pool)
        .await
        .expect("the owner may");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_split_that_is_broken_off_stops_no_vote_and_can_be_begun_again() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.vote(item, "ada").await;
    let limit: i64 = sqlx::query_scalar("select begin_ranges($1)")
        .bind(RANGE_LEAST_IDS)
        .fetch_one(&tally.pool)
        .await
        .expect("it begins");
    draw(&tally.pool, limit - 2).await;
    assert_eq!(tally.vote(item, "bob").await.0, StatusCode::CREATED);
    let prepared =
        "select count(*) from pg_class where relname in ('vote_in_ranges', 'vote_of_voter_filled')";
    assert_eq!(number(&tally.pool, prepared).await, 2);
    // Somebody is at it, and changes no voter meanwhile.
    let splitting = blocker(&tally.pool, "select pg_advisory_xact_lock(7416153285)").await;
    assert_eq!(tally.ledger.add_ranges().await.expect("an answer"), 0);
    assert_eq!(number(&tally.pool, prepared).await, 2);
    let merge = ["voter", "merge", "bob", "ada", "--apply"];
    let (done, said, errors) = operator(&tally.stores, &merge).await;
    assert!(!done, "{said:?}");
    assert!(errors.contains("being split"), "{errors}");
    let dropped = sqlx::raw_sql("select drop_archived(1, '', 1)")
        .execute(&tally.pool)
        .await;
    let why = dropped.expect_err("rows are copied").to_string();
    assert!(why.contains("being split"), "{why}");
    splitting.rollback().await.expect("an end");

    assert_eq!(tally.ledger.add_ranges().await.expect("an answer"), 0);
    assert_eq!(number(&tally.pool, prepared).await, 0, "a worker removes it");
    assert_eq!(tally.vote(item, "cleo").await.0, StatusCode::CREATED);
    split(&tally).await;
    let voters: Vec<String> = sqlx::query_scalar("select voter_id from vote_of_voter order by id")
        .fetch_all(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(voters, ["ada", "bob", "cleo"]);
    assert_eq!(voters.iter().collect::<HashSet<_>>().len(), 3);
    let (done, said, errors) = operator(&tally.stores, &merge).await;
    assert!(done, "{said:?} {errors}");
    assert_eq!(differences(&tally.pool).await, 0);
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_a_voter_gets_into_a_ledger_in_ranges_in_one_way_alone() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    split(&tally).await;
    tally.vote(item, "ada").await;
    for (statement, words) in [
        (
            "insert into vote (item_id, voter_id) values (1, 'bob')",
            "inserted into vote_of_voter",
        ),
        (
            "insert into vote_range_1 (item_id, voter_id) values (1, 'bob')",
            "inserted into vote_of_voter",
        ),
        ("delete from vote_of_voter", "append-only"),
        ("truncate vote_of_voter", "append-only"),
        ("update vote_of_voter set voter_id = 'bob'", "append-only"),
        ("update vote set voter_id = 'bob'", "append-only"),
        ("delete from vote", "append-only"),
        ("truncate vote", "append-only"),
        ("truncate vote_range_1", "append-only"),
        ("delete from vote_range_1", "append-only"),
    ] {
        let refused = sqlx::raw_sql(statement).execute(&tally.pool).await;
        let why = refused.expect_err(statement).to_string();
        assert!(why.contains(words), "{statement}: {why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_of_which_all_votes_are_archived_is_dropped_under_votes_and_counts_stay() {
    let tally = Arc::new(Tally::start().await);
    let closing = tally.item_with(json!({ "numbered": true })).await;
    let open = tally.item("x").await;
    for voter in ["ada", "bob"] {
        assert_eq!(tally.vote(closing, voter).await.0, StatusCode::CREATED);
    }
    split(&tally).await;
    for range in [1, 2] {
        draw(&tally.pool, end_of(&tally.pool, range).await - 1).await;
        assert!(tally.ledger.add_ranges().await.expect("ranges") >= 1);
        for item in [closing, open] {
            let status = tally.vote(item, &format!("cleo{range}")).await.0;
            assert_eq!(status, StatusCode::CREATED);
        }
    }
    let ends = Arc::new(AtomicBool::new(false));
    let voting = tokio::spawn(vote_at_random(
        Arc::clone(&tally),
        vec![open],
        7,
        Arc::clone(&ends),
    ));
    sqlx::raw_sql("update rule set opens_at = null, closes_at = now() - interval '2 days'")
        .execute(&tally.pool)
        .await
        .expect("the owner may");
    let _worker = start_worker(&tally.stores, "worker", &[]);
    let folder = tally.stores.folder().join("archives");
    std::fs::create_dir(&folder).expect("a folder");

    // A report holds the range's lock; the archive waits for it, and votes wait for neither.
    let report = blocker(&tally.pool, "select count(*) from vote").await;
    let item = closing.to_string();
    let out = folder.to_str().expect("a plain path").to_owned();
    let stores = Arc::clone(&tally);
    let archiving = tokio::spawn(async move {
        let run = ["archive", "run", "--item", &item, "--out", &out, "--apply"];
        operator(&stores.stores, &run).await
    });
    crate::helpers::eventually("the votes are archived", async || {
        let ended = "select count(*) from archive where ended_at is not null";
        (number(&tally.pool, ended).await == 1).then_some(())
    })
    .await;
    let first = "select count(*) from vote_range where number = 1";
    assert_eq!(number(&tally.pool, first).await, 1);
    report.rollback().await.expect("an end");
    let (done, said, errors) = archiving.await.expect("it ends");
    assert!(done, "{said:?} {errors}");
    assert_eq!(
        (&said[0]["dropped_votes"], &said[0]["dropped_ranges"]),
        (&json!(4), &json!([1])),
        "{said:?} {errors}"
    );
    ends.store(true, Ordering::Relaxed);
    voting.await.expect("votes are taken");

    assert_eq!(number(&tally.pool, first).await, 0);
    assert_eq!(tables(&tally.pool).await, ["vote_range_2", "vote_range_3"]);
    let noted = "select count(*) from act where what = 'archive.drop' and outcome = 'done' and target = 'vote_range:1'";
    assert_eq!(number(&tally.pool, noted).await, 1);
    // Whoever voted has voted, whichever range it was in.
    assert_eq!(tally.vote(open, "cleo1").await.0, StatusCode::OK);
    assert_eq!(tally.vote(closing, "ada").await.0, StatusCode::CONFLICT);
    for audit in ["broken_rules", "broken_changes"] {
        let faults = format!("select cardinality(faults)::bigint from {audit}(0, 1000000)");
        assert_eq!(number(&tally.pool, &faults).await, 0, "{audit}");
    }
    assert_eq!(differences(&tally.pool).await, 0);
    crate::helpers::eventually("the saved count", async || {
        (tally.saved_count(closing).await == 4).then_some(())
    })
    .await;
    tally.assert_exact_when_quiescent(open).await;
}
