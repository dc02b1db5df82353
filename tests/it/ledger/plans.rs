//! Statements that Postgres planned on empty tables, run on full ones.
//! The rows that a statement reads must grow with its lines, not with the tables or the square of
//! the lines.

use serde_json::json;
use sqlx::{Connection, PgConnection};

use crate::helpers::stores::Stores;
use crate::helpers::tally::Tally;

/// A writer's look for free places on items that were full.
const FULLNESS: &str = include_str!("../../../src/ledger/sql/fullness.sql");

/// Lines of a statement.
const LINES: i64 = 1024;
/// Rows in each table that a bad plan would go through.
const ROWS: i64 = 20_000;
/// The most rows and index entries that one line may read.
/// That is what its voter holds, its item, rule, place, ballot and key, some of them twice. A plan
/// with the square of the lines would read 1,000.
const READS_PER_LINE: i64 = 100;

/// One run more than Postgres plans a statement for its arguments alone.
const TIMES_PLANNED: usize = 6;

/// Lines of `cast_votes`.
/// Request, poll, item, voter, value, keep, whole, ballot, key, body.
fn decide(lines: &str) -> String {
    format!(
        "select cast_votes(
             array_agg(number::int), array_agg(poll), array_agg(item), array_agg(voter), array_agg(value::smallint),
             array_agg(keep), array_agg(whole), array_agg(ballot), array_agg(key), array_agg(key))
         from ({lines}) as line (number, poll, item, voter, value, keep, whole, ballot, key)"
    )
}

/// The statistics of a transaction have no index entries.
const INDEX_READS: &str = "create view pg_stat_xact_user_indexes_read as
     select coalesce(sum(pg_stat_get_xact_tuples_returned(indexrelid)), 0) as idx_tup_read from pg_index
     join pg_class on pg_class.oid = indrelid where relnamespace = current_schema()::regnamespace";

/// The rows that this statement reads in all tables.
/// Its transaction is rolled back.
async fn reads(connection: &mut PgConnection, statement: &str) -> i64 {
    let mut transaction = connection.begin().await.expect("a transaction");
    let before = read_so_far(&mut transaction).await;
    sqlx::raw_sql(statement)
        .execute(&mut *transaction)
        .await
        .unwrap_or_else(|error| panic!("{error}: {statement}"));
    let read = read_so_far(&mut transaction).await - before;
    transaction.rollback().await.expect("an end");
    read
}

/// The rows that this connection has read and not yet added to the statistics.
/// Postgres adds them now and then, between transactions.
async fn read_so_far(connection: &mut PgConnection) -> i64 {
    sqlx::query_scalar(
        "select (sum(seq_tup_read) + sum(coalesce(idx_tup_fetch, 0))
                 + (select sum(idx_tup_read) from pg_stat_xact_user_indexes_read))::bigint
         from pg_stat_xact_user_tables",
    )
    .fetch_one(connection)
    .await
    .expect("Postgres answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_statement_reads_grows_with_its_lines_alone() {
    let stores = Stores::start().await;
    let mut connection = PgConnection::connect(&stores.database_url)
        .await
        .expect("Postgres");
    sqlx::raw_sql(INDEX_READS)
        .execute(&mut connection)
        .await
        .expect("a view");
    sqlx::raw_sql(
        "alter table vote set (autovacuum_enabled = off);
         alter table item set (autovacuum_enabled = off);
         alter table rule set (autovacuum_enabled = off);
         alter table place set (autovacuum_enabled = off);
         alter table ballot set (autovacuum_enabled = off);
         alter table idempotency_key set (autovacuum_enabled = off);
         create function numbers(lines int) returns bigint[] language sql return
             array(select number from generate_series(1, lines) as number);
         create function voters(lines int) returns text[] language sql return
             array(select 'n' || number from generate_series(1, lines) as number)",
    )
    .execute(&mut connection)
    .await
    .expect("tables and functions");
    let prepared = format!("prepare fullness as {FULLNESS}");
    sqlx::raw_sql(&prepared)
        .execute(&mut connection)
        .await
        .expect("a statement");
    let none = "null::bytea";
    let hash = "sha256(number::text::bytea)";
    let series = |from: &str| format!("from generate_series(1, {{lines}}) as number {from}");
    // Items and voters have the id `number`. For the kinds of items, see below.
    let statements = [
        (
            "changes on plain items",
            decide(&format!(
                "select number, null::bigint, {ROWS} + number, 'v' || number, -1, false, false, {none}, {none} {}",
                series("")
            )),
        ),
        (
            "votes on limited items",
            decide(&format!(
                "select number, null::bigint, number, 'n' || number, 1, true, false, {none}, {none} {}",
                series("")
            )),
        ),
        (
            "votes on items that may be full",
            // A writer's connection has these settings.
            "set local enable_seqscan = off; set local enable_bitmapscan = off; set local jit = off;
             set local plan_cache_mode = force_generic_plan;
             execute fullness(numbers({lines}), voters({lines}))"
                .to_owned(),
        ),
        (
            "moves in a poll",
            decide(&format!(
                "select number, {ROWS}::bigint + 1, 3 * {ROWS}::bigint + 2, 'v' || number, 1, true, true, {none}, {none} {}",
                series("")
            )),
        ),
        (
            "votes with keys",
            decide(&format!(
                "select number, null::bigint, {ROWS} + number, null::text, 1, true, false, {none}, {hash} {}",
                series("")
            )),
        ),
        (
            "votes with ballots",
            decide(&format!(
                "select number, null::bigint, 3 * {ROWS}::bigint + 3, null::text, 1, true, false, {hash}, {none} {}",
                series("")
            )),
        ),
        (
            "a chunk of a voiding",
            "select void_votes(id, {lines}::int, 100000) from voiding".to_owned(),
        ),
    ];
    for (_, statement) in &statements {
        for _ in 0..TIMES_PLANNED {
            reads(&mut connection, &statement.replace("{lines}", "2")).await;
        }
    }
    sqlx::raw_sql(&format!(
        "insert into rule (opens_at) select '2001-01-01' from generate_series(1, {ROWS});
         insert into rule (title, max_choices, voter_count) values ('x', 1, {ROWS});
         insert into rule (by_ballot) values (true);
         insert into item (name, rule_id) select 'x', number from generate_series(1, {ROWS}) as number;
         insert into item (name) select 'x' from generate_series(1, 2 * {ROWS});
         insert into item (name, rule_id) values ('a', {ROWS} + 1), ('b', {ROWS} + 1), ('by ballot', {ROWS} + 2);
         insert into place (item_id, max_votes) select number, 10 from generate_series(1, {ROWS}) as number;
         insert into vote (item_id, voter_id) select {ROWS} + number, 'v' || number from generate_series(1, {ROWS}) as number;
         insert into vote (item_id, voter_id, poll_id) select 3 * {ROWS} + 1, 'v' || number, {ROWS} + 1 from generate_series(1, {ROWS}) as number;
         insert into ballot (token_hash, rule_id) select sha256(number::text::bytea), {ROWS} + 2 from generate_series(1, {ROWS}) as number;
         insert into idempotency_key (key_hash, body_hash, vote_id) select sha256(('k' || number)::bytea), '', 1 from generate_series(1, {ROWS}) as number;
         insert into voiding (item_id, reason, until_vote_id) values (3 * {ROWS} + 1, 'x', 4 * {ROWS})"
    ))
    .execute(&mut connection)
    .await
    .expect("rows");
    for (what, statement) in &statements {
        let read = reads(&mut connection, &statement.replace("{lines}", &LINES.to_string())).await;
        assert!(
            read <= READS_PER_LINE * LINES,
            "{what}: {} rows a line",
            read / LINES
        );
    }
}

/// A page of the items that are no choices of polls.
const WITHOUT_CHOICES: &str = include_str!("../../../src/ledger/sql/items_without_choices.sql");
/// Items of a page.
const PAGE: i64 = 100;
/// Items that a page looks at.
const NEXT: i64 = 20_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_items_behind_many_choices_looks_at_so_many_and_the_next_pages_go_on() {
    let tally = Tally::start().await;
    sqlx::raw_sql(&format!(
        "insert into rule (title) values ('a poll');
         insert into item (name, rule_id) select 'a choice', 1 from generate_series(1, {NEXT});
         insert into item (name, is_hidden) select 'hidden', true from generate_series(1, {NEXT});
         insert into item (name) values ('seen');
         analyze item"
    ))
    .execute(&tally.pool)
    .await
    .expect("rows");
    let (mut after, mut pages) = (0, 0);
    let seen = loop {
        let (_, page) = tally.get(&format!("/v1/items?choices=false&after={after}")).await;
        pages += 1;
        match page["next_after"].as_i64() {
            Some(next) => after = next,
            None => break page["items"].clone(),
        }
        assert_eq!(page["items"], json!([]));
    };
    assert_eq!((seen[0]["name"].as_str(), pages), (Some("seen"), 3));
    let mut connection = PgConnection::connect(&tally.stores.database_url)
        .await
        .expect("Postgres");
    sqlx::raw_sql(INDEX_READS)
        .execute(&mut connection)
        .await
        .expect("a view");
    let page = WITHOUT_CHOICES
        .replace("$1", "0")
        .replace("$2", &PAGE.to_string())
        .replace("$3", &NEXT.to_string())
        .replace('!', "");
    let settings = "set local enable_seqscan = off; set local enable_bitmapscan = off";
    let read = reads(&mut connection, &format!("{settings}; {page}")).await;
    // Each item and its rule, and their entries in indexes.
    assert!(read <= 5 * NEXT, "{read} rows");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_page_of_items_reads_does_not_grow_with_the_polls() {
    let stores = Stores::start().await;
    let mut connection = PgConnection::connect(&stores.database_url)
        .await
        .expect("Postgres");
    sqlx::raw_sql(INDEX_READS)
        .execute(&mut connection)
        .await
        .expect("a view");
    // Items with rules stand among the others: a page looks at them, too.
    sqlx::raw_sql(&format!(
        "insert into rule (title) select 'poll ' || number from generate_series(1, {ROWS}) as number;
         insert into rule (opens_at) select '2001-01-01' from generate_series(1, {ROWS});
         insert into item (name, rule_id)
         select 'x', case number % 2 when 0 then {ROWS} + number end from generate_series(1, {ROWS}) as number;
         analyze item, rule"
    ))
    .execute(&mut connection)
    .await
    .expect("rows");
    let page = WITHOUT_CHOICES
        .replace("$1", "0")
        .replace("$2", &PAGE.to_string())
        .replace("$3", &NEXT.to_string())
        .replace('!', "");
    // A server's settings, and Postgres' own.
    for settings in [
        "set local enable_seqscan = off; set local enable_bitmapscan = off",
        "select 1",
    ] {
        let read = reads(&mut connection, &format!("{settings}; {page}")).await;
        assert!(
            (PAGE..=READS_PER_LINE * PAGE).contains(&read),
            "{settings}: {read} rows"
        );
    }
}

/// Items in the test of searches, unless this variable says how many. Polls are a fifth of that.
const NAMES: i64 = 60_000;
const NAMES_VARIABLE: &str = "TALLY_TEST_NAMES";
/// The most rows that a search may read in all tables, whatever they hold: five pages and 20,000 in the order of ids,
/// each twice, and 10,000 that the index gives.
const SEARCH_READS: i64 = 2 * (5 * PAGE + 20_000) + 10_001 + PAGE;

/// All that a search finds, page by page, and the most rows that a page reads.
async fn found(connection: &mut PgConnection, of: &str, text: &str, limit: i64) -> (Vec<i64>, i64) {
    let (mut all, mut most) = (Vec::new(), 0);
    let (mut from, choices) = match of {
        "items" => (0, ", false"),
        _ => (i64::MAX, ""),
    };
    loop {
        let mut transaction = connection.begin().await.expect("a transaction");
        sqlx::raw_sql(
            "set local enable_seqscan = off; set local enable_bitmapscan = off; set local jit = off",
        )
        .execute(&mut *transaction)
        .await
        .expect("settings");
        let rows = "select (sum(seq_tup_read) + sum(coalesce(idx_tup_fetch, 0)))::bigint from pg_stat_xact_user_tables";
        let before: i64 = sqlx::query_scalar(rows)
            .fetch_one(&mut *transaction)
            .await
            .expect("a sum");
        let search = format!("select ids, up_to from search_{of}($1, $2, $3{choices})");
        let (ids, up_to): (Vec<i64>, Option<i64>) = sqlx::query_as(&search)
            .bind(text)
            .bind(from)
            .bind(limit)
            .fetch_one(&mut *transaction)
            .await
            .expect("a page");
        let after: i64 = sqlx::query_scalar(rows)
            .fetch_one(&mut *transaction)
            .await
            .expect("a sum");
        transaction.rollback().await.expect("an end");
        most = most.max(after - before);
        all.extend(ids);
        match up_to {
            Some(next) => from = next,
            None => return (all, most),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_reads_so_many_rows_whether_a_word_is_common_rare_or_common_elsewhere() {
    let names: i64 = std::env::var(NAMES_VARIABLE).map_or(NAMES, |text| text.parse().expect("a number"));
    let polls = names / 5;
    let stores = Stores::start().await;
    let mut connection = PgConnection::connect(&stores.database_url)
        .await
        .expect("Postgres");
    let name = |all: i64| {
        format!(
            "'all ' || n || case when n % 40 = 0 then ' some' else '' end
             || case when n > {all} / 2 then ' late' else ' early' end || case when n % ({all} / 3) = 7 then ' rare' else '' end"
        )
    };
    sqlx::raw_sql(&format!(
        "alter index item_words set (fastupdate = off);
         insert into rule (title) select {} from generate_series(1, {polls}) as n;
         insert into item (name) select {} from generate_series(1, {names}) as n;
         analyze item, rule",
        name(polls),
        name(names)
    ))
    .execute(&mut connection)
    .await
    .expect("rows");
    for (of, column, limit) in [
        ("items", "name from item", PAGE),
        ("polls", "title from rule", 10),
    ] {
        for word in ["all", "some", "late", "early", "rare", "none"] {
            // The pages of a common word are many.
            let limit = if matches!(word, "some" | "rare" | "none") {
                limit
            } else {
                10 * limit
            };
            let (ids, read) = found(&mut connection, of, word, limit).await;
            let (column, table) = column.split_once(" from ").expect("two");
            let order = if of == "items" { "asc" } else { "desc" };
            let truth: Vec<i64> = sqlx::query_scalar(&format!(
                "select id from {table} where {column} like '%{word}%' order by id {order}"
            ))
            .fetch_all(&mut connection)
            .await
            .expect("ids");
            assert_eq!(ids.len(), truth.len(), "{of}: {word}");
            assert!(ids == truth, "{of}: {word}: another order");
            let at_most = SEARCH_READS + 100 * PAGE;
            assert!(read <= at_most, "{of}: {word}: {read} rows");
        }
    }
}
