//! The names of the systems that `make bench` compares.

use serde::{Deserialize, Serialize};

/// A system, in the order of turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum System {
    /// nginx, which gives a fixed answer: what a machine's kernel allows.
    Nginx,
    /// The no-op baseline: parses and answers the same, but stores nothing.
    NoOp,
    /// An insert and an update in one transaction for each vote.
    Transaction,
    /// One transaction for each vote, on tables of its own with each voter's votes.
    /// It uses `select … for update` where a decision depends on what is held.
    LockingTransaction,
    /// Group commit: one statement inserts a batch's votes and updates its items.
    BatchedTransaction,
    /// One INSERT and one EVALSHA for each vote.
    Recipe,
    /// The released server, with its worker.
    Tally,
}

/// How Redis is set up, without replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Topology {
    #[default]
    Single,
    /// The single one, which three Sentinels name.
    Sentinel,
    /// A Redis Cluster of three primaries.
    Cluster,
}

impl Topology {
    /// What a table adds to a system's name; `None`: nothing.
    pub fn title(self) -> Option<&'static str> {
        match self {
            Self::Single => None,
            Self::Sentinel => Some("Sentinels"),
            Self::Cluster => Some("Redis Cluster"),
        }
    }
}

impl System {
    pub const ALL: [Self; 7] = [
        Self::Nginx,
        Self::NoOp,
        Self::Transaction,
        Self::LockingTransaction,
        Self::BatchedTransaction,
        Self::Recipe,
        Self::Tally,
    ];
    /// The systems that can only add votes, and Tally.
    pub const ADDING: [Self; 5] = [
        Self::NoOp,
        Self::Transaction,
        Self::BatchedTransaction,
        Self::Recipe,
        Self::Tally,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::NoOp => "no-op",
            Self::Transaction => "transaction",
            Self::LockingTransaction => "locking_transaction",
            Self::BatchedTransaction => "batched_transaction",
            Self::Recipe => "recipe",
            Self::Tally => "tally",
        }
    }

    /// Its name in a table.
    pub fn title(self) -> String {
        match self {
            Self::NoOp => "no-op baseline".to_owned(),
            other => other.name().replace('_', " "),
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}
