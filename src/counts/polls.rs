//! A poll with the counts of its choices, as a reader sees it.

use std::collections::HashMap;
use std::sync::Arc;

use super::reads::{CountReader, ItemCount};
use crate::domain::{Count, Item, ItemId, Poll, PollId, PollState};
use crate::ledger::LedgerError;

/// A poll and what is shown of its counts.
#[derive(Clone, Debug)]
pub struct PollCount {
    pub poll: Poll,
    /// In the order in which they were made.
    pub choices: Vec<ChoiceCount>,
    /// Whether all counts are current; so they are while they are hidden.
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

impl CountReader {
    /// A poll and its results, and what was read of live counts for them: nothing, where they are
    /// hidden or final. `None`: there is no such poll.
    ///
    /// # Errors
    /// When Postgres does not answer.
    pub async fn poll(&self, id: PollId) -> Result<Option<(PollCount, Vec<ItemCount>)>, LedgerError> {
        let Some(poll) = self.ledger.poll(id).await? else {
            return Ok(None);
        };
        let items = self.ledger.choices(id).await?;
        let finals = if poll.state == PollState::Closed {
            let ids: Vec<ItemId> = items.iter().map(|item| item.id).collect();
            self.final_counts(id, &ids, false).await?
        } else {
            None
        };
        if finals.is_some() || !poll.shows_counts() {
            let counts = finals.as_ref();
            let choices = items.iter().map(|item| ChoiceRead {
                item,
                count: counts
                    .and_then(|counts| counts.get(&item.id))
                    .copied()
                    .unwrap_or_default(),
                is_current: true,
            });
            return Ok(Some((
                PollCount::new(poll, choices, finals.is_some()),
                Vec::new(),
            )));
        }
        let read = self.with_counts(items).await?;
        let choices = read.iter().map(|one| ChoiceRead {
            item: &one.item,
            count: one.count(),
            is_current: one.is_current,
        });
        Ok(Some((PollCount::new(poll, choices, false), read)))
    }

    /// The counts of a closed poll's choices, which never change again; `None`: votes are still waited
    /// for. `is_final`: it is known that none are.
    ///
    /// # Errors
    /// When Postgres does not answer.
    pub async fn final_counts(
        &self,
        poll: PollId,
        choices: &[ItemId],
        is_final: bool,
    ) -> Result<Option<HashMap<ItemId, Count>>, LedgerError> {
        if !is_final && !self.ledger.is_final(poll).await? {
            return Ok(None);
        }
        // In a further statement, so that it has all votes that were waited for.
        let exact = self.ledger.exact_counts(choices).await?;
        Ok(Some(
            exact.into_iter().map(|one| (one.item_id, one.count)).collect(),
        ))
    }
}
