//! The sync worker's calls of Redis, over the connections of a pool.
//!
//! - `counters`: read, mark saved, expire, invalidate, clear rebuild requests.
//! - `cold`: whether saved counts may lack votes on cold items.
//! - `scan`: find the unsaved counters, or all.
//! - `epoch`: know whether Redis still has the data that was written to it.

mod cold;
mod counters;
mod epoch;
mod scan;

pub use counters::{ClearRebuildReply, ExpireReply, MarkReply};
pub use epoch::EpochEntry;
pub use scan::{Scan, ScanPage};

use super::{LiveError, Redis};
use crate::domain::Owner;
use crate::telemetry::Program;

/// The counters of one Redis, for the sync worker. Cheap to clone. Every call fails when Redis is
/// unavailable.
#[derive(Clone)]
pub struct Counters {
    redis: Redis,
}

impl Counters {
    /// Uses the connections of this Redis' pool.
    pub fn new(redis: Redis) -> Self {
        Self { redis }
    }

    /// The Redis that has them.
    pub fn redis(&self) -> &Redis {
        &self.redis
    }

    /// See [`Redis::check`].
    pub async fn check(&self) -> Result<(), LiveError> {
        self.redis.check(Program::Worker).await
    }

    /// See [`Redis::claim`].
    pub async fn claim(&self, owner: &Owner) -> Result<(), LiveError> {
        self.redis.claim(owner).await
    }
}
