//! Keys of HMAC-SHA-256, as settings give them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use ring::hmac;

/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// The most keys: the one in use, and earlier ones.
const SECRET_KEYS_LIMIT: usize = 8;

/// The secret key in use, and earlier ones. Cheap to clone.
#[derive(Clone)]
pub struct SecretKeys(Arc<[hmac::Key]>);

/// Reads keys of 64 hexadecimal digits each, separated by commas. The first is in use.
impl FromStr for SecretKeys {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // What files, shells and env files put around a key, or around all of them.
        let is_wrapping = |one: char| one.is_whitespace() || matches!(one, '"' | '\'' | '\u{feff}');
        let keys: Option<Vec<hmac::Key>> = text
            .split(',')
            .map(|key| read(key.trim_matches(is_wrapping)))
            .collect();
        match keys {
            Some(keys) if keys.len() <= SECRET_KEYS_LIMIT => Ok(Self(keys.into())),
            // The message does not repeat the input: that is a secret.
            _ => Err(format!(
                "it takes up to {SECRET_KEYS_LIMIT} keys, separated by commas, of {} hexadecimal digits each, as `openssl rand -hex {KEY_BYTES}` makes them",
                2 * KEY_BYTES
            )),
        }
    }
}

fn read(text: &str) -> Option<hmac::Key> {
    if text.len() != 2 * KEY_BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; KEY_BYTES];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

impl fmt::Debug for SecretKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SecretKeys({} keys)", self.0.len())
    }
}

impl SecretKeys {
    /// The signature of a text by the key in use.
    pub fn sign(&self, text: &[u8]) -> Option<hmac::Tag> {
        self.signatures(text).next()
    }

    /// The signatures of a text by each key, the key in use first.
    pub fn signatures(&self, text: &[u8]) -> impl Iterator<Item = hmac::Tag> {
        self.0.iter().map(move |key| hmac::sign(key, text))
    }

    /// The index of the key that made this signature; `None`: none did. Compares in constant time.
    pub fn signer(&self, text: &[u8], signature: &[u8]) -> Option<usize> {
        self.0
            .iter()
            .position(|key| hmac::verify(key, text, signature).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_list_of_keys_is_refused_without_repeating_it() {
        let nine = vec!["ab".repeat(32); 9].join(",");
        for wrong in [
            "",
            "secret",
            &"ab".repeat(31),
            &"ab".repeat(33),
            &"xy".repeat(32),
            &nine,
        ] {
            let error = wrong.parse::<SecretKeys>().expect_err("no keys");
            assert!(wrong.is_empty() || !error.contains(wrong), "{error}");
        }
        assert!(nine[..8 * 65 - 1].parse::<SecretKeys>().is_ok(), "eight");
        let one = "ab".repeat(32);
        for wrapped in [
            format!("\u{feff}{one}\r\n"),
            format!("\"{one},{one}\""),
            format!("'{one}', '{one}'"),
        ] {
            assert!(wrapped.parse::<SecretKeys>().is_ok(), "{wrapped:?}");
        }
        let keys: SecretKeys = "a".repeat(64).parse().expect("a key");
        assert!(!format!("{keys:?}").contains("aaaa"));
    }
}
