//! Redis users: each may do what its program does, and nothing else.
//! A program whose user may do less says what is missing.

use std::path::Path;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tally::dev::PrivateRedis;
use tally::ledger::Role;
use tally::live::{LiveError, Redis, SERVER_ANSWER_LIMIT};
use tally::telemetry::Program;
use testkit::stores::{redis_connection, redis_info, temporary_folder};
use tokio::process::Command;

use crate::helpers::eventually;
use crate::helpers::programs::{SYNC_WORKER, TALLY, command, run, text};
use crate::helpers::stores::Stores;
use crate::helpers::tally::Tally;

const USERS: [(Role, &str); 3] = [
    (Role::Server, "server"),
    (Role::Worker, "worker"),
    (Role::Operator, "operator"),
];

/// The ACL rules that the script gives this user: `+hset`, `+script|load`.
fn allowed(stores: &Stores, user: &str) -> Vec<String> {
    let users = std::fs::read_to_string(stores.folder().join("redis/users.acl")).expect("the users");
    let line = users
        .lines()
        .find(|line| line.starts_with(&format!("user {user} ")))
        .expect("the user");
    let (_, rules) = line.split_once(" -@all ").expect("nothing first");
    rules.split(' ').map(str::to_owned).collect()
}

async fn change_rule(redis: &mut MultiplexedConnection, user: &str, rule: &str) {
    redis::cmd("ACL")
        .arg("SETUSER")
        .arg(user)
        .arg(rule)
        .exec_async(redis)
        .await
        .expect("Redis takes the rule");
}

fn words(line: &str) -> Cmd {
    let mut command = Cmd::new();
    for word in line.split(' ') {
        command.arg(word);
    }
    command
}

/// The error that Redis answers with; `None`: another answer.
async fn refusal(connection: &mut MultiplexedConnection, command: &Cmd) -> Option<String> {
    let answer: Result<Value, redis::RedisError> = command.query_async(connection).await;
    answer.err().and_then(|error| {
        let text = error.to_string();
        error.code().map(|code| format!("{code} {text}"))
    })
}

/// Sends each command of Redis, with as many words as it needs.
/// A command that the user may not use is refused before it does anything. So are keys of others.
#[tokio::test(flavor = "multi_thread")]
async fn each_user_is_refused_every_command_and_every_key_that_is_not_its_own() {
    let stores = Stores::start().await;
    let mut owner = stores.redis_connection().await;
    let all: Vec<Value> = redis::cmd("COMMAND")
        .query_async(&mut owner)
        .await
        .expect("Redis answers");
    let all: Vec<(String, i64)> = all
        .into_iter()
        .map(|one| match one {
            Value::Array(parts) => {
                let mut parts = parts.into_iter();
                let mut next = || parts.next().expect("a part");
                (
                    redis::from_redis_value(next()).expect("a name"),
                    redis::from_redis_value(next()).expect("a number"),
                )
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(all.len() > 200, "{}", all.len());
    // Every connection may log in and leave.
    let of_all = ["auth", "hello", "quit", "reset"];
    for (role, user) in USERS {
        let allowed = allowed(&stores, user);
        let mut connection = redis_connection(&stores.redis_login_url(role))
            .await
            .expect("it logs in");
        let mut refused = 0;
        for (name, arity) in &all {
            let is_allowed = allowed
                .iter()
                .any(|rule| rule.trim_start_matches('+').split('|').next() == Some(name));
            if is_allowed || of_all.contains(&name.as_str()) {
                continue;
            }
            let mut sent = Cmd::new();
            sent.arg(name);
            for _ in 1..arity.unsigned_abs() {
                sent.arg("tally:x");
            }
            let code = refusal(&mut connection, &sent).await.unwrap_or_default();
            // Redis first checks the subcommand, and whether the command is turned off.
            let is_refused = code.contains("NOPERM")
                || code.to_lowercase().contains("subcommand")
                || code.contains("command not allowed");
            assert!(is_refused, "{user}: {name}: {code}");
            refused += 1;
        }
        assert!(refused > 180, "{refused}");
        for line in [
            "FLUSHALL",
            "FLUSHDB",
            "KEYS *",
            "CONFIG GET requirepass",
            "CONFIG SET requirepass x",
            "ACL LIST",
            "ACL SETUSER server +@all",
            "EVAL return 0",
            "SCRIPT FLUSH",
            "SCRIPT KILL",
            "CLIENT LIST",
            "CLIENT KILL 127.0.0.1:1",
            "GET other:epoch",
            "SET tallyx y",
            "MGET other:{1}",
            "DEL other:{1} tally:{1}",
        ] {
            let code = refusal(&mut connection, &words(line)).await.unwrap_or_default();
            assert!(code.starts_with("NOPERM"), "{user}: {line}: {code}");
        }
        // A script has its caller's rights. Redis checks its keys, too.
        for (code, key) in [
            ("return redis.call('FLUSHALL')", "tally:x"),
            ("return redis.call('GET', 'other:epoch')", "tally:x"),
            ("return redis.call('GET', KEYS[1])", "other:epoch"),
        ] {
            let script = redis::Script::new(code);
            let ran: Result<Value, _> = script.key(key).invoke_async(&mut connection).await;
            let error = ran.expect_err(code).to_string();
            assert!(
                ["ACL", "can't", "No permissions", "no permissions"]
                    .iter()
                    .any(|part| error.contains(part)),
                "{user}: {code}: {error}"
            );
        }
    }
    // The keys of throttles belong to the server.
    let mut server = redis_connection(&stores.redis_login_url(Role::Server))
        .await
        .expect("it logs in");
    for line in [
        "MGET tally:throttle:x",
        "INCRBY tally:throttle:x 1",
        "PEXPIRE tally:throttle:x 1000",
        "PTTL tally:throttle:x",
        "SET tally:throttle:x 1 PX 1000",
    ] {
        assert_eq!(refusal(&mut server, &words(line)).await, None, "{line}");
    }
    let mut worker = redis_connection(&stores.redis_login_url(Role::Worker))
        .await
        .expect("it logs in");
    for line in ["INCRBY tally:throttle:x 1", "PERSIST tally:{1}"] {
        let code = refusal(&mut worker, &words(line)).await.unwrap_or_default();
        assert!(code.starts_with("NOPERM"), "{line}: {code}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_login_lacks_is_found_out_and_named_whatever_it_is() {
    let stores = Stores::start().await;
    let mut owner = stores.redis_connection().await;
    for (role, user, program) in [
        (Role::Server, "server", Program::Server),
        (Role::Worker, "worker", Program::Worker),
        (Role::Operator, "operator", Program::Server),
    ] {
        let redis = Redis::new(
            stores.redis_login_url(role),
            &"tally:".parse().expect("a prefix"),
            SERVER_ANSWER_LIMIT,
        )
        .expect("a URL");
        redis.check(program).await.expect("it lacks nothing");
        for rule in allowed(&stores, user) {
            let name = rule.trim_start_matches('+').replace('|', " ").to_uppercase();
            change_rule(&mut owner, user, &rule.replacen('+', "-", 1)).await;
            let missing = match redis.check(program).await {
                Err(LiveError::Permission { missing, .. }) => missing,
                other => panic!("{user} without {name}: {other:?}"),
            };
            assert_eq!(missing, format!("run {name}"), "{user}");
            change_rule(&mut owner, user, &rule).await;
        }
        redis.check(program).await.expect("it lacks nothing again");
        let mut keys = owner.clone();
        let exists: bool = redis::AsyncCommands::exists(&mut keys, "tally:probe")
            .await
            .expect("Redis answers");
        assert!(!exists, "nothing is left behind");
    }
}

async fn said_at_start(program: &str, arguments: &[&str], database_url: &str, redis_url: &str) -> String {
    let mut command = command(program, None);
    command
        .args(arguments)
        .env("DATABASE_URL", database_url)
        .env("REDIS_URL", redis_url)
        .env("TALLY_LISTEN", "127.0.0.1:0");
    let output = run(command).await;
    let said = text(&output.stderr);
    assert!(!output.status.success(), "{program} {arguments:?} starts");
    assert_eq!(said.trim().lines().count(), 1, "{said}");
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_whose_login_lacks_a_command_or_its_keys_says_so_in_one_line_at_its_start() {
    let stores = Stores::start().await;
    let mut owner = stores.redis_connection().await;
    sqlx::raw_sql("insert into item (name) values ('x'); insert into vote (item_id) values (1)")
        .execute(&stores.pool())
        .await
        .expect("a vote");
    let void = ["void", "--item", "1", "--reason", "x", "--apply"];
    for (rule, missing) in [
        ("-mset", "may not run MSET"),
        ("-evalsha", "may not run EVALSHA"),
        ("resetkeys", "may not use the keys tally:*"),
    ] {
        for (program, arguments, role, user) in [
            (TALLY, &["serve"][..], Role::Server, "server"),
            (SYNC_WORKER, &[], Role::Worker, "worker"),
            (TALLY, &["audit"], Role::Worker, "worker"),
            (TALLY, &void, Role::Operator, "operator"),
        ] {
            change_rule(&mut owner, user, rule).await;
            let (database, redis) = (stores.login_url(role), stores.redis_login_url(role));
            let said = said_at_start(program, arguments, &database, &redis).await;
            for part in [missing, "REDIS_URL", "scripts/redis-users"] {
                assert!(said.contains(part), "{program} {arguments:?}: {said}");
            }
            change_rule(&mut owner, user, "~tally:*").await;
            change_rule(&mut owner, user, "+mset").await;
            change_rule(&mut owner, user, "+evalsha").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_login_loses_a_command_names_it_in_ready_and_goes_on_without_redis_meanwhile() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    assert_eq!(tally.add(item, 1).await, Some(1));
    let mut owner = tally.stores.redis_connection().await;
    change_rule(&mut owner, "server", "-mget").await;
    assert_eq!(tally.add(item, 1).await, None, "stored, and not counted");
    eventually("ready names it", async || {
        let (status, answer) = tally.get("/health/ready").await;
        let detail = answer["detail"].as_str()?.to_owned();
        let is_named = answer["redis"] == "refused" && detail.contains("may not run MGET");
        (status == 200 && answer["status"] == "degraded" && is_named).then_some(())
    })
    .await;
    change_rule(&mut owner, "server", "+mget").await;
    tally.wait_until_ready("ready").await;
    eventually("live counts are back", async || tally.add(item, 1).await).await;
    tally.assert_exact_when_quiescent(item).await;
}

/// A server checks the owner of the keys now and then.
/// A refused check says nothing about counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_may_not_check_the_owner_of_the_keys_goes_on_counting() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    assert_eq!(tally.add(item, 1).await, Some(1));
    let mut owner = tally.stores.redis_connection().await;
    change_rule(&mut owner, "server", "-get").await;
    // By the second refusal, the effects of the first have arrived.
    eventually("it was refused twice", async || {
        let info = redis_info(&tally.stores.redis_url(), "commandstats").await.ok()?;
        let of_get: String = info.get("cmdstat_get")?;
        let refused = of_get
            .split(',')
            .find_map(|part| part.strip_prefix("rejected_calls="));
        (refused?.parse::<u64>().ok()? >= 2).then_some(())
    })
    .await;
    assert_eq!(tally.add(item, 1).await, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_users_of_one_prefix_may_not_use_the_keys_of_another() {
    let stores = Stores::start().await;
    let folder = temporary_folder("redis-").expect("a folder");
    let mut redis = PrivateRedis::new(folder.path(), "secret")
        .expect("a port")
        .with_key_prefix("votes.eu:".parse().expect("a prefix"));
    redis.start().await.expect("Redis starts");
    let url = redis.login_url(Role::Worker);
    let once = async |prefix: &str| {
        let mut once = command(SYNC_WORKER, None);
        once.arg("--once")
            .env("DATABASE_URL", stores.login_url(Role::Worker))
            .env("REDIS_URL", &url)
            .env("TALLY_KEY_PREFIX", prefix);
        let output = run(once).await;
        (output.status.success(), text(&output.stderr))
    };
    let (done, said) = once("votes.eu:").await;
    assert!(done, "{said}");
    for prefix in ["tally:", "votes.eu", "votes-eu:"] {
        let (done, said) = once(prefix).await;
        assert!(
            !done && said.contains(&format!("may not use the keys {prefix}*")),
            "{said}"
        );
        assert_eq!(said.trim().lines().count(), 1, "{said}");
    }
}

/// Runs `scripts/redis-users` with passwords that begin like this.
fn script(round: &str) -> Command {
    let mut script = command("sh", None);
    script.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/redis-users"));
    for part in ["REDIS", "SERVER", "WORKER", "OPERATOR"] {
        script.env(format!("{part}_PASSWORD"), format!("{round}{part}"));
    }
    script
}

#[tokio::test(flavor = "multi_thread")]
async fn the_script_that_makes_the_users_may_be_run_again_on_a_redis_that_runs_and_changes_their_passwords() {
    let stores = Stores::start().await;
    let mut owner = stores.redis_connection().await;
    for round in ["first'$ \"", "second"] {
        let output = run(script(round)).await;
        assert!(output.status.success(), "{}", text(&output.stderr));
        let lines = text(&output.stdout);
        assert!(!lines.contains(round), "{lines}");
        for line in lines.lines() {
            let line = line.replacen("user", "ACL SETUSER", 1);
            words(&line).exec_async(&mut owner).await.expect("Redis takes it");
        }
        for (name, part) in [
            ("server", "SERVER"),
            ("worker", "WORKER"),
            ("operator", "OPERATOR"),
            ("default", "REDIS"),
        ] {
            let mut auth = redis::cmd("AUTH");
            auth.arg(name).arg(format!("{round}{part}"));
            assert_eq!(refusal(&mut owner.clone(), &auth).await, None, "{name}");
        }
    }
    let mut old = redis::cmd("AUTH");
    old.arg("server").arg("first'$ \"SERVER");
    assert!(refusal(&mut owner, &old).await.is_some());
}

#[tokio::test]
async fn the_script_that_makes_the_users_stops_at_a_missing_password_and_at_a_prefix_that_opens_others_keys()
{
    let mut without = script("x");
    without.env_remove("WORKER_PASSWORD");
    let mut empty = script("x");
    empty.env("WORKER_PASSWORD", "");
    let mut wide = script("x");
    wide.env("TALLY_KEY_PREFIX", "*");
    for (script, word) in [
        (without, "WORKER_PASSWORD"),
        (empty, "WORKER_PASSWORD"),
        (wide, "TALLY_KEY_PREFIX"),
    ] {
        let output = run(script).await;
        let said = text(&output.stderr);
        assert!(!output.status.success() && output.stdout.is_empty(), "{said}");
        assert!(said.contains(word) && said.trim().lines().count() == 1, "{said}");
    }
}
