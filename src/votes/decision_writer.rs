//! The writer of what needs a decision. That is votes on items with a rule, changes, retractions
//! and selections. It has its own queue and connection, so a request that waits for a rule's lock
//! holds up no other vote.

use std::collections::HashMap;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::backoff::SeedBackoff;
use super::batch::{BatchMetrics, StoredBatch, StoredBatchVote};
use super::batch_counting::BatchCounting;
use super::cast::{Cast, CastError, Queued, QueuedRequest, refuse_other_runs};
use super::full_items::{FullItems, SplitBatch};
use super::turns::{AGAIN_LIMIT, Turns, is_equal};
use super::unfinished::UnfinishedBatch;
use crate::batching::take;
use crate::domain::{CountDelta, ItemId, Refusal, StoredVote, VoteRequest, VoteSource, VoterId};
use crate::ledger::{DecidedBatch, Decision, VoteRow, VoteWriter};
use crate::live::LiveCounts;
use crate::telemetry::Span;

/// The most requests in one batch. The locks of its rules are held until the batch is stored.
pub const DECIDE_LIMIT_REQUESTS: usize = 256;

/// Takes batch after batch, until the queue is closed.
pub(super) struct DecisionWriter {
    writer: VoteWriter,
    live_counts: LiveCounts,
    backoff: SeedBackoff,
    metrics: BatchMetrics,
    turns: Turns,
    full: FullItems,
    /// Like `_alive` of the batch writer.
    _alive: Option<mpsc::Sender<()>>,
}

impl DecisionWriter {
    pub fn new(
        writer: VoteWriter,
        live_counts: LiveCounts,
        backoff: SeedBackoff,
        depth: metrics::Gauge,
        alive: Option<mpsc::Sender<()>>,
    ) -> Self {
        Self {
            writer,
            live_counts,
            backoff,
            metrics: BatchMetrics::new(depth),
            turns: Turns::default(),
            full: FullItems::default(),
            _alive: alive,
        }
    }

    pub async fn run(mut self, mut queue: mpsc::Receiver<QueuedRequest>) {
        let mut queued = Vec::with_capacity(DECIDE_LIMIT_REQUESTS);
        loop {
            let mut batch = self.turns.take_first(DECIDE_LIMIT_REQUESTS);
            let free = DECIDE_LIMIT_REQUESTS - batch.len();
            let taken = if batch.is_empty() {
                match take(&mut queue, &mut queued, free).await {
                    0 => return,
                    taken => taken,
                }
            } else {
                while queued.len() < free
                    && let Ok(one) = queue.try_recv()
                {
                    queued.push(one);
                }
                queued.len()
            };
            self.metrics.depth.decrement(taken as f64);
            batch.extend(self.turns.let_in(queued.drain(..)));
            let given_up = self.turns.give_up(Instant::now());
            self.answer_unasked(given_up, |one| Err(one.refusal(CastError::Busy)));
            let SplitBatch { refused, to_decide } = self.full.refuse(&mut self.writer, batch).await;
            self.answer_unasked(refused, |_| Ok(Cast::Refused(Refusal::Full)));
            if !to_decide.is_empty() {
                self.metrics.batch_votes.record(to_decide.len() as f64);
                self.decide_batch(to_decide).await;
            }
        }
    }

    /// Answers requests for which Postgres is not asked.
    fn answer_unasked(
        &self,
        requests: Vec<QueuedRequest>,
        result: impl Fn(&QueuedRequest) -> Result<Cast, CastError>,
    ) {
        if requests.is_empty() {
            return;
        }
        let answered = requests.into_iter().map(|one| {
            let result = result(&one);
            entry(one, result, &[])
        });
        StoredBatch::new(answered.collect(), &self.metrics).answer_uncounted();
    }

    /// Decides, stores, counts and answers a batch. Keeps what to ask again.
    async fn decide_batch(&mut self, mut batch: Vec<QueuedRequest>) {
        let mut span = Span::begin("decisions");
        span.set_number("tally.requests", batch.len());
        let started = Instant::now();
        let storing = span.call("store");
        let ready = self.writer.ready().await;
        if let Ok(ready) = &ready {
            refuse_other_runs(&mut batch, ready.run(), &self.metrics.failed);
        }
        let Batch { requests, queued } = Batch::new(batch);
        // Of equal requests, the first one is stored.
        let first = |queued: &Vec<QueuedRequest>| queued.first().map(|one| one.source).unwrap_or_default();
        let sources: Vec<VoteSource> = queued.iter().map(first).collect();
        let items = requests.iter().flat_map(VoteRequest::items).copied();
        let unfinished = UnfinishedBatch::new(&self.live_counts, items);
        let decided = match ready {
            Ok(ready) if requests.is_empty() => {
                ready.keep();
                unfinished.finish();
                self.writer.end_batch();
                return;
            }
            Ok(ready) => ready.decide(&requests, &sources).await,
            Err(error) => Err(error),
        };
        self.metrics
            .ledger_seconds
            .record(started.elapsed().as_secs_f64());
        drop(storing);
        match decided {
            Ok(decided) => {
                let _counting = span.call("count");
                let full: Vec<ItemId> = full_items(&requests, &decided);
                self.finalize(&requests, queued, decided, started).await;
                unfinished.finish();
                full.into_iter().for_each(|item| self.full.note(item));
            }
            Err(error) => {
                span.fail(&error);
                unfinished.fail(&error, queued.into_iter().flatten(), &self.metrics.failed);
            }
        }
        self.writer.end_batch();
    }

    /// Counts what is stored, and answers every request that is decided.
    async fn finalize(
        &mut self,
        requests: &[VoteRequest],
        queued: Vec<Vec<QueuedRequest>>,
        decided: DecidedBatch,
        begun: Instant,
    ) {
        let (mut votes, mut again) = (Vec::new(), Vec::new());
        for ((request, queued), decision) in requests.iter().zip(queued).zip(&decided.decisions) {
            for (at, mut one) in queued.into_iter().enumerate() {
                match answer(request, decision, at > 0) {
                    Some(Cast::Refused(_)) if one.is_partly_stored => {
                        votes.push(entry(one, Err(CastError::Unconfirmed), &decided.hidden));
                    }
                    Some(cast) => votes.push(entry(one, Ok(cast), &decided.hidden)),
                    None => {
                        // A part may be stored, on an item without a rule.
                        one.is_partly_stored |= !decision.stored().is_empty();
                        if one.queued_at.elapsed() < AGAIN_LIMIT {
                            again.push(one);
                        } else {
                            let error = one.refusal(CastError::Busy);
                            votes.push(entry(one, Err(error), &decided.hidden));
                        }
                    }
                }
            }
        }
        self.turns.ask_again(again);
        let batch = StoredBatch::new(votes, &self.metrics);
        let mut deltas = decided.deltas();
        deltas.extend(batch.reads());
        CountDelta::merge(&mut deltas);
        let counting = BatchCounting::new(&self.live_counts, &mut self.writer, &self.backoff, begun);
        counting.finish(decided.transaction, deltas, batch, ()).await;
    }
}

/// The items on which a vote was refused because they are full.
fn full_items(requests: &[VoteRequest], decided: &DecidedBatch) -> Vec<ItemId> {
    let refused = requests.iter().zip(&decided.decisions);
    refused
        .filter(|(_, decision)| **decision == Decision::Refused(Refusal::Full))
        .filter_map(|(request, _)| match request {
            VoteRequest::Cast(vote) => Some(vote.item_id),
            _ => None,
        })
        .collect()
}

fn entry(one: QueuedRequest, result: Result<Cast, CastError>, hidden: &[ItemId]) -> StoredBatchVote {
    let item_id = match &one.request {
        VoteRequest::Cast(vote) | VoteRequest::CastOnce { vote, .. } => Some(vote.item_id),
        VoteRequest::Set { item_id, .. } => Some(*item_id),
        VoteRequest::Select { .. } => None,
    };
    StoredBatchVote {
        item_id: item_id.filter(|item| !hidden.contains(item)),
        result,
        queued_at: one.queued_at,
        answer: Some(one.answer),
    }
}

/// The requests of a batch, each once, and who waits for each.
struct Batch {
    requests: Vec<VoteRequest>,
    queued: Vec<Vec<QueuedRequest>>,
}

impl Batch {
    /// Merges equal requests of one voter that directly follow each other. They are decided once,
    /// and the later ones are repeats. With another request of the voter in between, they are not
    /// the same. A key or a ballot itself says which requests are the same.
    fn new(batch: Vec<QueuedRequest>) -> Self {
        let mut requests: Vec<VoteRequest> = Vec::with_capacity(batch.len());
        let mut queued: Vec<Vec<QueuedRequest>> = Vec::with_capacity(batch.len());
        let mut last: HashMap<VoterId, usize> = HashMap::new();
        for one in batch {
            let is_once = matches!(one.request, VoteRequest::CastOnce { .. });
            if let Some(voter) = one.request.voter().filter(|_| !is_once) {
                let at = last.get(voter).copied();
                if let Some(at) = at.filter(|at| is_equal(&requests[*at], &one.request)) {
                    queued[at].push(one);
                    continue;
                }
                last.insert(voter.clone(), requests.len());
            }
            requests.push(one.request.clone());
            queued.push(vec![one]);
        }
        Self { requests, queued }
    }
}

/// The answer to a request; `None`: ask again. `is_repeat`: an equal request was just answered with
/// the same decision.
fn answer(request: &VoteRequest, decision: &Decision, is_repeat: bool) -> Option<Cast> {
    let (rows, is_new) = match decision {
        Decision::Again(_) => return None,
        Decision::UnknownItem => return Some(Cast::UnknownItem),
        Decision::UnknownPoll => return Some(Cast::UnknownPoll),
        Decision::Refused(refusal) => return Some(Cast::Refused(*refusal)),
        Decision::Stored(rows) => (rows, !is_repeat),
        Decision::Repeated(rows) | Decision::Secret(rows) | Decision::Replayed(rows) => (rows, false),
    };
    let (item, wanted) = match request {
        VoteRequest::Select { .. } => return Some(Cast::Selected { is_changed: is_new }),
        VoteRequest::Cast(vote) | VoteRequest::CastOnce { vote, .. } => (vote.item_id, Some(vote.value)),
        VoteRequest::Set { item_id, value, .. } => (*item_id, *value),
    };
    let of_item = || rows.iter().filter(|row| row.item_id == item);
    let stored = |row: &VoteRow| StoredVote {
        id: row.id,
        value: if row.is_cast() { row.value } else { 0 },
        number: row.number,
    };
    let count = None;
    Some(match (of_item().next_back(), wanted) {
        (Some(_), Some(value)) if matches!(decision, Decision::Secret(_)) => Cast::Secret { value, count },
        (Some(row), Some(_)) if matches!(decision, Decision::Replayed(_)) => Cast::Replayed {
            vote: stored(row),
            count,
        },
        // Nothing was held, or an equal request has just taken it back.
        (None, _) => Cast::NoVote { count },
        (Some(_), None) if !is_new => Cast::NoVote { count },
        (Some(row), None) => Cast::TakenBack {
            vote: stored(row),
            count,
        },
        (Some(row), Some(_)) if !is_new => Cast::Repeated {
            vote: stored(row),
            count,
        },
        (Some(row), Some(_)) => {
            let vote = stored(row);
            // The vote that was held is taken back first.
            if of_item().any(|row| !row.is_cast()) {
                Cast::Changed { vote, count }
            } else {
                Cast::Accepted { vote, count }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{NewVote, PostgresRun, Value};

    #[test]
    fn a_request_of_which_a_part_is_stored_is_not_said_to_be_not_stored() {
        let (mut answers, mut batch) = (Vec::new(), Vec::new());
        for is_partly_stored in [false, true] {
            let (answer, answered) = tokio::sync::oneshot::channel();
            answers.push(answered);
            batch.push(QueuedRequest {
                request: VoteRequest::Set {
                    item_id: ItemId::FIRST,
                    voter_id: VoterId::parse("ada".to_owned()).expect("a voter"),
                    value: None,
                },
                run: Some(PostgresRun::new(1)),
                source: VoteSource::default(),
                queued_at: Instant::now(),
                is_partly_stored,
                answer,
            });
        }
        refuse_other_runs(&mut batch, PostgresRun::new(2), &metrics::Counter::noop());
        let said: Vec<_> = answers.iter_mut().map(|one| one.try_recv().ok()).collect();
        let [not_stored, unconfirmed] =
            [CastError::OtherRun, CastError::Unconfirmed].map(|error| Some(Err(error)));
        assert_eq!(said, [not_stored, unconfirmed]);
    }

    #[test]
    fn equal_requests_of_a_voter_right_behind_each_other_are_decided_once() {
        let item_id = ItemId::new(1).expect("positive");
        let voter_id = |voter: &str| VoterId::parse(voter.to_owned()).expect("a voter");
        let set = |voter, value| VoteRequest::Set {
            item_id,
            voter_id: voter_id(voter),
            value,
        };
        let cast = |voter: Option<&str>| {
            VoteRequest::Cast(NewVote {
                item_id,
                voter_id: voter.map(voter_id),
                value: Value::UP,
            })
        };
        let (up, none) = (Some(Value::UP), None);
        let asked = [
            set("ada", up),
            set("bob", up),
            set("ada", up),
            set("ada", none),
            set("ada", up),
            cast(Some("bob")),
            cast(Some("bob")),
            cast(None),
            cast(None),
            set("ada", up),
        ];
        let queued = asked.map(|request| QueuedRequest {
            request,
            run: None,
            source: VoteSource::default(),
            queued_at: Instant::now(),
            is_partly_stored: false,
            answer: tokio::sync::oneshot::channel().0,
        });
        let batch = Batch::new(queued.into());
        let decided = [
            (set("ada", up), 2),
            (set("bob", up), 1),
            (set("ada", none), 1),
            // Another request came in between.
            (set("ada", up), 2),
            (cast(Some("bob")), 2),
            // Each is from another voter.
            (cast(None), 1),
            (cast(None), 1),
        ];
        let waiting = batch.queued.iter().map(Vec::len);
        assert!(batch.requests.into_iter().zip(waiting).eq(decided));
    }
}
