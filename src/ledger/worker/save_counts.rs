//! Saves counts to the items.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::WorkerLedger;
use super::epochs::EpochNumber;
use crate::domain::{CountDelta, CountToSave, ExactCount, ItemId, Revision};
use crate::ledger::error::{is_deadlock, is_lock_timeout};
use crate::ledger::pool::InUse;
use crate::ledger::{LedgerError, Overtaken};

/// The most tries of a statement that ends in a deadlock.
pub const DEADLOCK_LIMIT_TRIES: u32 = 5;

/// What became of saving counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaveOutcome {
    /// All were saved.
    All,
    /// Some were not.
    Some {
        saved: HashSet<ItemId>,
        /// Others have locked these items' rows: try again later.
        locked: HashSet<ItemId>,
    },
}

impl SaveOutcome {
    /// Whether the count of this item was saved. It must be one of those given.
    pub fn contains(&self, item: ItemId) -> bool {
        match self {
            Self::All => true,
            Self::Some { saved, .. } => saved.contains(&item),
        }
    }

    /// Whether the item refused its count because it has a later one.
    pub fn has_refused(&self, item: ItemId) -> bool {
        match self {
            Self::All => false,
            Self::Some { saved, locked } => !saved.contains(&item) && !locked.contains(&item),
        }
    }
}

/// A moment in Postgres. What was saved before it has no vote that was drawn after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedState {
    /// All transactions with lower ids have ended. Without the id's epoch, as a row's `xmin` is.
    xmin: String,
    epoch: EpochNumber,
    /// The incarnation of Postgres that it is of; `None`: that is not known yet.
    pub incarnation: Option<String>,
}

/// An exact count to write to its item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebuiltCount {
    pub exact: ExactCount,
    /// The revision that was claimed for this write alone.
    pub revision: Revision,
}

impl WorkerLedger {
    /// The exact counts of these items, under one snapshot. Each id may be given once. Unknown
    /// items are left out.
    pub async fn exact_counts(&self, items: &[ItemId]) -> Result<Vec<ExactCount>, LedgerError> {
        self.exact.read(items).await
    }

    /// Saves counts to their items. A count is saved only if its revision is above the item's
    /// `counted_at`, or is that of the same count. Each item may be given once.
    ///
    /// # Errors
    /// When Postgres is unavailable or too slow: each item then has its old or its new count. When
    /// another epoch has begun: then nothing is written.
    pub async fn save_counts(
        &self,
        counts: &[CountToSave],
        epoch: EpochNumber,
    ) -> Result<SaveOutcome, LedgerError> {
        let ids: Vec<i64> = counts.iter().map(|one| one.item_id.get()).collect();
        let values: Vec<i64> = counts.iter().map(|one| one.count.net).collect();
        let downs: Vec<i64> = counts.iter().map(|one| one.count.downs).collect();
        let revisions: Vec<i64> = counts.iter().map(|one| one.revision.micros()).collect();
        if self.has_locked_rows.load(Ordering::Relaxed) {
            let mut connection = self.database.pool.acquire().await?;
            return self
                .save_unlocked(&mut connection, &ids, &values, &downs, &revisions, epoch)
                .await;
        }
        // One connection: Postgres sends the error of a statement before it lets its locks go, so over another one
        // the rows of the statement that failed could look as if someone else had locked them.
        let mut connection = self.database.pool.acquire().await?;
        let mut tries = 1;
        let saved = loop {
            let saved = sqlx::query_file!(
                "src/ledger/sql/save_counts.sql",
                &ids,
                &values,
                &revisions,
                epoch.0,
                &downs
            )
            .fetch_one(&mut connection)
            .await;
            match saved {
                Ok(saved) => break saved,
                // Rows are locked in the order of their ids, so there is no deadlock as long as the
                // plan keeps that order. Writing a count twice does no harm.
                Err(error) if is_deadlock(&error) && tries < DEADLOCK_LIMIT_TRIES => {
                    tracing::debug!(tries, "a deadlock among workers: saving again");
                    tries += 1;
                }
                Err(error) if is_lock_timeout(&error) => {
                    return self
                        .save_unlocked(&mut connection, &ids, &values, &downs, &revisions, epoch)
                        .await;
                }
                Err(error) => return Err(error.into()),
            }
        };
        if !saved.is_current {
            return Err(LedgerError::Overtaken(Overtaken::EpochEnded));
        }
        Ok(saved
            .written
            .map_or(SaveOutcome::All, |written| SaveOutcome::Some {
                saved: item_ids(written),
                locked: HashSet::new(),
            }))
    }

    /// Saves the counts of items whose rows nobody else has locked.
    async fn save_unlocked(
        &self,
        connection: &mut InUse,
        ids: &[i64],
        counts: &[i64],
        downs: &[i64],
        revisions: &[i64],
        epoch: EpochNumber,
    ) -> Result<SaveOutcome, LedgerError> {
        let saved = sqlx::query_file!(
            "src/ledger/sql/save_unlocked_counts.sql",
            ids,
            counts,
            revisions,
            epoch.0,
            downs
        )
        .fetch_one(connection)
        .await?;
        if !saved.is_current {
            return Err(LedgerError::Overtaken(Overtaken::EpochEnded));
        }
        let unlocked = item_ids(saved.unlocked);
        let given = ids.iter().filter_map(|id| ItemId::new(*id));
        let locked: HashSet<ItemId> = given.filter(|item| !unlocked.contains(item)).collect();
        // While there are locked rows, all statements leave them out from the start.
        self.has_locked_rows.store(!locked.is_empty(), Ordering::Relaxed);
        if !locked.is_empty() {
            tracing::warn!(
                items = locked.len(),
                "someone has locked rows of items: their counts are saved later"
            );
        }
        Ok(SaveOutcome::Some {
            saved: item_ids(saved.written),
            locked,
        })
    }

    /// Saves exact counts to their items. A count is saved only if the item's saved count is still
    /// the one that was read with it. Each item may be given once. Returns the items that were
    /// written.
    ///
    /// # Errors
    /// As [`WorkerLedger::save_counts`].
    pub async fn save_rebuilt_counts(
        &self,
        counts: &[RebuiltCount],
        epoch: EpochNumber,
    ) -> Result<HashSet<ItemId>, LedgerError> {
        let ids: Vec<i64> = counts.iter().map(|one| one.exact.item_id.get()).collect();
        let values: Vec<i64> = counts.iter().map(|one| one.exact.count.net).collect();
        let downs: Vec<i64> = counts.iter().map(|one| one.exact.count.downs).collect();
        let revisions: Vec<i64> = counts.iter().map(|one| one.revision.micros()).collect();
        let read: Vec<Option<i64>> = counts
            .iter()
            .map(|one| one.exact.counted_at.map(Revision::micros))
            .collect();
        let saved = sqlx::query_file!(
            "src/ledger/sql/save_rebuilt_counts.sql",
            &ids,
            &values,
            &revisions,
            &read as &[Option<i64>],
            epoch.0,
            &downs
        )
        .fetch_one(&self.database.pool)
        .await?;
        if !saved.is_current {
            return Err(LedgerError::Overtaken(Overtaken::EpochEnded));
        }
        Ok(item_ids(saved.written))
    }

    /// What is so now of all that is saved: see [`SavedState`].
    pub async fn saved_state(&self) -> Result<SavedState, LedgerError> {
        let row = sqlx::query!(
            r#"select (pg_snapshot_xmin(pg_current_snapshot())::text::numeric % 4294967296)::text as "xmin!",
                      number, (select token from incarnation where xmin = drawn_by::xid) as incarnation
               from epoch"#
        )
        .fetch_one(&self.database.pool)
        .await?;
        Ok(SavedState {
            xmin: row.xmin,
            epoch: EpochNumber(row.number),
            incarnation: row.incarnation,
        })
    }

    /// Saves the audited counts of cold items, to which a roll-up has just added these sums. An item is written
    /// only if its saved count was the audited count before, and nobody has written its row since `unwritten`.
    /// Its new revision is `revision`, unless it has a higher one. Returns the items that were written; `None`:
    /// all.
    ///
    /// # Errors
    /// When Postgres is unavailable or too slow, or someone has locked one of the rows: then none is written.
    pub async fn save_audited_counts(
        &self,
        sums: &[CountDelta],
        revision: Revision,
        unwritten: &SavedState,
    ) -> Result<Option<HashSet<ItemId>>, LedgerError> {
        let ids: Vec<i64> = sums.iter().map(|one| one.item_id.get()).collect();
        let nets: Vec<i64> = sums.iter().map(|one| one.delta.net).collect();
        let downs: Vec<i64> = sums.iter().map(|one| one.delta.downs).collect();
        let saved = sqlx::query_file!(
            "src/ledger/sql/save_audited_counts.sql",
            &ids,
            &nets,
            &downs,
            revision.micros(),
            unwritten.xmin,
            unwritten.epoch.0
        )
        .fetch_one(&self.database.pool)
        .await?;
        Ok(saved.written.map(item_ids))
    }
}

fn item_ids(ids: Vec<i64>) -> HashSet<ItemId> {
    ids.into_iter().filter_map(ItemId::new).collect()
}
