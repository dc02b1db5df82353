//! One binary for all integration tests: a file a behaviour, helpers beside them.
//!
//! Every test has a Postgres and a Redis of its own, started from `helpers::stores`.

mod helpers;

mod bad_input;
mod dev;
mod exactness;
mod ledger;
mod outages;
mod programs;
mod replay;
mod scripts;
mod sync;
mod voting;
