//! Whether Redis takes what a vote needs: a write, and memory.

use redis::aio::ConnectionLike;

use super::buckets::Bucket;
use super::scripts::{self, text};
use super::{Keys, LiveError, Redis};

impl Redis {
    /// Whether Redis takes a write that needs memory. A Redis that is full (`maxmemory`) and a
    /// replica still answer a PING. In a Cluster, each primary is asked.
    ///
    /// # Errors
    /// When Redis does not take it, or is unavailable.
    pub async fn takes_writes(&self) -> Result<(), LiveError> {
        for buckets in self.primaries().await? {
            let mut connection = self.get(buckets[0]).await?;
            probe(&mut connection, self.keys(), buckets[0]).await?;
        }
        Ok(())
    }
}

/// The same over this connection.
pub(super) async fn probe(
    connection: &mut impl ConnectionLike,
    keys: &Keys,
    bucket: Bucket,
) -> Result<(), LiveError> {
    let no_arguments: &[&str] = &[];
    let reply = scripts::PROBE
        .call_once(connection, &[&keys.probe(bucket)], no_arguments)
        .await?;
    match text(&reply) {
        Some("WRITABLE") => Ok(()),
        _ => Err(scripts::PROBE.unexpected(reply)),
    }
}
