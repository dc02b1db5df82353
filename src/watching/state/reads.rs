//! What to read for the streams, and what was read: at each tick, and from Postgres.

use tokio::time::Instant;

use super::{FACTS_EVERY, READ_AGAIN_EVERY, State, StreamId};
use crate::counts::{FinalCounts, ItemCount};
use crate::domain::{ItemId, Poll, PollId, PollState};
use crate::live::LiveRead;

/// Whose turn it is to be read from Postgres.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// A stream waits for it.
    New,
    Known,
    /// It was not there. It may be made later, and anyone can name ids that never are: they wait
    /// until nothing else does.
    Unknown,
}

impl Turn {
    fn of(is_read: bool, is_unknown: bool) -> Self {
        match (is_read, is_unknown) {
            (true, _) => Self::Known,
            (false, false) => Self::New,
            (false, true) => Self::Unknown,
        }
    }
}

/// Up to `limit` of these in their turn.
fn in_turn<Id>(due: impl Iterator<Item = (Turn, Id)>, limit: usize) -> Vec<Id> {
    let mut due: Vec<(Turn, Id)> = due.collect();
    due.sort_by_key(|(turn, _)| *turn);
    due.into_iter().map(|(_, id)| id).take(limit).collect()
}

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

    /// Up to `limit` polls to read from Postgres now, in the order of [`Turn`].
    pub fn due_polls(&self, now: Instant, limit: usize) -> Vec<PollId> {
        let due = self.polls.iter().filter(|(_, poll)| poll.due <= now);
        in_turn(
            due.map(|(id, poll)| (Turn::of(poll.read.is_some(), poll.is_unknown), *id)),
            limit,
        )
    }

    /// Up to `limit` items to read from Postgres now, in the order of [`Turn`].
    pub fn due_items(&self, now: Instant, limit: usize) -> Vec<ItemId> {
        let due = self.items.iter().filter(|(_, item)| item.due <= now);
        in_turn(
            due.map(|(id, item)| (Turn::of(item.read.is_some(), item.is_unknown), *id)),
            limit,
        )
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
            // Choices are only added. This was read before what is shown.
            let is_earlier = watched
                .read
                .as_ref()
                .is_some_and(|(_, shown)| shown.len() > choices.len());
            if !is_earlier {
                self.note_poll(id, poll, choices, now);
            }
        }
        self.show_polls(ids)
    }

    /// Notes a poll that was read, and watches its choices, also those that were added since.
    fn note_poll(&mut self, id: PollId, poll: Poll, choices: Vec<ItemId>, now: Instant) {
        let Some(watched) = self.polls.get_mut(&id) else {
            return;
        };
        let before = watched.read.replace((poll, choices.clone()));
        let before = before.map(|(_, choices)| choices).unwrap_or_default();
        for item in choices.into_iter().filter(|item| !before.contains(item)) {
            self.item(item, now).polls.insert(id);
        }
    }

    /// Up to `limit` closed polls whose final counts to read now. Those that are known to be final come with their
    /// choices.
    pub fn due_finals(&self, now: Instant, limit: usize) -> Vec<(PollId, Option<Vec<ItemId>>)> {
        let due = self.polls.iter().filter(|(_, poll)| poll.finals_due <= now);
        let closed = due.filter_map(|(id, watched)| {
            let (poll, choices) = watched.read.as_ref()?;
            let is_closed = poll.state == PollState::Closed;
            is_closed.then(|| (*id, watched.finals.is_some().then(|| choices.clone())))
        });
        closed.take(limit).collect()
    }

    /// Takes in the final counts of this poll. `None`: it is not final yet, or Postgres did not
    /// say. Returns the streams to wake.
    pub fn read_finals(&mut self, poll: PollId, found: Option<FinalCounts>) -> Vec<StreamId> {
        let now = Instant::now();
        let Some(watched) = self.polls.get_mut(&poll) else {
            return Vec::new();
        };
        watched.is_final_asked = true;
        watched.finals_due = match &found {
            Some(_) => now + FACTS_EVERY,
            None => now + READ_AGAIN_EVERY,
        };
        if let Some(FinalCounts { counts, read }) = found {
            watched.finals = Some(counts);
            if let Some((of_final, choices)) = read {
                self.note_poll(poll, of_final, choices, now);
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Ends;
    use crate::counts::PollCount;
    use crate::domain::CHOICES_LIMIT_ITEMS;
    use crate::watching::public_state::PublicState;
    use crate::watching::state::Watched;
    use crate::watching::{Rendering, WATCHED_LIMIT_ITEMS_PER_THREAD, WatchError};

    fn state() -> State {
        let item = |_: &ItemCount| PublicState::new(String::new(), "");
        let poll = |_: &PollCount| PublicState::new(String::new(), "");
        State::new(Rendering { item, poll }, Ends::default())
    }

    fn items(ids: std::ops::Range<i64>) -> Vec<Watched> {
        ids.filter_map(ItemId::new).map(Watched::from).collect()
    }

    fn polls(ids: std::ops::Range<i64>) -> Vec<Watched> {
        ids.filter_map(PollId::new).map(Watched::from).collect()
    }

    #[test]
    fn what_does_not_exist_is_read_after_everything_else() {
        let mut state = state();
        let unknown = [items(1..100), polls(1..100)].concat();
        state.open(unknown, None, false).expect("a stream");
        let now = Instant::now();
        let (asked, asked_polls) = (state.due_items(now, 1000), state.due_polls(now, 1000));
        assert_eq!((asked.len(), asked_polls.len()), (99, 99));
        state.read_items(&asked, Vec::new(), 0);
        state.read_polls(&asked_polls, Vec::new());
        let new = [items(100..101), polls(100..101)].concat();
        state.open(new, None, false).expect("a stream");
        let later = now + 2 * FACTS_EVERY;
        assert_eq!(state.due_items(later, 1), [ItemId::new(100).expect("positive")]);
        assert_eq!(state.due_polls(later, 1), [PollId::new(100).expect("positive")]);
        // They are still looked for: they may be made.
        assert_eq!(state.due_items(later, 1000).len(), 100);
        assert_eq!(state.due_polls(later, 1000).len(), 100);
        assert!(Turn::New < Turn::Known && Turn::Known < Turn::Unknown);
    }

    #[test]
    fn polls_that_do_not_exist_count_in_the_limit_too() {
        let mut state = state();
        let mut opened = 0;
        let refused = loop {
            let first = 10 * opened + 1;
            match state.open(polls(first..first + 10), None, false) {
                Ok(_) => opened += 1,
                Err(error) => break error,
            }
            assert!(10 * opened <= WATCHED_LIMIT_ITEMS_PER_THREAD as i64);
        };
        assert_eq!(refused, WatchError::TooMuchWatched);
        assert!(10 * opened >= (WATCHED_LIMIT_ITEMS_PER_THREAD - 10 * CHOICES_LIMIT_ITEMS) as i64);
    }
}
