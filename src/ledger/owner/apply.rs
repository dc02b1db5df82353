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
    /// Runs these texts of statements in one transaction. If others change the same at that time, they run again.
    pub(super) async fn apply(&self, texts: &[&str]) -> Result<(), sqlx::Error> {
        let mut tries = 1;
        loop {
            match self.apply_once(texts).await {
                Err(sqlx::Error::Database(error)) if is_collision(&*error) && tries < APPLY_LIMIT_TRIES => {
                    tries += 1;
                    sleep(APPLY_EVERY).await;
                }
                applied => return applied,
            }
        }
    }

    async fn apply_once(&self, texts: &[&str]) -> Result<(), sqlx::Error> {
        let mut transaction = self.database.pool.begin().await?;
        let applied = async {
            // One by one: over TLS, sqlx 0.8.6 may wait for an answer to half a statement if that is larger than what
            // the system sends at once (its issue 4248).
            for text in texts {
                (&mut *transaction).execute(*text).await?;
            }
            Ok(())
        };
        let applied = applied.await;
        transaction.end(applied).await
    }
}

/// Whether others changed the same at that time. Postgres then reports a deadlock, or the internal
/// error "tuple concurrently updated".
fn is_collision(error: &dyn DatabaseError) -> bool {
    matches!(error.code().as_deref(), Some("XX000" | "40P01"))
}
