//! Full items: a vote on one is refused without Postgres, where that is certain.
//!
//! Postgres alone grants a place. Once it has refused a vote because its item is full, the item's
//! revision is read from Redis, and then from Postgres, under one snapshot, whether the item is full
//! and who holds its votes. A vote is counted before it is acknowledged, and each counted batch gives
//! its items new revisions, also one that takes back as much as it casts. So as long as the revision
//! is the same, nothing was acknowledged since: the item is as full as it was, and nobody else holds a
//! vote.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::{ItemId, NewVote, Value, VoterId};
use crate::ledger::VoteWriter;
use crate::live::LiveCounts;

/// How long what Postgres said of an item is used: its times may be edited meanwhile.
pub const FULL_LIMIT: Duration = Duration::from_secs(1);
/// Full items that one writer knows, at the most.
pub const FULL_LIMIT_ITEMS: usize = 100;

/// What one writer knows of full items.
#[derive(Default)]
pub(super) struct FullItems(HashMap<ItemId, FullItem>);

struct FullItem {
    since: Instant,
    revision: i64,
    holders: HashSet<VoterId>,
}

impl FullItems {
    /// Which of these items are full for certain, by what is known of them and by their revisions
    /// now.
    pub async fn certain(
        &mut self,
        live_counts: &LiveCounts,
        items: impl Iterator<Item = ItemId>,
    ) -> HashSet<ItemId> {
        self.0.retain(|_, full| full.since.elapsed() < FULL_LIMIT);
        let mut known: Vec<ItemId> = items.filter(|item| self.0.contains_key(item)).collect();
        known.sort_unstable();
        known.dedup();
        if known.is_empty() {
            return HashSet::new();
        }
        // Without Redis nothing is certain.
        let Ok(revisions) = live_counts.revisions(&known).await else {
            return HashSet::new();
        };
        let is_same = |item: &ItemId, now: Option<i64>| {
            let then = self.0.get(item).map(|full| full.revision);
            now.is_some() && now == then
        };
        let same: HashSet<ItemId> = known
            .iter()
            .zip(revisions)
            .filter(|(item, now)| is_same(item, *now))
            .map(|(item, _)| *item)
            .collect();
        self.0
            .retain(|item, _| same.contains(item) || !known.contains(item));
        same
    }

    /// Whether this vote's voter holds no vote on its item, which is full: it is refused. A down-vote
    /// is left to Postgres: the item may take none, and that is then what is wrong with it.
    pub fn refuses(&self, vote: &NewVote) -> bool {
        if vote.value != Value::UP {
            return false;
        }
        let Some(full) = self.0.get(&vote.item_id) else {
            return false;
        };
        vote.voter_id
            .as_ref()
            .is_none_or(|voter| !full.holders.contains(voter))
    }

    /// Learns of items on which Postgres has just refused a vote because they are full.
    pub async fn learn(
        &mut self,
        live_counts: &LiveCounts,
        writer: &mut VoteWriter,
        items: impl Iterator<Item = ItemId>,
    ) {
        let mut new: Vec<ItemId> = items.filter(|item| !self.0.contains_key(item)).collect();
        new.sort_unstable();
        new.dedup();
        new.truncate(FULL_LIMIT_ITEMS.saturating_sub(self.0.len()));
        if new.is_empty() {
            return;
        }
        let since = Instant::now();
        // Before Postgres is asked: what is counted later shows in the revision.
        let Ok(revisions) = live_counts.revisions(&new).await else {
            return;
        };
        for (item, revision) in new.into_iter().zip(revisions) {
            let Some(revision) = revision else { continue };
            match writer.holders_if_full(item).await {
                Ok(Some(holders)) => {
                    let full = FullItem {
                        since,
                        revision,
                        holders,
                    };
                    self.0.insert(item, full);
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(%error, "who holds the votes of a full item was not read");
                    return;
                }
            }
        }
    }
}
