//! Settings of Tally's sessions in Postgres.
//!
//! A login (`alter role … set`), a database (`alter database … set`) or a pooler may have others.
//! So a program sets them in each new session (`session.rs`). Two settings stay with whoever runs
//! Postgres: `default_transaction_read_only` says that Tally must not write, and `synchronous_commit`
//! how safe an acknowledged vote is.

use std::time::Duration;

/// What exact answers need, as Postgres shows it. A setting that this Postgres does not know is left
/// out.
pub(super) const EXACT: [(&str, &str); 20] = [
    // Each statement sees what was committed before it. `vote_ids_are_new` relies on that, and so does
    // `decide_votes`, which looks after it has locked. The default of Postgres.
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_deferrable", "off"),
    // A policy that hides rows would make a count wrong. With `off`, its statement fails instead.
    ("row_security", "off"),
    // Nobody but Tally ends its sessions and transactions (from Postgres 17 on: `transaction_timeout`).
    ("idle_session_timeout", "0"),
    ("transaction_timeout", "0"),
    ("exit_on_error", "off"),
    // How texts become values, and values become texts.
    ("client_encoding", "UTF8"),
    ("TimeZone", "UTC"),
    ("DateStyle", "ISO, MDY"),
    ("IntervalStyle", "postgres"),
    ("extra_float_digits", "1"),
    ("bytea_output", "hex"),
    ("standard_conforming_strings", "on"),
    ("array_nulls", "on"),
    // `x = null` must stay null.
    ("transform_null_equals", "off"),
    // A search finds all rows.
    ("gin_fuzzy_search_limit", "0"),
    // An error in a function's body shows up when `tally migrate` replaces the function.
    ("check_function_bodies", "on"),
    // A warning makes a batch ask whether its commit was safe (`safe_commit.rs`).
    ("client_min_messages", "notice"),
    // Functions are compiled as they were when they were tested.
    ("plpgsql.extra_errors", "none"),
    ("plpgsql.extra_warnings", "none"),
];

/// Plans. No exact answer depends on them.
/// - `enable_seqscan`: no statement here should read a whole table. The planner would, since it cannot
///   know how few votes lie beyond the watermark.
/// - `enable_bitmapscan`: where an index answers with a few rows, a bitmap took more than twice as long (300
///   items with 20 votes each, by an index that is gone since: 5.6 ms instead of 2.4 ms).
/// - `jit`: Postgres would compile because of the huge cost that `enable_seqscan` pretends.
pub(super) const PLANS: [(&str, &str); 3] = [
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("jit", "off"),
];

/// Postgres plans the pool's statements each time. The tables grow from nothing to millions of
/// rows. A plan kept from the first minute made a replay of repeats eight times slower than one of
/// new votes.
pub(super) const POOL_PLANS: [(&str, &str); 1] = [("plan_cache_mode", "force_custom_plan")];
/// A dedicated connection's statements are planned once. Each has one good plan, whatever the
/// tables hold, and planning takes as long as running.
pub(super) const KEPT_PLANS: [(&str, &str); 1] = [("plan_cache_mode", "force_generic_plan")];
/// How Postgres notices that a server's machine is lost. It sends probes, and gives up after 5 s +
/// 3 × 2 s. It then closes the connections of the server's batch writers, which a sync worker sees.
/// While an answer is on its way, the system sends no probes. It repeats the answer for a quarter
/// of an hour, so `tcp_user_timeout` (ms) ends that too, after 11 s.
pub(crate) const WRITER_KEEPALIVE: [(&str, &str); 4] = [
    ("tcp_keepalives_idle", "5"),
    ("tcp_keepalives_interval", "2"),
    ("tcp_keepalives_count", "3"),
    ("tcp_user_timeout", "11000"),
];

/// A time limit as Postgres shows it: in the largest unit that divides it. `None`: no limit.
pub(super) fn shown(limit: Option<Duration>) -> String {
    const UNITS: [(u128, &str); 4] = [
        (24 * 60 * 60 * 1000, "d"),
        (60 * 60 * 1000, "h"),
        (60 * 1000, "min"),
        (1000, "s"),
    ];
    let millis = limit.map_or(0, |limit| limit.as_millis());
    if millis == 0 {
        return "0".to_owned();
    }
    match UNITS.iter().find(|(unit, _)| millis.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", millis / unit),
        None => format!("{millis}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_written_as_postgres_shows_it() {
        let shown_millis = |millis| shown(Some(Duration::from_millis(millis)));
        assert_eq!(shown(None), "0");
        assert_eq!(shown_millis(500), "500ms");
        assert_eq!(shown_millis(1500), "1500ms");
        assert_eq!(shown_millis(5000), "5s");
        assert_eq!(shown_millis(90_000), "90s");
        assert_eq!(shown_millis(120_000), "2min");
        assert_eq!(shown_millis(7_200_000), "2h");
        assert_eq!(shown_millis(86_400_000), "1d");
    }
}
