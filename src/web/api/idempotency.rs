//! Idempotency keys: whose a key is, and which requests ask for the same.

use crate::domain::{BallotHash, Digest, IdempotencyKey, NewVote, Refusal};
use crate::web::access::{Caller, Sender};
use crate::web::api::batches::BatchEntry;
use crate::web::api::state::AppState;
use crate::web::problem::Problem;

/// Returns the key of a vote on an item.
pub(super) fn of_vote(
    caller: &Caller,
    key: &str,
    vote: &NewVote,
    ballot: Option<&BallotHash>,
) -> IdempotencyKey {
    let item = vote.item_id.get().to_be_bytes();
    IdempotencyKey {
        key: of_sender(caller, b"vote", &[&item, key.as_bytes()]),
        body: asked_of(vote, ballot),
    }
}

/// The idempotency key of a batch, and what the batch asks for.
pub(super) struct BatchKey {
    key: String,
    /// For each vote of the batch, in order.
    asked: Vec<Digest>,
}

impl BatchKey {
    /// Returns the key of a batch with these votes, before anyone has looked at what the caller may.
    ///
    /// `texts` are the votes as they were sent.
    pub fn new(key: String, texts: &[String], votes: &[Result<BatchEntry, Problem>]) -> Self {
        let asked = texts.iter().zip(votes).map(|(text, entry)| match entry {
            Ok(entry) => Digest::of(&[
                entry.item.to_string().as_bytes(),
                asked(&entry.vote, entry.ballot.as_ref()).as_bytes(),
            ]),
            Err(_) => Digest::of(&[text.as_bytes()]),
        });
        Self {
            key,
            asked: asked.collect(),
        }
    }

    /// Stores the key, so that it cannot be used for another batch.
    ///
    /// Call it once the caller may cast a vote of the batch: otherwise anyone could fill the table.
    ///
    /// # Errors
    /// Fails when the key was used for another batch.
    pub async fn claim(&self, state: &AppState, caller: &Caller) -> Result<(), Problem> {
        let asked: Vec<&[u8]> = self.asked.iter().map(Digest::as_bytes).collect();
        let claimed = IdempotencyKey {
            key: of_sender(caller, b"batch", &[self.key.as_bytes()]),
            body: Digest::of(&asked),
        };
        if state.ledger.claim_key(&claimed).await? {
            Ok(())
        } else {
            Err(Problem::refused(Refusal::KeyReused))
        }
    }

    /// Returns the key of the vote at this place of the batch.
    pub fn of_vote(
        &self,
        caller: &Caller,
        at: usize,
        vote: &NewVote,
        ballot: Option<&BallotHash>,
    ) -> IdempotencyKey {
        let parts = [self.key.as_bytes(), &at.to_be_bytes()];
        IdempotencyKey {
            key: of_sender(caller, b"vote of batch", &parts),
            body: asked_of(vote, ballot),
        }
    }
}

/// Digests everything that a vote on a known item asks for.
fn asked_of(vote: &NewVote, ballot: Option<&BallotHash>) -> Digest {
    let item = vote.item_id.get().to_be_bytes();
    Digest::of(&[&item, asked(vote, ballot).as_bytes()])
}

/// Returns what is kept of an idempotency key.
///
/// Voters, backends and all others have keys apart from each other. So nobody without a credential can learn
/// of a backend's keys or use them up. The API keys of backends share their keys: a backend may send a
/// request again after a rotation of its API key, or from another instance with another one.
fn of_sender(caller: &Caller, purpose: &[u8], parts: &[&[u8]]) -> Digest {
    let (kind, voter): (&[u8], &[u8]) = match caller.sender() {
        Sender::Voter(voter) => (b"voter", voter.as_str().as_bytes()),
        Sender::Backend => (b"backend", b""),
        Sender::Anyone => (b"anyone", b""),
    };
    Digest::of(&[&[kind, voter, purpose], parts].concat())
}

/// Digests everything that a vote asks for, except its item.
fn asked(vote: &NewVote, ballot: Option<&BallotHash>) -> Digest {
    let (voter, is_voter) = match &vote.voter_id {
        Some(voter) => (voter.as_str().as_bytes(), 1),
        None => (&[][..], 0),
    };
    Digest::of(&[
        &[is_voter],
        voter,
        &vote.value.get().to_be_bytes(),
        ballot.map_or(&[], BallotHash::as_bytes),
    ])
}
