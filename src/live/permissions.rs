//! What a program's login in Redis must be allowed to do. `scripts/redis-users` grants each program
//! this. A missing permission is found before it matters, and named.

use redis::aio::ConnectionLike;
use redis::{Cmd, RedisError, Value};

use super::buckets::Bucket;
use super::error_replies::Refusal;
use super::scripts::{self, text};
use super::{KeyPrefix, Keys, LiveError};
use crate::telemetry::Program;

/// What both programs' scripts run, with arguments that fit. All of it is tried on one key, so the
/// commands that give the key a time to live come last.
const IN_SCRIPTS_OF_BOTH: [&str; 7] = ["TIME", "GET", "SET x", "DEL", "MGET", "MSET x", "SADD x"];
const IN_SCRIPTS_OF_SERVER: [&str; 3] = ["INCRBY 1", "PTTL", "PEXPIRE 1000"];
const IN_SCRIPTS_OF_WORKER: [&str; 1] = ["SREM x"];

/// What the scripts of a program run.
fn in_scripts(program: Program) -> impl Iterator<Item = &'static str> {
    let own = match program {
        Program::Server => &IN_SCRIPTS_OF_SERVER[..],
        Program::Worker => &IN_SCRIPTS_OF_WORKER,
    };
    IN_SCRIPTS_OF_BOTH.into_iter().chain(own.iter().copied())
}

/// The commands that a program runs outside its scripts only. They change nothing.
fn beside_scripts(program: Program, keys: &Keys, bucket: Bucket) -> Vec<(&'static str, Cmd)> {
    let command = |words: &[&str]| {
        let mut command = Cmd::new();
        for word in words {
            command.arg(*word);
        }
        command
    };
    let probe = keys.probe(bucket);
    let mut commands = vec![
        ("PING", command(&["PING"])),
        ("UNWATCH", command(&["UNWATCH"])),
        (
            "SCRIPT LOAD",
            command(&["SCRIPT", "LOAD", scripts::PERMISSIONS.code()]),
        ),
    ];
    if keys.buckets() > 1 {
        commands.push(("CLUSTER NODES", command(&["CLUSTER", "NODES"])));
        // It is for the next command, which is none of a slot that moves.
        commands.push(("ASKING", command(&["ASKING"])));
    }
    if let Program::Worker = program {
        commands.extend([
            ("INFO", command(&["INFO", "server"])),
            ("DBSIZE", command(&["DBSIZE"])),
            ("SCAN", command(&["SCAN", "0", "MATCH", &probe, "COUNT", "1"])),
            ("SSCAN", command(&["SSCAN", &probe, "0"])),
        ]);
    }
    commands
}

/// Checks that this connection's login may do what the program does.
///
/// # Errors
/// When it may not: the error names what is missing. When Redis is unavailable.
pub(super) async fn check(
    connection: &mut impl ConnectionLike,
    keys: &Keys,
    bucket: Bucket,
    program: Program,
) -> Result<(), LiveError> {
    let (names, commands): (Vec<_>, Vec<_>) = beside_scripts(program, keys, bucket).into_iter().unzip();
    let replies = scripts::send(connection, commands.into_iter()).await?;
    let mut missing = Missing::default();
    for (name, reply) in names.into_iter().zip(replies) {
        if let Value::ServerError(error) = reply
            && let Some(refusal) = Refusal::of(&RedisError::from(error))
        {
            missing.note(name, &refusal);
        }
    }
    let tried: Vec<&str> = in_scripts(program).collect();
    // A script's call has counters of several items. Unless the URL says that it is a Redis Cluster, one, even of one
    // node, refuses that: these two are in different slots.
    let mut all_keys = vec![keys.probe(bucket)];
    all_keys.extend(bucket.no_items().map(|item| keys.counter(item).to_string()));
    let all_keys: Vec<&str> = all_keys.iter().map(String::as_str).collect();
    let called = scripts::PERMISSIONS
        .call_once(connection, &all_keys, &tried)
        .await;
    match called {
        Err(LiveError::Refused(refusal)) if missing.note("EVALSHA", &refusal) => {}
        Err(error) => return missing.or(keys.prefix(), program).and(Err(error)),
        Ok(reply) => match &reply {
            Value::Array(words) if words.first().and_then(text) == Some("REFUSED") => {
                for word in words.iter().skip(1).filter_map(text) {
                    match word.strip_prefix("unknown ") {
                        Some(command) => missing.unknown.push(command.to_owned()),
                        None => missing.commands.push(word.to_owned()),
                    }
                }
            }
            reply if text(reply) == Some("ALLOWED") => {}
            _ => return Err(scripts::PERMISSIONS.unexpected(reply)),
        },
    }
    missing.or(keys.prefix(), program)
}

/// What a login lacks.
#[derive(Default)]
struct Missing {
    commands: Vec<String>,
    unknown: Vec<String>,
    has_keys_missing: bool,
}

impl Missing {
    /// Notes a refusal of this command. Returns whether a permission or the command is missing.
    fn note(&mut self, command: &str, refusal: &Refusal) -> bool {
        if refusal.is_of_keys() {
            self.has_keys_missing = true;
        } else if refusal.reply().code == "NOPERM" {
            self.commands.push(command.to_owned());
        } else if refusal.is_unknown_command() {
            self.unknown.push(command.to_owned());
        } else {
            return false;
        }
        true
    }

    fn or(self, keys: &KeyPrefix, program: Program) -> Result<(), LiveError> {
        let name = match program {
            Program::Server => "server",
            Program::Worker => "worker",
        };
        if !self.unknown.is_empty() {
            return Err(LiveError::UnknownCommands {
                commands: self.unknown.join(", "),
                program: name,
            });
        }
        let mut parts = Vec::new();
        if self.has_keys_missing {
            parts.push(format!("use the keys {keys}*"));
        }
        if !self.commands.is_empty() {
            parts.push(format!("run {}", self.commands.join(", ")));
        }
        if parts.is_empty() {
            return Ok(());
        }
        Err(LiveError::Permission {
            missing: parts.join(", nor "),
            program: name,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const USERS: &str = include_str!("../../scripts/redis-users");
    const SCRIPTS_OF_SERVER: [&str; 5] = ["count", "seed", "invalidate", "probe", "throttle"];
    const SCRIPTS_OF_WORKER: [&str; 8] = [
        "mark_saved",
        "expire",
        "invalidate",
        "claim_rebuild",
        "clear_rebuild",
        "remove_saved",
        "advance",
        "enter_epoch",
    ];

    /// What a script of `lua/` runs.
    fn run_by(script: &str) -> BTreeSet<String> {
        let file = format!("{}/lua/{script}.lua", env!("CARGO_MANIFEST_DIR"));
        let code = std::fs::read_to_string(file).expect("a script");
        let code = code.lines().filter(|line| !line.trim_start().starts_with("--"));
        let calls = code.flat_map(|line| line.split("call('").skip(1));
        calls
            .map(|call| call.split('\'').next().expect("a name").to_owned())
            .collect()
    }

    fn tried(program: Program) -> BTreeSet<String> {
        in_scripts(program)
            .map(|line| line.split(' ').next().expect("a name").to_owned())
            .collect()
    }

    #[test]
    fn what_is_tried_is_what_the_scripts_run() {
        for (program, scripts) in [
            (Program::Server, &SCRIPTS_OF_SERVER[..]),
            (Program::Worker, &SCRIPTS_OF_WORKER),
        ] {
            let mut run: BTreeSet<String> = scripts.iter().flat_map(|name| run_by(name)).collect();
            // The owner's mark, beside the scripts.
            run.extend(["GET", "SET"].map(str::to_owned));
            if let Program::Worker = program {
                // Puts items back into the index, and removes a cursor that is none.
                run.extend(["SADD", "DEL"].map(str::to_owned));
            }
            assert_eq!(tried(program), run, "{program:?}");
        }
    }

    #[test]
    fn each_user_is_allowed_what_is_tried_and_no_more() {
        for (user, program) in [
            ("server", Program::Server),
            ("operator", Program::Server),
            ("worker", Program::Worker),
        ] {
            let line = USERS
                .lines()
                .find(|line| line.starts_with(&format!("user {user} ")))
                .expect(user);
            let (_, allowed) = line.split_once(" -@all ").expect("nothing first");
            let of_cluster = USERS
                .split('\'')
                .find(|text| text.contains("+asking"))
                .expect("a line");
            let prefix = KeyPrefix::default;
            for (keys, more) in [
                (Keys::one(prefix()), ""),
                (Keys::of_cluster(prefix()), of_cluster),
            ] {
                let allowed = allowed.replace("$cluster", more);
                let allowed: BTreeSet<String> = allowed.split(' ').map(str::to_owned).collect();
                let beside = beside_scripts(program, &keys, Bucket::FIRST)
                    .into_iter()
                    .map(|(name, _)| name.to_owned());
                let needed = tried(program).into_iter().chain(beside);
                let needed = needed.chain(["EVALSHA".to_owned()]);
                let needed = needed.map(|name| format!("+{}", name.to_lowercase().replace(' ', "|")));
                let needed: BTreeSet<String> = needed.collect();
                assert_eq!(allowed, needed, "{user}");
            }
        }
    }
}
