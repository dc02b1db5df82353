//! The owner's mark: which Tally the keys with this prefix belong to. If two Tallys used the same
//! keys, each would find the other's epoch there, and invalidate all counts for ever.

use futures_util::future::join_all;
use redis::aio::ConnectionLike;

use super::buckets::Bucket;
use super::{Keys, LiveError, Redis};
use crate::domain::Owner;
use crate::telemetry::trouble;

impl Redis {
    /// Claims the keys for this Tally, unless they belong to one. A Redis that is new or has lost
    /// its data belongs to whoever comes first.
    ///
    /// # Errors
    /// When the keys belong to another Tally.
    pub async fn claim(&self, owner: &Owner) -> Result<(), LiveError> {
        let claims = join_all(self.buckets().map(|bucket| self.claim_bucket(bucket, owner))).await;
        // Another Tally's keys forbid all. What is wrong with one node, its certificate, say, forbids that one alone.
        let mut failure = Ok(());
        let has_claimed = claims.iter().any(Result::is_ok);
        for claim in claims {
            match claim {
                Err(error @ LiveError::Owner { .. }) => return Err(error),
                Err(error) if has_claimed && error.is_unfit() => {
                    trouble!(warn, %error; "a primary of the Redis Cluster cannot be used");
                    failure = Err(LiveError::Unavailable);
                }
                Err(error) => failure = Err(error),
                Ok(()) => {}
            }
        }
        failure
    }

    /// The same for the keys of one bucket.
    ///
    /// # Errors
    /// As [`Redis::claim`].
    pub(super) async fn claim_bucket(&self, bucket: Bucket, owner: &Owner) -> Result<(), LiveError> {
        let mut connection = self.get(bucket).await?;
        claim(&mut connection, self.keys(), bucket, owner).await
    }
}

/// Like [`Redis::claim`], over this connection, for the keys of one bucket.
pub(super) async fn claim(
    connection: &mut impl ConnectionLike,
    keys: &Keys,
    bucket: Bucket,
    owner: &Owner,
) -> Result<(), LiveError> {
    let key = keys.owner(bucket);
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
            keys: keys.prefix().clone(),
            mark: key,
            owner: other,
            us: Box::new(owner.clone()),
        }),
        // Redis was wiped again just now: the next check claims it.
        _ => Ok(()),
    }
}
