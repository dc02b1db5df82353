//! A poll with the counts of its choices, as a reader sees it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::reads::{CountReader, ItemCount};
use crate::domain::{Count, Item, ItemId, Poll, PollId, PollState};
use crate::ledger::LedgerError;

/// A poll, and those of its counts that may be shown.
#[derive(Clone, Debug)]
pub struct PollCount {
    pub poll: Poll,
    /// The choices, in the order in which they were created.
    pub choices: Vec<ChoiceCount>,
    /// Whether all counts are current. Hidden counts count as current.
    pub is_current: bool,
    /// Whether the poll has closed and the counts never change again.
    pub is_final: bool,
}

/// A choice of a poll and its count.
#[derive(Clone, Debug)]
pub struct ChoiceCount {
    pub item_id: ItemId,
    pub name: Arc<str>,
    /// `None` while the poll hides its results.
    pub net: Option<i64>,
}

/// The count of a choice, as it was read.
pub struct ChoiceRead<'a> {
    pub item: &'a Item,
    pub count: Count,
    pub is_current: bool,
}

impl PollCount {
    /// A poll and its choices, without what it hides.
    pub fn new<'a>(poll: Poll, choices: impl IntoIterator<Item = ChoiceRead<'a>>, is_final: bool) -> Self {
        let shows_counts = poll.shows_counts();
        let mut is_current = true;
        let choices = choices.into_iter().map(|one| {
            is_current &= one.is_current || !shows_counts;
            ChoiceCount {
                item_id: one.item.id,
                name: Arc::clone(&one.item.name),
                net: shows_counts.then_some(one.count.net),
            }
        });
        Self {
            choices: choices.collect(),
            poll,
            is_current,
            is_final: is_final && shows_counts,
        }
    }
}

/// A poll and its choices.
type PollRead = (Poll, Vec<ItemId>);

/// The final counts of a poll that has closed.
pub struct FinalCounts {
    pub counts: HashMap<ItemId, Count>,
    /// The poll and its choices, as they were read behind the last vote. `None`: its choices were known.
    pub read: Option<PollRead>,
}

impl CountReader {
    /// A poll and its results; `None`: there is no such poll. With them come the live counts that
    /// were read: none if the results are hidden or final.
    pub async fn poll(&self, id: PollId) -> Result<Option<(PollCount, Vec<ItemCount>)>, LedgerError> {
        let (mut polls, read) = self.polls(&[id]).await?;
        Ok(polls.pop().map(|poll| (poll, read)))
    }

    /// Those of these polls that exist, in their order. The live counts are those that were read
    /// for them, as in [`CountReader::poll`]. Each id may be given once.
    pub async fn polls(&self, ids: &[PollId]) -> Result<(Vec<PollCount>, Vec<ItemCount>), LedgerError> {
        let mut found = self.ledger.polls(ids).await?;
        let mut are_final: Vec<PollId> = Vec::new();
        for (poll, _) in found.iter().filter(|(poll, _)| poll.state == PollState::Closed) {
            if self.ledger.is_final(poll.id).await? {
                are_final.push(poll.id);
            }
        }
        let (read_again, finals) = self.read_final(&are_final).await?;
        let mut read_again: HashMap<PollId, _> = read_again.into_iter().map(|one| (one.0.id, one)).collect();
        for one in &mut found {
            if let Some(read) = read_again.remove(&one.0.id) {
                *one = read;
            }
        }
        let are_final: HashSet<PollId> = are_final.into_iter().collect();
        let choices: Vec<ItemId> = found.iter().flat_map(|(_, items)| items).copied().collect();
        let items = self.ledger.items_by_id(&choices).await?;
        let is_counted = |poll: &Poll| poll.shows_counts() && !are_final.contains(&poll.id);
        let live: HashSet<ItemId> = found
            .iter()
            .filter(|(poll, _)| is_counted(poll))
            .flat_map(|(_, items)| items.iter().copied())
            .collect();
        let (live, others): (Vec<Item>, Vec<Item>) =
            items.into_iter().partition(|item| live.contains(&item.id));
        let read = self.with_counts(live).await?;
        let mut counted: HashMap<ItemId, ChoiceRead<'_>> = HashMap::with_capacity(choices.len());
        counted.extend(others.iter().map(|item| {
            let count = finals.get(&item.id).copied().unwrap_or_default();
            let choice = ChoiceRead {
                item,
                count,
                is_current: true,
            };
            (item.id, choice)
        }));
        counted.extend(read.iter().map(|one| {
            let choice = ChoiceRead {
                item: &one.item,
                count: one.count(),
                is_current: one.is_current,
            };
            (one.item.id, choice)
        }));
        let mut by_id: HashMap<PollId, PollCount> = HashMap::with_capacity(found.len());
        for (poll, items) in found {
            let is_final = are_final.contains(&poll.id);
            let choices = items.iter().filter_map(|item| counted.remove(item));
            by_id.insert(poll.id, PollCount::new(poll, choices, is_final));
        }
        let polls = ids.iter().filter_map(|id| by_id.remove(id)).collect();
        Ok((polls, read))
    }

    /// The final counts of a closed poll's choices; `None`: votes are still waited for. `known`: the choices of a poll
    /// that is known to be final already.
    pub async fn final_counts(
        &self,
        poll: PollId,
        known: Option<&[ItemId]>,
    ) -> Result<Option<FinalCounts>, LedgerError> {
        let (read, counts) = match known {
            Some(choices) => (None, self.exact(choices).await?),
            None if self.ledger.is_final(poll).await? => {
                let (mut read, counts) = self.read_final(&[poll]).await?;
                (read.pop(), counts)
            }
            None => return Ok(None),
        };
        Ok(Some(FinalCounts { counts, read }))
    }

    /// Polls that are known to be final, with their choices, and the counts of these. In further statements than those
    /// that waited, so that they see all votes and choices that were waited for.
    async fn read_final(
        &self,
        polls: &[PollId],
    ) -> Result<(Vec<PollRead>, HashMap<ItemId, Count>), LedgerError> {
        if polls.is_empty() {
            return Ok(Default::default());
        }
        let read = self.ledger.polls(polls).await?;
        let choices: Vec<ItemId> = read.iter().flat_map(|(_, items)| items).copied().collect();
        let counts = self.exact(&choices).await?;
        Ok((read, counts))
    }

    async fn exact(&self, items: &[ItemId]) -> Result<HashMap<ItemId, Count>, LedgerError> {
        let exact = self.ledger.exact_counts(items).await?;
        Ok(exact.into_iter().map(|one| (one.item_id, one.count)).collect())
    }
}
