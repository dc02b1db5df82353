//! The state: what is watched, by which streams, and what each was shown. No I/O.
//!
//! - `streams`: opened, asked for their next event, closed.
//! - `reads`: what to read for them, and what was read.

mod reads;
mod streams;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use super::public_state::{Fingerprint, PublicState};
use super::{Rendering, WatchError};
use crate::cache::Ends;
use crate::counts::{ChoiceRead, ItemCount, PollCount};
use crate::domain::{Count, ItemId, Poll, PollId, PollState};
use crate::live::LiveRead;

/// How often an item or a poll is read from Postgres. It may have been edited, opened or closed.
pub const FACTS_EVERY: Duration = Duration::from_millis(1500);
/// How often an item is read from Postgres while its live count is missing or being rebuilt.
pub const READ_AGAIN_EVERY: Duration = Duration::from_secs(1);

/// An item or a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Watched {
    Item(ItemId),
    Poll(PollId),
}

/// What a stream is to send next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Changed(Changed),
    /// A heartbeat, so that proxies keep the connection.
    Heartbeat,
}

/// The states that changed, each as JSON. Also the fingerprints of everything that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    pub items: Vec<Arc<str>>,
    pub polls: Vec<Arc<str>>,
    pub fingerprints: Vec<Fingerprint>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(u64);

/// Whether a new stream has everything to show.
pub enum Readiness {
    Ready,
    Later,
    Never(WatchError),
}

/// One stream.
struct OpenStream {
    watched: Vec<Watched>,
    /// Whether ids that it shows were looked up in Postgres: by a key, or as a poll's choices.
    is_looked_up: bool,
    /// The last state that the stream was shown of each; `None`: nothing yet.
    seen: Vec<Option<Fingerprint>>,
    /// Whether something may have changed since.
    is_behind: bool,
    /// When the stream was last sent something.
    sent_at: Instant,
    waker: Option<Waker>,
}

struct WatchedItem {
    streams: HashSet<StreamId>,
    /// The watched polls whose choice the item is.
    polls: HashSet<PollId>,
    /// `None`: the item has not been read.
    read: Option<ItemCount>,
    is_unknown: bool,
    /// Whether the last tick found no live count.
    is_missing: bool,
    /// The tick that last found a live count.
    counted_in: u64,
    /// When to read it from Postgres.
    due: Instant,
    shown: Option<PublicState>,
}

struct WatchedPoll {
    streams: HashSet<StreamId>,
    /// The poll and its choices; `None`: the poll has not been read.
    read: Option<(Poll, Vec<ItemId>)>,
    is_unknown: bool,
    /// The final counts, once the poll is final.
    finals: Option<HashMap<ItemId, Count>>,
    /// Whether Postgres was asked, after the poll closed, if it is final.
    is_final_asked: bool,
    finals_due: Instant,
    due: Instant,
    shown: Option<PublicState>,
}

/// Everything that one thread's streams watch.
pub struct State {
    rendering: Rendering,
    items: HashMap<ItemId, WatchedItem>,
    polls: HashMap<PollId, WatchedPoll>,
    streams: HashMap<StreamId, OpenStream>,
    opened: u64,
    /// Ticks so far.
    ticks: u64,
    /// Reads of Postgres that failed.
    failures: u64,
    is_closed: bool,
    ends: Ends,
    /// [`Ends::count`] when all of this was looked up.
    ended: u64,
}

impl State {
    /// What was looked up in Postgres ends when `ends` says so.
    pub fn new(rendering: Rendering, ends: Ends) -> Self {
        Self {
            ended: ends.count(),
            ends,
            rendering,
            items: HashMap::new(),
            polls: HashMap::new(),
            streams: HashMap::new(),
            opened: 0,
            ticks: 0,
            failures: 0,
            is_closed: false,
        }
    }

    /// If another run of Postgres was seen since, ends the streams whose ids were looked up, and has
    /// what others watch read again. Returns how often another run was seen.
    pub fn follow(&mut self) -> u64 {
        let ended = self.ends.count();
        if self.ended != ended {
            self.ended = ended;
            let streams = self.streams.iter();
            let looked_up = streams.filter(|(_, stream)| stream.is_looked_up);
            let looked_up: Vec<StreamId> = looked_up.map(|(id, _)| *id).collect();
            for waker in self.wakers(&looked_up) {
                // This only schedules the stream's task.
                waker.wake();
            }
            looked_up.into_iter().for_each(|id| self.close(id));
            let now = Instant::now();
            self.items.values_mut().for_each(|item| item.due = now);
        }
        ended
    }

    pub fn failures(&self) -> u64 {
        self.failures
    }

    pub fn ticks(&self) -> u64 {
        self.ticks
    }

    pub fn has_streams(&self) -> bool {
        !self.streams.is_empty()
    }

    /// Shows these items and their polls as they are now. Returns the streams to wake.
    fn show_items(&mut self, items: &[ItemId]) -> Vec<StreamId> {
        let mut behind = Vec::new();
        let mut polls = HashSet::new();
        for id in items {
            let Some(item) = self.items.get_mut(id) else {
                continue;
            };
            let Some(read) = &item.read else { continue };
            polls.extend(item.polls.iter().copied());
            if !item.streams.is_empty() && replace(&mut item.shown, (self.rendering.item)(read)) {
                behind.extend(item.streams.iter().copied());
            }
        }
        let behind = self.note_behind(behind);
        [behind, self.show_polls(polls)].concat()
    }

    /// Shows these polls as they are now. Returns the streams to wake.
    pub fn show_polls(&mut self, polls: impl IntoIterator<Item = PollId>) -> Vec<StreamId> {
        let mut behind = Vec::new();
        for id in polls {
            let Some(count) = self.poll_count(id) else {
                continue;
            };
            let shown = (self.rendering.poll)(&count);
            if let Some(poll) = self.polls.get_mut(&id)
                && replace(&mut poll.shown, shown)
            {
                behind.extend(poll.streams.iter().copied());
            }
        }
        self.note_behind(behind)
    }

    fn note_behind(&mut self, mut streams: Vec<StreamId>) -> Vec<StreamId> {
        streams.retain(|id| {
            let stream = self.streams.get_mut(id);
            // A stream that was behind before has been woken, or its client does not read.
            stream.is_some_and(|stream| !std::mem::replace(&mut stream.is_behind, true))
        });
        streams
    }

    /// A poll as `GET` shows it; `None`: not all of it is read yet.
    fn poll_count(&self, id: PollId) -> Option<PollCount> {
        let watched = self.polls.get(&id)?;
        let (poll, choices) = watched.read.as_ref()?;
        if poll.state == PollState::Closed && !watched.is_final_asked {
            return None;
        }
        let finals = watched.finals.as_ref();
        let read = |id: &ItemId| {
            let read = self.items.get(id)?.read.as_ref()?;
            let of_final = finals.and_then(|finals| finals.get(id));
            Some(ChoiceRead {
                item: &read.item,
                count: of_final.map_or_else(|| read.count(), |count| *count),
                is_current: read.is_current || of_final.is_some(),
            })
        };
        let choices: Option<Vec<ChoiceRead<'_>>> = choices.iter().map(read).collect();
        Some(PollCount::new(poll.clone(), choices?, finals.is_some()))
    }
}

/// Replaces what is shown. Returns whether it is different now.
fn replace(shown: &mut Option<PublicState>, by: PublicState) -> bool {
    let is_same = shown
        .as_ref()
        .is_some_and(|shown| shown.fingerprint == by.fingerprint);
    *shown = Some(by);
    !is_same
}

impl WatchedItem {
    fn new(now: Instant) -> Self {
        Self {
            streams: HashSet::new(),
            polls: HashSet::new(),
            read: None,
            is_unknown: false,
            is_missing: false,
            counted_in: 0,
            due: now,
            shown: None,
        }
    }

    /// Takes in what a tick has read; `None`: Redis is unavailable. Returns whether the count
    /// changed.
    fn ticked(&mut self, live: Option<LiveRead>, tick: u64, now: Instant) -> bool {
        let Some(read) = &mut self.read else {
            return false;
        };
        match live {
            Some(LiveRead::Count(live)) => {
                self.is_missing = false;
                self.counted_in = tick;
                let is_same = read.is_current && read.count() == live.count;
                read.live_count = Some(live.count);
                read.is_current = true;
                !is_same
            }
            // The last count stays until Postgres is asked, which is soon.
            Some(missing) if missing != LiveRead::Unavailable => {
                if !std::mem::replace(&mut self.is_missing, true) {
                    self.due = self.due.min(now);
                } else if missing != LiveRead::Absent || !read.is_current {
                    self.due = self.due.min(now + READ_AGAIN_EVERY);
                }
                false
            }
            Some(_) | None => {
                if !read.is_current {
                    return false;
                }
                read.live_count = None;
                read.is_current = false;
                self.due = self.due.min(now);
                true
            }
        }
    }
}

impl WatchedPoll {
    fn new(now: Instant) -> Self {
        Self {
            streams: HashSet::new(),
            read: None,
            is_unknown: false,
            finals: None,
            is_final_asked: false,
            finals_due: now,
            due: now,
            shown: None,
        }
    }
}
