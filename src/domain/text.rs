//! Which characters of a text a reader sees.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization as _;

/// The characters that show nothing, besides blanks and control characters: those that Unicode calls
/// default-ignorable or formatting, and two that fonts leave empty. First and last of each range.
///
/// `values::VISIBLE` in `src/web/describe` and `migrations/functions/shown_name.sql` have the same list.
const UNSEEN: &[(char, char)] = &[
    // The soft hyphen.
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{61c}', '\u{61c}'),
    // Fillers of Hangul.
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    // Zero-width characters and marks of direction.
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    // Braille without a dot.
    ('\u{2800}', '\u{2800}'),
    ('\u{3164}', '\u{3164}'),
    // Variation selectors.
    ('\u{fe00}', '\u{fe0f}'),
    // The byte-order mark.
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d159}', '\u{1d159}'),
    ('\u{1d173}', '\u{1d17a}'),
    // Tags, and more variation selectors.
    ('\u{e0000}', '\u{e0fff}'),
];

/// Whether a character shows nothing: a blank, a control character, or one of [`UNSEEN`].
fn is_unseen(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_control() || character == ' ';
    }
    character.is_whitespace()
        || character.is_control()
        || UNSEEN
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&character))
}

/// Whether a reader sees nothing of this text. An empty text is one.
pub fn is_invisible(text: &str) -> bool {
    text.chars().all(is_unseen)
}

/// The text as a reader compares it: in Unicode's composed form (NFC), without characters that show
/// nothing, and with one space in place of each run of blanks. Case counts, because readers see it.
pub(super) fn shown(text: &str) -> String {
    let seen: String = text
        .nfc()
        .filter_map(|character| match character {
            blank if blank.is_whitespace() => Some(' '),
            unseen if is_unseen(unseen) => None,
            seen => Some(seen),
        })
        .collect();
    seen.split(' ')
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// A value from a file, a shell or an env file, without what such places add around it: a byte-order mark,
/// blanks and line ends, and one pair of quotes.
///
/// Only for values that never begin or end with any of these.
pub fn without_wrapping(text: &str) -> &str {
    let text = text.trim_start_matches('\u{feff}').trim();
    for quote in ['"', '\''] {
        let inner = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
        if let Some(inner) = inner {
            return inner.trim();
        }
    }
    text
}

/// What stands around a value that should not, in words; `None`: nothing.
pub fn wrapping(text: &str) -> Option<&'static str> {
    let is_quote = |character: char| matches!(character, '"' | '\'');
    if text.starts_with('\u{feff}') {
        Some("begins with a byte-order mark")
    } else if text.ends_with(['\r', '\n']) {
        Some("ends with a line break")
    } else if text.starts_with(char::is_whitespace) || text.ends_with(char::is_whitespace) {
        Some("begins or ends with a blank")
    } else if text.starts_with(is_quote) && text.ends_with(is_quote) {
        Some("stands in quotes, which an env file keeps")
    } else {
        None
    }
}

/// A code that people type, without what they type between its characters: blanks, dashes, and characters
/// that show nothing. Wide Latin letters and digits, as East Asian keyboards type them, become plain ones.
///
/// Borrowed if there was nothing to change.
pub(super) fn typed(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Cow::Borrowed(text);
    }
    let is_dash = |character: char| {
        matches!(
            character,
            '-' | '_' | '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' | '\u{ff0d}'
        )
    };
    text.chars()
        .filter(|character| !is_unseen(*character) && !is_dash(*character))
        .map(|character| match character {
            // The wide forms stand in the order of ASCII.
            '\u{ff01}'..='\u{ff5e}' => char::from_u32(character as u32 - 0xff01 + 0x21).unwrap_or(character),
            other => other,
        })
        .collect::<String>()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_invisible_if_a_reader_sees_nothing_of_it() {
        for unseen in [
            "",
            " \u{a0}\u{3000}\t",
            "\u{200b}\u{200d}\u{2060}\u{feff}",
            "\u{202e}\u{2066}\u{200f}\u{61c}",
            "\u{2028}\u{2029}",
            "\u{0}\u{1b}\u{9b}\u{7f}",
            "\u{3164}\u{115f}\u{ffa0}\u{2800}",
            "\u{fe0f}\u{e0041}\u{e0100}\u{ad}",
        ] {
            assert!(is_invisible(unseen), "{unseen:?}");
            assert!(!is_invisible(&format!("{unseen}x")), "{unseen:?}");
        }
        for seen in ["a", "é", "中", "🍕", "👩\u{200d}💻", "\u{301}", "."] {
            assert!(!is_invisible(seen), "{seen:?}");
        }
    }

    #[test]
    fn two_texts_that_look_the_same_compare_as_the_same() {
        for (one, other) in [
            ("Café", "Cafe\u{301}"),
            ("Soup", " Soup\u{a0} "),
            ("Soup of the day", "Soup  of\u{3000}the day"),
            ("Soup", "So\u{200b}up\u{feff}"),
            ("한국", "\u{1112}\u{1161}\u{11ab}\u{1100}\u{116e}\u{11a8}"),
        ] {
            assert_eq!(shown(one), shown(other), "{one:?} {other:?}");
        }
        for (one, other) in [("Soup", "soup"), ("Café", "Cafe"), ("a b", "ab"), ("1", "①")] {
            assert_ne!(shown(one), shown(other), "{one:?} {other:?}");
        }
    }

    #[test]
    fn what_files_and_shells_put_around_a_value_is_taken_away_or_named() {
        for wrapped in [
            "key\n",
            "key\r\n",
            "\u{feff}key",
            "\u{feff}key\r\n",
            "\"key\"",
            "'key'\n",
            "\" key \"",
            "\tkey ",
        ] {
            assert_eq!(without_wrapping(wrapped), "key", "{wrapped:?}");
            assert!(wrapping(wrapped).is_some(), "{wrapped:?}");
        }
        for plain in ["key", "\"key", "ke y", ""] {
            assert_eq!(without_wrapping(plain), plain);
            assert_eq!(wrapping(plain), None, "{plain:?}");
        }
    }

    #[test]
    fn what_people_type_between_the_characters_of_a_code_does_not_matter() {
        for text in [
            "ab12",
            "ab-12",
            " a b\u{a0}1 2 ",
            "ab\u{2013}12",
            "a\u{200b}b1\u{ad}2\r\n",
            "ａｂ－１２",
        ] {
            assert_eq!(typed(text), "ab12", "{text:?}");
        }
        assert!(matches!(typed("AB12"), Cow::Borrowed("AB12")));
    }
}
