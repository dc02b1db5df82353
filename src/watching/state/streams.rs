//! The streams: opened, asked for their next event, closed.

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::task::{Context, Poll as Polled, Waker};

use tokio::time::Instant;

use super::{Changed, Event, OpenStream, Readiness, State, StreamId, Watched, WatchedItem, WatchedPoll};
use crate::domain::{CHOICES_LIMIT_ITEMS, ItemId};
use crate::telemetry::name;
use crate::watching::public_state::{Fingerprint, PublicState};
use crate::watching::{HEARTBEAT_EVERY, WATCHED_LIMIT_ITEMS_PER_THREAD, WatchError};

impl State {
    pub fn open(
        &mut self,
        watched: Vec<Watched>,
        seen: Option<Vec<Fingerprint>>,
        is_by_key: bool,
    ) -> Result<StreamId, WatchError> {
        if self.is_closed {
            return Err(WatchError::Closing);
        }
        self.follow();
        // Nobody knows yet how many choices a new poll has.
        let more = watched.iter().map(|one| match one {
            Watched::Item(_) => 1,
            Watched::Poll(_) => CHOICES_LIMIT_ITEMS,
        });
        // A poll without choices may not exist; it counts as one item.
        let held = self.items.len() + self.polls.len();
        if held + more.sum::<usize>() > WATCHED_LIMIT_ITEMS_PER_THREAD {
            return Err(WatchError::TooMuchWatched);
        }
        let id = StreamId(self.opened);
        self.opened += 1;
        let now = Instant::now();
        for one in &watched {
            match one {
                Watched::Item(item) => {
                    self.item(*item, now).streams.insert(id);
                    // The item may have been read only for a poll.
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
            is_looked_up: is_by_key || watched.iter().any(|one| matches!(one, Watched::Poll(_))),
            watched,
            seen,
            is_behind: true,
            sent_at: now,
            waker: None,
        };
        self.streams.insert(id, stream);
        Ok(id)
    }

    pub(super) fn item(&mut self, item: ItemId, now: Instant) -> &mut WatchedItem {
        self.items.entry(item).or_insert_with(|| WatchedItem::new(now))
    }

    pub fn readiness(&self, stream: StreamId, failures: u64) -> Readiness {
        if self.is_closed {
            return Readiness::Never(WatchError::Closing);
        }
        let watched = self.streams.get(&stream).map(|stream| &stream.watched);
        let is_ready = watched
            .into_iter()
            .flatten()
            .all(|one| self.is_unknown(*one) || self.shown(*one).is_some());
        match is_ready {
            true => Readiness::Ready,
            false if self.failures > failures => Readiness::Never(WatchError::LedgerUnavailable),
            false => Readiness::Later,
        }
    }

    /// What of a stream does not exist.
    pub fn unknown(&self, stream: StreamId) -> Vec<Watched> {
        let watched = self.streams.get(&stream).map(|stream| &stream.watched);
        let unknown = watched.into_iter().flatten().filter(|one| self.is_unknown(**one));
        unknown.copied().collect()
    }

    fn is_unknown(&self, watched: Watched) -> bool {
        match watched {
            Watched::Item(item) => self.items.get(&item).is_some_and(|item| item.is_unknown),
            Watched::Poll(poll) => self.polls.get(&poll).is_some_and(|poll| poll.is_unknown),
        }
    }

    fn shown(&self, watched: Watched) -> Option<&PublicState> {
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
                return Polled::Ready(Event::Changed(Changed {
                    items,
                    polls,
                    fingerprints: stream.seen.iter().map(|one| one.unwrap_or_default()).collect(),
                }));
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

    /// Forgets a stream, and what no other stream watches.
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

    /// Ends all streams. Returns their wakers.
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

    /// The wakers of those of these streams that wait.
    pub fn wakers(&mut self, streams: &[StreamId]) -> Vec<Waker> {
        let wakers = streams
            .iter()
            .filter_map(|id| self.streams.get_mut(id)?.waker.take());
        wakers.collect()
    }
}
