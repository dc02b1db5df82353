//! Text in HTML, escaped.

use std::fmt::{self, Display, Write as _};

/// The content type of a page.
pub(in crate::web) const HTML: &str = "text/html; charset=utf-8";

/// Text in HTML.
pub(in crate::web) struct Escaped<'a>(pub(in crate::web) &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => out.write_str("&amp;")?,
                '<' => out.write_str("&lt;")?,
                '>' => out.write_str("&gt;")?,
                '"' => out.write_str("&quot;")?,
                '\'' => out.write_str("&#39;")?,
                other => out.write_char(other)?,
            }
        }
        Ok(())
    }
}

/// Text with `code` in back quotes, as in descriptions.
pub(in crate::web) struct Prose<'a>(pub(in crate::web) &'a str);

impl Display for Prose<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, part) in self.0.split('`').enumerate() {
            match at % 2 {
                0 => write!(out, "{}", Escaped(part))?,
                _ => write!(out, "<code>{}</code>", Escaped(part))?,
            }
        }
        Ok(())
    }
}

/// A text's paragraphs.
pub(in crate::web) struct Paragraphs<'a>(pub(in crate::web) &'a str);

impl Display for Paragraphs<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self
            .0
            .split("\n\n")
            .map(str::trim)
            .filter(|text| !text.is_empty());
        all.into_iter()
            .try_for_each(|text| writeln!(out, "<p>{}</p>", Prose(text)))
    }
}

/// Code in HTML.
pub(in crate::web) struct Code(pub(in crate::web) String);

impl Display for Code {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "<code>{}</code>", Escaped(&self.0))
    }
}

/// Fills a template: replaces each `{{name}}` by the HTML that `value` returns. This HTML is not searched for
/// names again.
pub(in crate::web) fn fill(template: &str, value: impl Fn(&str) -> String) -> String {
    let mut filled = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, named)) = rest.split_once("{{")
        && let Some((name, after)) = named.split_once("}}")
    {
        filled.push_str(before);
        filled.push_str(&value(name));
        rest = after;
    }
    filled + rest
}

/// Removes the addresses of links from Markdown.
pub(in crate::web) fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        plain.push_str(before);
        match link
            .split_once("](")
            .and_then(|(name, after)| Some((name, after.split_once(')')?.1)))
        {
            Some((name, after)) => {
                plain.push_str(name);
                rest = after;
            }
            None => {
                plain.push('[');
                rest = link;
            }
        }
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_markup_in_a_text_is_none_on_the_page() {
        let text = "a < b & \"c\" > 'd' `<script>`";
        assert_eq!(
            Prose(text).to_string(),
            "a &lt; b &amp; &quot;c&quot; &gt; &#39;d&#39; <code>&lt;script&gt;</code>"
        );
    }

    #[test]
    fn what_fills_a_template_is_not_filled_itself() {
        let value = |name: &str| match name {
            "a" => "{{b}}".to_owned(),
            _ => "2".to_owned(),
        };
        assert_eq!(fill("{{a}} {{b}} {{", value), "{{b}} 2 {{");
    }

    #[test]
    fn a_link_leaves_its_name() {
        assert_eq!(
            without_links("see [the draft](https://x/y), or [that] [one"),
            "see the draft, or [that] [one"
        );
    }
}
