//! Names and keys: what people and frontends call items and polls.

use std::collections::HashSet;

use serde::Serialize;

use super::text;

/// An item's name: 1 to 200 characters, at least one of which a reader sees, no control characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ItemName(String);

/// Why a text is no item's name. The message fits whatever has the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidItemName {
    #[error("is empty; it takes 1 to {} characters", ItemName::LIMIT_CHARACTERS)]
    Empty,
    #[error("has {0} characters; it takes at most {limit}", limit = ItemName::LIMIT_CHARACTERS)]
    TooLong(usize),
    #[error("has a control character; it takes printable characters")]
    Control,
    #[error("has only characters that nobody can see; it takes a visible one")]
    Invisible,
}

impl ItemName {
    /// migrations/0001_items.sql has the same limit.
    pub const LIMIT_CHARACTERS: usize = 200;

    /// Checks a name.
    ///
    /// # Errors
    /// When the text is too long, has a control character, or has nothing that a reader sees.
    pub fn parse(text: String) -> Result<Self, InvalidItemName> {
        if text.trim().is_empty() {
            return Err(InvalidItemName::Empty);
        }
        let characters = text.chars().count();
        if characters > Self::LIMIT_CHARACTERS {
            return Err(InvalidItemName::TooLong(characters));
        }
        if text.chars().any(char::is_control) {
            return Err(InvalidItemName::Control);
        }
        if text::is_invisible(&text) {
            return Err(InvalidItemName::Invisible);
        }
        Ok(Self(text))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first of these names that looks like an earlier one: the same but for Unicode's form, blanks, and
    /// characters that show nothing. `None`: all of them differ.
    pub fn first_repeat(names: &[Self]) -> Option<&Self> {
        let mut seen = HashSet::new();
        names.iter().find(|name| !seen.insert(text::shown(&name.0)))
    }
}

/// The frontend's own key of an item or a poll. It has 1 to 200 bytes of UTF-8 without control
/// characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct ItemKey(String);

/// Why a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidItemKey {
    #[error("key is empty; it takes 1 to {} bytes", ItemKey::LIMIT_BYTES)]
    Empty,
    #[error("key has {0} bytes; it takes at most {limit}", limit = ItemKey::LIMIT_BYTES)]
    TooLong(usize),
    #[error("key has a control character; it takes printable characters")]
    Control,
}

impl ItemKey {
    /// migrations/0001_items.sql has the same limit.
    pub const LIMIT_BYTES: usize = 200;

    /// Checks a key.
    ///
    /// # Errors
    /// When the text is empty, too long, or has a control character.
    pub fn parse(text: String) -> Result<Self, InvalidItemKey> {
        if text.is_empty() {
            return Err(InvalidItemKey::Empty);
        }
        if text.len() > Self::LIMIT_BYTES {
            return Err(InvalidItemKey::TooLong(text.len()));
        }
        if text.chars().any(char::is_control) {
            return Err(InvalidItemKey::Control);
        }
        Ok(Self(text))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The beginning of own keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ItemKeyPrefix(ItemKey);

impl ItemKeyPrefix {
    /// Checks a prefix. It follows the rules for a key.
    ///
    /// # Errors
    /// As [`ItemKey::parse`].
    pub fn parse(text: String) -> Result<Self, InvalidItemKey> {
        ItemKey::parse(text).map(Self)
    }

    /// The text, which is the first of the keys that may begin with it.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The first text behind all those that begin with the prefix, byte by byte. `None`: there is none.
    pub fn end(&self) -> Option<String> {
        let mut end: Vec<char> = self.as_str().chars().collect();
        // Bytes of UTF-8 have the order of the characters.
        while let Some(last) = end.pop() {
            if let Some(next) = (last..=char::MAX).nth(1) {
                end.push(next);
                return Some(end.into_iter().collect());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_with_a_prefix_lies_between_it_and_its_end() {
        let prefix = |text: &str| ItemKeyPrefix::parse(text.to_owned()).expect("a prefix");
        for (text, end) in [
            ("post-", Some("post.")),
            ("é", Some("ê")),
            // No character lies between these two.
            ("\u{d7ff}", Some("\u{e000}")),
            ("a\u{10ffff}", Some("b")),
            ("\u{10ffff}\u{10ffff}", None),
        ] {
            assert_eq!(prefix(text).end().as_deref(), end, "{text:?}");
        }
        for inside in ["post-", "post-1", "post-\u{10ffff}\u{10ffff}"] {
            assert!(("post-".."post.").contains(&inside), "{inside:?}");
        }
        assert!(ItemKeyPrefix::parse(String::new()).is_err());
    }

    #[test]
    fn an_item_key_has_1_to_200_bytes_and_no_control_characters() {
        assert!(ItemKey::parse("é".repeat(100)).is_ok());
        assert_eq!(ItemKey::parse("é".repeat(101)), Err(InvalidItemKey::TooLong(202)));
        assert_eq!(ItemKey::parse(String::new()), Err(InvalidItemKey::Empty));
        assert_eq!(ItemKey::parse("a\n".to_owned()), Err(InvalidItemKey::Control));
    }

    #[test]
    fn an_item_name_has_1_to_200_characters_of_any_length_in_bytes() {
        assert!(ItemName::parse("é".repeat(200)).is_ok());
        assert_eq!(
            ItemName::parse("é".repeat(201)),
            Err(InvalidItemName::TooLong(201))
        );
        assert_eq!(ItemName::parse(String::new()), Err(InvalidItemName::Empty));
        assert_eq!(ItemName::parse("  ".into()), Err(InvalidItemName::Empty));
        assert_eq!(ItemName::parse("a\0b".into()), Err(InvalidItemName::Control));
        for unseen in ["\u{200b}", "\u{202e} \u{feff}", "\u{3164}"] {
            assert_eq!(ItemName::parse(unseen.into()), Err(InvalidItemName::Invisible));
        }
    }

    #[test]
    fn a_name_that_looks_like_an_earlier_one_is_found() {
        let names = |texts: &[&str]| -> Vec<ItemName> {
            let names = texts.iter().map(|text| ItemName::parse((*text).to_owned()));
            names.map(|name| name.expect("a name")).collect()
        };
        let repeat = |texts: &[&str]| ItemName::first_repeat(&names(texts)).map(|name| name.0.clone());
        assert_eq!(repeat(&["Soup", "soup", "Salad"]), None);
        assert_eq!(repeat(&["Soup", "Salad", "Soup"]), Some("Soup".to_owned()));
        assert_eq!(
            repeat(&["Café", "x", "Cafe\u{301} "]),
            Some("Cafe\u{301} ".to_owned())
        );
    }
}
