//! Votes: each batch is stored with one statement and counted with one pipeline.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::{Instant, timeout};

use crate::domain::{CountDelta, ItemId, NewVote, Outcome, StoredVote, TransactionId};
use crate::ledger::{InsertError, Inserted, SERVER_STATEMENT_LIMIT, VoteWriter};
use crate::live::{Counted, Link};
use crate::telemetry::name;

/// Batches in flight at once. Two proved best on two cores: one is being stored
/// while the other is being counted and answered.
pub const LANES: usize = 2;
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

/// Takes batch after batch, until the queue is closed.
pub(super) struct Lane {
    pub writer: VoteWriter,
    pub link: Link,
}

impl Lane {
    pub async fn run(mut self, queue: Arc<Mutex<mpsc::Receiver<Waiting>>>) {
        let mut batch = Vec::with_capacity(BATCH_LIMIT_VOTES);
        loop {
            let taken = queue.lock().await.recv_many(&mut batch, BATCH_LIMIT_VOTES).await;
            if taken == 0 {
                return;
            }
            metrics::histogram!(name::BATCH_VOTES).record(taken as f64);
            self.settle(std::mem::take(&mut batch)).await;
        }
    }

    /// Stores a batch, counts it, and answers every vote in it.
    async fn settle(&mut self, batch: Vec<Waiting>) {
        let (votes, answers): (Vec<NewVote>, Vec<_>) = batch
            .into_iter()
            .map(|one| (one.vote, (one.since, one.answer)))
            .unzip();
        let started = Instant::now();
        let inserted = self.writer.insert(&votes).await;
        metrics::histogram!(name::LEDGER_SECONDS).record(started.elapsed().as_secs_f64());
        let Inserted {
            transaction,
            outcomes,
        } = match inserted {
            Ok(inserted) => inserted,
            Err(error) => {
                tracing::error!(%error, votes = votes.len(), "a batch of votes was not stored");
                if matches!(error, InsertError::Unknown(_)) {
                    // The batch may be committed yet and nobody will count it. Postgres
                    // ends a statement within its limit; from then on a seed is exact.
                    let items = votes.iter().map(|vote| vote.item_id);
                    self.link
                        .doubt_from(items, Instant::now() + SERVER_STATEMENT_LIMIT);
                }
                metrics::counter!(name::VOTES, "outcome" => "failed").increment(votes.len() as u64);
                for (_, answer) in answers {
                    // Whoever no longer waits needs no answer.
                    let _ = answer.send(Err(CastError::LedgerAway));
                }
                return;
            }
        };
        let mut settled = Settled::new(&votes, outcomes, answers);
        let started = Instant::now();
        self.count(&mut settled, transaction).await;
        metrics::histogram!(name::LIVE_SECONDS).record(started.elapsed().as_secs_f64());
        settled.answer_rest();
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
                    Counted::Count(count) => settled.answer(delta.item_id, Some(count)),
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
                        settled.answer(*item, Some(*count));
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
    outcomes: Vec<(ItemId, Outcome)>,
    answers: Vec<Option<Answer>>,
    /// For each item, where its votes stand in the batch.
    positions: HashMap<ItemId, Vec<usize>>,
}

impl Settled {
    fn new(votes: &[NewVote], outcomes: Vec<Outcome>, answers: Vec<Answer>) -> Self {
        let outcomes: Vec<_> = votes.iter().map(|vote| vote.item_id).zip(outcomes).collect();
        let mut positions: HashMap<ItemId, Vec<usize>> = HashMap::new();
        let mut totals = [0_u64; 4];
        for (at, (item, outcome)) in outcomes.iter().enumerate() {
            totals[match outcome {
                Outcome::Accepted(_) => 0,
                Outcome::Repeated(_) => 1,
                Outcome::UnknownItem => 2,
                Outcome::Unread => 3,
            }] += 1;
            positions.entry(*item).or_default().push(at);
        }
        for (outcome, total) in ["accepted", "repeated", "unknown_item", "failed"]
            .into_iter()
            .zip(totals)
        {
            if total > 0 {
                metrics::counter!(name::VOTES, "outcome" => outcome).increment(total);
            }
        }
        Self {
            outcomes,
            answers: answers.into_iter().map(Some).collect(),
            positions,
        }
    }

    /// What the batch adds to each item. An item with repeats alone adds 0, to be read.
    fn deltas(&self) -> Vec<CountDelta> {
        self.positions
            .iter()
            .filter_map(|(item_id, positions)| {
                let mut known = false;
                let mut delta = 0;
                for at in positions {
                    match self.outcomes[*at].1 {
                        Outcome::Accepted(vote) => {
                            known = true;
                            delta += i64::from(vote.value);
                        }
                        Outcome::Repeated(_) => known = true,
                        Outcome::UnknownItem | Outcome::Unread => {}
                    }
                }
                known.then_some(CountDelta {
                    item_id: *item_id,
                    delta,
                })
            })
            .collect()
    }

    /// Answers all votes on an item.
    fn answer(&mut self, item: ItemId, vote_count: Option<i64>) {
        for at in self.positions.get(&item).into_iter().flatten() {
            if let Some(answer) = self.answers[*at].take() {
                send(answer, self.outcomes[*at].1, vote_count);
            }
        }
    }

    /// Answers every vote that is still waiting: without a count.
    fn answer_rest(self) {
        for (answer, (_, outcome)) in self.answers.into_iter().zip(self.outcomes) {
            if let Some(answer) = answer {
                send(answer, outcome, None);
            }
        }
    }
}

fn send((since, answer): Answer, outcome: Outcome, vote_count: Option<i64>) {
    metrics::histogram!(name::VOTE_SECONDS).record(since.elapsed().as_secs_f64());
    let cast = match outcome {
        Outcome::Accepted(vote) => Ok(Cast::Accepted { vote, vote_count }),
        Outcome::Repeated(vote) => Ok(Cast::Repeated { vote, vote_count }),
        Outcome::UnknownItem => Ok(Cast::UnknownItem),
        Outcome::Unread => Err(CastError::LedgerAway),
    };
    // Whoever no longer waits needs no answer; the vote counts all the same.
    let _ = answer.send(cast);
}
