//! What to read for the streams, and what was read: at each tick, and from Postgres.

use std::collections::HashMap;

use tokio::time::Instant;

use super::{FACTS_EVERY, READ_AGAIN_EVERY, State, StreamId};
use crate::counts::ItemCount;
use crate::domain::{Count, ItemId, Poll, PollId, PollState};
use crate::live::LiveRead;

impl State {
    /// The items whose live counts a tick reads.
    pub fn ticking(&self) -> Vec<ItemId> {
        let items = self.items.iter().filter(|(_, item)| item.read.is_some());
        items.map(|(id, _)| *id).collect()
    }

    /// Takes in what a tick has read of these items; `None`: Redis is unavailable. Returns the
    /// streams to wake, and whether something is to be read from Postgres.
    pub fn ticked(&mut self, items: &[ItemId], reads: Option<Vec<LiveRead>>) -> (Vec<StreamId>, bool) {
        self.ticks += 1;
        let now = Instant::now();
        let mut changed = Vec::new();
        let mut is_due = false;
        let reads = match reads {
            Some(reads) => reads.into_iter().map(Some).collect(),
            None => vec![None; items.len()],
        };
        for (id, live) in items.iter().zip(reads) {
            let Some(item) = self.items.get_mut(id) else {
                continue;
            };
            let due = item.due;
            if item.ticked(live, self.ticks, now) {
                changed.push(*id);
            }
            is_due |= item.due < due;
        }
        (self.show_items(&changed), is_due)
    }

    /// Up to `limit` polls to read from Postgres now.
    pub fn due_polls(&self, now: Instant, limit: usize) -> Vec<PollId> {
        let polls = self.polls.iter().filter(|(_, poll)| poll.due <= now);
        polls.map(|(id, _)| *id).take(limit).collect()
    }

    /// Up to `limit` items to read from Postgres now. Items that were never read come first.
    pub fn due_items(&self, now: Instant, limit: usize) -> Vec<ItemId> {
        let due = || self.items.iter().filter(|(_, item)| item.due <= now);
        let new = due().filter(|(_, item)| item.read.is_none());
        let known = due().filter(|(_, item)| item.read.is_some());
        new.chain(known).map(|(id, _)| *id).take(limit).collect()
    }

    /// When the next read is due.
    pub fn next_due(&self) -> Option<Instant> {
        let items = self.items.values().map(|item| item.due);
        items.chain(self.polls.values().map(|poll| poll.due)).min()
    }

    /// Takes in those of the polls that Postgres has. Returns the streams to wake.
    pub fn read_polls(&mut self, asked: &[PollId], found: Vec<(Poll, Vec<ItemId>)>) -> Vec<StreamId> {
        let now = Instant::now();
        let ids: Vec<PollId> = found.iter().map(|(poll, _)| poll.id).collect();
        for id in asked {
            if let Some(poll) = self.polls.get_mut(id) {
                poll.due = now + FACTS_EVERY;
                poll.is_unknown = poll.read.is_none();
            }
        }
        for (poll, choices) in found {
            let id = poll.id;
            let Some(watched) = self.polls.get_mut(&id) else {
                continue;
            };
            watched.is_unknown = false;
            let is_new = watched.read.is_none();
            watched.read = Some((poll, choices.clone()));
            for item in choices.into_iter().filter(|_| is_new) {
                self.item(item, now).polls.insert(id);
            }
        }
        self.show_polls(ids)
    }

    /// Up to `limit` closed polls whose final counts to read now. Each comes with its choices, and
    /// with whether it is known to be final.
    pub fn due_finals(&self, now: Instant, limit: usize) -> Vec<(PollId, Vec<ItemId>, bool)> {
        let due = self.polls.iter().filter(|(_, poll)| poll.finals_due <= now);
        let closed = due.filter_map(|(id, watched)| {
            let (poll, choices) = watched.read.as_ref()?;
            let is_closed = poll.state == PollState::Closed;
            is_closed.then(|| (*id, choices.clone(), watched.finals.is_some()))
        });
        closed.take(limit).collect()
    }

    /// Takes in the final counts of this poll. `None`: it is not final yet, or Postgres did not
    /// say. Returns the streams to wake.
    pub fn read_finals(&mut self, poll: PollId, counts: Option<HashMap<ItemId, Count>>) -> Vec<StreamId> {
        let now = Instant::now();
        let Some(watched) = self.polls.get_mut(&poll) else {
            return Vec::new();
        };
        watched.is_final_asked = true;
        watched.finals_due = match &counts {
            Some(_) => now + FACTS_EVERY,
            None => now + READ_AGAIN_EVERY,
        };
        watched.finals = counts.or(watched.finals.take());
        self.show_polls([poll])
    }

    /// Takes in those of the items that Postgres has, with their counts. `since` is the number of
    /// ticks before they were read: a live count that a later tick found is newer. Returns the
    /// streams to wake.
    pub fn read_items(&mut self, asked: &[ItemId], found: Vec<ItemCount>, since: u64) -> Vec<StreamId> {
        let now = Instant::now();
        for id in asked {
            if let Some(item) = self.items.get_mut(id) {
                item.due = now + FACTS_EVERY;
                item.is_unknown = item.read.is_none();
            }
        }
        let mut changed = Vec::with_capacity(found.len());
        for read in found {
            let id = read.item.id;
            let Some(item) = self.items.get_mut(&id) else {
                continue;
            };
            item.is_unknown = false;
            if !read.is_current {
                item.due = now + READ_AGAIN_EVERY;
            }
            item.read = Some(match item.read.take() {
                Some(ticked) if item.counted_in > since => {
                    if item.is_missing {
                        item.due = now;
                    }
                    ItemCount {
                        item: read.item,
                        ..ticked
                    }
                }
                _ => read,
            });
            changed.push(id);
        }
        self.show_items(&changed)
    }

    /// Notes that Postgres did not answer: these are read again later. If they have no live count
    /// either, their counts are not known to be current. Returns the streams to wake.
    pub fn not_read(&mut self, items: &[ItemId], polls: &[PollId]) -> Vec<StreamId> {
        self.failures += 1;
        let due = Instant::now() + READ_AGAIN_EVERY;
        for id in items {
            if let Some(item) = self.items.get_mut(id) {
                item.due = due;
                if let Some(read) = item.read.as_mut().filter(|_| item.is_missing) {
                    read.live_count = None;
                    read.is_current = false;
                }
            }
        }
        for id in polls {
            if let Some(poll) = self.polls.get_mut(id) {
                poll.due = due;
            }
        }
        self.show_items(items)
    }
}
