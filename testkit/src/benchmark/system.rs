//! The systems that `make bench` compares: their names.

use serde::{Deserialize, Serialize};

/// In the order in which they take their turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum System {
    /// The no-op baseline: parses and answers the same, and stores nothing.
    NoOp,
    /// An insert and an update in one transaction a vote.
    Transaction,
    /// One transaction a vote, with `select … for update` where a decision depends on what is
    /// held; on tables of its own, which hold what each voter holds.
    LockingTransaction,
    /// Group commit: one statement a batch inserts the votes and updates the items.
    BatchedTransaction,
    /// One INSERT and one EVALSHA a vote.
    Recipe,
    /// The server as it is shipped, with its worker.
    Tally,
}

impl System {
    pub const ALL: [Self; 6] = [
        Self::NoOp,
        Self::Transaction,
        Self::LockingTransaction,
        Self::BatchedTransaction,
        Self::Recipe,
        Self::Tally,
    ];
    /// Those that only ever add votes, and Tally.
    pub const ADDING: [Self; 5] = [
        Self::NoOp,
        Self::Transaction,
        Self::BatchedTransaction,
        Self::Recipe,
        Self::Tally,
    ];

    pub fn name(self) -> &'static str {
        match self {
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
