//! Text from elsewhere, as a terminal or a log may show it: what a server answers, what a file or the database
//! has, what a library says.

use std::fmt::{self, Write};

/// Shows a text in one line, without what would move a terminal's cursor, end the line, or turn around the
/// order of what stands beside it. Those characters are written as `\u001b`, as in JSON. So JSON stays JSON,
/// with the same meaning.
///
/// Whatever a program prints of foreign text goes through it.
pub struct Plain<T>(pub T);

impl<T: fmt::Display> fmt::Display for Plain<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            Escaping {
                out,
                lines: Lines::Escaped
            },
            "{}",
            self.0
        )
    }
}

/// Shows a text of several lines in the same way. Line feeds and tabs stay.
pub(super) struct PlainLines<T>(pub T);

impl<T: fmt::Display> fmt::Display for PlainLines<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            Escaping {
                out,
                lines: Lines::Kept
            },
            "{}",
            self.0
        )
    }
}

/// What becomes of line feeds and tabs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lines {
    Escaped,
    Kept,
}

/// Escapes what is written through it.
struct Escaping<'a, W> {
    out: &'a mut W,
    lines: Lines,
}

impl<W: Write> Write for Escaping<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        let is_escaped =
            |character| acts(character) && !(self.lines == Lines::Kept && matches!(character, '\n' | '\t'));
        while let Some(at) = rest.find(is_escaped) {
            let (before, found) = rest.split_at(at);
            self.out.write_str(before)?;
            let mut characters = found.chars();
            match characters.next() {
                Some('\n') => self.out.write_str("\\n")?,
                Some('\r') => self.out.write_str("\\r")?,
                Some('\t') => self.out.write_str("\\t")?,
                // All of them have four digits.
                Some(other) => write!(self.out, "\\u{:04x}", u32::from(other))?,
                None => {}
            }
            rest = characters.as_str();
        }
        self.out.write_str(rest)
    }
}

/// Whether a character does something instead of showing something: control characters, line separators, marks
/// that change the direction of text, and the byte-order mark. Joiners stay, because words and emoji need
/// them.
fn acts(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_control();
    }
    matches!(character,
        '\u{80}'..='\u{9f}'
        | '\u{61c}'
        | '\u{200e}' | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What would act on a terminal: colours, the title, C1, line ends, the order of text.
    const ACTING: &str =
        "a\u{1b}[31m\u{9b}2J\u{7}\n\r\t\u{85}\u{2028}\u{202e}\u{2066}\u{61c}\u{200f}\u{feff}b";

    #[test]
    fn foreign_text_is_one_line_that_does_nothing() {
        assert_eq!(
            Plain(ACTING).to_string(),
            "a\\u001b[31m\\u009b2J\\u0007\\n\\r\\t\\u0085\\u2028\\u202e\\u2066\\u061c\\u200f\\ufeffb"
        );
        for text in ["", "größe", "👩\u{200d}💻 می\u{200c}خواهم", "東京 \\ \"x\""] {
            assert_eq!(Plain(text).to_string(), text);
        }
        assert_eq!(PlainLines("a\n\tb\r\u{1b}").to_string(), "a\n\tb\\r\\u001b");
        // Also if it is written in pieces.
        assert_eq!(
            Plain(format_args!("{}{}", "\u{1b}", '\u{9b}')).to_string(),
            "\\u001b\\u009b"
        );
    }

    #[test]
    fn json_stays_json_with_the_same_meaning() {
        let value = serde_json::json!({ ACTING: [ACTING, 1, null] });
        let shown = Plain(&value).to_string();
        assert!(shown.chars().all(|character| !acts(character)), "{shown}");
        let read: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        assert_eq!(read, value);
    }
}
