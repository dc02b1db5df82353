//! Why a call of Redis failed.

use deadpool_redis::PoolError;
use redis::{RedisError, Value};

/// Why a call of Redis failed.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The call failed, or its answer did not come in time. Redis may have applied it.
    #[error("Redis (REDIS_URL): {0}")]
    Redis(#[from] RedisError),
    #[error("no connection to Redis (REDIS_URL): {0}")]
    Pool(#[from] PoolError),
    #[error("REDIS_URL: {0}; it takes redis://user:password@host:port/number")]
    Url(#[source] RedisError),
    /// The circuit breaker is open.
    #[error("Redis is unavailable; it is being tried in the background")]
    Unavailable,
    /// Neither the script's header nor the command's manual names this reply.
    #[error("{name} answered {reply:?}")]
    Reply { name: &'static str, reply: Value },
    /// Some managed ones do that. A restart of such a Redis to an older state goes unnoticed.
    #[error(
        "this Redis (REDIS_URL) does not tell its {0} in INFO, without which Tally cannot see that \
         it restarted or failed over; use one that does"
    )]
    NoIdentity(&'static str),
}
