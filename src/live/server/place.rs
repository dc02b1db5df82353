//! Whether the counts are in this server's Redis, as the workers see it.

use super::LiveCounts;
use crate::live::LiveError;
use crate::live::buckets::Bucket;

/// Where the counts are, seen from a Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Here,
    /// A worker has entered another Redis since, or later data of this one.
    Elsewhere,
    /// This Redis has lost its data, no worker has come to it yet, or one is entering an epoch.
    Unknown,
}

impl LiveCounts {
    /// How many buckets Redis has.
    pub fn bucket_count(&self) -> i16 {
        self.redis().bucket_count()
    }

    /// Where the counts are, if this is the last entry of the first bucket into an epoch that workers have noted in
    /// Postgres: see `sync::epoch`.
    ///
    /// # Errors
    /// When Redis is unavailable.
    pub async fn place(&self, entry: &str) -> Result<Place, LiveError> {
        let (redis, bucket) = (self.redis(), Bucket::FIRST);
        let mut connection = redis.get(bucket).await?;
        let known: Option<String> = redis::cmd("GET")
            .arg(redis.keys().epoch(bucket))
            .query_async(&mut connection)
            .await?;
        if known.as_deref() == Some(entry) {
            return Ok(Place::Here);
        }
        if entry.starts_with(&redis.keys().entering(bucket, "")) {
            // A worker is entering an epoch, here or elsewhere, or has given that up.
            return Ok(Place::Unknown);
        }
        Ok(if known.is_some() {
            Place::Elsewhere
        } else {
            Place::Unknown
        })
    }
}
