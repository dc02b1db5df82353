//! Whether Redis takes what a vote needs: a write, and memory.

use redis::aio::ConnectionLike;

use super::scripts::{self, text};
use super::{KeyPrefix, LiveError, Redis};

impl Redis {
    /// Whether Redis takes a write that needs memory. A Redis that is full (`maxmemory`) and a
    /// replica still answer a PING.
    ///
    /// # Errors
    /// When Redis does not take it, or is unavailable.
    pub async fn takes_writes(&self) -> Result<(), LiveError> {
        let mut connection = self.get().await?;
        probe(&mut connection, self.keys()).await
    }
}

/// The same over this connection.
pub(super) async fn probe(connection: &mut impl ConnectionLike, keys: &KeyPrefix) -> Result<(), LiveError> {
    let no_arguments: &[&str] = &[];
    let reply = scripts::PROBE
        .call_once(connection, &[&keys.probe()], no_arguments)
        .await?;
    match text(&reply) {
        Some("WRITABLE") => Ok(()),
        _ => Err(scripts::PROBE.unexpected(reply)),
    }
}
