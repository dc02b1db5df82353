//! What must hold for each parser of outside input, whatever the input is. The parser never panics.
//! What it accepts is within its limits, and reads the same when it is written out again. What it
//! refuses gets a proper answer.
//!
//! `fuzz/` searches for a counterexample to each property for as long as one likes. The test below
//! tries a fixed number of inputs.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a property fails by panicking, here and under libFuzzer"
)]

mod credentials;
mod framing;
mod requests;

pub use credentials::{forwarded, voter_cookie, voter_token};
pub use framing::request_framing;
pub use requests::{
    api_key_body, authorization, ballots_body, batch_body, choice_body, held_query, idempotency_key,
    item_body, item_edit_body, item_id, last_event_id, list_query, oembed_query, operator_query, origin,
    path_item, path_voter, poll_body, poll_copy_body, poll_edit_body, poll_list_query, selection_body,
    stream_query, top_query, voiding_body, vote_body, voter_edit_body,
};

use std::str::FromStr;

use crate::config::{Cron, DURATION_LIMIT, values};
use crate::domain::{
    RUNNING_LIMIT_TRANSACTIONS, Snapshot, THROTTLES_LIMIT, Throttle, Throttles, TransactionId, Value,
};
use crate::files::Lines;
use crate::ledger::ServerLedger;
use crate::live::{KeyPrefix, Keys, Redis};
use crate::operator::events::EventReader;
use crate::replay::file::{self, Columns, Values, Vote};

/// A property, and the folder of `fuzz/seeds` that holds its first inputs.
pub type Property = (&'static str, fn(&[u8]));

/// All properties. Each is a fuzz target of the same name.
pub const ALL: [Property; 37] = [
    ("request_framing", request_framing),
    ("vote_body", vote_body),
    ("item_body", item_body),
    ("batch_body", batch_body),
    ("poll_body", poll_body),
    ("selection_body", selection_body),
    ("path_voter", path_voter),
    ("path_item", path_item),
    ("item_edit_body", item_edit_body),
    ("poll_edit_body", poll_edit_body),
    ("choice_body", choice_body),
    ("poll_copy_body", poll_copy_body),
    ("ballots_body", ballots_body),
    ("voiding_body", voiding_body),
    ("voter_edit_body", voter_edit_body),
    ("api_key_body", api_key_body),
    ("operator_query", operator_query),
    ("idempotency_key", idempotency_key),
    ("authorization", authorization),
    ("origin", origin),
    ("voter_cookie", voter_cookie),
    ("voter_token", voter_token),
    ("forwarded", forwarded),
    ("list_query", list_query),
    ("oembed_query", oembed_query),
    ("poll_list_query", poll_list_query),
    ("held_query", held_query),
    ("top_query", top_query),
    ("stream_query", stream_query),
    ("last_event_id", last_event_id),
    ("item_id", item_id),
    ("events", events),
    ("snapshot", snapshot),
    ("replay_file", replay_file),
    ("settings", settings),
    ("store_url", store_url),
    ("redis_key", redis_key),
];

/// A stream of events, as `tally watch` reads it. It makes no difference where its bytes are split.
pub fn events(bytes: &[u8]) {
    let mut whole = EventReader::default();
    let Ok(expected) = whole.read(bytes) else {
        return;
    };
    for event in &expected {
        let text = [&*event.kind, &*event.id].concat();
        assert!(
            !text.contains(['\r', '\n']) && !event.id.contains('\0'),
            "{event:?}"
        );
    }
    for size in [1, 2, 7] {
        let mut reader = EventReader::default();
        let read = bytes
            .chunks(size)
            .map(|piece| reader.read(piece).expect("not too long"));
        let read: Vec<_> = read.collect::<Vec<_>>().concat();
        assert_eq!(
            (read, reader.retry),
            (expected.clone(), whole.retry),
            "in pieces of {size}"
        );
    }
}

/// A snapshot of Postgres.
pub fn snapshot(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Ok(snapshot) = Snapshot::parse(text) else {
        return;
    };
    // Parsed a second time here, as Postgres' manual says.
    let parts: Vec<&str> = text.split(':').collect();
    let [xmin, xmax, running] = parts[..] else {
        panic!("{text:?} has other than three parts");
    };
    let number = |text: &str| i128::from_str(text).expect("a number");
    let (xmin, xmax) = (number(xmin), number(xmax));
    let running: Vec<i128> = running
        .split(',')
        .filter(|xid| !xid.is_empty())
        .map(number)
        .collect();
    // As it goes to Redis, where `lua/count.lua` reads it.
    let compact = snapshot.compact();
    if running.is_empty() && xmin == xmax {
        assert_eq!(compact, parts[0]);
    } else if running.len() <= RUNNING_LIMIT_TRANSACTIONS {
        assert_eq!(compact, text);
    } else {
        let mut newest = running.clone();
        newest.sort_unstable_by(|a, b| b.cmp(a));
        newest.truncate(RUNNING_LIMIT_TRANSACTIONS);
        let parts: Vec<&str> = compact.split(':').collect();
        let [low, high, kept, lowest] = parts[..] else {
            panic!("{compact:?} has other than four parts");
        };
        let kept: Vec<i128> = kept.rsplit(',').map(number).collect();
        assert_eq!(kept, newest);
        assert_eq!(
            [Some(number(low)), Some(number(high)), Some(number(lowest))],
            [newest.last().copied(), Some(xmax), Some(xmin)]
        );
    }
    let interesting = running.iter().copied().chain([xmin, xmax, 0]);
    for xid in interesting.flat_map(|xid| [xid - 1, xid, xid + 1]) {
        let Ok(asked) = i64::try_from(xid) else { continue };
        let is_seen = if xid < xmin {
            true
        } else if xid >= xmax {
            false
        } else {
            !running.contains(&xid)
        };
        assert_eq!(snapshot.sees(TransactionId(asked)), is_seen, "{text:?} {xid}");
    }
}

fn in_lines(text: &[u8]) -> Lines<&[u8]> {
    Lines::new("votes".as_ref(), text, usize::MAX)
}

/// A file of votes. The first byte says which columns hold what.
pub fn replay_file(bytes: &[u8]) {
    let Some((choice, text)) = bytes.split_first() else {
        return;
    };
    let choice = usize::from(*choice);
    let columns = Columns {
        voter: choice % 4,
        item: 1 + choice / 4 % 3,
        values: match choice / 12 % 8 {
            0 => Values::Up,
            column @ 1..4 => Values::Column(column),
            column => Values::Rating {
                column: column - 3,
                neutral: (column % 2) as f64,
            },
        },
    };
    let mut bad = Vec::new();
    // Not every text is a file of lines.
    let Ok(votes) = file::read(in_lines(text), columns, |line, _| bad.push(line)) else {
        return;
    };
    let lines = text.split(|byte| *byte == b'\n').count();
    assert_eq!(bad.len(), votes.bad_lines);
    assert!(votes.len() + bad.len() <= lines);
    assert!(bad.is_sorted() && bad.iter().all(|line| (1..=lines).contains(line)));
    // Written out again, the votes read the same. The value comes first, so that no line begins
    // with the # of a voter.
    let all: Vec<Vote<'_>> = (0..votes.len()).filter_map(|at| votes.get(at)).collect();
    let mut again = String::new();
    for vote in &all {
        let voter = vote.voter.unwrap_or("-");
        let item = &votes.items[vote.item];
        again += &format!("{},{voter},{item}\n", vote.value.map_or(0, Value::get));
    }
    let columns = Columns {
        voter: if columns.voter == 0 { 0 } else { 2 },
        item: 3,
        values: match columns.values {
            Values::Up | Values::Column(_) => Values::Column(1),
            Values::Rating { .. } => Values::Rating {
                column: 1,
                neutral: 0.0,
            },
        },
    };
    let again = file::read(in_lines(again.as_bytes()), columns, |line, why| {
        panic!("{line}: {why}")
    });
    let again = again.expect("memory reads");
    assert_eq!(again.items, votes.items);
    let again: Vec<Vote<'_>> = (0..again.len()).filter_map(|at| again.get(at)).collect();
    assert_eq!(again, all);
}

/// Durations, times of the audit, and numbers.
pub fn settings(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(duration) = values::duration(text) {
        assert!(!duration.is_zero() && duration <= DURATION_LIMIT);
        let again = humantime::format_duration(duration).to_string();
        assert_eq!(values::duration(&again), Ok(duration));
    }
    if let Ok(cron) = text.parse::<Cron>() {
        assert_eq!(cron.to_string(), text);
        // The scheduler accepts what the setting accepted.
        tokio_cron_scheduler::Job::new(cron.as_str(), |_, _| {}).expect("a job");
    }
    if let Ok(page) = values::page(text) {
        assert!((1..=values::PAGE_LIMIT).contains(&page));
    }
    if let Ok(connections) = values::served(text) {
        assert!((1..=values::SERVED_LIMIT_CONNECTIONS).contains(&connections));
    }
    if let Ok(throttles) = text.parse::<Throttles>() {
        assert!(throttles.all().len() <= THROTTLES_LIMIT);
        let written: Vec<String> = throttles.all().iter().map(Throttle::to_string).collect();
        assert_eq!(written.join(",").parse(), Ok(throttles));
    }
    if let Ok(rate) = values::rate(text) {
        assert!(rate.is_finite() && rate > 0.0);
    }
}

/// The URLs of the stores: an error about one does not show its password.
pub fn store_url(bytes: &[u8]) {
    /// Unlike any other part of a URL or a message.
    const SECRET: &str = "qX7zW9";
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    // A pool needs a runtime, even if it never connects.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let _entered = runtime.enter();
    let text = text.replace("SECRET", SECRET);
    let limit = std::time::Duration::from_secs(1);
    let messages = match values::store_url(&text) {
        Err(why) => vec![why],
        Ok(url) => [
            ServerLedger::new(&url, "properties")
                .map_err(|error| format!("{error} {error:?}"))
                .map(|ledger| format!("{ledger:?}")),
            Redis::new(&url, &KeyPrefix::default(), limit)
                .map_err(|error| format!("{error} {error:?}"))
                .map(|_| String::new()),
        ]
        .into_iter()
        .map(|made| made.unwrap_or_else(|error| error))
        .collect(),
    };
    // A password can only stand between the scheme's colon and the last @, or be that for Sentinels.
    let has_password = text
        .rsplit_once('@')
        .and_then(|(before, _)| before.split_once("://"))
        .is_some_and(|(_, user)| user.contains(SECRET))
        || text.contains(&format!("sentinel_password={SECRET}"));
    if has_password && text.matches(SECRET).count() == 1 {
        for line in messages {
            assert!(!line.contains(SECRET), "{text:?}: {line}");
        }
    }
}

/// A key of Redis. Other programs on the same Redis may have keys of any form.
pub fn redis_key(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    for keys in [Keys::one, Keys::of_cluster] {
        let keys = keys(KeyPrefix::default());
        if let Some(item) = keys.item_of(text) {
            assert_eq!(keys.counter(item).to_string(), text);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rand::rngs::StdRng;
    use rand::seq::IndexedRandom;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// How many inputs are tried with each property.
    const LIMIT_INPUTS: u64 = 20_000;
    /// The most changes that make an input from a seed.
    const LIMIT_CHANGES: usize = 8;
    /// Bytes that parsers stumble over.
    const TOKENS: [&[u8]; 24] = [
        b"\0",
        b"\xff",
        b"\n",
        b"\"",
        b"\\u0000",
        b"\\ud800",
        b"{",
        b"}",
        b"[",
        b":",
        b",",
        b"-",
        b"+",
        b"%",
        b"%00",
        b"@",
        b"#",
        b"9223372036854775808",
        b"-1",
        b"1e400",
        b"null",
        b"/",
        b"?",
        " \u{85}é".as_bytes(),
    ];

    fn seeds(name: &str) -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("fuzz/seeds")
            .join(name);
        let mut files: Vec<_> = std::fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
            .flatten()
            .map(|file| file.path())
            .collect();
        files.sort();
        files
            .iter()
            .map(|file| std::fs::read(file).expect("a seed"))
            .collect()
    }

    /// A seed with some bytes added, removed or changed.
    fn input(seeds: &[Vec<u8>], random: &mut StdRng) -> Vec<u8> {
        let mut bytes = seeds.choose(random).cloned().unwrap_or_default();
        for _ in 0..random.random_range(0..=LIMIT_CHANGES) {
            let at = random.random_range(0..=bytes.len());
            match random.random_range(0..4) {
                0 => {
                    let token = TOKENS.choose(random).copied().unwrap_or_default();
                    bytes.splice(at..at, token.iter().copied());
                }
                1 => bytes.truncate(at),
                2 if at < bytes.len() => bytes[at] = random.random(),
                _ if at < bytes.len() => {
                    bytes.remove(at);
                }
                _ => bytes.push(random.random()),
            }
        }
        bytes
    }

    #[test]
    fn every_property_holds_for_its_seeds_and_for_changes_of_them() {
        for (name, property) in ALL {
            let seeds = seeds(name);
            assert!(!seeds.is_empty(), "{name} has seeds");
            for seed in &seeds {
                property(seed);
            }
            for number in 0..LIMIT_INPUTS {
                let bytes = input(&seeds, &mut StdRng::seed_from_u64(number));
                let held = std::panic::catch_unwind(|| property(&bytes));
                assert!(
                    held.is_ok(),
                    "{name} does not hold for {:?}",
                    String::from_utf8_lossy(&bytes)
                );
            }
        }
    }

    #[test]
    fn every_property_has_a_fuzz_target_and_every_target_a_property() {
        let manifest = include_str!("../../fuzz/Cargo.toml");
        let mut targets: Vec<&str> = manifest
            .split("[[bin]]")
            .skip(1)
            .filter_map(|part| part.split('"').nth(1))
            .collect();
        let mut names = ALL.map(|(name, _)| name);
        targets.sort_unstable();
        names.sort_unstable();
        assert_eq!(targets, names);
    }
}
