//! Idempotency keys: a retry with the same key has no second effect.

use sha2::{Digest as _, Sha256};

/// A SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of these parts, in order. Each part goes in with its length, so that no two lists
    /// of parts read alike.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A key under which a request takes effect once, and what is asked with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IdempotencyKey {
    /// The digest of the key's purpose and the key.
    pub key: Digest,
    /// The digest of what is asked.
    pub body: Digest,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_are_cut_otherwise_have_another_digest() {
        assert_ne!(Digest::of(&[b"ab", b"c"]), Digest::of(&[b"a", b"bc"]));
        assert_ne!(Digest::of(&[b"a"]), Digest::of(&[b"a", b""]));
        assert_eq!(Digest::of(&[b"a", b"b"]), Digest::of(&[b"a", b"b"]));
    }
}
