//! Which run of Postgres gave out an id.

/// A run of Postgres: from a start of Postgres to its end, in one database. In one run, an id is
/// given to one item only. After a failover to a standby that lagged, or after a restore, another
/// run gives out some ids again, to other items.
///
/// `migrations/functions/postgres_run.sql` says what makes a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PostgresRun(i64);

impl PostgresRun {
    /// From the ledger's number.
    pub fn new(number: i64) -> Self {
        Self(number)
    }

    /// The number, which means nothing but itself.
    pub fn get(self) -> i64 {
        self.0
    }
}

/// What was found for a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<Id> {
    pub id: Id,
    /// The run in which the id was looked up. `None`: the client named the id.
    pub run: Option<PostgresRun>,
}
