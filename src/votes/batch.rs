//! A stored batch, and the answers that it still owes.

use tokio::time::Instant;

use super::cast::{Answer, Cast, CastError};
use crate::domain::{CountDelta, ItemId, NewVote, VoteOutcome};
use crate::telemetry::name;

/// The metrics of a batch writer, looked up once.
pub(super) struct BatchMetrics {
    pub depth: metrics::Gauge,
    pub batch_votes: metrics::Histogram,
    pub ledger_seconds: metrics::Histogram,
    pub live_seconds: metrics::Histogram,
    pub failed: metrics::Counter,
    vote_seconds: metrics::Histogram,
    accepted: metrics::Counter,
    repeated: metrics::Counter,
    unknown_item: metrics::Counter,
}

impl BatchMetrics {
    pub fn new(depth: metrics::Gauge) -> Self {
        let votes = |outcome| metrics::counter!(name::VOTES, "outcome" => outcome);
        Self {
            depth,
            batch_votes: metrics::histogram!(name::BATCH_VOTES),
            ledger_seconds: metrics::histogram!(name::LEDGER_SECONDS),
            live_seconds: metrics::histogram!(name::LIVE_SECONDS),
            failed: votes("failed"),
            vote_seconds: metrics::histogram!(name::VOTE_SECONDS),
            accepted: votes("accepted"),
            repeated: votes("repeated"),
            unknown_item: votes("unknown_item"),
        }
    }

    /// Counts the outcomes of a stored batch.
    fn note(&self, votes: &[StoredBatchVote]) {
        let mut totals = [0_u64; 4];
        for vote in votes {
            totals[match vote.outcome {
                VoteOutcome::Accepted(_) => 0,
                VoteOutcome::Repeated(_) => 1,
                VoteOutcome::UnknownItem => 2,
                VoteOutcome::UnresolvedRepeat => 3,
            }] += 1;
        }
        let counters = [&self.accepted, &self.repeated, &self.unknown_item, &self.failed];
        for (counter, total) in counters.into_iter().zip(totals) {
            counter.increment(total);
        }
    }
}

/// One vote of a stored batch.
struct StoredBatchVote {
    item_id: ItemId,
    outcome: VoteOutcome,
    queued_at: Instant,
    /// `None` once the answer is sent.
    answer: Option<Answer>,
}

/// A stored batch. It answers each of its votes once.
pub(super) struct StoredBatch<'a> {
    /// In the order of items.
    votes: Vec<StoredBatchVote>,
    metrics: &'a BatchMetrics,
}

impl<'a> StoredBatch<'a> {
    /// `outcomes` and `answers` have one entry for each vote, in the order of the votes.
    pub fn new(
        votes: &[NewVote],
        outcomes: Vec<VoteOutcome>,
        answers: Vec<(Instant, Answer)>,
        metrics: &'a BatchMetrics,
    ) -> Self {
        let mut votes: Vec<_> = votes
            .iter()
            .zip(outcomes)
            .zip(answers)
            .map(|((vote, outcome), (queued_at, answer))| StoredBatchVote {
                item_id: vote.item_id,
                outcome,
                queued_at,
                answer: Some(answer),
            })
            .collect();
        votes.sort_by_key(|vote| vote.item_id);
        metrics.note(&votes);
        Self { votes, metrics }
    }

    /// What the batch adds to each item. For an item with repeats only it is 0: its count is
    /// only read.
    pub fn deltas(&self) -> Vec<CountDelta> {
        self.votes
            .chunk_by(|one, other| one.item_id == other.item_id)
            .filter_map(|of_item| {
                let mut exists = false;
                let mut delta = 0;
                for vote in of_item {
                    match vote.outcome {
                        VoteOutcome::Accepted(stored) => {
                            exists = true;
                            delta += i64::from(stored.value);
                        }
                        VoteOutcome::Repeated(_) => exists = true,
                        VoteOutcome::UnknownItem | VoteOutcome::UnresolvedRepeat => {}
                    }
                }
                exists.then_some(CountDelta {
                    item_id: of_item[0].item_id,
                    delta,
                })
            })
            .collect()
    }

    /// Answers all votes on these items with their counts.
    pub fn answer(&mut self, counts: &[(ItemId, i64)]) {
        for (item, vote_count) in counts {
            let first = self.votes.partition_point(|vote| vote.item_id < *item);
            let of_item = self.votes[first..]
                .iter_mut()
                .take_while(|vote| vote.item_id == *item);
            for vote in of_item {
                vote.send(Some(*vote_count), self.metrics);
            }
        }
    }

    /// Answers every vote that still waits, without a count.
    pub fn answer_rest(mut self) {
        for vote in &mut self.votes {
            vote.send(None, self.metrics);
        }
    }
}

impl StoredBatchVote {
    fn send(&mut self, vote_count: Option<i64>, metrics: &BatchMetrics) {
        let Some(answer) = self.answer.take() else { return };
        metrics
            .vote_seconds
            .record(self.queued_at.elapsed().as_secs_f64());
        // A voter that no longer waits needs no answer. The vote counts all the same.
        let _ = answer.send(match self.outcome {
            VoteOutcome::Accepted(vote) => Ok(Cast::Accepted { vote, vote_count }),
            VoteOutcome::Repeated(vote) => Ok(Cast::Repeated { vote, vote_count }),
            VoteOutcome::UnknownItem => Ok(Cast::UnknownItem),
            VoteOutcome::UnresolvedRepeat => Err(CastError::UnresolvedRepeat),
        });
    }
}
