//! Ballots: one-time tokens, each of which buys one vote.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// Random bytes in a ballot: 128 bits, which nobody guesses.
pub const BALLOT_BYTES: usize = 16;

/// A ballot as its holder has it. It is [`BALLOT_BYTES`] random bytes in lowercase hexadecimal
/// digits. Whoever has it may vote, so no log shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Ballot(String);

/// SHA-256 of a ballot's text. Nothing else of the ballot is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BallotHash([u8; 32]);

impl Ballot {
    /// A ballot that nobody has.
    pub fn fresh() -> Self {
        Self(format!(
            "{:032x}",
            u128::from_be_bytes(rand::random::<[u8; BALLOT_BYTES]>())
        ))
    }

    /// The text, for its holder.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The hash that is kept of the ballot.
    pub fn hash(&self) -> BallotHash {
        BallotHash::of(&self.0)
    }
}

impl fmt::Debug for Ballot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Ballot(…)")
    }
}

impl BallotHash {
    /// The hash of what a voter sent as a ballot. A text that was never a ballot gets a hash that
    /// no ballot has.
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text).into())
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ballot_has_32_hexadecimal_digits_and_is_never_the_same() {
        let (one, other) = (Ballot::fresh(), Ballot::fresh());
        assert_eq!(one.as_str().len(), 2 * BALLOT_BYTES);
        assert!(one.as_str().bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_ne!(one, other);
        assert_ne!(one.hash(), other.hash());
        assert!(!format!("{one:?}").contains(one.as_str()));
    }
}
