//! Full items: a vote on one is refused by a read, without a lock and without a write.
//!
//! A decision locks the rule of its item, so even a refusal costs a transaction and a sync of
//! Postgres' log. A popular item gets most of its votes when it is full. So once Postgres has refused a
//! vote because its item is full, its votes are looked at first: one statement says of all of them in a
//! batch whether they are refused. Its snapshot is taken after they came in, so what it says was so at
//! a moment between their calls and their answers. Redis and other servers have no part in it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use super::cast::QueuedRequest;
use crate::domain::{ItemId, NewVote, Value, VoteRequest, VoterId};
use crate::ledger::{Fullness, VoteWriter};

/// How long after it was last seen full an item is looked at first.
const FULL_LIMIT: Duration = Duration::from_secs(60);
/// Items that one writer looks at first, at the most.
pub const FULL_LIMIT_ITEMS: usize = 100;

/// The items that one writer looks at first, and when each was last seen full. That an item is here
/// decides nothing.
#[derive(Default)]
pub(super) struct FullItems(HashMap<ItemId, Instant>);

/// A batch of which some is refused.
pub(super) struct SplitBatch {
    pub refused: Vec<QueuedRequest>,
    /// In their order.
    pub to_decide: Vec<QueuedRequest>,
}

impl FullItems {
    /// Notes an item on which Postgres has just refused a vote because it is full, or that a read found full.
    pub fn note(&mut self, item: ItemId) {
        if self.0.len() >= FULL_LIMIT_ITEMS && !self.0.contains_key(&item) {
            let oldest = self.0.iter().min_by_key(|(_, seen)| **seen);
            if let Some(oldest) = oldest.map(|(item, _)| *item) {
                self.0.remove(&oldest);
            }
        }
        self.0.insert(item, Instant::now());
    }

    /// Takes the votes out of a batch that Postgres would refuse because their items are full. If
    /// Postgres does not say so, all are to be decided.
    pub async fn refuse(&mut self, writer: &mut VoteWriter, batch: Vec<QueuedRequest>) -> SplitBatch {
        self.0.retain(|_, seen| seen.elapsed() < FULL_LIMIT);
        let votes: Vec<&NewVote> = batch
            .iter()
            .filter_map(|one| self.looked_at(&one.request))
            .collect();
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
                let is_looked_at = self.looked_at(&one.request).is_some();
                is_looked_at && of_looked_at.next() == Some(&Fullness::Refuses)
            })
            .collect();
        // A voter's requests take effect in their order: if one of them is to be decided, by when a
        // place may have become free, so are those behind it.
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

    /// The vote that is looked at before anything is decided. A down-vote is not: the item may take
    /// none, and that is then what is wrong with it.
    fn looked_at<'r>(&self, request: &'r VoteRequest) -> Option<&'r NewVote> {
        match request {
            VoteRequest::Cast(vote) if vote.value == Value::UP && self.0.contains_key(&vote.item_id) => {
                Some(vote)
            }
            _ => None,
        }
    }
}
