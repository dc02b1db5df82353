//! Texts that every `tally migrate` runs again: the functions and the roles.

use std::time::Duration;

use sqlx::Executor;
use sqlx::error::DatabaseError;
use tokio::time::sleep;

use super::OwnerLedger;

/// The most tries to run a text while others change the same.
const APPLY_LIMIT_TRIES: u32 = 10;
/// The wait between two tries.
const APPLY_EVERY: Duration = Duration::from_millis(50);

impl OwnerLedger {
    /// Runs a text of several statements in one transaction. If others change the same at that
    /// time, the text runs again.
    pub(super) async fn apply(&self, text: &str) -> Result<(), sqlx::Error> {
        let mut tries = 1;
        loop {
            // Several statements in one text are one transaction.
            match self.database.pool.execute(text).await {
                Ok(_) => return Ok(()),
                Err(sqlx::Error::Database(error)) if is_collision(&*error) && tries < APPLY_LIMIT_TRIES => {
                    tries += 1;
                    sleep(APPLY_EVERY).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether others changed the same at that time. Postgres then reports a deadlock, or the internal
/// error "tuple concurrently updated".
fn is_collision(error: &dyn DatabaseError) -> bool {
    matches!(error.code().as_deref(), Some("XX000" | "40P01"))
}
