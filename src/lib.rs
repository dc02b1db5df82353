//! Tally: a write-behind vote counting service.
//!
//! A guided tour, from the outside in. A module imports only from modules below it in this list, so
//! there are no circles.

/// How the limits of all modules relate, checked at compile time. It imports from every module, and
/// no module imports from it.
mod limit_relations;

/// Wiring: settings → ledger and Redis → server or worker → run → stop.
pub mod app;

/// What an operator does from the command line: items, polls, ballots, API keys, voiding, the trail.
pub mod operator;

/// Every setting, as a flag and as an environment variable. Only `app`, `operator` and the
/// binaries read it.
pub mod config;

/// The HTTP interface: operations by resource, access, pages, transport.
pub mod web;

/// Votes: the queue, the batch writers, and how a batch gets into the live counts.
pub mod votes;

/// Admission: whether an attempt to vote is within the throttles.
pub mod admission;

/// Watching: the live streams of one thread, read for all of them together.
pub mod watching;

/// Counts as a reader sees them: an item with its live count.
pub mod counts;

/// Batching: many waiting requests, one call to the stores.
pub mod batching;

/// The sync worker: flush, expire, evict by age, rebuild, audit, epoch, and their schedule.
pub mod sync;

/// `tally doctor`: what an installation's stores can have wrong.
pub mod doctor;

/// `tally replay`: casts a file of votes over HTTP.
pub mod replay;

/// A client of the HTTP interface, for `replay` and for health checks.
pub mod client;

/// A private Postgres and a private Redis, for `tally dev` and the tests.
pub mod dev;

/// Postgres: the ledger, the items, exact counts, the audit's sums. All SQL is here.
pub mod ledger;

/// Redis: keys, scripts, live counts. All Redis is here.
pub mod live;

/// TLS to the stores: why a store is refused.
pub mod tls;

/// The URLs of the stores, and the logins in their files, which a rotation writes anew.
pub mod store_url;

/// Files that settings and commands name: read in bounded memory and time, or refused.
pub mod files;

/// Caches: what is remembered, and what ends each entry.
pub mod cache;

/// Pure rules and types: items, votes, snapshots, revisions. No I/O.
pub mod domain;

/// Logs and metrics: their setup and their names.
pub mod telemetry;

/// Signals: Ctrl-C, SIGTERM, and a closed terminal.
pub mod shutdown;

/// Properties of each parser of outside input, for the tests and the fuzz targets.
#[cfg(any(test, fuzzing))]
pub mod properties;
