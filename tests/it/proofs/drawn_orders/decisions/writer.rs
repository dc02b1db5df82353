//! A writer of votes, step by step, and what happens when it crashes.

use std::collections::VecDeque;
use std::time::Duration;

use tally::domain::{ItemId, VoteId, VoteRequest};
use tally::ledger::VoteWriter;
use tally::live::Seed;
use tally::votes::{Counting, Step};
use tokio::time::Instant;

use super::drawn::Batch;
use super::items::{Items, Stored, answer};

/// Longer than the test: exact counts are never too slow.
const READ_LIMIT: Duration = Duration::from_secs(600);

/// What a writer does next.
#[derive(Debug)]
enum Doing {
    /// It stores its next batch.
    Store,
    /// It counts what is stored, or reads exact counts.
    Count(Counting),
    Seed(Counting, Vec<Seed>),
    /// Its repair task invalidates suspects.
    Invalidate(Vec<ItemId>),
}

pub(super) struct Writer {
    pub votes: VoteWriter,
    queue: VecDeque<Batch>,
    /// Requests to send again.
    again: Vec<VoteRequest>,
    doing: Doing,
    /// How many rounds a batch makes.
    rounds: usize,
    /// Its votes up to this id are counted.
    counted: VoteId,
}

impl Writer {
    pub(super) fn new(votes: VoteWriter, queue: VecDeque<Batch>, rounds: usize) -> Self {
        Self {
            votes,
            queue,
            again: Vec::new(),
            doing: Doing::Store,
            rounds,
            counted: VoteId::default(),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self.doing, Doing::Store) && self.queue.is_empty() && self.again.is_empty()
    }

    /// Whether it has a batch that is stored and not counted.
    pub(super) fn is_counting(&self) -> bool {
        !matches!(self.doing, Doing::Store)
    }

    /// Its next call, in words.
    pub(super) fn call(&self) -> String {
        match &self.doing {
            Doing::Store => format!("store, {:?} again, {:?}", self.again, self.queue.front()),
            Doing::Count(counting) => format!("{:?}", counting.step()),
            doing => format!("{doing:?}"),
        }
    }

    /// The next batch, with the requests to send again first.
    fn next_batch(&mut self) -> Batch {
        let again = std::mem::take(&mut self.again);
        match self.queue.front() {
            Some(Batch::Insert(_)) | None if !again.is_empty() => return Batch::Decide(again),
            _ => {}
        }
        match self.queue.pop_front() {
            Some(Batch::Decide(requests)) => Batch::Decide([again, requests].concat()),
            Some(batch) => batch,
            None => Batch::Decide(again),
        }
    }

    /// Takes the next step. An impossible answer is an error.
    pub(super) async fn step(&mut self, items: &mut Items) -> Result<(), String> {
        match std::mem::replace(&mut self.doing, Doing::Store) {
            Doing::Store => {
                self.counted = items.last_vote_id().await;
                let batch = self.next_batch();
                let stored = items.store(&mut self.votes, &batch).await;
                self.votes.end_batch();
                let Stored {
                    transaction,
                    deltas,
                    again,
                } = stored?;
                self.again = again;
                self.go_on(Counting::with_rounds(transaction, deltas, self.rounds));
            }
            Doing::Count(mut counting) => match counting.step() {
                Step::Count(deltas) => {
                    let replies = items.count(counting.transaction(), &deltas).await;
                    counting.counted(replies);
                    self.go_on(counting);
                }
                Step::Seed(missing) => {
                    let exact = self
                        .votes
                        .exact_counts(&missing, &[], Instant::now() + READ_LIMIT);
                    let seeds = counting.seeds(exact.await.expect("exact counts"));
                    self.doing = Doing::Seed(counting, seeds);
                }
                Step::Done | Step::GiveUp => unreachable!("it went on"),
            },
            Doing::Seed(mut counting, seeds) => {
                let replies = items.seed(&seeds).await;
                counting.seeded(&seeds, &replies);
                self.go_on(counting);
            }
            Doing::Invalidate(suspects) => items.invalidate(&suspects).await,
        }
        Ok(())
    }

    fn go_on(&mut self, counting: Counting) {
        self.doing = match counting.step() {
            Step::Count(_) | Step::Seed(_) => Doing::Count(counting),
            Step::Done => Doing::Store,
            Step::GiveUp => {
                let suspects = counting.give_up();
                if suspects.is_empty() {
                    Doing::Store
                } else {
                    Doing::Invalidate(suspects)
                }
            }
        };
    }

    /// The writer crashes with a batch that is stored and not counted.
    /// Another writer takes its place and the rest of the queue. A last call to Redis may be under
    /// way.
    pub(super) fn crash(&mut self, is_call_under_way: bool) -> Crashed {
        self.again.clear();
        let doing = std::mem::replace(&mut self.doing, Doing::Store);
        Crashed {
            counted: self.counted,
            late: Some(doing).filter(|_| is_call_under_way),
            recovery: Recovery::Find,
        }
    }
}

/// A writer that has crashed.
#[derive(Debug)]
pub(super) struct Crashed {
    counted: VoteId,
    /// A call that is executed later.
    late: Option<Doing>,
    recovery: Recovery,
}

/// What the worker that recovers it does next.
#[derive(Debug)]
enum Recovery {
    Find,
    Invalidate(Vec<ItemId>),
    Done,
}

impl Crashed {
    pub(super) fn has_late_call(&self) -> bool {
        self.late.is_some()
    }

    pub(super) fn is_recovered(&self) -> bool {
        matches!(self.recovery, Recovery::Done)
    }

    pub(super) async fn late_call(&mut self, items: &mut Items) {
        match self.late.take() {
            Some(Doing::Count(counting)) => {
                if let Step::Count(deltas) = counting.step() {
                    items.count(counting.transaction(), &deltas).await;
                }
            }
            Some(Doing::Seed(_, seeds)) => {
                items.seed(&seeds).await;
            }
            Some(Doing::Invalidate(suspects)) => items.invalidate(&suspects).await,
            Some(Doing::Store) | None => {}
        }
    }

    /// The next step of crashed-writer recovery.
    pub(super) async fn recover(&mut self, items: &mut Items) {
        self.recovery = match std::mem::replace(&mut self.recovery, Recovery::Done) {
            Recovery::Find => {
                let last = items.last_vote_id().await;
                let (mut after, mut found) = (self.counted, Vec::new());
                while after < last {
                    let (voted_on, end) = answer(|| items.worker.items_voted_on(after, last)).await;
                    found.extend(voted_on);
                    after = end;
                }
                Recovery::Invalidate(found)
            }
            Recovery::Invalidate(found) => {
                items.invalidate(&found).await;
                Recovery::Done
            }
            Recovery::Done => Recovery::Done,
        };
    }
}
