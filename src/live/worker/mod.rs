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

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

pub use cold::ColdToken;
pub use counters::{ClearRebuildReply, ExpireReply, MarkReply};
pub use epoch::{BucketEpoch, EpochEntry, Epochs, ScanPart};
pub use scan::{Scan, ScanPage};

use super::{LiveError, Redis};
use crate::domain::Owner;
use crate::telemetry::Program;

/// The counters of one Redis or Redis Cluster, for the sync worker. Cheap to clone. Every call fails when Redis is
/// unavailable.
#[derive(Clone)]
pub struct Counters {
    redis: Redis,
    /// How many pages of scans over all counters it has asked for: each time of another primary.
    asked_pages: Arc<AtomicUsize>,
}

impl Counters {
    /// Uses the connections of this Redis' pool.
    pub fn new(redis: Redis) -> Self {
        Self {
            redis,
            asked_pages: Arc::default(),
        }
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
