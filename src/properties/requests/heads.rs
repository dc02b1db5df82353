//! What stands in the paths and the headers of requests.

use super::{is_printable, is_proper};
use crate::domain::{ItemId, VoterId};
use crate::watching::Fingerprint;
use crate::web::parsing;

/// A voter in a path.
pub fn path_voter(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match parsing::voter(text) {
        Ok(voter) => is_printable(voter.as_str(), voter.as_str().len(), VoterId::LIMIT_BYTES),
        Err(refusal) => is_proper(&refusal),
    }
}

/// An item in a path: an id, or a key.
pub fn path_item(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Err(refusal) = parsing::item_reference(text) {
        is_proper(&refusal);
    }
}

/// The header Idempotency-Key.
pub fn idempotency_key(bytes: &[u8]) {
    match parsing::idempotency_key(bytes) {
        Ok(key) => is_printable(&key, key.len(), 255),
        Err(refusal) => is_proper(&refusal),
    }
}

/// The header Authorization.
pub fn authorization(bytes: &[u8]) {
    let Some(text) = parsing::authorization(bytes) else {
        return;
    };
    is_printable(text, text.len(), bytes.len());
    assert!(!text.contains([' ', ',', ';']));
    assert!(bytes.windows(text.len()).any(|part| part == text.as_bytes()));
    assert_eq!(
        parsing::authorization(format!("Bearer {text}").as_bytes()),
        Some(text)
    );
}

/// The headers Host and Origin, with a line feed between them.
pub fn origin(bytes: &[u8]) {
    const ALLOWED: &str = "https://news.example.org";
    let (host, origin) = match bytes.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (&b"votes.example.org"[..], bytes),
    };
    let allowed = ALLOWED.parse().expect("an origin");
    if parsing::may_write(&allowed, host, origin) != Some(true) {
        return;
    }
    // The allowed origin, or a scheme and the host unchanged.
    let host = host.to_ascii_lowercase();
    let is_own = [&b"http://"[..], b"https://"].iter().any(|scheme| {
        let own: Vec<u8> = [scheme, host.as_slice()].concat();
        own == origin.to_ascii_lowercase()
    });
    assert!(is_own || origin == ALLOWED.as_bytes(), "{origin:?}");
}

/// The header Last-Event-ID. It reads as exactly as many fingerprints as asked for, or as none.
pub fn last_event_id(bytes: &[u8]) {
    let total = bytes.len() / Fingerprint::CHARACTERS;
    if let Some(read) = Fingerprint::read(bytes, total) {
        assert_eq!(read.len(), total);
        let mut text = String::new();
        read.iter().for_each(|one| one.write(&mut text));
        assert_eq!(text.as_bytes(), bytes, "one spelling each");
    }
}

/// An item's id in a path.
pub fn item_id(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match text.parse::<ItemId>() {
        Ok(id) => {
            assert!(id.get() > 0);
            // Each id has one spelling.
            assert_eq!(id.to_string(), text);
        }
        Err(()) => {
            let number = text.parse::<i64>();
            assert!(
                !number.is_ok_and(|id| id > 0 && id.to_string() == text),
                "{text:?}"
            );
        }
    }
}
