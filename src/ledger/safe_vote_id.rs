//! The safe vote id: every vote up to it is committed, or will never be.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::LedgerError;
use super::pool::Pool;
use crate::domain::{Moment, VoteId};

/// How long to wait until the transactions that are writing votes end.
pub const DECIDE_LIMIT: Duration = Duration::from_secs(30);
/// The time between two looks whether they have ended.
const DECIDE_EVERY: Duration = Duration::from_millis(5);

/// Every vote up to this id is committed or will never be. Also names the Postgres that said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafeVoteId {
    pub vote_id: VoteId,
    /// The Postgres that said so, until it crashes or fails over. Another one may draw these ids
    /// again.
    pub incarnation: String,
    /// When it was read, by Postgres' clock. Later votes have higher ids.
    pub read_at: Moment,
}

impl SafeVoteId {
    /// The same, but at most `vote_id`.
    pub fn up_to(self, vote_id: VoteId) -> Self {
        Self {
            vote_id: self.vote_id.min(vote_id),
            ..self
        }
    }
}

/// The safe vote id: every vote up to it is committed, or will never be. And when it was read.
///
/// The sequence is read first. A transaction locks `vote` before it draws an id. So when all
/// transactions that hold the lock now have ended, every id up to the sequence's last value is
/// decided. Blocks nobody.
///
/// # Errors
/// When a transaction does not end in time.
pub(super) async fn safe_vote_id(pool: &Pool) -> Result<(VoteId, Moment), LedgerError> {
    let last = sqlx::query!(
        // `now()` is before the sequence is read.
        r#"select last_value, is_called, (extract(epoch from now()) * 1000000)::bigint as "read_at!"
           from vote_id_seq"#
    )
    .fetch_one(pool)
    .await?;
    let safe = if last.is_called {
        last.last_value
    } else {
        last.last_value - 1
    };
    wait_for_writers(pool).await?;
    Ok((VoteId::new(safe), Moment::from_micros(last.read_at)))
}

/// Waits until every transaction that is writing votes now has ended.
///
/// # Errors
/// When a transaction does not end in time.
async fn wait_for_writers(pool: &Pool) -> Result<(), LedgerError> {
    let deadline = Instant::now() + DECIDE_LIMIT;
    let mut waited_for = writers(pool).await?;
    while !waited_for.is_empty() {
        if Instant::now() >= deadline {
            return Err(LedgerError::Undecided(DECIDE_LIMIT));
        }
        sleep(DECIDE_EVERY).await;
        let still = writers(pool).await?;
        waited_for.retain(|writer| still.contains(writer));
    }
    Ok(())
}

/// The transactions that hold the lock that every insert into `vote` or `vote_of_voter` takes.
async fn writers(pool: &Pool) -> Result<Vec<String>, LedgerError> {
    Ok(sqlx::query_scalar!(
        r#"select distinct virtualtransaction as "writer!"
           from pg_locks
           where locktype = 'relation' and relation in ('vote'::regclass, 'vote_of_voter'::regclass)
             and database = (select oid from pg_database where datname = current_database())
             and mode = 'RowExclusiveLock' and granted"#
    )
    .fetch_all(pool)
    .await?)
}
