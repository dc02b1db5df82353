//! What tests, chaos and benches share: stores, programs, load over HTTP, proxies.
//!
//! Cargo tells only a test or a bench where the built programs are. So the caller passes their
//! paths.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

pub mod answered_counts;
pub mod benchmark;
/// A clock is a library that is loaded with `LD_PRELOAD`.
#[cfg(target_os = "linux")]
pub mod clock;
pub mod counters;
pub mod curve;
pub mod hostile;
pub mod linearizable;
/// Needs epoll, which only Linux has.
#[cfg(target_os = "linux")]
pub mod load;
pub mod programs;
pub mod proxy;
pub mod receiver;
pub mod rules;
pub mod stores;
mod waiting;

pub use waiting::{CONDITION_LIMIT, LOOK_EVERY, eventually, until};
