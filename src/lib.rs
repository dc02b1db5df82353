//! Tally: a write-behind vote counting service.
//!
//! A guided tour, from the inside out. Imports point upwards in this list:
//! `http` → `gather` → `ledger`, `live`; `sync` → `ledger`, `live`. `config`,
//! `telemetry` and `shutdown` are for everyone.

/// Pure rules and types: items, votes, snapshots. No I/O.
pub mod domain;

/// Postgres: the ledger, the items, exact counts, the audit's sums. All SQL is here.
pub mod ledger;

/// Redis: keys, scripts, live counts, the link and its circuit. All Redis is here.
pub mod live;

/// Group commit: many waiting votes, one statement, one pipeline.
pub mod gather;

/// The sync worker: flush, expire, age, recount, audit, epoch, and their schedule.
pub mod sync;

/// The HTTP interface: the route table, a file a resource, problem+json errors.
pub mod http;

/// A client of the HTTP interface, for `replay` and for health checks.
pub mod client;

/// `tally replay`: casts a file of votes over HTTP.
pub mod replay;

/// Private Postgres and Redis for `tally dev` and the tests.
pub mod dev;

/// Every setting, as a flag and as an environment variable.
pub mod config;

/// Logs and metrics: how they are set up and what they are called.
pub mod telemetry;

/// Ctrl-C, SIGTERM, and a terminal that is closed.
pub mod shutdown;

/// What must hold for each parser of outside input; for the tests and the fuzz targets.
#[cfg(any(test, fuzzing))]
pub mod properties;
