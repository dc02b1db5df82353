//! Why a call of Redis failed.

use deadpool_redis::PoolError;
use redis::{RedisError, Value};

use super::KeyPrefix;
use super::error_replies::{Lasts, Refusal};
use crate::domain::Owner;
use crate::tls::TlsFault;

/// Why a call of Redis failed.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The call failed, or its answer did not come in time. Redis may have applied it.
    #[error("Redis (REDIS_URL): {0}")]
    Redis(#[source] RedisError),
    /// Redis refused it, and Tally knows why.
    #[error("Redis (REDIS_URL) {0}")]
    Refused(Refusal),
    #[error("no connection to Redis (REDIS_URL): {0}")]
    Pool(#[source] PoolError),
    #[error(
        "REDIS_URL: {0}; it takes redis://user:password@host:port/number, rediss:// for TLS, \
         redis+sentinel://user:password@host1,host2,host3/name, or redis+cluster://user:password@host1,host2,host3"
    )]
    Url(#[source] RedisError),
    /// The URL has parameters for TLS, or Sentinels, that are wrong.
    #[error("REDIS_URL: {0}")]
    WrongUrl(String),
    /// None of the Sentinels says where the primary is.
    #[error(
        "no Sentinel in REDIS_URL says which Redis is the primary; the one at {at} (its login: sentinel_user and \
         sentinel_password in the URL): {why}"
    )]
    NoSentinel {
        at: String,
        #[source]
        why: Box<LiveError>,
    },
    #[error(
        "at {0} is no Sentinel, as REDIS_URL says: give the addresses of the Sentinels, whose port is \
         often 26379, or redis:// to use that Redis"
    )]
    NotASentinel(String),
    #[error(
        "REDIS_URL leads to a Sentinel, which keeps no counts: write redis+sentinel://, the addresses of the \
         Sentinels, and the name of what they watch"
    )]
    IsASentinel,
    #[error(
        "the Sentinels in REDIS_URL watch no primary with the name {0}: the path of the URL is the name \
         in their settings (sentinel monitor <name> …)"
    )]
    UnknownPrimary(String),
    /// A failover goes on, or an old primary has not heard of it.
    #[error("the Redis at {0}, which Sentinels in REDIS_URL name as the primary, says that it is none")]
    NotThePrimary(String),
    /// Connections lead to another Redis than the one that Sentinels, or the nodes of a Cluster, name.
    #[error("another Redis has these keys now, as the Sentinels or nodes in REDIS_URL say")]
    PrimaryMoved,
    /// Workers have entered another Redis, or later data of this one, as Postgres says.
    #[error(
        "the workers count in another Redis, or are about to invalidate all counts in this one; if that lasts, set \
         REDIS_URL to that of the workers, and restart"
    )]
    CountedElsewhere,
    #[error(
        "at {0} is no node of a Redis Cluster, as REDIS_URL says: write redis:// to use that Redis, or \
         redis+sentinel:// and the addresses of its Sentinels"
    )]
    NotACluster(String),
    #[error(
        "the login in REDIS_URL may not run CLUSTER NODES at {0}, and nothing else says which node has what; \
         REDIS_CLUSTER=1 scripts/redis-users has what each program's login needs"
    )]
    NoNodesPermission(String),
    /// A node of a Redis Cluster.
    #[error("the node {at} of the Redis Cluster: {why}")]
    Node {
        at: String,
        #[source]
        why: Box<LiveError>,
    },
    /// Nodes do not agree which of them has a bucket. They do soon.
    #[error("the nodes of the Redis Cluster in REDIS_URL do not agree yet which of them has which slots")]
    Moving,
    /// No node says that it has the slot.
    #[error(
        "no node of the Redis Cluster in REDIS_URL has the slot {0}; redis-cli --cluster check shows why"
    )]
    NoOwner(u16),
    /// Nothing was sent, not even the login's name.
    #[error("Redis (REDIS_URL) is refused: {0}")]
    Tls(TlsFault),
    /// The circuit breaker is open.
    #[error("Redis is unavailable; it is being tried in the background")]
    Unavailable,
    /// Neither the script's header nor the command's manual names this reply.
    #[error("{name} answered {reply:?}")]
    Reply { name: &'static str, reply: Value },
    /// Some managed services hide it. A restart to an older state would go unnoticed.
    #[error(
        "this Redis (REDIS_URL) does not show its {0} in INFO, and without it Tally cannot see a \
         restart or a failover; use a Redis that shows it"
    )]
    NoIdentity(&'static str),
    /// The user in the URL has too few permissions in Redis (ACL).
    #[error(
        "the login in REDIS_URL may not {missing}, which the {program} needs; scripts/redis-users has \
         what each program's login needs"
    )]
    Permission { missing: String, program: &'static str },
    /// They are renamed, or this service leaves them out.
    #[error(
        "this Redis (REDIS_URL) does not know {commands}, which the {program} needs; let it keep its \
         commands' names (rename-command), or use another Redis"
    )]
    UnknownCommands { commands: String, program: &'static str },
    #[error(
        "the keys {keys}* in this Redis (REDIS_URL) belong to the Tally of database {owner}, not to \
         that of database {us}: give this one another TALLY_KEY_PREFIX or another Redis; if the other \
         Tally is gone, delete the key {mark}"
    )]
    Owner {
        keys: KeyPrefix,
        mark: String,
        owner: Owner,
        us: Box<Owner>,
    },
    /// Nobody will name the owner any more: the server stops.
    #[error("Postgres has not said which Tally this is")]
    OwnerUnknown,
}

impl From<RedisError> for LiveError {
    fn from(error: RedisError) -> Self {
        if let Some(fault) = TlsFault::of(&error) {
            return Self::Tls(fault);
        }
        Refusal::of(&error).map_or(Self::Redis(error), Self::Refused)
    }
}

impl From<PoolError> for LiveError {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => match Self::from(error) {
                Self::Redis(error) => Self::Pool(PoolError::Backend(error)),
                known => known,
            },
            error => Self::Pool(error),
        }
    }
}

impl LiveError {
    /// The same for another call that failed with it.
    pub(super) fn again(&self) -> Self {
        match self {
            Self::Redis(error) => Self::Redis(error.clone()),
            Self::Refused(refusal) => Self::Refused(refusal.clone()),
            Self::Tls(fault) => Self::Tls(fault.clone()),
            Self::Node { at, why } => Self::Node {
                at: at.clone(),
                why: Box::new(why.again()),
            },
            _ => Self::Unavailable,
        }
    }

    /// Whether Redis answers but Tally must not use it. Waiting does not help.
    pub fn is_unfit(&self) -> bool {
        match self {
            Self::Owner { .. }
            | Self::NoIdentity(_)
            | Self::Tls(_)
            | Self::Permission { .. }
            | Self::UnknownCommands { .. }
            | Self::NotASentinel(_)
            | Self::IsASentinel
            | Self::NotACluster(_)
            | Self::NoNodesPermission(_)
            | Self::UnknownPrimary(_) => true,
            Self::NoSentinel { why, .. } | Self::Node { why, .. } => why.is_unfit(),
            Self::Refused(refusal) => refusal.reply().lasts == Lasts::ForEver,
            _ => false,
        }
    }

    /// Whether Redis answers, and goes on refusing this login or Tally until someone changes that.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Permission { .. } | Self::NoNodesPermission(_) | Self::UnknownCommands { .. } => true,
            Self::NoSentinel { why, .. } | Self::Node { why, .. } => why.is_refusal(),
            Self::Refused(refusal) => refusal.reply().lasts != Lasts::AWhile,
            _ => false,
        }
    }

    /// Whether the connection has ended, or the answer did not come in time.
    pub(super) fn is_cut(&self) -> bool {
        let Self::Redis(error) = self else {
            return false;
        };
        error.is_io_error() || error.is_timeout() || error.is_connection_dropped()
    }

    /// The error reply that it is, if Tally knows it.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Whether Redis has no memory for the call (`maxmemory`). It still takes calls that need
    /// none.
    pub(super) fn is_out_of_memory(&self) -> bool {
        self.refusal()
            .is_some_and(|refusal| refusal.reply().code == "OOM")
    }
}
