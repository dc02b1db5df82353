//! A vote on its way: in the queue, and its answer.

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::domain::{Count, NewVote, PostgresRun, Refusal, StoredVote, Value, VoteRequest, VoteSource};
use crate::telemetry::{name, trouble};

/// The answer to a vote, or to another request of a voter. `count` is the item's live count, if
/// there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// The vote is stored.
    Accepted {
        vote: StoredVote,
        count: Option<Count>,
    },
    /// The voter holds this vote already; nothing is stored.
    Repeated {
        vote: StoredVote,
        count: Option<Count>,
    },
    /// This vote was stored before, with the same idempotency key; nothing is stored now.
    Replayed {
        vote: StoredVote,
        count: Option<Count>,
    },
    /// The vote is stored, and nobody learns which row it is.
    Secret {
        value: Value,
        count: Option<Count>,
    },
    /// The voter held another vote on this item, and holds this one instead.
    Changed {
        vote: StoredVote,
        count: Option<Count>,
    },
    /// The voter's vote is taken back, by this row.
    TakenBack {
        vote: StoredVote,
        count: Option<Count>,
    },
    /// The voter holds no vote on this item, so there is none to take back.
    NoVote {
        count: Option<Count>,
    },
    /// The voter holds exactly these choices of the poll.
    Selected {
        /// Whether the voter held other choices before.
        is_changed: bool,
    },
    UnknownItem,
    UnknownPoll,
    Refused(Refusal),
}

impl Cast {
    /// The same with this count.
    #[must_use]
    pub(super) fn with_count(self, count: Option<Count>) -> Self {
        match self {
            Self::Accepted { vote, .. } => Self::Accepted { vote, count },
            Self::Repeated { vote, .. } => Self::Repeated { vote, count },
            Self::Replayed { vote, .. } => Self::Replayed { vote, count },
            Self::Secret { value, .. } => Self::Secret { value, count },
            Self::Changed { vote, .. } => Self::Changed { vote, count },
            Self::TakenBack { vote, .. } => Self::TakenBack { vote, count },
            Self::NoVote { .. } => Self::NoVote { count },
            Self::Selected { .. } | Self::UnknownItem | Self::UnknownPoll | Self::Refused(_) => self,
        }
    }

    /// Whether it shows the item's count.
    pub(super) fn has_count(self) -> bool {
        match self {
            Self::Accepted { .. }
            | Self::Repeated { .. }
            | Self::Replayed { .. }
            | Self::Secret { .. }
            | Self::Changed { .. }
            | Self::TakenBack { .. }
            | Self::NoVote { .. } => true,
            Self::Selected { .. } | Self::UnknownItem | Self::UnknownPoll | Self::Refused(_) => false,
        }
    }
}

/// Why a vote has no answer, and whether the vote is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CastError {
    /// The queue is full. The vote is not stored.
    #[error("too many votes are waiting")]
    QueueFull,
    /// The server is shutting down. The vote is not stored.
    #[error("the server is shutting down")]
    Closing,
    /// Postgres refused the batch. The vote is not stored.
    #[error("the ledger did not store the vote")]
    NotStored,
    /// The item or the poll was looked up in another run of Postgres than the one that would have
    /// got the vote: its id may be another one's there. The vote is not stored.
    #[error("the item was looked up before Postgres failed over or was started again")]
    OtherRun,
    /// Postgres did not confirm the batch. The vote may be stored, now or a little later. If it is,
    /// it counts, and the voter's next try is a repeat.
    #[error("the ledger did not confirm the vote")]
    Unconfirmed,
    /// The voter has voted on this item before, so this vote is not stored. The earlier vote could
    /// not be read.
    #[error("the ledger did not say which vote this one repeats")]
    UnresolvedRepeat,
    /// Other requests of this voter kept coming first. The vote is not stored.
    #[error("other requests of this voter came first")]
    Busy,
}

/// Where a batch writer sends a vote's answer.
pub(super) type AnswerSender = oneshot::Sender<Result<Cast, CastError>>;

/// A vote that waits for a batch.
pub(super) struct QueuedVote {
    pub vote: NewVote,
    /// The run in which its item was looked up. `None`: the client named the id.
    pub run: Option<PostgresRun>,
    pub source: VoteSource,
    pub queued_at: Instant,
    pub answer: AnswerSender,
}

/// A request that waits for a decision.
pub(super) struct QueuedRequest {
    pub request: VoteRequest,
    /// As [`QueuedVote::run`].
    pub run: Option<PostgresRun>,
    pub source: VoteSource,
    pub queued_at: Instant,
    /// Whether a part of it is stored, and the rest is asked for again.
    pub is_partly_stored: bool,
    pub answer: AnswerSender,
}

/// What waits in a queue.
pub(super) trait Queued {
    /// The run in which its ids were looked up. `None`: the client named them.
    fn run(&self) -> Option<PostgresRun>;
    /// What its voter is answered if no more of it is stored, for this reason.
    fn refusal(&self, reason: CastError) -> CastError {
        reason
    }
    fn into_answer(self) -> AnswerSender;
}

impl Queued for QueuedVote {
    fn run(&self) -> Option<PostgresRun> {
        self.run
    }

    fn into_answer(self) -> AnswerSender {
        self.answer
    }
}

impl Queued for QueuedRequest {
    fn run(&self) -> Option<PostgresRun> {
        self.run
    }

    fn refusal(&self, reason: CastError) -> CastError {
        if self.is_partly_stored {
            CastError::Unconfirmed
        } else {
            reason
        }
    }

    fn into_answer(self) -> AnswerSender {
        self.answer
    }
}

/// What is left of a vote once its batch has been sent.
impl Queued for AnswerSender {
    fn run(&self) -> Option<PostgresRun> {
        None
    }

    fn into_answer(self) -> AnswerSender {
        self
    }
}

/// Refuses what names ids of another run of Postgres than this one, and takes it out of a batch.
/// Mostly there is none, and this only compares numbers.
pub(super) fn refuse_other_runs<One: Queued>(
    batch: &mut Vec<One>,
    run: PostgresRun,
    failed: &metrics::Counter,
) {
    let is_other = |one: &One| one.run().is_some_and(|of| of != run);
    if !batch.iter().any(is_other) {
        return;
    }
    let mut refused = 0;
    for one in batch.extract_if(.., |one| is_other(one)) {
        refused += 1;
        let refusal = one.refusal(CastError::OtherRun);
        // A voter who no longer waits needs no answer.
        let _ = one.into_answer().send(Err(refusal));
    }
    failed.increment(refused);
    metrics::counter!(name::VOTE_FAILURES, "why" => "other_run").increment(refused);
    trouble!(
        warn, %"Postgres failed over or was started again", votes = refused;
        "the items of some votes were looked up in another run of Postgres: these votes are not stored"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ItemId;

    #[test]
    fn only_what_names_ids_of_another_run_is_refused() {
        let [one, other] = [1, 2].map(PostgresRun::new);
        let (mut batch, mut answers) = (Vec::new(), Vec::new());
        for run in [None, Some(one), Some(other), None, Some(other)] {
            let (answer, answered) = oneshot::channel();
            answers.push(answered);
            batch.push(QueuedVote {
                vote: NewVote {
                    item_id: ItemId::FIRST,
                    voter_id: None,
                    value: Value::UP,
                },
                run,
                source: VoteSource::default(),
                queued_at: Instant::now(),
                answer,
            });
        }
        refuse_other_runs(&mut batch, one, &metrics::Counter::noop());
        let left: Vec<_> = batch.iter().map(|one| one.run).collect();
        assert_eq!(left, [None, Some(one), None]);
        let refused = answers.iter_mut().map(|answered| answered.try_recv().ok());
        let refused: Vec<_> = refused
            .map(|answer| answer == Some(Err(CastError::OtherRun)))
            .collect();
        assert_eq!(refused, [false, false, true, false, true]);
    }
}
