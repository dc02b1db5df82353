//! Votes, before and after they are stored.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::{AddressHash, ApiKeyId, BallotHash, IdempotencyKey, ItemId, PollId, Refusal, id};

/// Where a vote came from, as far as that is kept: so that an operator can void what one source sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VoteSource {
    /// The client's address. `None`: it is not kept.
    pub address: Option<AddressHash>,
    /// The API key of the request. `None`: it had none.
    pub api_key: Option<ApiKeyId>,
}

/// Who votes: 1 to 128 bytes of UTF-8 without control characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct VoterId(String);

/// Why a text is no voter id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidVoterId {
    #[error(
        "voter_id is empty; it takes 1 to {} bytes, or leave it out to vote anonymously",
        VoterId::LIMIT_BYTES
    )]
    Empty,
    #[error("voter_id has {0} bytes; it takes at most {limit}", limit = VoterId::LIMIT_BYTES)]
    TooLong(usize),
    #[error("voter_id has a control character; it takes printable characters")]
    Control,
    #[error("voter_id is that of an erased voter, as whom nobody votes")]
    Erased,
}

impl VoterId {
    /// migrations/0002_votes.sql has the same limit.
    pub const LIMIT_BYTES: usize = 128;

    /// What the id of an erased voter begins with.
    const ERASED: &str = "erased-";

    /// Checks the id of a voter who votes.
    ///
    /// # Errors
    /// When the text is empty, too long, has a control character, or is the id of an erased voter.
    pub fn parse(text: String) -> Result<Self, InvalidVoterId> {
        let voter = Self::parse_stored(text)?;
        if voter.is_erased() {
            return Err(InvalidVoterId::Erased);
        }
        Ok(voter)
    }

    /// Checks the id of a voter who may have been erased.
    ///
    /// # Errors
    /// When the text is empty, too long, or has a control character.
    pub fn parse_stored(text: String) -> Result<Self, InvalidVoterId> {
        if text.is_empty() {
            return Err(InvalidVoterId::Empty);
        }
        if text.len() > Self::LIMIT_BYTES {
            return Err(InvalidVoterId::TooLong(text.len()));
        }
        if text.chars().any(char::is_control) {
            return Err(InvalidVoterId::Control);
        }
        Ok(Self(text))
    }

    /// The id that takes an erased voter's place.
    pub fn erased(random: u128) -> Self {
        Self(format!("{}{random:032x}", Self::ERASED))
    }

    /// Whether the id has the form of an erased voter's.
    pub fn is_erased(&self) -> bool {
        let digits = self.0.strip_prefix(Self::ERASED);
        digits.is_some_and(|digits| {
            digits.len() == 32
                && digits
                    .bytes()
                    .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        })
    }

    /// A visitor's voter id, from random letters and digits.
    pub fn visitor(random: &str) -> Self {
        Self(format!("visitor-{random}"))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a vote adds to its item's count: +1 or −1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Value(i16);

/// Why a number is no vote's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("value is {0}; it takes 1 or -1")]
pub struct InvalidValue(pub i64);

impl Value {
    /// +1
    pub const UP: Self = Self(1);
    /// −1
    pub const DOWN: Self = Self(-1);

    /// Checks a value.
    ///
    /// # Errors
    /// When the number is neither 1 nor −1.
    pub fn parse(number: i64) -> Result<Self, InvalidValue> {
        match number {
            1 => Ok(Self::UP),
            -1 => Ok(Self::DOWN),
            other => Err(InvalidValue(other)),
        }
    }

    /// 1 or −1.
    pub fn get(self) -> i16 {
        self.0
    }
}

/// A valid vote that is not stored yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NewVote {
    pub item_id: ItemId,
    /// `None`: an anonymous vote, which always counts.
    pub voter_id: Option<VoterId>,
    pub value: Value,
}

/// What a voter asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VoteRequest {
    /// Cast a vote. A vote that the voter already holds on this item stays unchanged.
    Cast(NewVote),
    /// Cast a vote with a ballot or a key. A ballot buys the vote; under a key, the vote is stored
    /// once.
    CastOnce {
        vote: NewVote,
        ballot: Option<BallotHash>,
        key: Option<IdempotencyKey>,
    },
    /// Hold this value on an item, whatever the voter held; `None`: hold nothing.
    Set {
        item_id: ItemId,
        voter_id: VoterId,
        value: Option<Value>,
    },
    /// Hold exactly these choices of a poll. Each stands here once.
    Select {
        poll_id: PollId,
        voter_id: VoterId,
        items: Vec<ItemId>,
    },
}

impl VoteRequest {
    /// The voter who asks.
    pub fn voter(&self) -> Option<&VoterId> {
        match self {
            Self::Cast(vote) | Self::CastOnce { vote, .. } => vote.voter_id.as_ref(),
            Self::Set { voter_id, .. } | Self::Select { voter_id, .. } => Some(voter_id),
        }
    }

    /// The items that the request names.
    pub fn items(&self) -> &[ItemId] {
        match self {
            Self::Cast(vote) | Self::CastOnce { vote, .. } => std::slice::from_ref(&vote.item_id),
            Self::Set { item_id, .. } => std::slice::from_ref(item_id),
            Self::Select { items, .. } => items,
        }
    }
}

/// A vote's id in the ledger. All ids come from one sequence, so later votes mostly have higher
/// ids. 0 comes before all votes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct VoteId(i64);

impl VoteId {
    /// Comes after all votes.
    pub const LAST: Self = Self(i64::MAX);

    /// From the ledger's number.
    pub fn new(id: i64) -> Self {
        Self(id)
    }

    /// The number.
    pub fn get(self) -> i64 {
        self.0
    }
}

/// Accepts what [`ItemId`] accepts.
impl FromStr for VoteId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        id::parse(text).map(Self)
    }
}

impl fmt::Display for VoteId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A vote's row in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredVote {
    pub id: VoteId,
    /// What the voter holds on the item with this row: 1, −1, or 0 after a retraction.
    pub value: i16,
    /// The vote's number, on an item that numbers its votes.
    pub number: Option<i64>,
}

/// What became of a vote in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoteOutcome {
    /// The vote is a new row.
    Accepted(StoredVote),
    /// A repeat: the voter already holds this vote on the item.
    Repeated(StoredVote),
    /// The item does not exist.
    UnknownItem,
    /// An unresolved repeat: nothing was stored. The vote that the voter holds could not be read.
    UnresolvedRepeat,
    /// Nothing was stored: the item has a rule, or the voter has taken a vote back.
    NeedsDecision,
    /// The item does not take the vote.
    Refused(Refusal),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_voter_id_has_1_to_128_bytes_and_no_control_characters() {
        assert!(VoterId::parse("é".repeat(64)).is_ok());
        assert_eq!(VoterId::parse("é".repeat(65)), Err(InvalidVoterId::TooLong(130)));
        assert_eq!(VoterId::parse(String::new()), Err(InvalidVoterId::Empty));
        for text in ["a\n", "\0", "\u{7f}", "\u{85}"] {
            assert_eq!(
                VoterId::parse(text.into()),
                Err(InvalidVoterId::Control),
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_value_is_1_or_minus_1() {
        assert_eq!(Value::parse(1), Ok(Value::UP));
        assert_eq!(Value::parse(-1), Ok(Value::DOWN));
        for number in [0, 2, -2, i64::MAX, i64::MIN] {
            assert_eq!(Value::parse(number), Err(InvalidValue(number)));
        }
    }
}
