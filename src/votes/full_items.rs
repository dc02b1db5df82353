//! Full items: a read refuses votes on them, without a lock and without a write.
//!
//! A decision locks the rule of its item, so even a refusal costs a transaction and a sync of
//! Postgres' log. A popular item gets most of its votes when it is full. So after Postgres has
//! refused a vote because its item is full, one statement first looks at all votes on the item in a
//! batch, and says which are refused. Its snapshot is taken after they came in, so its answer was
//! true at a moment between their requests and their answers. Redis and other servers play no part.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use super::cast::QueuedRequest;
use crate::domain::{ItemId, NewVote, PostgresRun, Value, VoteRequest, VoterId};
use crate::ledger::{Fullness, VoteWriter};

/// For this long after an item was last seen full, its votes are looked at first.
const FULL_LIMIT: Duration = Duration::from_secs(60);
/// The most items that one writer looks at first.
pub const FULL_LIMIT_ITEMS: usize = 100;

/// The items that one writer looks at first, and when each was last seen full. Being here decides
/// nothing.
#[derive(Default)]
pub(super) struct FullItems(HashMap<ItemId, Instant>);

/// A batch, split into refused votes and the rest.
pub(super) struct SplitBatch {
    pub refused: Vec<QueuedRequest>,
    /// The requests to decide, in their order.
    pub to_decide: Vec<QueuedRequest>,
}

impl FullItems {
    /// Notes an item that Postgres refused a vote for as full, or that a read found full.
    pub fn note(&mut self, item: ItemId) {
        if self.0.len() >= FULL_LIMIT_ITEMS && !self.0.contains_key(&item) {
            let oldest = self.0.iter().min_by_key(|(_, seen)| **seen);
            if let Some(oldest) = oldest.map(|(item, _)| *item) {
                self.0.remove(&oldest);
            }
        }
        self.0.insert(item, Instant::now());
    }

    /// Takes out of a batch the votes that Postgres would refuse because their items are full. If
    /// Postgres does not say so, all are decided.
    pub async fn refuse(&mut self, writer: &mut VoteWriter, batch: Vec<QueuedRequest>) -> SplitBatch {
        self.0.retain(|_, seen| seen.elapsed() < FULL_LIMIT);
        // The read goes over the kept connection. A vote whose item was looked up in another run of
        // Postgres is not looked at: there, its id may be another item's.
        let run = writer.kept_run();
        let votes: Vec<&NewVote> = batch.iter().filter_map(|one| self.looked_at(one, run)).collect();
        let fullness = if votes.is_empty() {
            None
        } else {
            writer.fullness(&votes).await.unwrap_or_else(|error| {
                tracing::debug!(%error, "whether items are full was not read");
                None
            })
        };
        let Some(fullness) = fullness else {
            return SplitBatch {
                refused: Vec::new(),
                to_decide: batch,
            };
        };
        let items: Vec<ItemId> = votes.iter().map(|vote| vote.item_id).collect();
        let mut of_looked_at = fullness.iter();
        let is_refused: Vec<bool> = batch
            .iter()
            .map(|one| {
                let is_looked_at = self.looked_at(one, run).is_some();
                is_looked_at && of_looked_at.next() == Some(&Fullness::Refuses)
            })
            .collect();
        // A voter's requests take effect in their order. If one of them is decided, a place may be
        // free by then, so the ones after it are decided too.
        let decided = batch
            .iter()
            .zip(&is_refused)
            .filter(|(_, is_refused)| !**is_refused);
        let voters: HashSet<VoterId> = decided
            .filter_map(|(one, _)| one.request.voter().cloned())
            .collect();
        let (mut refused, mut to_decide) = (Vec::new(), Vec::new());
        for (one, is_refused) in batch.into_iter().zip(is_refused) {
            let is_behind = one.request.voter().is_some_and(|voter| voters.contains(voter));
            if is_refused && !is_behind {
                refused.push(one);
            } else {
                to_decide.push(one);
            }
        }
        for (item, fullness) in items.into_iter().zip(fullness) {
            match fullness {
                Fullness::Undecided => {
                    self.0.remove(&item);
                }
                Fullness::Full | Fullness::Refuses => self.note(item),
            }
        }
        SplitBatch { refused, to_decide }
    }

    /// The vote of a request, if it is looked at first. A down-vote is not: the item may take none,
    /// and then that is the reason for the refusal.
    fn looked_at<'r>(&self, one: &'r QueuedRequest, run: Option<PostgresRun>) -> Option<&'r NewVote> {
        match &one.request {
            _ if one.run.is_some() && one.run != run => None,
            VoteRequest::Cast(vote) if vote.value == Value::UP && self.0.contains_key(&vote.item_id) => {
                Some(vote)
            }
            _ => None,
        }
    }
}
