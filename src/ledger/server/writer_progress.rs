//! Notes how far this server's votes are counted, for the sync workers to see.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::ServerLedger;
use super::storing::Outcomes;
use crate::domain::{PostgresRun, VoteId};
use crate::ledger::LedgerError;
use crate::ledger::lost_waits::end_connections;
use crate::ledger::worker::ALIVE_LIMIT_SILENCE;

/// The batch writers of one server. Knows the names of their connections, and which writers are in
/// the middle of a batch. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Writers(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    inner: Mutex<Inner>,
    /// How often a connection was found to have failed.
    failures: AtomicU64,
    outcomes: Outcomes,
}

#[derive(Debug, Default)]
struct Inner {
    /// Connections that ended in mid-batch are left out.
    names: HashSet<String>,
    batches: Vec<Weak<AtomicU64>>,
}

impl Writers {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic cannot leave the sets half changed, so the poison says nothing.
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a batch writer.
    pub fn add(&self) -> Batches {
        let turns = Arc::new(AtomicU64::new(0));
        let mut inner = self.lock();
        inner.batches.retain(|one| one.strong_count() > 0);
        inner.batches.push(Arc::downgrade(&turns));
        Batches(turns)
    }

    /// The batches that are under way now.
    fn batches_under_way(&self) -> Vec<BatchUnderWay> {
        let inner = self.lock();
        let batches = inner.batches.iter().filter_map(|turns| {
            let turn = turns.upgrade()?.load(Ordering::SeqCst);
            (turn % 2 == 1).then(|| BatchUnderWay {
                turns: Weak::clone(turns),
                turn,
            })
        });
        batches.collect()
    }

    /// What became of the last batches.
    pub fn outcomes(&self) -> &Outcomes {
        &self.0.outcomes
    }

    /// Whether this connection's progress is noted.
    fn notes(&self, name: &str) -> bool {
        self.lock().names.contains(name)
    }

    /// How often a connection of a batch writer was found to have failed.
    pub fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }

    /// Notes that a connection has failed. The other ones may have failed, too.
    pub fn connection_failed(&self) {
        self.0.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds a connection. Its progress is noted until the guard is dropped, or for good if the
    /// guard is kept.
    pub fn connected(&self, name: String) -> WriterName {
        self.lock().names.insert(name.clone());
        WriterName {
            writers: self.clone(),
            name,
            is_kept: false,
        }
    }
}

/// One batch writer's batches: the number is odd while one is under way. A dropped writer has none
/// under way: others hold only weak references to it.
#[derive(Debug)]
pub(super) struct Batches(Arc<AtomicU64>);

impl Batches {
    /// A batch begins, before its statement is sent.
    pub fn begin(&self) {
        self.0.fetch_or(1, Ordering::SeqCst);
    }

    /// Whether a batch is under way.
    pub fn is_under_way(&self) -> bool {
        self.0.load(Ordering::SeqCst) % 2 == 1
    }

    /// The batch has ended: its votes are counted, or their items are suspect.
    pub fn end(&self) {
        if self.is_under_way() {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// A connection's name. Dropping it takes it off the list.
#[derive(Debug)]
pub(super) struct WriterName {
    writers: Writers,
    name: String,
    is_kept: bool,
}

impl WriterName {
    /// Leaves the name on the list for good. The connection ends between two batches, and its last
    /// note is still to come.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }

    /// The name itself.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether its progress is still noted: see [`ServerLedger::abandon_writers`].
    pub fn is_noted(&self) -> bool {
        self.writers.notes(&self.name)
    }
}

impl Drop for WriterName {
    fn drop(&mut self) {
        if !self.is_kept {
            self.writers.lock().names.remove(&self.name);
        }
    }
}

/// A batch that was under way when it was looked at.
#[derive(Debug)]
pub struct BatchUnderWay {
    turns: Weak<AtomicU64>,
    turn: u64,
}

impl BatchUnderWay {
    /// Whether it has ended since.
    pub fn has_ended(&self) -> bool {
        self.turns
            .upgrade()
            .is_none_or(|turns| turns.load(Ordering::SeqCst) != self.turn)
    }
}

impl ServerLedger {
    /// The last vote id that any server drew, and in which run of Postgres. A statement that begins later draws higher ids.
    pub async fn last_vote_id(&self) -> Result<(VoteId, PostgresRun), LedgerError> {
        let last = sqlx::query!(r#"select last_value, is_called, postgres_run() as "run!" from vote_id_seq"#)
            .fetch_one(&self.database.pool)
            .await?;
        let id = last.last_value - i64::from(!last.is_called);
        Ok((VoteId::new(id), PostgresRun::new(last.run)))
    }

    /// The batches of this server that are under way now.
    pub fn batches_under_way(&self) -> Vec<BatchUnderWay> {
        self.writers.batches_under_way()
    }

    /// Stops noting the progress of all current connections. Each batch writer takes a new one
    /// before its next batch. Crashed-writer recovery then rebuilds the counts of all votes since
    /// the last note. Returns the connections' names.
    pub fn abandon_writers(&self) -> Vec<String> {
        self.writers.lock().names.drain().collect()
    }

    /// Ends connections of this server's login by their names.
    pub async fn end_connections(&self, names: &[String]) -> Result<(), LedgerError> {
        end_connections(&self.database.pool, names).await
    }

    /// The last entries into an epoch of the buckets of a Redis that has so many, each with the bucket's place, in order;
    /// and whether there are entries of a Redis with another number of them.
    pub async fn last_entries(&self, bucket_count: i16) -> Result<(Vec<(i16, String)>, bool), LedgerError> {
        let rows =
            sqlx::query!("select bucket_count, bucket, entry from epoch_entry order by bucket_count, bucket")
                .fetch_all(&self.database.pool)
                .await?;
        let all = rows.len();
        let entries: Vec<_> = rows
            .into_iter()
            .filter(|row| row.bucket_count == bucket_count)
            .map(|row| (row.bucket, row.entry))
            .collect();
        let are_of_another = entries.len() < all;
        Ok((entries, are_of_another))
    }

    /// Whether workers are alive. Without them, their last entry may be an old one.
    pub async fn has_workers(&self) -> Result<bool, LedgerError> {
        Ok(sqlx::query_scalar!(
            r#"select exists (select from worker
                              where seen_at > clock_timestamp() - $1::bigint * interval '1 ms') as "has!""#,
            ALIVE_LIMIT_SILENCE.as_millis() as i64
        )
        .fetch_one(&self.database.pool)
        .await?)
    }

    /// Notes that this server's votes with ids up to this one are counted, unless another run of Postgres is reached: that
    /// may give these ids to other votes.
    pub async fn note_counted(&self, counted: VoteId, run: PostgresRun) -> Result<(), LedgerError> {
        let names: Vec<String> = self.writers.lock().names.iter().cloned().collect();
        if names.is_empty() {
            return Ok(());
        }
        sqlx::query!(
            "update writer_connection set counted_vote_id = $2
             where name = any($1) and counted_vote_id < $2 and postgres_run() = $3",
            &names,
            counted.get(),
            run.get()
        )
        .execute(&self.database.pool)
        .await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_under_way_from_its_beginning_until_its_end_or_until_its_writer_is_gone() {
        let writers = Writers::default();
        let (first, second) = (writers.add(), writers.add());
        assert!(writers.batches_under_way().is_empty());
        first.begin();
        second.begin();
        let under_way = writers.batches_under_way();
        assert_eq!(under_way.len(), 2);
        assert!(!under_way.iter().any(BatchUnderWay::has_ended));
        first.end();
        drop(second);
        assert!(under_way.iter().all(BatchUnderWay::has_ended));
        assert!(writers.batches_under_way().is_empty());
        // An end without a batch, and a batch whose predecessor did not say its end.
        first.end();
        assert!(writers.batches_under_way().is_empty());
        first.begin();
        let under_way = writers.batches_under_way();
        first.begin();
        assert!(!under_way[0].has_ended());
        first.end();
        first.begin();
        assert!(under_way[0].has_ended(), "another batch is under way");
    }

    #[test]
    fn writers_that_are_gone_are_forgotten() {
        let writers = Writers::default();
        for _ in 0..10 {
            drop(writers.add());
        }
        let _kept = writers.add();
        assert_eq!(writers.lock().batches.len(), 1);
    }

    #[test]
    fn the_progress_of_a_connection_is_noted_until_it_ends_in_a_batch_or_is_abandoned() {
        let writers = Writers::default();
        let mut kept = writers.connected("kept".to_owned());
        let ended = writers.connected("ended".to_owned());
        assert!(kept.is_noted() && ended.is_noted());
        drop(ended);
        assert!(kept.is_noted() && !writers.notes("ended"));
        kept.keep();
        drop(kept);
        assert!(writers.notes("kept"), "its last note is still to come");
        let abandoned = writers.connected("abandoned".to_owned());
        writers.lock().names.clear();
        assert!(!abandoned.is_noted());
    }
}
