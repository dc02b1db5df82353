//! What the facts of a Postgres mean.

use std::time::Duration;

use super::finding::{Finding, clock, is_nearly};
use crate::domain::Moment;
use crate::ledger::PostgresFacts;

/// A transaction that is open for longer holds back vacuum and roll-ups.
const TRANSACTION_LIMIT: Duration = Duration::from_secs(300);
/// A prepared transaction that is older was forgotten.
const PREPARED_LIMIT: Duration = Duration::from_secs(60);
/// A roll-up comes every 5 s: one that ended later than this was confirmed.
const CONFIRMED_LIMIT: Duration = Duration::from_secs(60);
/// A job that did not end well for longer is not done. Audits come each minute, unless set otherwise.
const JOB_LIMIT: Duration = Duration::from_secs(3600);
/// Postgres stops at about 2,100 million (its documentation, "Preventing Transaction ID Wraparound Failures").
const AGE_LIMIT: i64 = 1_000_000_000;
/// So much WAL kept for a standby that is gone fills disks.
const SLOT_LIMIT_BYTES: i64 = 1 << 30;
/// A standby that is further behind would lose so much in a failover, or cannot keep up.
const STANDBY_LAG_LIMIT_BYTES: i64 = 64 << 20;
/// Dead rows for each live one, in thousandths.
const DEAD_LIMIT_PER_MILLE: i64 = 1000;
/// As of the alert `TallyWatermarkLags`.
const LAG_LIMIT_IDS: i64 = 500_000;

/// What these facts mean, asked at this time by this machine's clock.
pub fn findings(facts: &PostgresFacts, now: Moment) -> Vec<Finding> {
    let mut found = Vec::new();
    let version = facts.version / 10_000;
    if version < 14 {
        found.push(Finding::wrong(
            format!("Postgres is version {version}"),
            "Tally needs 14 or later",
        ));
    }
    if facts.is_standby {
        found.push(Finding::wrong(
            "DATABASE_URL leads to a standby, which takes no votes",
            "give the address of the primary, or promote it",
        ));
    }
    if facts.is_read_only {
        found.push(Finding::wrong(
            "default_transaction_read_only is on: no vote is stored",
            "alter database … reset default_transaction_read_only; perhaps the disk was full",
        ));
    }
    if !facts.fsync || !facts.full_page_writes {
        found.push(Finding::look(
            "fsync or full_page_writes is off: a crash of the machine may lose or damage acknowledged votes",
            "set both on, unless your provider's storage makes them needless",
        ));
    }
    if let Some(settings) = &facts.harmful_settings {
        found.push(Finding::wrong(
            format!("{settings}: a crash loses acknowledged votes, or none is stored"),
            "alter role … reset …, and the same for the database",
        ));
    }
    if facts.synchronous_commit == "off" {
        found.push(Finding::wrong(
            "synchronous_commit is off for this login: a crash loses acknowledged votes",
            "alter role … reset synchronous_commit, and the same for the database",
        ));
    }
    if facts.synchronous_standby_names.is_empty() {
        let what = match facts.standbys {
            0 => {
                "Postgres shows no standby: unless its storage keeps copies, a lost disk loses the votes since the last backup"
            }
            _ => "no standby is synchronous: a failover may lose the newest votes",
        };
        found.push(Finding::look(
            what,
            "synchronous_standby_names, if that is too much to lose (docs/guarantees.md)",
        ));
    } else if facts.synchronous_standbys == Some(0) {
        let what = "synchronous_standby_names is set, and no synchronous standby is shown";
        let remedy = "if votes are not confirmed, bring it back, or reset synchronous_standby_names";
        // Roll-ups would wait, too.
        found.push(if facts.roll_up_age.is_some_and(|age| age < CONFIRMED_LIMIT) {
            Finding::look(what, remedy)
        } else {
            Finding::wrong(format!("{what}: no commit is confirmed"), remedy)
        });
    }
    if let Some(behind) = facts
        .standby_lag_bytes
        .filter(|behind| *behind >= STANDBY_LAG_LIMIT_BYTES)
    {
        found.push(Finding::look(
            format!("a standby is {} MB of WAL behind", behind / 1_000_000),
            "see pg_stat_replication: its disk, the network, or a long query on it",
        ));
    }
    if facts.archiving_fails {
        found.push(Finding::wrong(
            "WAL is not archived: the last try failed, so backups end there, and the disk fills",
            "see Postgres' log and pg_stat_archiver; docs/operating/backup.md",
        ));
    }
    if facts.archives && !facts.archiving_fails && !facts.has_archived {
        found.push(Finding::look(
            "archive_mode is on, and no WAL was archived yet",
            "select pg_switch_wal(), and look again: without an archive a restore ends at the last backup",
        ));
    }
    if facts.is_plain {
        found.push(Finding::look(
            "votes cross the network to Postgres in plain text",
            "sslmode=verify-full in DATABASE_URL (docs/operating/stores.md, TLS)",
        ));
    } else if let Some(addresses) = &facts.plain_listeners {
        found.push(Finding::look(
            format!("Postgres listens on {addresses} without TLS"),
            "ssl = on, or listen_addresses = 'localhost' if all programs run on its machine",
        ));
    }
    if let Some(slots) = &facts.idle_slots {
        let what = format!(
            "replication slots that nobody uses ({slots}) keep {} MB of WAL",
            facts.slot_keeps_bytes / 1_000_000
        );
        let remedy = "bring the standby back, or pg_drop_replication_slot";
        found.push(if facts.slot_keeps_bytes >= SLOT_LIMIT_BYTES {
            Finding::wrong(what, remedy)
        } else {
            Finding::look(what, remedy)
        });
    }
    if facts.prepared > 0 && facts.oldest_prepared >= PREPARED_LIMIT {
        found.push(Finding::wrong(
            format!(
                "{} prepared transactions are open, the oldest for {} s: they keep their locks, and hold vacuum back",
                facts.prepared,
                facts.oldest_prepared.as_secs()
            ),
            "commit prepared or rollback prepared (pg_prepared_xacts)",
        ));
    }
    if let Some(oldest) = facts
        .oldest_transaction
        .filter(|oldest| *oldest >= TRANSACTION_LIMIT)
    {
        found.push(Finding::look(
            format!("a transaction has been open for {} s", oldest.as_secs()),
            "see whose it is (pg_stat_activity); it holds vacuum back, and roll-ups if it has written votes",
        ));
    }
    if facts.table_locks > 0 || facts.waiting_for_tables > 0 {
        found.push(Finding::look(
            format!(
                "{} strong locks are on Tally's tables, and {} sessions wait for a table",
                facts.table_locks, facts.waiting_for_tables
            ),
            "if it lasts, docs/operating/runbook.md: a lock or a transaction that stays open",
        ));
    }
    if !facts.autovacuum || facts.vacuum_is_off {
        found.push(Finding::wrong(
            "autovacuum is off, for all tables or for one of Tally's",
            "set it on: tables grow, and Postgres stops before its transaction ids run out",
        ));
    }
    if facts.transaction_age >= AGE_LIMIT {
        found.push(Finding::wrong(
            format!(
                "{} transactions are not frozen: Postgres stops at about 2,100 million",
                facts.transaction_age
            ),
            "end old transactions, slots and prepared ones, then vacuum freeze",
        ));
    }
    if facts.dead_rows_per_mille >= DEAD_LIMIT_PER_MILLE {
        found.push(Finding::look(
            "a table of counts has more dead rows than live ones",
            "see what holds vacuum back; then vacuum",
        ));
    }
    if is_nearly(facts.connections, facts.max_connections) {
        found.push(Finding::wrong(
            format!(
                "{} of {} connections are used",
                facts.connections, facts.max_connections
            ),
            "raise max_connections (docs/operating/stores.md)",
        ));
    }
    if facts.is_mighty || facts.owns_tables {
        found.push(Finding::look(
            format!("the login {} may do more than a worker needs", facts.login),
            "give each program the login of its role (docs/operating/stores.md)",
        ));
    }
    if let Some(logins) = &facts.mighty_logins {
        found.push(Finding::look(
            format!("running programs of Tally have logins that may do more than these need: {logins}"),
            "give each program the login of its role (docs/operating/stores.md)",
        ));
    }
    if let Some(tables) = &facts.open_tables {
        found.push(Finding::look(
            format!("every login has rights on {tables}"),
            "revoke all on … from public: the roles of docs/rights.md have the rights that programs need",
        ));
    }
    if facts.workers == 0 {
        found.push(Finding::wrong(
            "no worker runs: counts are not saved, and reports grow old",
            "start sync-worker; one that hangs needs a restart: sudo systemctl restart tally-worker",
        ));
    } else if facts.workers == 1 {
        found.push(Finding::look(
            "one worker runs",
            "a second one goes on if it dies",
        ));
    }
    for (job, age) in [("roll_up", facts.roll_up_age), ("audit", facts.audit_age)] {
        match age {
            Some(age) if age < JOB_LIMIT => {}
            Some(age) if job == "audit" => found.push(Finding::look(
                format!("the last audit ended well {} s ago", age.as_secs()),
                "unless TALLY_AUDIT_CRON is as rare, the worker's log says why",
            )),
            Some(age) => found.push(Finding::wrong(
                format!("the job {job} last ended well {} s ago", age.as_secs()),
                "the worker's log says why",
            )),
            None => found.push(Finding::look(
                format!("the job {job} was never done"),
                "wait for a worker",
            )),
        }
    }
    if facts.wrong_items.is_some_and(|items| items > 0) {
        found.push(Finding::wrong(
            "the last audit found wrong counts",
            "docs/operating/runbook.md: the audit finds wrong counts",
        ));
    }
    if let Some(left) = facts.late_range_ids {
        found.push(Finding::wrong(
            format!("the ledger's last range has {left} ids left, and its next range is not made"),
            "see that a worker runs, and what it logs; docs/operating/ranges.md",
        ));
    }
    if facts.watermark_lag >= LAG_LIMIT_IDS {
        found.push(Finding::look(
            format!("{} vote ids wait to be rolled up", facts.watermark_lag),
            "see that a worker runs, and that no transaction that writes votes stays open",
        ));
    }
    if facts.lost_votes > 0 {
        found.push(Finding::look(
            format!("{} acknowledged votes were lost in failovers", facts.lost_votes),
            "docs/operating/failover.md: votes were lost",
        ));
    }
    found.extend(clock("Postgres", facts.now, now));
    if facts.oldest_transaction.is_none() {
        found.push(Finding::look(
            "this login does not see how long others' transactions have been open, nor how far standbys lag",
            "as an administrator: grant pg_read_all_stats to this login",
        ));
    }
    if !facts.archives {
        found.push(Finding::well(
            "Postgres archives no WAL itself: unless its service does, a restore goes back to the last backup (docs/operating/backup.md)",
        ));
    }
    if let Some(timeline @ 2..) = facts.timeline {
        found.push(Finding::well(format!(
            "Postgres is on timeline {timeline}: it was promoted, or restored to an earlier time. What had not come \
             here is gone: API keys that were revoked then work again (docs/operating/backup.md, After a restore)"
        )));
    }
    found.push(Finding::well(format!(
        "Postgres {version} as {}: {} MB, {} of {} connections, {} of servers' writers, {} workers",
        facts.login,
        facts.size_bytes / 1_000_000,
        facts.connections,
        facts.max_connections,
        facts.writers,
        facts.workers
    )));
    found
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::finding::tests::{now, only};
    use super::*;

    fn facts() -> PostgresFacts {
        PostgresFacts {
            version: 150_018,
            login: "worker".to_owned(),
            is_standby: false,
            is_read_only: false,
            fsync: true,
            full_page_writes: true,
            synchronous_commit: "on".to_owned(),
            synchronous_standby_names: "one".to_owned(),
            standbys: 1,
            synchronous_standbys: Some(1),
            standby_lag_bytes: Some(0),
            archives: true,
            has_archived: true,
            archiving_fails: false,
            plain_listeners: None,
            is_plain: false,
            idle_slots: None,
            slot_keeps_bytes: 0,
            prepared: 0,
            oldest_prepared: Duration::ZERO,
            oldest_transaction: Some(Duration::ZERO),
            harmful_settings: None,
            waiting_for_tables: 0,
            table_locks: 0,
            autovacuum: true,
            vacuum_is_off: false,
            transaction_age: 1000,
            dead_rows_per_mille: 100,
            connections: 30,
            max_connections: 200,
            timeline: Some(1),
            is_mighty: false,
            owns_tables: false,
            mighty_logins: None,
            open_tables: None,
            now: now(),
            size_bytes: 5_000_000,
            workers: 2,
            writers: 8,
            roll_up_age: Some(Duration::from_secs(4)),
            audit_age: Some(Duration::from_secs(50)),
            wrong_items: Some(0),
            watermark_lag: 10,
            late_range_ids: None,
            lost_votes: 0,
        }
    }

    #[test]
    fn nothing_is_found_where_all_is_well() {
        let found = findings(&facts(), now());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].level, Level::Well);
    }

    #[test]
    fn each_broken_thing_of_postgres_is_found_and_nothing_else() {
        type Break = fn(&mut PostgresFacts);
        let hour = |facts: &mut PostgresFacts| facts.oldest_transaction = Some(JOB_LIMIT);
        let broken: [(Level, &str, Break); 36] = [
            (Level::Wrong, "version 13", |facts| facts.version = 130_000),
            (Level::Wrong, "standby, which takes no votes", |facts| {
                facts.is_standby = true
            }),
            (Level::Wrong, "read_only", |facts| facts.is_read_only = true),
            (Level::Look, "fsync", |facts| facts.fsync = false),
            (Level::Look, "full_page_writes", |facts| {
                facts.full_page_writes = false
            }),
            (Level::Wrong, "synchronous_commit", |facts| {
                facts.synchronous_commit = "off".to_owned();
            }),
            (Level::Look, "no standby is synchronous", |facts| {
                facts.synchronous_standby_names.clear()
            }),
            (Level::Look, "shows no standby", |facts| {
                facts.synchronous_standby_names.clear();
                facts.standbys = 0;
            }),
            (Level::Look, "no synchronous standby is shown", |facts| {
                facts.synchronous_standbys = Some(0);
            }),
            (Level::Wrong, "server has synchronous_commit=off", |facts| {
                facts.harmful_settings = Some("server has synchronous_commit=off".to_owned());
            }),
            (Level::Look, "the last audit ended well", |facts| {
                facts.audit_age = Some(JOB_LIMIT)
            }),
            (Level::Look, "was never done", |facts| facts.audit_age = None),
            (Level::Look, "67 MB of WAL behind", |facts| {
                facts.standby_lag_bytes = Some(STANDBY_LAG_LIMIT_BYTES);
            }),
            (Level::Wrong, "not archived", |facts| facts.archiving_fails = true),
            (Level::Look, "no WAL was archived yet", |facts| {
                facts.has_archived = false
            }),
            (Level::Look, "plain text", |facts| facts.is_plain = true),
            (Level::Look, "listens on * without TLS", |facts| {
                facts.plain_listeners = Some("*".to_owned());
            }),
            (Level::Look, "these need: boss", |facts| {
                facts.mighty_logins = Some("boss".to_owned());
            }),
            (Level::Look, "every login has rights on vote", |facts| {
                facts.open_tables = Some("vote".to_owned());
            }),
            (Level::Look, "replication slots", |facts| {
                facts.idle_slots = Some("old".to_owned())
            }),
            (Level::Wrong, "keep 1073 MB", |facts| {
                facts.idle_slots = Some("old".to_owned());
                facts.slot_keeps_bytes = SLOT_LIMIT_BYTES;
            }),
            (Level::Wrong, "prepared transactions", |facts| {
                (facts.prepared, facts.oldest_prepared) = (1, PREPARED_LIMIT);
            }),
            (Level::Look, "open for 3600 s", hour),
            (Level::Look, "wait for a table", |facts| {
                facts.waiting_for_tables = 1
            }),
            (Level::Look, "strong locks", |facts| facts.table_locks = 1),
            (Level::Wrong, "autovacuum", |facts| facts.autovacuum = false),
            (Level::Wrong, "autovacuum", |facts| facts.vacuum_is_off = true),
            (Level::Wrong, "not frozen", |facts| {
                facts.transaction_age = AGE_LIMIT
            }),
            (Level::Look, "dead rows", |facts| {
                facts.dead_rows_per_mille = DEAD_LIMIT_PER_MILLE
            }),
            (Level::Wrong, "170 of 200 connections", |facts| {
                facts.connections = 170
            }),
            (Level::Look, "more than a worker needs", |facts| {
                facts.owns_tables = true
            }),
            (Level::Wrong, "no worker runs", |facts| facts.workers = 0),
            (Level::Wrong, "roll_up last ended well", |facts| {
                facts.roll_up_age = Some(JOB_LIMIT)
            }),
            (Level::Wrong, "last range has 9 ids left", |facts| {
                facts.late_range_ids = Some(9)
            }),
            (Level::Wrong, "wrong counts", |facts| facts.wrong_items = Some(1)),
            (Level::Look, "acknowledged votes were lost", |facts| {
                facts.lost_votes = 9
            }),
        ];
        for (level, says, breaks) in broken {
            let mut facts = facts();
            breaks(&mut facts);
            let (found, what) = only(findings(&facts, now()));
            assert!(found == level && what.contains(says), "{says}: {found:?} {what}");
        }
        let hidden = PostgresFacts {
            synchronous_standbys: None,
            standby_lag_bytes: None,
            oldest_transaction: None,
            ..facts()
        };
        let (level, what) = only(findings(&hidden, now()));
        assert!(
            level == Level::Look && what.contains("does not see"),
            "of what is not seen, only that is said: {what}"
        );
        let elsewhere = PostgresFacts {
            archives: false,
            has_archived: false,
            ..facts()
        };
        let found = findings(&elsewhere, now());
        assert!(found.iter().all(|one| one.level == Level::Well), "{found:?}");
        let restored = PostgresFacts {
            timeline: Some(2),
            ..facts()
        };
        let found = findings(&restored, now());
        let says = |one: &Finding| one.level == Level::Well && one.what.contains("revoked then work again");
        assert!(found.iter().any(says), "{found:?}");
        let gone = PostgresFacts {
            synchronous_standbys: Some(0),
            roll_up_age: Some(CONFIRMED_LIMIT),
            ..facts()
        };
        let (level, what) = only(findings(&gone, now()));
        assert!(
            level == Level::Wrong && what.contains("no commit is confirmed"),
            "{what}"
        );
        let later = Moment::from_micros(now().micros() + 6_000_000);
        assert!(only(findings(&facts(), later)).1.contains("6 s apart"));
    }
}
