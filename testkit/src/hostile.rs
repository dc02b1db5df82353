//! Settings of sessions that a login, a database or a pooler may have, and that Tally cannot work with.

/// A setting, a value that Tally cannot work with, and one for the test's own connections.
pub const HOSTILE: [(&str, &str, &str); 22] = [
    (
        "default_transaction_isolation",
        "repeatable read",
        "read committed",
    ),
    ("default_transaction_deferrable", "on", "off"),
    ("statement_timeout", "50ms", "0"),
    ("lock_timeout", "1ms", "0"),
    ("idle_in_transaction_session_timeout", "50ms", "0"),
    ("idle_session_timeout", "300ms", "0"),
    ("search_path", "nowhere", "public"),
    ("TimeZone", "Asia/Kathmandu", "UTC"),
    ("DateStyle", "SQL, DMY", "ISO, MDY"),
    ("IntervalStyle", "sql_standard", "postgres"),
    ("standard_conforming_strings", "off", "on"),
    ("extra_float_digits", "-15", "1"),
    ("bytea_output", "escape", "hex"),
    ("client_encoding", "LATIN1", "UTF8"),
    ("array_nulls", "off", "on"),
    ("transform_null_equals", "on", "off"),
    ("gin_fuzzy_search_limit", "1", "0"),
    ("exit_on_error", "on", "off"),
    ("client_min_messages", "error", "notice"),
    ("check_function_bodies", "off", "on"),
    ("plpgsql.extra_errors", "all", "none"),
    ("enable_seqscan", "on", "on"),
];

/// Hostile only to who relies on the defaults: Tally names what it wants in each statement.
pub const HARMLESS: [(&str, &str); 4] = [
    ("default_text_search_config", "pg_catalog.german"),
    ("quote_all_identifiers", "on"),
    ("synchronous_commit", "local"),
    ("xmlbinary", "hex"),
];
