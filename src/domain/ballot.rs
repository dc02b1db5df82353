//! Ballots: one-time tokens, each of which buys one vote.

use std::fmt;

use sha2::{Digest as _, Sha256};

use super::text;

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

    /// Takes a text that has the form of a ballot.
    pub fn parse(text: String) -> Option<Self> {
        let is_one = text.len() == 2 * BALLOT_BYTES && is_plain(&text);
        is_one.then_some(Self(text))
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
    ///
    /// People type ballots. So capitals, and the blanks and dashes between the digits, do not matter. The
    /// letters O, I and L are no hexadecimal digits, and are read as 0 and 1. Two ballots never become the
    /// same by that.
    pub fn of(text: &str) -> Self {
        // What a program sends is digested as it is, without a copy.
        if is_plain(text) {
            return Self(Sha256::digest(text).into());
        }
        let digits: String = text::typed(text).chars().map(as_digit).collect();
        Self(Sha256::digest(digits).into())
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Whether a text has only lowercase hexadecimal digits.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The digit that someone means who types this character.
fn as_digit(character: char) -> char {
    match character.to_ascii_lowercase() {
        'o' => '0',
        'i' | 'l' => '1',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ballot_has_32_hexadecimal_digits_and_is_never_the_same() {
        let (one, other) = (Ballot::fresh(), Ballot::fresh());
        assert_eq!(one.as_str().len(), 2 * BALLOT_BYTES);
        assert!(Ballot::parse(one.as_str().to_owned()).is_some());
        for other in ["", "ab", &"A".repeat(32), &format!("{}\n", "a".repeat(31))] {
            assert!(Ballot::parse(other.to_owned()).is_none(), "{other:?}");
        }
        assert_ne!(one, other);
        assert_ne!(one.hash(), other.hash());
        assert!(!format!("{one:?}").contains(one.as_str()));
    }
    #[test]
    fn a_ballot_that_someone_types_is_the_ballot_that_they_read() {
        let ballot = "0123456789abcdef00112233445566ff";
        let hash = BallotHash::of(ballot);
        for typed in [
            "0123456789ABCDEF00112233445566FF",
            "01234567-89abcdef-00112233-445566ff",
            " 0123 4567 89ab cdef 0011 2233 4455 66ff\r\n",
            "O123456789abcdefoo112233445566ff",
            "0l23456789abcdef00I12233445566ff",
            "\u{feff}0123456789abcdef\u{2013}00112233445566ff",
            "０１２３４５６７８９ＡＢＣＤＥＦ00112233445566ff",
        ] {
            assert_eq!(BallotHash::of(typed), hash, "{typed:?}");
        }
        for other in [
            "",
            "0123456789abcdef00112233445566f",
            "0123456789abcdef00112233445566fe",
            "0123456789abcdef00112233445566ffz",
        ] {
            assert_ne!(BallotHash::of(other), hash, "{other:?}");
        }
    }
}
