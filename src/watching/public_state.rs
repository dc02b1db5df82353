//! The public state of an item or a poll, and its fingerprint.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

/// The public state of an item or a poll, as JSON.
#[derive(Clone, Debug)]
pub struct PublicState {
    pub text: Arc<str>,
    pub fingerprint: Fingerprint,
}

impl PublicState {
    /// A state with this text. `compared` is the part of the text that matters to clients: two
    /// texts with the same part count as equal.
    pub fn new(text: String, compared: &str) -> Self {
        Self {
            text: text.into(),
            fingerprint: Fingerprint::of(compared),
        }
    }
}

/// Stands for a state that was shown. It depends only on what is shown, so each server gives the
/// same state the same fingerprint, and a fingerprint tells nothing about what is hidden. Two
/// states have the same one by a chance of 1 in 2^48.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint([u8; 6]);

impl Fingerprint {
    /// Characters of a fingerprint in text: six bits each.
    pub const CHARACTERS: usize = 8;

    fn of(text: &str) -> Self {
        let mut first = [0; 6];
        first.copy_from_slice(&Sha256::digest(text)[..6]);
        Self(first)
    }

    /// Appends the fingerprint to a text.
    pub fn write(self, text: &mut String) {
        URL_SAFE_NO_PAD.encode_string(self.0, text);
    }

    /// Reads the fingerprints in a text, if there are `total`.
    pub fn read(text: &[u8], total: usize) -> Option<Vec<Self>> {
        if text.len() != total * Self::CHARACTERS {
            return None;
        }
        let read = |part| {
            let mut bytes = [0; 6];
            let length = URL_SAFE_NO_PAD.decode_slice(part, &mut bytes).ok()?;
            (length == bytes.len()).then_some(Self(bytes))
        };
        text.chunks(Self::CHARACTERS).map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_read_as_they_were_written_and_nothing_else_is_read() {
        let written = [Fingerprint::of("a"), Fingerprint::of("b"), Fingerprint::default()];
        let mut text = String::new();
        written.iter().for_each(|one| one.write(&mut text));
        assert_eq!(text.len(), 3 * Fingerprint::CHARACTERS);
        assert_eq!(Fingerprint::read(text.as_bytes(), 3), Some(written.to_vec()));
        for (wrong, total) in [
            (text.as_str(), 2),
            ("", 1),
            ("\u{e9}aaaaaa", 1),
            ("aaaa====", 1),
            ("aaaa+aaa", 1),
            ("1", 1),
        ] {
            assert_eq!(Fingerprint::read(wrong.as_bytes(), total), None, "{wrong}");
        }
    }
}
