//! Redis: the live counts. All Redis is here: every key is named in `keys`, every field of
//! a counter in `counter`, every script in `scripts`.
//!
//! Two handles, each with only what its program does: [`LiveCounts`] for the server,
//! [`Counters`] for the sync worker.

mod connect;
mod counter;
mod error;
pub(crate) mod keys;
mod scripts;
mod server;
mod worker;

pub use connect::{
    ACQUIRE_LIMIT, CONNECT_LIMIT, LEASE_LIMIT_MS, POOL_LIMIT_CONNECTIONS, Redis, SERVER_ANSWER_LIMIT,
    WORKER_ANSWER_LIMIT,
};
pub use counter::{COUNTER_FIELDS, Counter};
pub use error::LiveError;
pub use keys::{CounterKey, InvalidKeyPrefix, KeyPrefix};
pub use scripts::CALL_LIMIT_KEYS;
pub use server::{Counted, LiveCount, LiveCounts, SUSPECTS_LIMIT_ITEMS, Seed};
pub use worker::{ClearedRebuild, Counters, EpochEntry, Expired, Marked, ScanPage};
