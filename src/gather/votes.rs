//! Votes: each batch is stored with one statement and counted with one pipeline.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::take;
use crate::domain::{CountDelta, ItemId, NewVote, Outcome, StoredVote, TransactionId};
use crate::ledger::{InsertError, Inserted, SERVER_STATEMENT_LIMIT, VoteWriter};
use crate::live::{Counted, Link};
use crate::telemetry::name;

/// Lanes of one thread. They take turns at storing, so that batches are as large as with
/// one; while a lane counts and answers, the other stores.
pub const LANES_PER_THREAD: usize = 2;
/// Votes in one batch, at the most.
pub const BATCH_LIMIT_VOTES: usize = 1024;
/// Votes that may wait for a batch, at the most. Four batches: whoever would wait
/// longer is better told so at once. Below the connections that a server takes
/// (`http::CONNECTIONS_LIMIT`), each of which waits for one answer at a time, or it
/// would never be reached.
pub const QUEUE_LIMIT_VOTES: usize = 4 * BATCH_LIMIT_VOTES;
/// How often a batch goes round count, exact counts and seed before it gives a
/// missing live count up. Each further round means that someone else has seeded
/// or invalidated it in the meantime.
pub const SEED_LIMIT_ROUNDS: usize = 5;
/// How long the rounds may take in all.
pub const SEED_LIMIT: Duration = Duration::from_secs(4);

/// A vote's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    Accepted {
        vote: StoredVote,
        vote_count: Option<i64>,
    },
    Repeated {
        vote: StoredVote,
        vote_count: Option<i64>,
    },
    UnknownItem,
}

/// Why a vote has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CastError {
    /// Nothing was stored.
    #[error("too many votes are waiting")]
    QueueFull,
    /// Postgres is away. The vote may have been stored if the failure came late;
    /// it then counts, and the same voter's next try is a repeat.
    #[error("the ledger did not confirm the vote")]
    LedgerAway,
    /// The server is shutting down; nothing was stored.
    #[error("the server is shutting down")]
    Closing,
}

/// A vote in the queue.
pub(super) struct Waiting {
    pub vote: NewVote,
    pub since: Instant,
    pub answer: oneshot::Sender<Result<Cast, CastError>>,
}

/// What a lane measures, looked up once.
struct Figures {
    depth: metrics::Gauge,
    batch_votes: metrics::Histogram,
    ledger_seconds: metrics::Histogram,
    live_seconds: metrics::Histogram,
    vote_seconds: metrics::Histogram,
    accepted: metrics::Counter,
    repeated: metrics::Counter,
    unknown_item: metrics::Counter,
    failed: metrics::Counter,
}

impl Figures {
    fn new(depth: metrics::Gauge) -> Self {
        let votes = |outcome| metrics::counter!(name::VOTES, "outcome" => outcome);
        Self {
            depth,
            batch_votes: metrics::histogram!(name::BATCH_VOTES),
            ledger_seconds: metrics::histogram!(name::LEDGER_SECONDS),
            live_seconds: metrics::histogram!(name::LIVE_SECONDS),
            vote_seconds: metrics::histogram!(name::VOTE_SECONDS),
            accepted: votes("accepted"),
            repeated: votes("repeated"),
            unknown_item: votes("unknown_item"),
            failed: votes("failed"),
        }
    }
}

/// Takes batch after batch, until the queue is closed.
pub(super) struct Lane {
    writer: VoteWriter,
    link: Link,
    figures: Figures,
    /// Held until it ends, its last batch doubted if it was cut off.
    _alive: Option<mpsc::Sender<()>>,
}

/// Doubts a batch that its lane does not get to settle: it may be stored, and nobody
/// would count it.
struct Unsettled<'a> {
    link: Link,
    votes: &'a [NewVote],
    is_settled: bool,
}

impl Unsettled<'_> {
    fn settled(mut self) {
        self.is_settled = true;
    }
}

impl Drop for Unsettled<'_> {
    fn drop(&mut self) {
        if !self.is_settled {
            doubt_from_decided(&self.link, self.votes);
        }
    }
}

/// The batch may be committed yet and nobody will count it. Postgres ends a statement
/// within its limit; from then on a seed is exact.
fn doubt_from_decided(link: &Link, votes: &[NewVote]) {
    let items = votes.iter().map(|vote| vote.item_id);
    link.doubt_from(items, Instant::now() + SERVER_STATEMENT_LIMIT);
}

impl Lane {
    pub fn new(
        writer: VoteWriter,
        link: Link,
        depth: metrics::Gauge,
        alive: Option<mpsc::Sender<()>>,
    ) -> Self {
        Self {
            writer,
            link,
            figures: Figures::new(depth),
            _alive: alive,
        }
    }

    pub async fn run(mut self, queue: Arc<Mutex<mpsc::Receiver<Waiting>>>) {
        let mut batch = Vec::with_capacity(BATCH_LIMIT_VOTES);
        loop {
            // Held until the batch is stored: taken before, the next would be smaller.
            let mut turn = queue.lock().await;
            let taken = take(&mut turn, &mut batch, BATCH_LIMIT_VOTES).await;
            if taken == 0 {
                return;
            }
            self.figures.depth.decrement(taken as f64);
            self.figures.batch_votes.record(taken as f64);
            let (votes, answers): (Vec<NewVote>, Vec<_>) = batch
                .drain(..)
                .map(|one| (one.vote, (one.since, one.answer)))
                .unzip();
            let unsettled = Unsettled {
                link: self.link.clone(),
                votes: &votes,
                is_settled: false,
            };
            let inserted = self.store(&votes).await;
            drop(turn);
            match inserted {
                Ok(inserted) => {
                    self.settle(
                        Settled::new(&votes, inserted.outcomes, answers),
                        inserted.transaction,
                    )
                    .await;
                }
                Err(error) => self.fail(&votes, answers, &error),
            }
            unsettled.settled();
        }
    }

    async fn store(&mut self, votes: &[NewVote]) -> Result<Inserted, InsertError> {
        let started = Instant::now();
        let inserted = self.writer.insert(votes).await;
        self.figures
            .ledger_seconds
            .record(started.elapsed().as_secs_f64());
        inserted
    }

    /// Counts a stored batch, and answers every vote in it.
    async fn settle(&mut self, mut settled: Settled, transaction: TransactionId) {
        self.figures.note(&settled);
        let started = Instant::now();
        self.count(&mut settled, transaction).await;
        self.figures.live_seconds.record(started.elapsed().as_secs_f64());
        settled.answer_rest(&self.figures);
    }

    /// Answers a batch that was not stored, or not for certain.
    fn fail(&self, votes: &[NewVote], answers: Vec<Answer>, error: &InsertError) {
        tracing::error!(%error, votes = votes.len(), "a batch of votes was not stored");
        if matches!(error, InsertError::Unknown(_)) {
            doubt_from_decided(&self.link, votes);
        }
        self.figures.failed.increment(votes.len() as u64);
        for (_, answer) in answers {
            // Whoever no longer waits needs no answer.
            let _ = answer.send(Err(CastError::LedgerAway));
        }
    }

    /// Counts a committed batch, seeding what is missing. The votes of a live
    /// count that is there are answered before the missing ones are seeded.
    async fn count(&mut self, settled: &mut Settled, transaction: TransactionId) {
        let mut open = settled.deltas();
        let deadline = Instant::now() + SEED_LIMIT;
        for _ in 0..SEED_LIMIT_ROUNDS {
            if open.is_empty() || Instant::now() >= deadline {
                break;
            }
            // On failure the link has doubted the items; the votes are acknowledged
            // without a count.
            let Ok(counted) = self.link.count(&open, transaction).await else {
                return;
            };
            let mut missing = HashMap::new();
            for (delta, counted) in open.iter().zip(counted) {
                match counted {
                    Counted::Count(count) => settled.answer(delta.item_id, count, &self.figures),
                    Counted::Miss { lease } => {
                        missing.insert(delta.item_id, lease);
                    }
                }
            }
            open.retain(|delta| missing.contains_key(&delta.item_id));
            if open.is_empty() {
                return;
            }
            metrics::counter!(name::MISSES).increment(open.len() as u64);
            match self.seed(&open, missing, deadline).await {
                Ok(seeded) => {
                    metrics::counter!(name::SEEDS).increment(seeded.len() as u64);
                    for (item, count) in &seeded {
                        settled.answer(*item, *count, &self.figures);
                    }
                    open.retain(|delta| !seeded.contains_key(&delta.item_id));
                }
                Err(error) => {
                    tracing::warn!(%error, items = open.len(), "missing live counts were not seeded");
                    break;
                }
            }
        }
        // Someone else may have seeded these from before this batch's commit.
        self.link
            .doubt(open.iter().filter(|one| one.delta != 0).map(|one| one.item_id));
    }

    /// Reads the exact counts of the missing items and seeds them. Returns those
    /// that this call seeded.
    async fn seed(
        &mut self,
        missing: &[CountDelta],
        mut leases: HashMap<ItemId, String>,
        deadline: Instant,
    ) -> anyhow::Result<HashMap<ItemId, i64>> {
        let items: Vec<ItemId> = missing.iter().map(|one| one.item_id).collect();
        let limit = deadline.saturating_duration_since(Instant::now());
        // Reading under a time limit is safe: the writer has taken its connection out,
        // which is thrown away if this is given up.
        let exact = timeout(limit, self.writer.exact_counts(&items)).await??;
        let seeds: Vec<_> = exact
            .into_iter()
            .filter_map(|exact| leases.remove(&exact.item_id).map(|lease| (exact, lease)))
            .collect();
        let seeded = self.link.seed(&seeds).await?;
        Ok(seeds
            .iter()
            .zip(seeded)
            .filter(|(_, seeded)| *seeded)
            .map(|((exact, _), _)| (exact.item_id, exact.count))
            .collect())
    }
}

type Answer = (Instant, oneshot::Sender<Result<Cast, CastError>>);

/// A stored batch, and the answers it still owes.
struct Settled {
    /// In the order of items.
    votes: Vec<(ItemId, Outcome, Option<Answer>)>,
}

impl Settled {
    fn new(votes: &[NewVote], outcomes: Vec<Outcome>, answers: Vec<Answer>) -> Self {
        let mut votes: Vec<_> = votes
            .iter()
            .zip(outcomes)
            .zip(answers)
            .map(|((vote, outcome), answer)| (vote.item_id, outcome, Some(answer)))
            .collect();
        votes.sort_by_key(|(item, ..)| *item);
        Self { votes }
    }

    /// What the batch adds to each item. An item with repeats alone adds 0, to be read.
    fn deltas(&self) -> Vec<CountDelta> {
        self.votes
            .chunk_by(|(one, ..), (other, ..)| one == other)
            .filter_map(|of_item| {
                let mut known = false;
                let mut delta = 0;
                for (_, outcome, _) in of_item {
                    match outcome {
                        Outcome::Accepted(vote) => {
                            known = true;
                            delta += i64::from(vote.value);
                        }
                        Outcome::Repeated(_) => known = true,
                        Outcome::UnknownItem | Outcome::Unread => {}
                    }
                }
                known.then_some(CountDelta {
                    item_id: of_item[0].0,
                    delta,
                })
            })
            .collect()
    }

    /// Answers all votes on an item.
    fn answer(&mut self, item: ItemId, vote_count: i64, figures: &Figures) {
        let first = self.votes.partition_point(|(one, ..)| *one < item);
        for (_, outcome, answer) in self.votes[first..]
            .iter_mut()
            .take_while(|(one, ..)| *one == item)
        {
            if let Some(answer) = answer.take() {
                send(answer, *outcome, Some(vote_count), figures);
            }
        }
    }

    /// Answers every vote that is still waiting: without a count.
    fn answer_rest(self, figures: &Figures) {
        for (_, outcome, answer) in self.votes {
            if let Some(answer) = answer {
                send(answer, outcome, None, figures);
            }
        }
    }
}

impl Figures {
    /// What became of a stored batch.
    fn note(&self, settled: &Settled) {
        let mut totals = [0_u64; 4];
        for (_, outcome, _) in &settled.votes {
            totals[match outcome {
                Outcome::Accepted(_) => 0,
                Outcome::Repeated(_) => 1,
                Outcome::UnknownItem => 2,
                Outcome::Unread => 3,
            }] += 1;
        }
        let counters = [&self.accepted, &self.repeated, &self.unknown_item, &self.failed];
        for (counter, total) in counters.into_iter().zip(totals) {
            counter.increment(total);
        }
    }
}

fn send((since, answer): Answer, outcome: Outcome, vote_count: Option<i64>, figures: &Figures) {
    figures.vote_seconds.record(since.elapsed().as_secs_f64());
    let cast = match outcome {
        Outcome::Accepted(vote) => Ok(Cast::Accepted { vote, vote_count }),
        Outcome::Repeated(vote) => Ok(Cast::Repeated { vote, vote_count }),
        Outcome::UnknownItem => Ok(Cast::UnknownItem),
        Outcome::Unread => Err(CastError::LedgerAway),
    };
    // Whoever no longer waits needs no answer; the vote counts all the same.
    let _ = answer.send(cast);
}
