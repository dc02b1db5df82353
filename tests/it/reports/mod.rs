//! Reports: the views of analysts, and the questions of docs/reports.md.
//!
//! Each question has a naive query over the tables in `models/`, with the same columns and rows.

use sqlx::{Connection, PgConnection, PgPool, Row};
use tally::ledger::Role;

use crate::helpers::eventually;
use crate::helpers::programs::{run, start_worker, text};
use crate::helpers::stores::Stores;
use crate::helpers::tally::Tally;

const PAGE: &str = include_str!("../../../docs/reports.md");
const LEDGER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/report-ledger.sql");

/// The naive queries, in the order of the questions.
const MODELS: [&str; 15] = [
    include_str!("models/01.sql"),
    include_str!("models/02.sql"),
    include_str!("models/03.sql"),
    include_str!("models/04.sql"),
    include_str!("models/05.sql"),
    include_str!("models/06.sql"),
    include_str!("models/07.sql"),
    include_str!("models/08.sql"),
    include_str!("models/09.sql"),
    include_str!("models/10.sql"),
    include_str!("models/11.sql"),
    include_str!("models/12.sql"),
    include_str!("models/13.sql"),
    include_str!("models/14.sql"),
    include_str!("models/15.sql"),
];

/// The query of each question on the page, with its heading.
fn questions() -> Vec<(&'static str, &'static str)> {
    let sections = PAGE.split("\n### ").skip(1);
    let questions = sections.map(|section| {
        let (heading, body) = section.split_once('\n').expect("a heading");
        let query = body.split("```sql\n").nth(1).expect("a query");
        let query = query.split("```").next().expect("its end");
        (heading, query.trim().trim_end_matches(';'))
    });
    questions.collect()
}

/// Fills a database with a random ledger of about this many rows.
pub async fn random_ledger(stores: &Stores, votes: u32, seed: f64) {
    let mut command = tokio::process::Command::new("psql");
    command.args(["--no-psqlrc", "--quiet", "--file", LEDGER, &stores.database_url]);
    let seed = seed.to_string();
    let votes = votes.to_string();
    for (name, value) in [
        ("votes", votes.as_str()),
        ("items", "400"),
        ("voters", "900"),
        ("days", "9"),
        ("seed", seed.as_str()),
    ] {
        command.arg(format!("--set={name}={value}"));
    }
    let output = run(command).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// Takes back what the script has summed, and lets Tally do it.
async fn roll_up(tally: &Tally) {
    sqlx::raw_sql(
        "create table expected_day as
             select item_id, day, ups, downs, ups_taken_back, downs_taken_back from day_change
             union all
             select item_id, (starts_at at time zone 'UTC')::date, ups, downs, ups_taken_back, downs_taken_back
             from recent_change;
         create table expected_item as select id, vote_count, down_count from item;
         create table expected_total as select * from total_change;
         truncate audited_count, recent_change, day_change, total_change, vote_time;
         update item set vote_count = 0, down_count = 0, counted_at = null;
         update watermark set vote_id = 0, vote_total = 0, saved_vote_id = 0, reached_at = null",
    )
    .execute(&tally.pool)
    .await
    .expect("the owner may");
    let _worker = start_worker(&tally.stores, "worker", &[]);
    eventually("all is rolled up and saved", async || {
        let left: i64 = sqlx::query_scalar(
            "select (select last_value - saved_vote_id from vote_id_seq, watermark)
                    + (select count(*) from item join expected_item using (id)
                       where item.vote_count <> expected_item.vote_count or item.down_count <> expected_item.down_count)",
        )
        .fetch_one(&tally.pool)
        .await
        .ok()?;
        (left == 0).then_some(())
    })
    .await;
    for (what, expected, found) in [
        (
            "items by day",
            "select item_id, day, sum(ups), sum(downs), sum(ups_taken_back), sum(downs_taken_back)
             from expected_day group by 1, 2",
            "select item_id, day, sum(ups), sum(downs), sum(ups_taken_back), sum(downs_taken_back)
             from (select * from day_change
                   union all
                   select item_id, (starts_at at time zone 'UTC')::date, ups, downs, ups_taken_back, downs_taken_back
                   from recent_change) as one group by 1, 2",
        ),
        ("all items", "select * from expected_total", "select * from total_change"),
    ] {
        let differing: i64 = sqlx::query_scalar(&format!(
            "select count(*) from ((({expected}) except ({found})) union all (({found}) except ({expected}))) as one"
        ))
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers");
        assert_eq!(differing, 0, "{what}");
    }
}

/// The rows of a query as text.
async fn rows(connection: &mut PgConnection, query: &str) -> Vec<String> {
    let query = format!("select one::text from ({query}) as one");
    let rows = sqlx::query(&query).fetch_all(connection).await;
    let rows = rows.unwrap_or_else(|error| panic!("{error}: {query}"));
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_question_of_an_analyst_is_answered_as_its_naive_query_answers_it() {
    let tally = Tally::start().await;
    let seed: f64 = rand::random_range(-1.0..1.0);
    random_ledger(&tally.stores, 12_000, seed).await;
    roll_up(&tally).await;
    let questions = questions();
    assert_eq!(questions.len(), MODELS.len());
    let mut connection = PgConnection::connect(&tally.stores.database_url)
        .await
        .expect("Postgres");
    let mut answered = 0;
    for ((heading, query), model) in questions.into_iter().zip(MODELS) {
        // One snapshot and one now().
        let mut transaction = connection.begin().await.expect("a transaction");
        sqlx::raw_sql("set transaction isolation level repeatable read")
            .execute(&mut *transaction)
            .await
            .expect("a setting");
        let found = rows(&mut transaction, query).await;
        assert_eq!(
            found,
            rows(&mut transaction, model).await,
            "seed {seed}: {heading}"
        );
        answered += usize::from(!found.is_empty());
        transaction.rollback().await.expect("an end");
    }
    // On so few votes, one or two questions may have no answer.
    assert!(answered >= MODELS.len() - 2, "seed {seed}: {answered} answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_analyst_may_run_each_question_and_whoever_else_reads_the_ledger_needs_no_view() {
    let stores = Stores::start().await;
    let mut analyst = PgConnection::connect(&stores.login_url(Role::Report))
        .await
        .expect("Postgres");
    for (heading, query) in questions() {
        rows(&mut analyst, query).await;
        for role in [Role::Server, Role::Worker] {
            let mut other = PgConnection::connect(&stores.login_url(role))
                .await
                .expect("Postgres");
            let refused = sqlx::query(query).fetch_all(&mut other).await;
            let refused = refused.expect_err("it may not").to_string();
            assert!(
                refused.contains("permission denied for schema report"),
                "{heading}: {refused}"
            );
        }
    }
}

/// The names of what has no comment in the schema.
async fn without_comment(pool: &PgPool) -> Vec<String> {
    sqlx::query_scalar(
        "select one.name from (
             select relname || coalesce('.' || attname, '') as name, obj_description(pg_class.oid, 'pg_class') as on_view,
                    col_description(pg_class.oid, attnum) as on_column, attname is null as is_view
             from pg_class
             left join pg_attribute on attrelid = pg_class.oid and attnum > 0
             where relnamespace = 'report'::regnamespace and relkind = 'v'
             union all
             select proname::text, obj_description(oid, 'pg_proc'), null, true
             from pg_proc where pronamespace = 'report'::regnamespace
             union all
             select 'schema', obj_description(oid, 'pg_namespace'), null, true from pg_namespace where nspname = 'report'
         ) as one
         where coalesce(case when is_view then on_view else on_column end, '') = '' or on_view is null",
    )
    .fetch_all(pool)
    .await
    .expect("Postgres answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn each_view_column_and_function_explains_itself_and_the_page_names_each() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    assert_eq!(without_comment(&pool).await, [""; 0]);
    let names: Vec<String> = sqlx::query_scalar(
        "select relname::text from pg_class where relnamespace = 'report'::regnamespace and relkind = 'v'
         union all select proname || '(' from pg_proc where pronamespace = 'report'::regnamespace",
    )
    .fetch_all(&pool)
    .await
    .expect("Postgres answers");
    assert!(names.len() > 15, "{names:?}");
    let missing: Vec<&String> = names
        .iter()
        .filter(|name| !PAGE.contains(name.as_str()))
        .collect();
    assert!(missing.is_empty(), "docs/reports.md does not name {missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_votes_of_some_time_are_found_also_where_an_import_or_a_gap_of_ids_has_put_them() {
    const BATCHES: i32 = 6;
    let tally = Tally::start().await;
    tally.item("x").await;
    for batch in 1..=BATCHES {
        // A gap, so that a further range begins; most votes of a batch are of about one time, and some are old.
        for statement in [
            "select setval('vote_id_seq', last_value + 70000) from vote_id_seq",
            "insert into vote (item_id, created_at)
             select 1, now() - random() ^ 9 * interval '40 days' from generate_series(1, 60)",
            "update vote_time set first_at = first_at - interval '5 days', last_at = last_at - interval '5 days'",
        ] {
            sqlx::raw_sql(statement)
                .execute(&tally.pool)
                .await
                .expect("the owner may");
        }
        sqlx::raw_sql(
            "alter table vote disable trigger user;
             update vote set created_at = created_at - interval '5 days' where id < (select last_value - 30000 from vote_id_seq);
             alter table vote enable trigger user",
        )
        .execute(&tally.pool)
        .await
        .expect("the owner may");
        // The last ones are not rolled up.
        if batch < BATCHES {
            tally.worker().roll_up().await.expect("the stores answer");
        }
    }
    let ranges: i64 = sqlx::query_scalar("select count(*) from vote_time")
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(ranges, i64::from(BATCHES) - 1);
    let mut found_any = 0;
    for _ in 0..60 {
        let (since, days) = (rand::random_range(0.0..75.0), rand::random_range(0.0..20.0));
        let window: (i64, i64, i64) = sqlx::query_as(
            "with given as (select now() - $1 * interval '1 day' as since, now() - ($1 - $2) * interval '1 day' as until)
             select (select count(*) from report.votes where created_at >= since and created_at < until),
                    (select count(*) from report.votes_between(since, until)),
                    (select count(*) from (
                        select * from report.votes where created_at >= since and created_at < until
                        except select * from report.votes_between(since, until)) as missing)
             from given",
        )
        .bind(since)
        .bind(days)
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers");
        assert!(
            window.0 == window.1 && window.2 == 0,
            "{since} {days}: {window:?}"
        );
        found_any += window.0;
    }
    assert!(found_any > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_voters_of_a_day_are_those_of_its_local_date_also_where_clocks_are_changed_at_midnight() {
    let tally = Tally::start().await;
    tally.item("x").await;
    // In Havana and on the Azores, 00:30 comes twice on one of these days; in Santiago, 00:30 never comes.
    sqlx::raw_sql(
        "insert into vote (item_id, voter_id, created_at)
         select 1, 'voter ' || row_number() over (), at
         from unnest(array[timestamptz '2020-10-24', '2020-10-31', '2020-09-05']) as first,
              generate_series(first, first + interval '3 days', interval '20 minutes') as at",
    )
    .execute(&tally.pool)
    .await
    .expect("the owner may");
    for zone in [
        "UTC",
        "America/Havana",
        "Atlantic/Azores",
        "America/Santiago",
        "Europe/Berlin",
        "Australia/Lord_Howe",
    ] {
        let (days, different): (i64, i64) = sqlx::query_as(
            "select count(*), count(*) filter (where given.voters is distinct from coalesce(model.voters, 0))
             from report.voters_by_day_in($1, '2020-09-01', '2020-11-05') as given
             left join (select (created_at at time zone $1)::date as day, count(distinct voter_id) as voters
                        from vote group by 1) as model on model.day = given.day",
        )
        .bind(zone)
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers");
        assert_eq!((days, different), (66, 0), "{zone}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_span_has_as_many_rows_as_a_hundred_years() {
    let tally = Tally::start().await;
    let mut limited = tally.pool.acquire().await.expect("Postgres answers");
    sqlx::query("set statement_timeout = '60s'")
        .execute(&mut *limited)
        .await
        .expect("a setting");
    for (function, most) in [
        ("votes_by_day_in", 36_526),
        ("votes_by_hour_in", 36_526 * 24),
        ("voters_by_day_in", 36_526),
        ("changes_by_day_in", 36_526),
    ] {
        for (first, last, is_empty) in [
            ("-infinity", "infinity", false),
            ("2000-01-01", "infinity", false),
            ("-infinity", "2000-01-01", false),
            ("-infinity", "-infinity", true),
            ("infinity", "infinity", true),
        ] {
            let query = format!("select count(*) from report.{function}('UTC', '{first}', '{last}')");
            let rows: i64 = sqlx::query_scalar(&query)
                .fetch_one(&mut *limited)
                .await
                .expect(&query);
            assert!((rows == 0) == is_empty && rows <= most, "{query}: {rows}");
        }
        let query = format!("select count(*) from report.{function}('UTC', '2020-01-01', '2020-01-07')");
        let rows: i64 = sqlx::query_scalar(&query)
            .fetch_one(&mut *limited)
            .await
            .expect(&query);
        assert_eq!(rows, if function == "votes_by_hour_in" { 7 * 24 } else { 7 });
    }
}

#[tokio::test]
async fn saved_counts_are_as_old_as_the_last_flush_or_as_what_it_left_unsaved_and_not_as_both() {
    let tally = Tally::start().await;
    let age = async || -> Option<f64> {
        sqlx::query_scalar(
            "select extract(epoch from age)::float8 from report.freshness where source = 'saved counts'",
        )
        .fetch_one(&tally.pool)
        .await
        .expect("an age")
    };
    assert_eq!(age().await, None, "no worker runs");
    let beat = async |name: &str, outcome: &str, pass_ago: &str, left_for: &str| {
        sqlx::query(
            "insert into worker (name, started_at, seen_at, pass_ended_at, pass_took_micros, pass_outcome, \
             unsaved_counts, oldest_unsaved_micros) \
             values ($1, now(), now(), now() - $3::interval, 1000000, $2, 1, extract(epoch from $4::interval) * 1000000)",
        )
        .bind(name)
        .bind(outcome)
        .bind(pass_ago)
        .bind(left_for)
        .execute(&tally.pool)
        .await
        .expect("a row");
    };
    let is_about =
        |age: Option<f64>, seconds: f64| age.is_some_and(|age| age >= seconds && age < seconds + 60.0);
    // Counts that were left by the flush that began 1,001 s ago.
    beat("steady", "done", "1000 s", "1000 s").await;
    assert!(is_about(age().await, 1001.0), "{:?}", age().await);
    // A failed flush says nothing. A worker that still has a locked row knows that a count is old.
    beat("failing", "failed", "1 s", "1 s").await;
    beat("held up", "done", "1 s", "700 s").await;
    assert!(is_about(age().await, 700.0), "{:?}", age().await);
    beat("well", "done", "100 s", "0 s").await;
    assert!(is_about(age().await, 101.0), "{:?}", age().await);
}
