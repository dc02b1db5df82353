//! Which run of Postgres a program is connected to.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::PgExecutor;
use sqlx::postgres::PgConnection;
use tokio::time::Instant;

use super::error::is_not_migrated;
use crate::cache::Ends;
use crate::domain::{Cell, PostgresRun};

/// The run of Postgres that this program saw last. Every new connection says which run it reaches.
/// When that is another one, all that was remembered of Postgres ends. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    last: Arc<Mutex<Last>>,
    /// The cell's number and one; 0: no connection has said it yet. Each vote on an item reads it.
    cell_and_one: Arc<AtomicU16>,
    ends: Ends,
}

#[derive(Debug, Default)]
struct Last {
    run: Option<PostgresRun>,
    /// When another run was seen before it.
    changed_at: Option<Instant>,
}

impl Runs {
    /// Notes which run was just seen. Returns how often the run has changed.
    pub fn note(&self, run: PostgresRun) -> u64 {
        let mut last = self.lock();
        let before = last.run.replace(run);
        if before.is_some_and(|before| before != run) {
            last.changed_at = Some(Instant::now());
            self.ends.end_all();
            tracing::warn!(
                "Postgres was started again, or is another one: what was remembered of it has ended"
            );
        }
        self.ends.count()
    }

    /// Asks which run this new connection reaches, and notes it. A database that is not migrated has
    /// nothing to remember.
    pub async fn learn(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let learnt = sqlx::query!(r#"select postgres_run() as "run!", cell from identity"#)
            .fetch_one(connection)
            .await;
        match learnt {
            Ok(row) => {
                self.note(PostgresRun::new(row.run));
                let cell = row.cell.and_then(cell);
                self.cell_and_one
                    .store(cell.map_or(0, |cell| cell.get() + 1), Ordering::Relaxed);
                Ok(())
            }
            Err(error) if is_not_migrated(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The run that was seen last. `None`: none was yet.
    pub fn last(&self) -> Option<PostgresRun> {
        self.lock().run
    }

    /// Which cell the database is. `None`: no connection has said it yet.
    pub fn cell(&self) -> Option<Cell> {
        self.cell_and_one
            .load(Ordering::Relaxed)
            .checked_sub(1)
            .and_then(Cell::new)
    }

    /// How often the run has changed. A connection that saw fewer changes is from before the last
    /// one.
    pub fn changes(&self) -> u64 {
        self.ends.count()
    }

    /// Whether a connection of this age was made after the last change.
    pub fn are_since(&self, age: Duration) -> bool {
        let changed_at = self.lock().changed_at;
        changed_at.is_none_or(|changed_at| age < changed_at.elapsed())
    }

    /// Ends what is remembered of Postgres, when another run is seen.
    pub fn ends(&self) -> Ends {
        self.ends.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The cell with this number in the ledger.
pub(super) fn cell(number: i32) -> Option<Cell> {
    u16::try_from(number).ok().and_then(Cell::new)
}

/// Which run this connection reaches.
pub(super) async fn run_of(executor: impl PgExecutor<'_>) -> Result<PostgresRun, sqlx::Error> {
    let run = sqlx::query_scalar!(r#"select postgres_run() as "run!""#)
        .fetch_one(executor)
        .await?;
    Ok(PostgresRun::new(run))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_run_ends_what_is_remembered_and_the_first_one_ends_nothing() {
        let runs = Runs::default();
        let ends = runs.ends();
        let [one, other] = [1, 2].map(PostgresRun::new);
        for (run, ended) in [(one, 0), (one, 0), (other, 1), (other, 1), (one, 2)] {
            assert_eq!(runs.note(run), ended);
            assert_eq!((ends.count(), runs.changes()), (ended, ended));
        }
    }

    #[test]
    fn a_connection_from_before_a_change_is_known_by_its_age() {
        let runs = Runs::default();
        let old = Duration::from_secs(60);
        runs.note(PostgresRun::new(1));
        assert!(runs.are_since(old));
        runs.note(PostgresRun::new(2));
        assert!(!runs.are_since(old));
    }
}
