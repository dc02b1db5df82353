//! The faults, and their targets.

use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// Longer than any deadline of a sync worker. An answer from Redis and an idle transaction
/// have 5 s (`live::WORKER_ANSWER_LIMIT`, `ledger::IDLE_TRANSACTION_LIMIT`).
const PAST_EVERY_DEADLINE: Duration = Duration::from_millis(6500);

macro_rules! faults {
    ($($fault:ident: $name:literal),* $(,)?) => {
        /// Everything that can be made to go wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Fault { $($fault),* }

        impl Fault {
            pub const ALL: &[Fault] = &[$(Fault::$fault),*];

            /// Its name in the table and for `FAULT=`.
            pub fn name(self) -> &'static str {
                match self { $(Fault::$fault => $name),* }
            }
        }
    };
}

faults! {
    ServerKilled: "server killed",
    ServerRestarted: "server restarted in order",
    ServerStopped: "server stopped for a while",
    WorkerKilled: "worker killed",
    WorkerKilledBeforeMarkSaved: "worker killed between write and mark saved",
    WorkerRestarted: "worker restarted in order",
    WorkerStopped: "worker stopped for a while",
    WorkerAsleep: "worker asleep in mid-flush past every deadline",
    RedisKilled: "Redis killed",
    RedisStopped: "Redis stopped for a while",
    RedisEmpty: "Redis restarted empty",
    RedisOlder: "Redis restarted from an older snapshot",
    RedisFailover: "Redis failed over to a replica that lagged",
    RedisWiped: "Redis wiped while it runs",
    RedisScriptsFlushed: "Redis scripts flushed",
    RedisFull: "Redis out of memory",
    RedisCut: "connections to Redis cut",
    RedisStalled: "connections to Redis stalled",
    RedisReplyLost: "replies of Redis lost",
    PostgresKilled: "Postgres killed",
    PostgresBackendKilled: "a process of Postgres killed",
    PostgresImmediate: "Postgres restarted in immediate mode",
    PostgresStopped: "Postgres stopped for a while",
    PostgresFull: "Postgres' disk full",
    PostgresNoConnections: "Postgres out of connections",
    PostgresCut: "connections to Postgres cut",
    PostgresStalled: "connections to Postgres stalled",
    PostgresReplyLost: "replies of Postgres lost",
    PostgresIdleRestarted: "Postgres restarted in order while idle",
    PostgresReadOnly: "Postgres read-only for a while",
    PostgresSessions: "hostile settings of sessions in Postgres",
    PostgresFailover: "Postgres failed over to a standby that lagged",
    RedisAlmostFull: "Redis at the edge of its memory",
    RedisClockForward: "Redis' clock steps forward",
    RedisClockBack: "Redis' clock steps back",
    PostgresClockForward: "Postgres' clock steps forward",
    PostgresClockBack: "Postgres' clock steps back",
    ServerClockForward: "a server's own clock steps forward",
    ServerClockBack: "a server's own clock steps back",
    WorkerClockForward: "a worker's own clock steps forward",
    WorkerClockBack: "a worker's own clock steps back",
    RowLocked: "an item's row locked",
    SnapshotHeld: "a report's snapshot held open",
    Tenant: "another tenant in Redis' database",
}

/// What a fault is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    Server,
    ServerClock,
    Worker,
    WorkerClock,
    Redis,
    RedisClock,
    RedisConnections,
    RedisDatabase,
    Postgres,
    PostgresClock,
    PostgresConnections,
    Row,
    Snapshot,
}

impl Fault {
    pub fn target(self) -> Target {
        match self {
            Self::ServerKilled | Self::ServerRestarted | Self::ServerStopped => Target::Server,
            Self::WorkerKilled
            | Self::WorkerKilledBeforeMarkSaved
            | Self::WorkerRestarted
            | Self::WorkerStopped
            | Self::WorkerAsleep => Target::Worker,
            Self::RedisKilled
            | Self::RedisStopped
            | Self::RedisEmpty
            | Self::RedisOlder
            | Self::RedisFailover
            | Self::RedisWiped
            | Self::RedisScriptsFlushed
            | Self::RedisFull
            | Self::RedisAlmostFull => Target::Redis,
            Self::ServerClockForward | Self::ServerClockBack => Target::ServerClock,
            Self::WorkerClockForward | Self::WorkerClockBack => Target::WorkerClock,
            Self::RedisClockForward | Self::RedisClockBack => Target::RedisClock,
            Self::RedisCut | Self::RedisStalled | Self::RedisReplyLost => Target::RedisConnections,
            Self::PostgresKilled
            | Self::PostgresBackendKilled
            | Self::PostgresImmediate
            | Self::PostgresStopped
            | Self::PostgresFull
            | Self::PostgresNoConnections
            | Self::PostgresIdleRestarted
            | Self::PostgresReadOnly
            | Self::PostgresSessions
            | Self::PostgresFailover => Target::Postgres,
            Self::PostgresClockForward | Self::PostgresClockBack => Target::PostgresClock,
            Self::PostgresCut | Self::PostgresStalled | Self::PostgresReplyLost => {
                Target::PostgresConnections
            }
            Self::RowLocked => Target::Row,
            Self::SnapshotHeld => Target::Snapshot,
            Self::Tenant => Target::RedisDatabase,
        }
    }

    /// Whether everything is rebuilt after the fault. Such a fault opens a window
    /// ([`crate::windows`]): until the rebuild begins, an answered count may lack votes, or have
    /// votes that are gone. No other fault may cause that: not a store that is unavailable, nor
    /// the end of a program, a clock, a lock, a snapshot or another tenant.
    pub fn begins_epoch(self) -> bool {
        matches!(
            self,
            Self::RedisKilled
                | Self::RedisEmpty
                | Self::RedisOlder
                | Self::RedisFailover
                | Self::RedisWiped
                | Self::PostgresKilled
                | Self::PostgresBackendKilled
                | Self::PostgresImmediate
                | Self::PostgresFull
                | Self::PostgresFailover
        )
    }

    /// The fault of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|fault| fault.name() == name)
    }

    /// The faults that wait for the worker to reach a certain point. It may never reach it.
    pub const AT_A_POINT: [Self; 2] = [Self::WorkerKilledBeforeMarkSaved, Self::WorkerAsleep];

    pub fn lasting(self, random: &mut StdRng) -> Duration {
        let milliseconds = match self {
            Self::WorkerAsleep => return PAST_EVERY_DEADLINE,
            // Shorter and longer than the server's limits: 500 ms for Redis, 6 s for Postgres.
            Self::RedisStopped | Self::RedisStalled => random.random_range(100..2000),
            Self::PostgresStopped | Self::PostgresStalled => {
                *[200, 800, 2000, 6500].choose(random).unwrap_or(&200)
            }
            Self::PostgresNoConnections
            | Self::PostgresFull
            | Self::PostgresReadOnly
            | Self::PostgresSessions => random.random_range(300..2500),
            // Shorter and longer than the worker waits for a row (500 ms).
            Self::RowLocked => random.random_range(200..5000),
            Self::SnapshotHeld => random.random_range(4000..8000),
            Self::Tenant => random.random_range(1000..4000),
            Self::RedisClockForward
            | Self::RedisClockBack
            | Self::PostgresClockForward
            | Self::PostgresClockBack
            | Self::ServerClockForward
            | Self::ServerClockBack
            | Self::WorkerClockForward
            | Self::WorkerClockBack => random.random_range(500..4000),
            _ => random.random_range(50..1200),
        };
        Duration::from_millis(milliseconds)
    }
}
