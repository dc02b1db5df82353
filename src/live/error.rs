//! What Redis cannot do, or could not.

use deadpool_redis::PoolError;
use redis::{RedisError, Value};

/// What Redis cannot do, or could not.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The call failed, or its answer did not come in time: it may have been applied.
    #[error("Redis (REDIS_URL): {0}")]
    Redis(#[from] RedisError),
    #[error("no connection to Redis (REDIS_URL): {0}")]
    Pool(#[from] PoolError),
    #[error("REDIS_URL: {0}; it takes redis://user:password@host:port/number")]
    Url(#[source] RedisError),
    #[error("Redis is unavailable; it is being tried in the background")]
    Unavailable,
    /// A reply that the script's header, or the command, does not name.
    #[error("{name} answered {reply:?}")]
    Reply { name: &'static str, reply: Value },
}
