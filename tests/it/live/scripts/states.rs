//! Every script on every state of a counter.
//! What it replies, writes and removes must be as its header and the tables in
//! `src/live/counter.rs` and `src/live/keys.rs` say.

use std::collections::{BTreeMap, BTreeSet};

use redis::{AsyncCommands, Value};
use tally::domain::{CountDelta, ExactCount, ItemId, Snapshot, Throttles, TransactionId};
use tally::live::{Bucket, CountReply, CounterParts, Scan, Seed, Seeding};

use super::documented::{Pairs, documented, name_of, named_replies, rows, scripts};
use super::{COLD, INDEX, KEY, LEASE_LIMIT_MS, Scripts};
use crate::helpers::stores::Stores;
use crate::helpers::tally::{connected, counters, live_counts_of, some_owner};

const HOUR_US: i64 = 3_600_000_000;
/// A field that no script leaves without a live count. `seed` must still remove it.
const STRAY: &str = "saved";
/// The parts in the table of `src/live/counter.rs`.
const PARTS: usize = 9;

type Fields = BTreeMap<String, String>;

fn fields(pairs: &[(&str, String)]) -> Fields {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect()
}

/// The counter with these parts.
fn parts(state: &Fields) -> CounterParts {
    let number = |name: &str| {
        state
            .get(name)
            .map_or(0, |value| value.parse().expect("a number"))
    };
    let text = |name: &str| state.get(name).cloned().unwrap_or_default();
    CounterParts {
        count: number("count"),
        downs: number("downs"),
        revision: number("revision"),
        saved: number("saved"),
        xmax: number("xmax"),
        seeded: u32::try_from(number("seeded")).expect("seconds"),
        lease: text("lease"),
        request: text("request"),
        snapshot: text("snapshot"),
    }
}

/// Whether a counter with these fields must be in the index.
fn is_to_be_written(state: &Fields) -> bool {
    let is_unsaved = state.contains_key("count") && state.get("saved") != state.get("revision");
    is_unsaved || state.contains_key("request")
}

/// All kinds of states: with a live count, a lease, a rebuild request, or none.
fn states(now: i64) -> Vec<Fields> {
    let mut states = vec![Fields::new()];
    for taken in [now, 1_000_000, now + HOUR_US] {
        let lease = format!("{taken}:lease");
        states.push(fields(&[("lease", lease.clone())]));
        states.push(fields(&[("lease", lease), (STRAY, now.to_string())]));
    }
    for revision in [now - HOUR_US, now + HOUR_US] {
        for snapshot in ["100", "100:110:105", "103:110:105:100"] {
            for saved in [None, Some(revision), Some(revision - 1)] {
                let mut state = fields(&[
                    ("count", "5".to_owned()),
                    ("revision", revision.to_string()),
                    (
                        if snapshot == "100" { "xmax" } else { "snapshot" },
                        snapshot.to_owned(),
                    ),
                    ("seeded", (now / 1_000_000).to_string()),
                ]);
                if let Some(saved) = saved {
                    state.insert("saved".to_owned(), saved.to_string());
                }
                let mut with_downs = state.clone();
                with_downs.insert("downs".to_owned(), "2".to_owned());
                states.extend([state, with_downs]);
            }
        }
    }
    // The floor of a dropped count, alone and beside a lease.
    for floor in [now - HOUR_US, now + HOUR_US] {
        let floor = ("revision", floor.to_string());
        states.push(fields(std::slice::from_ref(&floor)));
        states.push(fields(&[floor, ("lease", format!("{now}:lease"))]));
    }
    let with_request = states.iter().cloned().map(|mut state| {
        state.insert("request".to_owned(), "request".to_owned());
        state
    });
    let with_request: Vec<Fields> = with_request.collect();
    states.extend(with_request);
    states
}

/// The calls of every script that takes a counter, on this state.
/// Each has a name and arguments.
fn calls(state: &Fields, now: i64) -> Vec<(&'static str, Vec<String>)> {
    let of = |name: &str| state.get(name).cloned().unwrap_or_else(|| "1".to_owned());
    let (revision, lease) = (of("revision"), of("lease"));
    let mut calls = Vec::new();
    for (xid, delta) in [
        ("99", "1"),
        ("102", "1"),
        ("104", "1"),
        ("105", "1"),
        ("110", "-1"),
        ("110", "0"),
        ("110", "0,1"),
        ("105", "-1,1"),
        ("99", "-1,1"),
        ("110", "1,0!"),
        ("110", "-1,1!"),
    ] {
        calls.push(("count", vec![xid, "nonce", LEASE_LIMIT_MS, delta]));
    }
    let ahead = (now + HOUR_US).to_string();
    for (lease, counted_at) in [(lease.as_str(), "0"), (&lease, &ahead), ("another", "0")] {
        calls.push(("seed", vec!["7", "0", "100", lease, counted_at]));
        calls.push(("seed", vec!["7", "3", "100", lease, counted_at]));
        calls.push(("seed", vec!["7", "0", "100:110:105", lease, counted_at]));
    }
    let hours = (2 * HOUR_US).to_string();
    for revision in [revision.as_str(), "2"] {
        calls.push(("mark_saved", vec![revision]));
        calls.push(("expire", vec!["0", revision]));
        calls.push(("expire", vec![&hours, revision]));
    }
    for revision in ["", revision.as_str(), "2"] {
        calls.push(("invalidate", vec!["new request", revision]));
    }
    for request in ["request", "another"] {
        for counted_at in ["0", &ahead] {
            calls.push(("claim_rebuild", vec![request, counted_at]));
        }
    }
    for request in ["request", "another"] {
        calls.push(("clear_rebuild", vec![LEASE_LIMIT_MS, request]));
    }
    calls.push(("remove_saved", vec![]));
    let owned = |(name, arguments): (&'static str, Vec<&str>)| {
        (name, arguments.into_iter().map(str::to_owned).collect())
    };
    calls.into_iter().map(owned).collect()
}

/// All scripts as Tally has them, by name.
const SCRIPTS: [(&str, &str); 14] = [
    ("advance", script!("advance")),
    ("claim_rebuild", script!("claim_rebuild")),
    ("clear_cold", script!("clear_cold")),
    ("clear_rebuild", script!("clear_rebuild")),
    ("count", script!("count")),
    ("enter_epoch", script!("enter_epoch")),
    ("expire", script!("expire")),
    ("invalidate", script!("invalidate")),
    ("mark_saved", script!("mark_saved")),
    ("permissions", script!("permissions")),
    ("probe", script!("probe")),
    ("remove_saved", script!("remove_saved")),
    ("seed", script!("seed")),
    ("throttle", script!("throttle")),
];

impl Scripts {
    async fn put(&mut self, state: &Fields) {
        let mut pipeline = redis::pipe();
        pipeline.del(KEY).del(INDEX).ignore();
        if !state.is_empty() {
            pipeline
                .set(KEY, testkit::counters::value(&parts(state)))
                .ignore();
        }
        if is_to_be_written(state) {
            pipeline.sadd(INDEX, KEY).ignore();
        }
        if state.contains_key("lease") && !state.contains_key("request") {
            pipeline.cmd("PEXPIRE").arg(KEY).arg(LEASE_LIMIT_MS).ignore();
        }
        let () = pipeline
            .query_async(&mut self.connection)
            .await
            .expect("Redis answers");
    }

    /// Whether the key exists on which commands are tried.
    async fn has_probe(&mut self) -> bool {
        self.connection.exists("probe").await.expect("Redis answers")
    }
}

/// What `permissions` replies to a login that may only read.
async fn refused_to_a_login_that_may_only_read(scripts: &mut Scripts, code: &str) -> Value {
    let rules = [
        "on",
        ">secret",
        "~*",
        "+@read",
        "+time",
        "+evalsha",
        "+script|load",
    ];
    redis::cmd("ACL")
        .arg("SETUSER")
        .arg("reader")
        .arg(&rules)
        .exec_async(&mut scripts.connection)
        .await
        .expect("a login");
    let url = format!("redis://reader:secret@127.0.0.1:{}/", scripts.stores.redis.port());
    let mut reader = testkit::stores::redis_connection(&url).await.expect("it logs in");
    let script = redis::Script::new(code);
    let mut call = script.key("probe");
    for line in ["TIME", "GET", "MSET x", "MGET", "SADD x"] {
        call.arg(line);
    }
    call.invoke_async(&mut reader).await.expect("the script runs")
}

#[tokio::test]
async fn every_script_replies_writes_and_removes_what_its_header_and_the_table_of_parts_say() {
    let mut scripts_of_redis = Scripts::start().await;
    let now = scripts_of_redis.now().await;
    let (mut replies, mut written, mut removed) = (Pairs::new(), Pairs::new(), Pairs::new());
    let codes = BTreeMap::from(SCRIPTS);
    let names: BTreeSet<String> = SCRIPTS.map(|(name, _)| name.to_owned()).into();
    assert_eq!(names, scripts(), "the scripts here, and in lua/");
    for state in states(now) {
        for (script, arguments) in calls(&state, now) {
            let at = format!("{script} {arguments:?} on {state:?}");
            scripts_of_redis.put(&state).await;
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let keys = match script {
                "count" => &[INDEX, KEY, COLD][..],
                _ => &[INDEX, KEY],
            };
            let [reply]: [Value; 1] = scripts_of_redis.run(codes[script], keys, &arguments).await;
            replies.insert((script.to_owned(), name_of(&reply)));
            let after = scripts_of_redis.named().await;
            for field in state.keys().chain(after.keys()) {
                let pair = (field.clone(), script.to_owned());
                match (state.get(field), after.get(field)) {
                    (Some(_), None) => {
                        removed.insert(pair);
                    }
                    (before, now) if before != now => {
                        written.insert(pair);
                    }
                    _ => {}
                }
            }
            let is_in_index: bool = scripts_of_redis
                .connection
                .sismember(INDEX, KEY)
                .await
                .expect("Redis answers");
            assert_eq!(is_in_index, is_to_be_written(&after), "{at} left {after:?}");
            // Only a lease without a request makes the key expire.
            if after.contains_key("lease") || after.contains_key("request") || after.contains_key("count") {
                let has_time_to_live = scripts_of_redis.time_to_live_ms().await > 0;
                let is_lease_alone = after.contains_key("lease") && !after.contains_key("request");
                assert_eq!(has_time_to_live, is_lease_alone, "{at} left {after:?}");
            }
        }
    }
    // The scripts that take no counter.
    for (script, keys, arguments) in [
        ("advance", vec!["scan"], vec!["0", "17"]),
        ("advance", vec!["scan"], vec!["0", "17"]),
        // `count` has set the token.
        ("clear_cold", vec![COLD], vec!["another"]),
        ("clear_cold", vec![COLD], vec!["nonce"]),
        ("clear_cold", vec![COLD], vec!["nonce"]),
        ("enter_epoch", vec!["epoch", "entering"], vec!["an epoch"]),
        ("enter_epoch", vec!["epoch", "scan"], vec!["an epoch"]),
        ("probe", vec!["probe"], vec![]),
        ("permissions", vec!["probe"], vec!["TIME", "MSET x", "SADD x"]),
    ] {
        let reply: Value = scripts_of_redis.run(codes[script], &keys, &arguments).await;
        replies.insert((script.to_owned(), name_of(&reply)));
        assert!(!scripts_of_redis.has_probe().await, "{script} leaves no key");
    }

    // Two attempts in one window, which takes one.
    let plan = ["\0\u{1}\0\u{1}", "1", "60000"];
    let attempts: Vec<Value> = scripts_of_redis.run(codes["throttle"], &["window"], &plan).await;
    for reply in attempts {
        let name = name_of(&reply).replace("{count, downs}", "{t, ms}");
        replies.insert(("throttle".to_owned(), name));
    }
    let refused = refused_to_a_login_that_may_only_read(&mut scripts_of_redis, codes["permissions"]).await;
    replies.insert(("permissions".to_owned(), name_of(&refused)));
    let refused: Vec<String> = redis::from_redis_value(refused).expect("words");
    assert_eq!(refused, ["REFUSED", "MSET", "SADD"]);

    assert!(!scripts_of_redis.has_probe().await, "a refusal leaves no key");

    let named: Pairs = scripts()
        .iter()
        .flat_map(|script| named_replies(script))
        .collect();
    assert_eq!(replies, named, "replies: seen, and in the scripts' headers");
    assert_eq!(
        written,
        documented(3),
        "written by: seen, and in src/live/counter.rs"
    );
    assert_eq!(
        removed,
        documented(4),
        "removed by: seen, and in src/live/counter.rs"
    );
    let names: BTreeSet<String> = written.into_iter().map(|(field, _)| field).collect();
    assert_eq!(names.len(), PARTS, "{names:?}");
}

#[tokio::test]
async fn enter_epoch_notes_the_epoch_only_while_the_mark_is_there() {
    let mut scripts = Scripts::start().await;
    let keys = ["tally:epoch", "tally:entering:1"];
    let () = redis::pipe()
        .set(keys[0], "former")
        .ignore()
        .query_async(&mut scripts.connection)
        .await
        .expect("Redis answers");
    for (has_mark, word, known) in [(false, "LOST", "former"), (true, "ENTERED", "current")] {
        if has_mark {
            let () = redis::AsyncCommands::set(&mut scripts.connection, keys[1], "")
                .await
                .expect("Redis answers");
        }
        let reply: String = scripts.run(script!("enter_epoch"), &keys, &["current"]).await;
        assert_eq!(reply, word);
        let (epoch, mark): (String, Option<String>) =
            redis::AsyncCommands::mget(&mut scripts.connection, &keys)
                .await
                .expect("Redis answers");
        assert_eq!((epoch.as_str(), mark), (known, None));
    }
}

/// Makes every call of server and worker with a login for the table's keys only.
/// Compares the keys that the calls make with the table.
#[tokio::test(flavor = "multi_thread")]
async fn the_server_and_the_worker_use_the_keys_of_the_table_of_keys_and_no_others() {
    let table: BTreeSet<(String, String)> = rows(include_str!("../../../../src/live/keys.rs"))
        .iter()
        .map(|row| (row[0].trim_end_matches('`').to_owned(), row[1].to_owned()))
        .collect();
    let stores = Stores::start().await;
    let mut connection = stores.redis_connection().await;
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER")
        .arg("table")
        .arg("on")
        .arg(">secret")
        .arg("+@all");
    for (key, _) in &table {
        let key = key.replace("<prefix>", "tally:");
        let mut pattern = key;
        for part in ["<item id>", "<nonce>", "<by>", "<interval>", "<of whom>"] {
            pattern = pattern.replace(part, "*");
        }
        user.arg(format!("~{pattern}"));
    }
    user.exec_async(&mut connection).await.expect("a login");
    let url = format!("redis://table:secret@127.0.0.1:{}/", stores.redis.port());

    let mut seen: BTreeSet<(String, String)> = BTreeSet::new();
    let mut look = async || {
        let keys: Vec<String> = redis::cmd("KEYS")
            .arg("*")
            .query_async(&mut connection)
            .await
            .expect("keys");
        for key in keys {
            let kind: String = redis::cmd("TYPE")
                .arg(&key)
                .query_async(&mut connection)
                .await
                .expect("a type");
            let name = key.strip_prefix("tally:").expect("the prefix");
            let name = match name.split_once(':') {
                Some(("throttle", "item:60s:5")) => "throttle:<by>:<interval>s:<of whom>".to_owned(),
                Some((first, _nonce)) => format!("{first}:<nonce>"),
                None if name.starts_with('{') => "{<item id>}".to_owned(),
                None => name.to_owned(),
            };
            seen.insert((format!("<prefix>{name}"), kind));
        }
    };
    let counters = counters(&url);
    let live_counts = connected(live_counts_of(&url, Seeding::Warm)).await;

    let item_id = ItemId::new(5).expect("positive");
    let delta = CountDelta {
        item_id,
        delta: 1.into(),
    };
    let cold = live_counts.count(&[delta], TransactionId(9)).await;
    assert_eq!(cold.expect("a reply"), [CountReply::Cold]);
    look().await;
    let token = counters.cold_token().await.expect("a reply").expect("a token");
    assert!(counters.clear_cold(&token).await.expect("a reply"));
    // It is warm now.
    let replies = live_counts
        .count(&[delta], TransactionId(9))
        .await
        .expect("a reply");
    let [CountReply::Miss { lease }] = &replies[..] else {
        panic!("{replies:?}");
    };
    look().await;
    let exact = ExactCount {
        item_id,
        count: 1.into(),
        counted_at: None,
        snapshot: Snapshot::parse("10:10:").expect("a snapshot"),
    };
    let seed = Seed {
        exact,
        lease: lease.clone(),
    };
    assert_eq!(live_counts.seed(&[seed]).await.expect("a reply"), [true]);
    live_counts.read(&[item_id]).await.expect("a count");
    let counter = counters.read(&[item_id]).await.expect("a counter").remove(0);
    let (_, revision) = counter.unsaved().expect("an unsaved count");
    let changes = [(item_id, revision)];
    counters.mark_saved(&changes).await.expect("a reply");
    counters
        .expire(&changes, std::time::Duration::ZERO)
        .await
        .expect("a reply");
    counters.invalidate(&[item_id]).await.expect("a reply");
    counters
        .clear_rebuilds(&[(item_id, "another".to_owned())])
        .await
        .expect("a reply");
    let throttles: Throttles = "item:1/1m".parse().expect("throttles");
    let windows = throttles.windows(|_| Some(5));
    let verdicts = live_counts.throttle(&throttles, &[windows]).await;
    assert_eq!(verdicts.expect("a reply"), [None]);
    live_counts.suspect([item_id]);
    live_counts.repaired().await;
    for scan in [Scan::Unsaved, Scan::All] {
        let claim = async || counters.claim_page(scan, Bucket::FIRST, 100).await;
        while claim().await.expect("a page").is_none() {}
    }
    counters.keys_in_database().await.expect("a number");
    counters.remove_saved(&[item_id]).await.expect("a reply");
    counters.epochs().await.expect("an epoch");
    let entry = counters.begin_epoch(Bucket::FIRST).await.expect("a mark");
    look().await;
    assert!(counters.enter_epoch("an epoch", entry).await.expect("a reply"));
    let epochs = counters.epochs().await.expect("an epoch").buckets;
    assert!(epochs[0].known.is_some());
    counters.claim(&some_owner()).await.expect("a mark");
    look().await;
    assert!(live_counts.answers(), "no call was refused");
    // This key is never seen, but the breaker closed: no call on it was refused.
    seen.insert(("<prefix>probe".to_owned(), "string".to_owned()));
    // A server that comes from an old primary sets it: `stores::sentinels`.
    seen.insert(("<prefix>moved".to_owned(), "string".to_owned()));
    assert_eq!(seen, table);
}
