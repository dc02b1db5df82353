//! A ledger in one table is split under votes.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::StatusCode;
use serde_json::json;
use tally::ledger::{OwnerLedger, RANGE_LEAST_IDS};

use super::{differences, draw, number, split, vote_at_random};
use crate::helpers::programs::{TALLY, command, operator, run, text};
use crate::helpers::stores::blocker;
use crate::helpers::tally::Tally;
use crate::rules::assert_rules_hold;

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
    // Tally's functions would not own what another login makes.
    sqlx::raw_sql("create role somebody login superuser password 'x'")
        .execute(&tally.pool)
        .await
        .expect("the owner may");
    let url = &tally.stores.database_url;
    let (_, rest) = url.split_once('@').expect("a login");
    let other = OwnerLedger::new(format!("postgres://somebody:x@{rest}"), "test").expect("a URL");
    let refused = other.partition(RANGE_LEAST_IDS, |_, _| {}).await;
    let why = refused.expect_err("another login").to_string();
    assert!(why.contains("vote belongs to"), "{why}");
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
    // While it looks, and finds nothing, nobody is refused.
    let looking = blocker(&tally.pool, "select add_ranges()").await;
    let (done, said, errors) = operator(&tally.stores, &["voter", "rename", "cleo", "cora", "--apply"]).await;
    assert!(done, "{said:?} {errors}");
    looking.rollback().await.expect("an end");
    split(&tally).await;
    let voters: Vec<String> = sqlx::query_scalar("select voter_id from vote_of_voter order by id")
        .fetch_all(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(voters, ["ada", "bob", "cora"]);
    assert_eq!(voters.iter().collect::<HashSet<_>>().len(), 3);
    let (done, said, errors) = operator(&tally.stores, &merge).await;
    assert!(done, "{said:?} {errors}");
    assert_eq!(differences(&tally.pool).await, 0);
    tally.assert_exact_when_quiescent(item).await;
}
