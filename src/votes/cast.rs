//! A vote on its way: in the queue, and its answer.

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::domain::{NewVote, StoredVote};

/// A vote's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// The vote is stored. `vote_count` is its item's live count, if there is one.
    Accepted {
        vote: StoredVote,
        vote_count: Option<i64>,
    },
    /// The voter has voted on this item before, and `vote` is that vote.
    Repeated {
        vote: StoredVote,
        vote_count: Option<i64>,
    },
    UnknownItem,
}

/// Why a vote has no answer, and so whether the vote is stored.
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
    /// Postgres did not confirm the batch. The vote may be stored, now or a little later. If
    /// it is, it counts, and the next try of the same voter is a repeat.
    #[error("the ledger did not confirm the vote")]
    Unconfirmed,
    /// The voter has voted on this item before, so this vote is not stored. The vote that it
    /// repeats could not be read.
    #[error("the ledger did not say which vote this one repeats")]
    UnresolvedRepeat,
}

/// Where a batch writer sends a vote's answer.
pub(super) type Answer = oneshot::Sender<Result<Cast, CastError>>;

/// A vote that waits for a batch.
pub(super) struct QueuedVote {
    pub vote: NewVote,
    pub queued_at: Instant,
    pub answer: Answer,
}
