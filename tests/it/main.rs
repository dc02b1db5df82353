//! One binary for all integration tests, laid out as the source is: a folder for each of its
//! modules, and a file for each behaviour.
//!
//! Every test has a Postgres and a Redis of its own (`testkit::stores`).

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

/// What the tests share: a running Tally, real programs, a pooler, TLS.
mod helpers;

/// The HTTP interface: operations, who may do what, streams, pages, the description, slow clients.
mod web;

/// Votes under load: throttles, and counts that are slow to read.
mod votes;

/// Rules of items and polls: alone, in races, and in random sequences against a model.
mod rules;

/// The sync worker: a file for each step, and races between workers.
mod sync;

/// Postgres: statements, connections, and what each database role may do.
mod ledger;

/// Redis: scripts, users, prefixes.
mod live;

/// Stores that are down, slow, unfit, or reached by TLS.
mod stores;

/// What operators do and see: commands, acts over HTTP, `tally watch`.
mod operator;

/// The programs as processes: settings, signals, `tally dev`, `tally replay`, the image, secrets.
mod programs;

/// Metrics: each moves with its condition.
mod telemetry;

/// The protocol as a whole: searches through its orders, and what each piece of it is for.
mod proofs;

/// The checks that tests, chaos and soak share (`testkit`): each finds what is wrong.
mod checks;

/// The source: the order of imports, no circles, SQL and Redis in their modules.
mod layout;

/// The tables that `make bench-tables` writes.
mod benchmark;

/// The documents: links, paths, names, lengths.
mod documents;
