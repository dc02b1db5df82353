//! What is watched, by which streams, and what each was shown. No I/O.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::task::{Context, Poll as Polled, Waker};
use std::time::Duration;

use tokio::time::Instant;

use super::shown::{Fingerprint, Shown};
use super::{HEARTBEAT_EVERY, Rendering, WATCHED_LIMIT_ITEMS_PER_THREAD, WatchError};
use crate::counts::{ChoiceCount, ItemCount, PollCount};
use crate::domain::{CHOICES_LIMIT_ITEMS, Count, ItemId, Poll, PollId, PollState};
use crate::live::LiveRead;
use crate::telemetry::name;

/// How often an item or a poll is read from Postgres, where it may have been edited, have opened or
/// have closed.
pub const FACTS_EVERY: Duration = Duration::from_millis(1500);
/// How often an item is read from Postgres whose live count is missing or being rebuilt.
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
    /// What is shown otherwise than before, each as JSON, and the fingerprints of all that is
    /// watched.
    Changed {
        items: Vec<Arc<str>>,
        polls: Vec<Arc<str>>,
        fingerprints: Vec<Fingerprint>,
    },
    /// A sign of life.
    Heartbeat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(u64);

/// Whether a new stream has all that it is to show.
pub enum Readiness {
    Ready,
    Later,
    Never(WatchError),
}

/// One stream.
struct OpenStream {
    watched: Vec<Watched>,
    /// What it was shown last of each; `None`: nothing yet.
    seen: Vec<Option<Fingerprint>>,
    /// Whether something may be shown otherwise than it was.
    is_behind: bool,
    /// When it was last sent something.
    sent_at: Instant,
    waker: Option<Waker>,
}

struct WatchedItem {
    streams: HashSet<StreamId>,
    /// The watched polls that it is a choice of.
    polls: HashSet<PollId>,
    /// `None`: it has not been read.
    read: Option<ItemCount>,
    is_unknown: bool,
    /// Whether the last tick found no live count.
    is_missing: bool,
    /// The tick that last found one.
    counted_in: u64,
    /// When it is to be read from Postgres.
    due: Instant,
    shown: Option<Shown>,
}

struct WatchedPoll {
    streams: HashSet<StreamId>,
    /// The poll and its choices; `None`: it has not been read.
    read: Option<(Poll, Vec<ItemId>)>,
    is_unknown: bool,
    /// The counts that never change again, once it is final.
    finals: Option<HashMap<ItemId, Count>>,
    /// Whether it was asked, since it closed, if it is final.
    is_final_asked: bool,
    finals_due: Instant,
    due: Instant,
    shown: Option<Shown>,
}

/// All of it, for one thread.
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
}

impl State {
    pub fn new(rendering: Rendering) -> Self {
        Self {
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

    pub fn failures(&self) -> u64 {
        self.failures
    }

    pub fn ticks(&self) -> u64 {
        self.ticks
    }

    pub fn has_streams(&self) -> bool {
        !self.streams.is_empty()
    }

    // Streams.

    pub fn open(
        &mut self,
        watched: Vec<Watched>,
        seen: Option<Vec<Fingerprint>>,
    ) -> Result<StreamId, WatchError> {
        if self.is_closed {
            return Err(WatchError::Closing);
        }
        // How many choices a new poll has is not known yet.
        let more = watched.iter().map(|one| match one {
            Watched::Item(_) => 1,
            Watched::Poll(_) => CHOICES_LIMIT_ITEMS,
        });
        if self.items.len() + more.sum::<usize>() > WATCHED_LIMIT_ITEMS_PER_THREAD {
            return Err(WatchError::TooMuchWatched);
        }
        let id = StreamId(self.opened);
        self.opened += 1;
        let now = Instant::now();
        for one in &watched {
            match one {
                Watched::Item(item) => {
                    self.item(*item, now).streams.insert(id);
                    // It may have been read for a poll alone.
                    self.show_items(&[*item]);
                }
                Watched::Poll(poll) => {
                    let entry = self.polls.entry(*poll);
                    let poll = entry.or_insert_with(|| WatchedPoll::new(now));
                    poll.streams.insert(id);
                }
            }
        }
        let seen = match seen.filter(|seen| seen.len() == watched.len()) {
            Some(seen) => seen.into_iter().map(Some).collect(),
            None => vec![None; watched.len()],
        };
        let stream = OpenStream {
            watched,
            seen,
            is_behind: true,
            sent_at: now,
            waker: None,
        };
        self.streams.insert(id, stream);
        Ok(id)
    }

    fn item(&mut self, item: ItemId, now: Instant) -> &mut WatchedItem {
        self.items.entry(item).or_insert_with(|| WatchedItem::new(now))
    }

    pub fn readiness(&self, stream: StreamId, failures: u64) -> Readiness {
        if self.is_closed {
            return Readiness::Never(WatchError::Closing);
        }
        let watched = self.streams.get(&stream).map(|stream| &stream.watched);
        let mut is_ready = true;
        for one in watched.into_iter().flatten() {
            if self.is_unknown(*one) {
                return Readiness::Never(WatchError::Unknown(*one));
            }
            is_ready &= self.shown(*one).is_some();
        }
        match is_ready {
            true => Readiness::Ready,
            false if self.failures > failures => Readiness::Never(WatchError::LedgerUnavailable),
            false => Readiness::Later,
        }
    }

    fn is_unknown(&self, watched: Watched) -> bool {
        match watched {
            Watched::Item(item) => self.items.get(&item).is_some_and(|item| item.is_unknown),
            Watched::Poll(poll) => self.polls.get(&poll).is_some_and(|poll| poll.is_unknown),
        }
    }

    fn shown(&self, watched: Watched) -> Option<&Shown> {
        match watched {
            Watched::Item(item) => self.items.get(&item)?.shown.as_ref(),
            Watched::Poll(poll) => self.polls.get(&poll)?.shown.as_ref(),
        }
    }

    pub fn poll_event(&mut self, id: StreamId, context: &mut Context<'_>) -> Polled<Option<Event>> {
        if self.is_closed {
            return Polled::Ready(None);
        }
        let Some(mut stream) = self.streams.remove(&id) else {
            return Polled::Ready(None);
        };
        let event = self.next_event(&mut stream, context);
        self.streams.insert(id, stream);
        event.map(Some)
    }

    fn next_event(&self, stream: &mut OpenStream, context: &mut Context<'_>) -> Polled<Event> {
        let now = Instant::now();
        if std::mem::take(&mut stream.is_behind) {
            let (mut items, mut polls) = (Vec::new(), Vec::new());
            for (one, seen) in stream.watched.iter().zip(&mut stream.seen) {
                let Some(shown) = self.shown(*one) else { continue };
                if *seen == Some(shown.fingerprint) {
                    continue;
                }
                *seen = Some(shown.fingerprint);
                let texts = match one {
                    Watched::Item(_) => &mut items,
                    Watched::Poll(_) => &mut polls,
                };
                texts.push(Arc::clone(&shown.text));
            }
            if !items.is_empty() || !polls.is_empty() {
                stream.sent_at = now;
                metrics::counter!(name::STREAM_EVENTS).increment(1);
                return Polled::Ready(Event::Changed {
                    items,
                    polls,
                    fingerprints: stream.seen.iter().map(|one| one.unwrap_or_default()).collect(),
                });
            }
        }
        if now.duration_since(stream.sent_at) >= HEARTBEAT_EVERY {
            stream.sent_at = now;
            return Polled::Ready(Event::Heartbeat);
        }
        stream.waker = Some(context.waker().clone());
        Polled::Pending
    }

    pub fn poll_end(&mut self, id: StreamId, context: &mut Context<'_>) -> Polled<()> {
        match self.streams.get_mut(&id) {
            Some(stream) if !self.is_closed => {
                stream.waker = Some(context.waker().clone());
                Polled::Pending
            }
            _ => Polled::Ready(()),
        }
    }

    /// Forgets a stream, and what it watched alone.
    pub fn close(&mut self, id: StreamId) {
        let Some(stream) = self.streams.remove(&id) else {
            return;
        };
        for one in stream.watched {
            match one {
                Watched::Item(item) => {
                    if let Some(watched) = self.items.get_mut(&item) {
                        watched.streams.remove(&id);
                        if watched.streams.is_empty() {
                            watched.shown = None;
                        }
                    }
                    self.forget_item(item);
                }
                Watched::Poll(poll) => {
                    let Entry::Occupied(mut entry) = self.polls.entry(poll) else {
                        continue;
                    };
                    entry.get_mut().streams.remove(&id);
                    if !entry.get().streams.is_empty() {
                        continue;
                    }
                    let (_, choices) = entry.remove().read.unzip();
                    for item in choices.into_iter().flatten() {
                        if let Some(watched) = self.items.get_mut(&item) {
                            watched.polls.remove(&poll);
                        }
                        self.forget_item(item);
                    }
                }
            }
        }
    }

    fn forget_item(&mut self, item: ItemId) {
        if let Entry::Occupied(entry) = self.items.entry(item)
            && entry.get().streams.is_empty()
            && entry.get().polls.is_empty()
        {
            entry.remove();
        }
    }

    /// Ends all streams. Returns what wakes them.
    pub fn end_all(&mut self) -> Vec<Waker> {
        self.is_closed = true;
        let wakers = self.streams.values_mut().filter_map(|stream| stream.waker.take());
        wakers.collect()
    }

    /// The streams that have been silent for long.
    pub fn silent(&self, now: Instant) -> Vec<StreamId> {
        let streams = self.streams.iter();
        let silent = streams.filter(|(_, stream)| now.duration_since(stream.sent_at) >= HEARTBEAT_EVERY);
        silent.map(|(id, _)| *id).collect()
    }

    /// What wakes these streams, of those that wait.
    pub fn wakers(&mut self, streams: &[StreamId]) -> Vec<Waker> {
        let wakers = streams
            .iter()
            .filter_map(|id| self.streams.get_mut(id)?.waker.take());
        wakers.collect()
    }

    // Ticks.

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

    // Reads of Postgres.

    /// Up to `limit` polls that are to be read from Postgres now.
    pub fn due_polls(&self, now: Instant, limit: usize) -> Vec<PollId> {
        let polls = self.polls.iter().filter(|(_, poll)| poll.due <= now);
        polls.map(|(id, _)| *id).take(limit).collect()
    }

    /// Up to `limit` items that are to be read from Postgres now; what was never read comes first.
    pub fn due_items(&self, now: Instant, limit: usize) -> Vec<ItemId> {
        let due = || self.items.iter().filter(|(_, item)| item.due <= now);
        let new = due().filter(|(_, item)| item.read.is_none());
        let known = due().filter(|(_, item)| item.read.is_some());
        new.chain(known).map(|(id, _)| *id).take(limit).collect()
    }

    /// When the next of all is to be read.
    pub fn next_due(&self) -> Option<Instant> {
        let items = self.items.values().map(|item| item.due);
        items.chain(self.polls.values().map(|poll| poll.due)).min()
    }

    /// Takes in the polls that Postgres has of these. Returns the streams to wake.
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

    /// Up to `limit` polls that have closed, each with its choices and whether it is known to be
    /// final, whose final counts are to be read now.
    pub fn due_finals(&self, now: Instant, limit: usize) -> Vec<(PollId, Vec<ItemId>, bool)> {
        let due = self.polls.iter().filter(|(_, poll)| poll.finals_due <= now);
        let closed = due.filter_map(|(id, watched)| {
            let (poll, choices) = watched.read.as_ref()?;
            let is_closed = poll.state == PollState::Closed;
            is_closed.then(|| (*id, choices.clone(), watched.finals.is_some()))
        });
        closed.take(limit).collect()
    }

    /// Takes in the counts of this poll that never change again; `None`: it is not final yet, or
    /// Postgres did not say. Returns the streams to wake.
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

    /// Takes in the items that Postgres has of these, with their counts. `since` is the number of
    /// ticks before they were read: a live count that a later one found is newer. Returns the
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

    /// Notes that Postgres did not answer: these are asked for again later. What has no live count
    /// either is not known to be current. Returns the streams to wake.
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

    // What is shown.

    /// Shows these items, and their polls, as they now are. Returns the streams to wake.
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

    /// Shows these polls as they now are. Returns the streams to wake.
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
            // One that was behind before has been woken, or its client does not read.
            stream.is_some_and(|stream| !std::mem::replace(&mut stream.is_behind, true))
        });
        streams
    }

    /// A poll as `GET` shows it; `None` until all of it is read.
    fn poll_count(&self, id: PollId) -> Option<PollCount> {
        let watched = self.polls.get(&id)?;
        let (poll, choices) = watched.read.as_ref()?;
        if poll.state == PollState::Closed && !watched.is_final_asked {
            return None;
        }
        let shows_counts = poll.shows_counts();
        let mut is_current = true;
        let mut counts = Vec::with_capacity(choices.len());
        for item_id in choices {
            let read = self.items.get(item_id)?.read.as_ref()?;
            let of_final = watched.finals.as_ref().and_then(|finals| finals.get(item_id));
            let count = match of_final {
                Some(count) => *count,
                None => {
                    is_current &= read.is_current || !shows_counts;
                    read.count()
                }
            };
            counts.push(ChoiceCount {
                item_id: *item_id,
                name: Arc::clone(&read.item.name),
                net: shows_counts.then_some(count.net),
            });
        }
        Some(PollCount {
            poll: poll.clone(),
            choices: counts,
            is_current,
            is_final: watched.finals.is_some() && shows_counts,
        })
    }
}

/// Whether something else is shown now.
fn replace(shown: &mut Option<Shown>, by: Shown) -> bool {
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

    /// Takes in what a tick has read; `None`: Redis is unavailable. Returns whether the count is
    /// another one.
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
            Some(missing) => {
                if !std::mem::replace(&mut self.is_missing, true) {
                    self.due = self.due.min(now);
                } else if missing == LiveRead::Rebuilding || !read.is_current {
                    self.due = self.due.min(now + READ_AGAIN_EVERY);
                }
                false
            }
            None => {
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
