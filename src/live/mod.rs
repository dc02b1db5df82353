//! Redis: the live counts. All calls of Redis are here. `keys` names every key, `counter`
//! what a counter holds, `scripts` every script, `route` says which Redis has them, and `cluster` which node of a Redis
//! Cluster.
//!
//! Each program has a handle with only its own calls: [`LiveCounts`] for the server,
//! [`Counters`] for the sync worker.

mod address;
mod any_connection;
mod buckets;
mod cluster;
mod connect;
mod counter;
mod error;
mod error_replies;
mod facts;
mod fitness;
mod groups;
pub(crate) mod keys;
mod login;
mod owner;
mod permissions;
mod pooled;
mod probe;
mod route;
mod scripts;
mod sentinels;
mod server;
mod worker;

pub use buckets::{BUCKETS, Bucket};
pub use connect::{CONNECT_LIMIT, LEASE_LIMIT_MS, Redis, SERVER_ANSWER_LIMIT, WORKER_ANSWER_LIMIT};
pub use counter::{Counter, CounterParts, CounterValue};
pub use error::LiveError;
pub use error_replies::{ErrorReply, Lasts, Ran, Refusal};
pub use facts::RedisFacts;
pub use keys::{CounterKey, InvalidKeyPrefix, KeyPrefix, Keys};
pub use route::{ACQUIRE_LIMIT, POOL_LIMIT_CONNECTIONS};
pub use scripts::CALL_LIMIT_KEYS;
pub(crate) use scripts::fresh_token;
pub(crate) use server::{BACK_PRESSURE_LIMIT, ELSEWHERE_LOOKS, REPAIR_LIMIT_ITEMS};
pub use server::{
    CountReply, LiveCount, LiveCounts, LiveRead, Place, SUSPECTS_LIMIT_ITEMS, Seed, Seeding,
    THROTTLE_CALL_LIMIT_ATTEMPTS,
};
pub use worker::{
    BucketEpoch, ClearRebuildReply, ColdToken, Counters, EpochEntry, Epochs, ExpireReply, MarkReply, Scan,
    ScanPage, ScanPart,
};
