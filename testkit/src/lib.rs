//! What the integration tests, the chaos rounds and the benches share: private stores,
//! the real programs as processes, load over HTTP, and a proxy that breaks connections.
//!
//! Cargo tells only a test or a bench where the built programs are, so a caller passes
//! their paths.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

pub mod answered_counts;
pub mod benchmark;
/// The stores' clock is a library that is loaded with `LD_PRELOAD`.
#[cfg(target_os = "linux")]
pub mod clock;
pub mod curve;
pub mod linearizable;
/// It waits with epoll, which only Linux has.
#[cfg(target_os = "linux")]
pub mod load;
pub mod programs;
pub mod proxy;
pub mod rules;
pub mod stores;
mod waiting;

pub use waiting::{LOOK_EVERY, eventually, until};
