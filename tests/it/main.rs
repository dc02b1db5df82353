//! One binary for all integration tests, laid out as the source is.
//! A module has a folder, and a behaviour a file.
//!
//! Every test has a Postgres and a Redis of its own (`testkit::stores`).

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

/// What the tests share: a running Tally, real programs, a pooler, TLS.
mod helpers;

/// The HTTP interface: operations, access, streams, pages, description, transport.
mod web;

/// Votes under load: throttles, and counts that are slow to read.
mod votes;

/// Rules of items and polls: alone, in races, and in sequences against a model.
mod rules;

/// The sync worker: a file for each step, and races between workers.
mod sync;

/// Postgres: statements, connections, and what each database role may do.
mod ledger;

/// Redis: scripts, users, prefixes.
mod live;

/// Stores that are down, slow, unfit, or reached by TLS.
mod stores;

/// Reports: views, and questions against naive queries.
mod reports;

/// What operators do and see: commands, acts over HTTP, `tally watch`.
mod operator;

/// Programs as processes: starts, signals, `tally dev`, `tally replay`, secrets.
mod programs;

/// Metrics: each moves with its condition.
mod telemetry;

/// The protocol: searches through its orders, and what each piece is for.
mod proofs;

/// The checks that tests, chaos and soak share: each finds what is wrong.
mod checks;

/// The source: the order of imports, no circles, SQL and Redis in their modules.
mod layout;

/// The tables that `make bench-tables` writes.
mod benchmark;

/// The documents: links, paths, names, lengths.
mod documents;
