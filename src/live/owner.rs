//! The owner's mark: which Tally the keys with this prefix belong to. If two Tallys used the same
//! keys, each would find the other's epoch there, and invalidate all counts for ever.

use redis::aio::ConnectionLike;

use super::{KeyPrefix, LiveError, Redis};
use crate::domain::Owner;

impl Redis {
    /// Claims the keys for this Tally, unless they belong to one. A Redis that is new or has lost
    /// its data belongs to whoever comes first.
    ///
    /// # Errors
    /// When the keys belong to another Tally.
    pub async fn claim(&self, owner: &Owner) -> Result<(), LiveError> {
        let mut connection = self.get().await?;
        claim(&mut connection, self.keys(), owner).await
    }
}

/// Like [`Redis::claim`], over this connection.
pub(super) async fn claim(
    connection: &mut impl ConnectionLike,
    keys: &KeyPrefix,
    owner: &Owner,
) -> Result<(), LiveError> {
    let key = keys.owner();
    let mut mark: Option<String> = redis::cmd("GET").arg(&key).query_async(connection).await?;
    if mark.is_none() {
        // If several come at once, one of them sets it.
        redis::cmd("SET")
            .arg(&key)
            .arg(owner.mark())
            .arg("NX")
            .exec_async(connection)
            .await?;
        mark = redis::cmd("GET").arg(&key).query_async(connection).await?;
    }
    match mark.as_deref().map(Owner::of_mark) {
        Some(other) if other.id != owner.id => Err(LiveError::Owner {
            keys: keys.clone(),
            owner: other,
            us: owner.clone(),
        }),
        // Redis was wiped again just now: the next check claims it.
        _ => Ok(()),
    }
}
