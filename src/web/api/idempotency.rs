//! Idempotency keys: whose a key is, and which requests ask for the same.

use crate::domain::{BallotHash, Digest, IdempotencyKey, ItemId, NewVote, Reference, Refusal};
use crate::ledger::{LedgerError, ServerLedger};
use crate::web::access::{Caller, Sender};
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
    asked: Vec<AskedVote>,
}

/// What a vote of a batch asks for.
pub(super) enum AskedVote {
    /// The item, and the digest of everything else.
    Vote(Reference<ItemId>, Digest),
    /// The digest of the text of a vote that is wrong.
    Wrong(Digest),
}

impl AskedVote {
    /// Returns what a vote on this item asks for. Its own `item_id` does not matter.
    pub fn new(
        caller: &Caller,
        item: Reference<ItemId>,
        vote: &NewVote,
        ballot: Option<&BallotHash>,
    ) -> Self {
        let vote = NewVote {
            // A voter's own credential names the voter, whether the vote does or not.
            voter_id: caller.voter(vote.voter_id.clone(), ballot.is_some()),
            ..*vote
        };
        Self::Vote(item, asked(&vote, ballot))
    }

    /// Returns what a vote that is wrong asks for: its text.
    pub fn wrong(text: &str) -> Self {
        Self::Wrong(Digest::of(&[text.as_bytes()]))
    }
}

impl BatchKey {
    /// Returns the key of a batch that asks for these votes.
    pub fn new(key: String, asked: Vec<AskedVote>) -> Self {
        Self { key, asked }
    }

    /// Stores the key, so that it cannot be used for another batch.
    ///
    /// Call it once the caller may cast a vote of the batch: otherwise anyone could fill the table.
    ///
    /// # Errors
    /// Fails when the key was used for another batch.
    pub async fn claim(&self, ledger: &ServerLedger, caller: &Caller) -> Result<(), Problem> {
        let claimed = IdempotencyKey {
            key: of_sender(caller, b"batch", &[self.key.as_bytes()]),
            body: self.digest(ledger).await?,
        };
        if ledger.claim_key(&claimed).await? {
            Ok(())
        } else {
            Err(Problem::refused(Refusal::KeyReused))
        }
    }

    /// Digests what the batch asks for.
    ///
    /// An item with an own key goes in by that key, also where the batch names it by its id. An id would
    /// not do: the first try of a batch may come before its item is made, and must not make it before the
    /// key is claimed.
    async fn digest(&self, ledger: &ServerLedger) -> Result<Digest, LedgerError> {
        let by_id = |asked: &AskedVote| match asked {
            AskedVote::Vote(Reference::Id(id), _) => Some(*id),
            _ => None,
        };
        let ids: Vec<ItemId> = self.asked.iter().filter_map(by_id).collect();
        let keys = ledger.keys_of_items(&ids).await?;
        let parts = self.asked.iter().map(|asked| match asked {
            AskedVote::Vote(item, rest) => {
                let key = match item {
                    Reference::Id(id) => keys.get(id).map(String::as_str),
                    Reference::Key(key) => Some(key.as_str()),
                };
                match (key, item) {
                    (Some(key), _) => Digest::of(&[b"key", key.as_bytes(), rest.as_bytes()]),
                    (None, item) => Digest::of(&[b"id", item.to_string().as_bytes(), rest.as_bytes()]),
                }
            }
            AskedVote::Wrong(text) => *text,
        });
        let parts: Vec<Digest> = parts.collect();
        let parts: Vec<&[u8]> = parts.iter().map(Digest::as_bytes).collect();
        Ok(Digest::of(&parts))
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
