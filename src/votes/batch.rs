//! A stored batch, and the answers that it still owes.

use tokio::time::Instant;

use super::cast::{AnswerSender, Cast, CastError};
use crate::domain::{Count, CountDelta, ItemId};
use crate::telemetry::name;

/// The metrics of a batch writer, looked up once.
pub(super) struct BatchMetrics {
    pub depth: metrics::Gauge,
    pub batch_votes: metrics::Histogram,
    pub ledger_seconds: metrics::Histogram,
    pub live_seconds: metrics::Histogram,
    pub failed: metrics::Counter,
    vote_seconds: metrics::Histogram,
    /// A counter for each outcome that [`outcome`] numbers.
    outcomes: [metrics::Counter; OUTCOMES.len()],
}

const OUTCOMES: [&str; 7] = [
    "accepted",
    "repeated",
    "changed",
    "taken_back",
    "unknown_item",
    "declined",
    "failed",
];

/// The index of an answer in [`OUTCOMES`].
fn outcome(answer: &Result<Cast, CastError>) -> usize {
    match answer {
        Ok(Cast::Accepted { .. } | Cast::Secret { .. }) => 0,
        Ok(
            Cast::Repeated { .. }
            | Cast::Replayed { .. }
            | Cast::NoVote { .. }
            | Cast::Selected { is_changed: false },
        ) => 1,
        Ok(Cast::Changed { .. } | Cast::Selected { is_changed: true }) => 2,
        Ok(Cast::TakenBack { .. }) => 3,
        Ok(Cast::UnknownItem | Cast::UnknownPoll) => 4,
        Ok(Cast::Refused(_)) => 5,
        Err(_) => 6,
    }
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
            outcomes: OUTCOMES.map(votes),
        }
    }

    /// Counts the outcomes of a stored batch.
    fn note(&self, votes: &[StoredBatchVote]) {
        let mut totals = [0_u64; OUTCOMES.len()];
        for vote in votes {
            totals[outcome(&vote.result)] += 1;
        }
        for (counter, total) in self.outcomes.iter().zip(totals) {
            counter.increment(total);
        }
    }
}

/// One vote, or another request, of a stored batch.
pub(super) struct StoredBatchVote {
    /// The item whose count the answer shows; `None`: it shows none.
    pub item_id: Option<ItemId>,
    /// The answer, without its count.
    pub result: Result<Cast, CastError>,
    pub queued_at: Instant,
    /// `None` once the answer is sent.
    pub answer: Option<AnswerSender>,
}

/// A stored batch. It answers each of its votes once.
pub(super) struct StoredBatch<'a> {
    /// The votes, in the order of items.
    votes: Vec<StoredBatchVote>,
    metrics: &'a BatchMetrics,
}

impl<'a> StoredBatch<'a> {
    pub fn new(mut votes: Vec<StoredBatchVote>, metrics: &'a BatchMetrics) -> Self {
        votes.sort_by_key(|vote| vote.item_id);
        metrics.note(&votes);
        Self { votes, metrics }
    }

    /// What the accepted votes add to each item. An item that has only repeats gets a delta of
    /// nothing: its count is only read.
    pub fn deltas(&self) -> Vec<CountDelta> {
        self.votes
            .chunk_by(|one, other| one.item_id == other.item_id)
            .filter_map(|of_item| {
                let mut exists = false;
                let mut delta = Count::ZERO;
                for vote in of_item {
                    match vote.result {
                        Ok(Cast::Accepted { vote, .. }) => {
                            exists = true;
                            delta += Count::of_row(vote.value, 0);
                        }
                        Ok(cast) => exists |= cast.has_count(),
                        Err(_) => {}
                    }
                }
                let item_id = of_item[0].item_id.filter(|_| exists)?;
                Some(CountDelta { item_id, delta })
            })
            .collect()
    }

    /// Empty deltas for the items whose counts the answers show, to read each.
    pub fn reads(&self) -> impl Iterator<Item = CountDelta> {
        let with_count = |vote: &&StoredBatchVote| matches!(vote.result, Ok(cast) if cast.has_count());
        let items = self
            .votes
            .iter()
            .filter(with_count)
            .filter_map(|vote| vote.item_id);
        items.map(|item_id| CountDelta {
            item_id,
            delta: Count::ZERO,
        })
    }

    /// Answers all votes on these items with their counts.
    pub fn answer(&mut self, counts: &[(ItemId, Count)]) {
        for (item, count) in counts {
            let first = self.votes.partition_point(|vote| vote.item_id < Some(*item));
            let of_item = self.votes[first..]
                .iter_mut()
                .take_while(|vote| vote.item_id == Some(*item));
            for vote in of_item {
                vote.send(Some(*count), self.metrics);
            }
        }
    }

    /// Answers every vote that still waits, without a count. The counting began at `started`.
    pub fn answer_rest(self, started: Instant) {
        let live_seconds = &self.metrics.live_seconds;
        live_seconds.record(started.elapsed().as_secs_f64());
        self.answer_uncounted();
    }

    /// Answers every vote that still waits, without a count.
    pub fn answer_uncounted(mut self) {
        for vote in &mut self.votes {
            vote.send(None, self.metrics);
        }
    }
}

impl StoredBatchVote {
    fn send(&mut self, count: Option<Count>, metrics: &BatchMetrics) {
        let Some(answer) = self.answer.take() else { return };
        metrics
            .vote_seconds
            .record(self.queued_at.elapsed().as_secs_f64());
        // A voter who no longer waits needs no answer. The vote still counts.
        let _ = answer.send(self.result.map(|cast| cast.with_count(count)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Refusal, StoredVote, Value, VoteId};

    const VOTE: StoredVote = StoredVote {
        id: VoteId::LAST,
        value: -1,
        number: None,
    };
    const COUNT: Option<Count> = None;

    #[test]
    fn each_answer_has_its_outcome_in_the_metrics() {
        let (vote, count) = (VOTE, COUNT);
        for (answer, name) in [
            (Ok(Cast::Accepted { vote, count }), "accepted"),
            (
                Ok(Cast::Secret {
                    value: Value::UP,
                    count,
                }),
                "accepted",
            ),
            (Ok(Cast::Repeated { vote, count }), "repeated"),
            (Ok(Cast::Replayed { vote, count }), "repeated"),
            (Ok(Cast::NoVote { count }), "repeated"),
            (Ok(Cast::Selected { is_changed: false }), "repeated"),
            (Ok(Cast::Selected { is_changed: true }), "changed"),
            (Ok(Cast::Changed { vote, count }), "changed"),
            (Ok(Cast::TakenBack { vote, count }), "taken_back"),
            (Ok(Cast::UnknownItem), "unknown_item"),
            (Ok(Cast::UnknownPoll), "unknown_item"),
            (Ok(Cast::Refused(Refusal::Full)), "declined"),
            (Err(CastError::Busy), "failed"),
        ] {
            assert_eq!(OUTCOMES[outcome(&answer)], name, "{answer:?}");
        }
    }

    #[test]
    fn the_votes_of_a_batch_add_up_by_items_in_whatever_order_they_come() {
        let item = |id| ItemId::new(id).expect("positive");
        let metrics = BatchMetrics::new(metrics::Gauge::noop());
        let vote = |id, result| StoredBatchVote {
            item_id: Some(item(id)),
            result,
            queued_at: Instant::now(),
            answer: None,
        };
        let accepted = |id, value| {
            let vote_of = StoredVote { value, ..VOTE };
            vote(
                id,
                Ok(Cast::Accepted {
                    vote: vote_of,
                    count: COUNT,
                }),
            )
        };
        let votes = vec![
            accepted(2, 1),
            accepted(1, -1),
            vote(
                3,
                Ok(Cast::Repeated {
                    vote: VOTE,
                    count: COUNT,
                }),
            ),
            vote(4, Err(CastError::Busy)),
            accepted(2, 1),
            vote(5, Ok(Cast::UnknownItem)),
            accepted(1, 1),
        ];
        let batch = StoredBatch::new(votes, &metrics);
        let deltas: Vec<(ItemId, Count)> = batch
            .deltas()
            .iter()
            .map(|one| (one.item_id, one.delta))
            .collect();
        let expected = [
            (item(1), Count { net: 0, downs: 1 }),
            (item(2), Count { net: 2, downs: 0 }),
            (item(3), Count::ZERO),
        ];
        assert_eq!(deltas, expected);
    }
}
