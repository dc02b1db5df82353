//! Cells' databases: a new one, reports over all of them, and an API key that is in each.

use reqwest::{Client, StatusCode};
use sqlx::Row;
use tally::ledger::Role;

use crate::helpers::cells;
use crate::helpers::programs::{SYNC_WORKER, TALLY, command, operator, run, start_server_with, text};
use crate::helpers::stores::Stores;

/// The first id of cell 1.
const FIRST_OF_ONE: i64 = (1 << 40) + 1;

#[tokio::test(flavor = "multi_thread")]
async fn a_new_database_is_made_the_next_cell_with_what_to_do_then_and_an_old_one_is_refused() {
    let stores = Stores::start().await;
    let url = stores.postgres.create_database("next").await.expect("a database");
    let make = async |url: &str, cell: &str| {
        let mut make = command(TALLY, None);
        make.args(["cell", "make", "--cell", cell])
            .env("DATABASE_URL", url);
        run(make).await
    };
    for _ in 0..2 {
        let made = make(&url, "1").await;
        assert!(made.status.success(), "{}", text(&made.stderr));
        let said = text(&made.stdout);
        for part in [
            "this database is cell 1",
            "1099511627777",
            "TALLY_CELLS=2",
            "tally cell router",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    let refused = make(&stores.database_url, "1").await;
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(
        said.contains("this database is cell 0, and was to be cell 1"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_over_cells_have_the_rows_of_each_with_its_cell() {
    let (zero, one) = (Stores::start().await, cells::stores(1).await);
    for (stores, votes) in [(&zero, 3), (&one, 5)] {
        let pool = stores.pool();
        let item: i64 = sqlx::query_scalar("insert into item (name) values ('x') returning id")
            .fetch_one(&pool)
            .await
            .expect("an item");
        sqlx::query("insert into vote (item_id) select $1 from generate_series(1, $2)")
            .bind(item)
            .bind(votes)
            .execute(&pool)
            .await
            .expect("votes");
        let mut once = command(SYNC_WORKER, Some(stores));
        once.arg("--once");
        assert!(run(once).await.status.success());
    }
    let url = zero
        .postgres
        .create_database("reports")
        .await
        .expect("a database");
    let pool = testkit::stores::owner_pool(&url).expect("a URL");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/reports-of-cells.sql");
    sqlx::raw_sql(&std::fs::read_to_string(script).expect("the script"))
        .execute(&pool)
        .await
        .expect("the functions");
    // Again, as after a new version.
    for (cell, stores) in [(0, &zero), (1, &one), (0, &zero)] {
        let login: reqwest::Url = stores.login_url(Role::Report).parse().expect("a URL");
        let united: Vec<String> = sqlx::query_scalar("select add_cell($1, $2, $3, $4)")
            .bind(cell)
            .bind(format!(
                "host=127.0.0.1 port={} dbname={}",
                stores.postgres.port(),
                login.path().trim_start_matches('/')
            ))
            .bind(login.username())
            .bind(login.password().expect("a password"))
            .fetch_all(&pool)
            .await
            .expect("the cell is added");
        assert!(
            united.contains(&"items".to_owned()) && united.len() >= 17,
            "{united:?}"
        );
    }
    let rows = sqlx::query("select cell, item_id, score::bigint as score from report.items order by cell")
        .fetch_all(&pool)
        .await
        .expect("a report");
    let rows: Vec<(i32, i64, i64)> = rows
        .iter()
        .map(|row| (row.get(0), row.get(1), row.get(2)))
        .collect();
    assert_eq!(rows, [(0, 1, 3), (1, FIRST_OF_ONE, 5)]);
    let cast: i64 = sqlx::query_scalar("select sum(votes_cast)::bigint from report.votes_by_day")
        .fetch_one(&pool)
        .await
        .expect("a report");
    assert_eq!(cast, 8);
    pool.close().await;
}

/// The commands of docs/operating/cells.md that copy API keys, for these databases.
fn copying(databases: [&str; 2]) -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operating/cells.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let part = page
        .split("### The same API key in each cell")
        .nth(1)
        .expect("the part");
    let commands = part.split("```").nth(1).expect("the commands").to_owned();
    commands
        .replace("<cell 0>", &format!("'{}'", databases[0]))
        .replace("<cell 1>", &format!("'{}'", databases[1]))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_key_that_is_copied_as_the_page_says_is_valid_in_both_cells_until_each_revokes_it() {
    let (zero, one) = (Stores::start().await, cells::stores(1).await);
    let (done, made, said) = operator(&zero, &["key", "create", "gone", "--scope", "vote"]).await;
    assert!(done, "{said}");
    let gone = made[0]["key"].as_str().expect("a key").to_owned();
    assert!(operator(&zero, &["key", "revoke", "1"]).await.0);
    let (done, made, said) = operator(&zero, &["key", "create", "a, \"b\"", "--scope", "vote,report"]).await;
    assert!(done, "{said}");
    let key = made[0]["key"].as_str().expect("a key").to_owned();

    let mut copy = command("bash", None);
    copy.args(["-e", "-c", &copying([&zero.database_url, &one.database_url])])
        .current_dir(zero.folder());
    let copied = run(copy).await;
    assert!(copied.status.success(), "{}", text(&copied.stderr));
    assert!(!zero.folder().join("keys.csv").exists());

    let mut servers = Vec::new();
    for (stores, cell) in [(&zero, "0"), (&one, "1")] {
        sqlx::query("insert into item (name) values ('x')")
            .execute(&stores.pool())
            .await
            .expect("an item");
        let settings = [("TALLY_CELL", cell), ("TALLY_CELLS", "2")];
        servers.push(start_server_with(stores, cell, &settings).await);
    }
    let client = Client::new();
    let vote = async |base: &str, item: i64, key: &str| {
        let asked = client.post(format!("{base}/v1/items/{item}/votes"));
        let answer = asked
            .bearer_auth(key)
            .json(&serde_json::json!({"voter_id": "ada"}));
        answer.send().await.expect("an answer").status()
    };
    for ((_, base), item) in servers.iter().zip([1, FIRST_OF_ONE]) {
        assert!(vote(base, item, &key).await.is_success());
        assert_eq!(vote(base, item, &gone).await, StatusCode::UNAUTHORIZED);
    }
    // Its id differs.
    let id = FIRST_OF_ONE.to_string();
    assert!(operator(&one, &["key", "revoke", &id]).await.0);
    assert!(operator(&zero, &["key", "revoke", "2"]).await.0);
    for (stores, item) in [(&zero, 1), (&one, FIRST_OF_ONE)] {
        let cell = if item == 1 { "0" } else { "1" };
        let settings = [("TALLY_CELL", cell), ("TALLY_CELLS", "2")];
        // A server remembers a key for a minute, a new one nothing.
        let (_server, base) = start_server_with(stores, "later", &settings).await;
        assert_eq!(vote(&base, item, &key).await, StatusCode::UNAUTHORIZED);
    }
}
