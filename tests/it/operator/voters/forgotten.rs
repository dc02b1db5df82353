//! After an erasure, the voter's id is nowhere: not in Postgres, not in Redis, not in a log.

use redis::AsyncCommands;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::PgPool;
use tally::ledger::Role;

use super::{held, voter};
use crate::helpers::programs::{TALLY, command_as, run, start_server_with, start_worker, text};
use crate::helpers::stores::Stores;
use crate::helpers::tally::Tally;
use crate::operator::exports::export;
use crate::rules::assert_rules_hold;
use crate::rules::voiding::void;

/// Nothing else contains it.
const NAME: &str = "Zoë-93817";
/// Before a renaming, and before a merge.
const EARLIER: [&str; 2] = ["Zoë-11111", "Zoë-22222"];

/// Every column of every table that has this text, also in hexadecimal digits. The catalogue has the tables.
async fn columns_with(pool: &PgPool, part: &str) -> Vec<String> {
    let columns: Vec<(String, String, String)> = sqlx::query_as(
        "select nspname::text, relname::text, attname::text
         from pg_class
         join pg_namespace on pg_namespace.oid = relnamespace
         join pg_attribute on attrelid = pg_class.oid and attnum > 0 and not attisdropped
         where relkind in ('r', 'p', 'm', 'v') and nspname not in ('pg_catalog', 'information_schema', 'pg_toast')",
    )
    .fetch_all(pool)
    .await
    .expect("Postgres answers");
    assert!(columns.len() > 200, "{}", columns.len());
    let hex: String = part.bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut found = Vec::new();
    for (schema, table, column) in columns {
        // As jsonb: texts in arrays and objects, too.
        let rows: i64 = sqlx::query_scalar(&format!(
            "select count(*) from \"{schema}\".\"{table}\" as one
             where strpos(to_jsonb(one.\"{column}\")::text, $1) > 0 or strpos(to_jsonb(one.\"{column}\")::text, $2) > 0"
        ))
        .bind(part)
        .bind(&hex)
        .fetch_one(pool)
        .await
        .expect("Postgres answers");
        if rows > 0 {
            found.push(format!("{schema}.{table}.{column}: {rows} rows"));
        }
    }
    found
}

/// Every key of Redis and what it holds, serialized.
async fn redis_dump(stores: &Stores) -> Vec<u8> {
    let mut redis = stores.redis_connection().await;
    let keys: Vec<Vec<u8>> = redis.keys("*").await.expect("Redis answers");
    let mut all = Vec::new();
    for key in keys {
        let dump: Option<Vec<u8>> = redis::cmd("DUMP")
            .arg(&key)
            .query_async(&mut redis)
            .await
            .expect("Redis answers");
        all.extend(key);
        all.extend(dump.unwrap_or_default());
    }
    all
}

fn contains(bytes: &[u8], part: &str) -> bool {
    bytes.windows(part.len()).any(|window| window == part.as_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erased_voter_is_in_no_table_in_no_key_and_in_no_log_and_all_counts_stay() {
    let tally = Tally::start().await;
    let address_keys = "7".repeat(64);
    let settings = [
        ("TALLY_ADDRESS_KEYS", address_keys.as_str()),
        ("TALLY_OPEN", "anonymous,voters,admin"),
        ("TALLY_THROTTLE", "voter:1000/1m"),
        ("RUST_LOG", "info,tally=debug"),
    ];
    let (server, base) = start_server_with(&tally.stores, "server", &settings).await;
    let worker = start_worker(&tally.stores, "worker", &[("RUST_LOG", "info,tally=debug")]);
    let ask = async |method: Method, path: &str, body: Value| {
        let (status, said) = tally.send_to(&base, method, path, Some(&body)).await;
        assert!(status.is_success(), "{path}: {said}");
        said
    };
    let plain = tally.item("plain").await;
    let full = tally.item_with(json!({ "max_votes": 3, "numbered": true })).await;
    let poll = json!({ "title": "x", "choices": ["a", "b"], "max_choices": 1 });
    let (_, poll) = tally.post("/v1/polls", &poll).await;
    let choice = poll["choices"][0]["item_id"].clone();
    let encoded = |name: &str| {
        percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC).to_string()
    };
    // Plain votes, a change, numbers, a poll; under three names, which become one.
    for name in [EARLIER[0], EARLIER[1], "bob"] {
        for item in [json!(plain), json!(full), choice.clone()] {
            ask(
                Method::POST,
                &format!("/v1/items/{item}/votes"),
                json!({ "voter_id": name }),
            )
            .await;
        }
    }
    let own = tally.item("of her own").await;
    ask(
        Method::PUT,
        &format!("/v1/items/{own}/votes/{}", encoded(EARLIER[0])),
        json!({ "value": -1 }),
    )
    .await;
    let (done, said) = void(
        &tally,
        &[
            "--voter",
            EARLIER[1],
            "--item",
            &plain.to_string(),
            "--reason",
            "x",
            "--apply",
        ],
    )
    .await;
    assert!(done, "{said}");
    for arguments in [
        &["rename", EARLIER[0], NAME, "--apply"][..],
        &["merge", EARLIER[1], NAME, "--apply"],
    ] {
        let (done, _, said) = voter(&tally.stores, arguments).await;
        assert!(done, "{said}");
    }
    // A vote with an idempotency key, and one that she takes back.
    let keyed = tally.item("keyed").await;
    let answer = tally
        .http
        .post(format!("{base}/v1/items/{keyed}/votes"))
        .header("Idempotency-Key", "k1")
        .json(&json!({ "voter_id": NAME }))
        .send()
        .await
        .expect("an answer");
    assert!(answer.status().is_success());
    let (done, said) = void(
        &tally,
        &[
            "--voter",
            NAME,
            "--item",
            &keyed.to_string(),
            "--reason",
            "x",
            "--apply",
        ],
    )
    .await;
    assert!(done, "{said}");
    tally.roll_up_all().await;

    let names = [NAME, EARLIER[0], EARLIER[1]];
    for (name, least) in [(NAME, 4), (EARLIER[0], 1), (EARLIER[1], 2)] {
        let found = columns_with(&tally.pool, name).await;
        assert!(found.len() >= least, "the search finds {name}: {found:?}");
    }
    let sums = async || -> Vec<String> {
        sqlx::query_scalar(
            "select format('%s %s %s %s', item_id, sum(value), count(*), count(distinct voter_id)) from vote
             group by item_id order by item_id",
        )
        .fetch_all(&tally.pool)
        .await
        .expect("Postgres answers")
    };
    let (before, held_before) = (sums().await, held(&tally.pool).await);
    let mut erase = command_as(TALLY, Some((&tally.stores, Role::Operator)));
    erase.args(["voter", "erase", NAME, "--apply"]);
    let erased = run(erase).await;
    assert!(erased.status.success(), "{}", text(&erased.stderr));

    assert_eq!(sums().await, before);
    let named = |lines: Vec<String>| -> Vec<String> {
        let is_digits = |word: &str| word.starts_with("erased-");
        let unnamed = |line: String| -> String {
            let words = line
                .split(' ')
                .map(|word| if is_digits(word) { NAME } else { word });
            words.collect::<Vec<_>>().join(" ")
        };
        let mut lines: Vec<String> = lines.into_iter().map(unnamed).collect();
        lines.sort();
        lines
    };
    assert_eq!(named(held(&tally.pool).await), named(held_before));
    assert_rules_hold(&tally.pool).await;
    for item in [plain, full, keyed, own] {
        tally.assert_exact_when_quiescent(item).await;
    }
    for name in names {
        assert_eq!(
            columns_with(&tally.pool, name).await,
            Vec::<String>::new(),
            "{name}"
        );
        assert!(!contains(&redis_dump(&tally.stores).await, name), "{name}");
        let logs = [
            server.output(),
            worker.output(),
            text(&erased.stdout),
            text(&erased.stderr),
        ];
        for log in logs {
            assert!(
                !log.contains(name) && !log.contains(&encoded(name)),
                "{name}: {log}"
            );
        }
        let (done, shown, _) = voter(&tally.stores, &["show", name]).await;
        assert!(done && shown["rows"] == 0, "{shown}");
    }
    // Where her votes came from is gone with her name; bob's are kept.
    let addresses: i64 = sqlx::query_scalar("select count(*) from vote_address")
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(addresses, 3);
    for table in ["votes", "items", "polls", "results"] {
        let (done, out, said) = export(&tally.stores, Role::Report, &[table]).await;
        assert!(done, "{said}");
        assert!(names.iter().all(|name| !out.contains(name)), "{table}");
    }
    // Whoever comes with that name now is somebody new.
    let (status, _) = tally.vote(own, NAME).await;
    assert!(status.is_success());
    assert_rules_hold(&tally.pool).await;
}
