//! One binary for all integration tests: one file for each behaviour, and helpers.
//!
//! Every test has a Postgres and a Redis of its own (`testkit::stores`).

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod helpers;

mod access;
mod bad_input;
mod batch;
mod client;
mod clocks;
mod conditional;
mod curves;
mod deployment;
mod description;
mod dev;
mod exactness;
mod history;
mod interleavings;
mod keys;
mod layout;
mod ledger;
mod limits;
mod linearizability;
mod lists;
mod metrics;
mod model;
mod operating;
mod operator;
mod outages;
mod pages;
mod prefixes;
mod problems;
mod programs;
mod readiness;
mod redis_users;
mod refusals;
mod replay;
mod roles;
mod rules;
mod scripts;
mod secrets;
mod slow_counts;
mod starts;
mod streams;
mod sync;
mod throttles;
mod tls;
mod top;
mod upgrade;
mod voting;
mod watch;
