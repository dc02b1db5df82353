//! Idempotency keys: a request that is sent again with its key has no second effect.

use sha2::{Digest as _, Sha256};

/// A SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Of these parts, one after the other. Each goes in with its length, so that no two lists of
    /// parts read alike.
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

/// A key under which a request has its effect once, and what is asked with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IdempotencyKey {
    /// Of what the key is for, and the key.
    pub key: Digest,
    /// Of what is asked.
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
