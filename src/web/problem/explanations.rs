//! docs/problems.md, embedded in the binary: what each problem type means.

use serde_json::{Value, json};

use crate::web::problem::Kind;

/// The whole document in Markdown.
pub(in crate::web) const DOCUMENT: &str = include_str!("../../../docs/problems.md");
/// The beginning of a section's heading. The slug follows.
const HEADING: &str = "## ";
/// The beginning of the paragraph that says what would be right.
const RIGHT: &str = "Right: ";

/// Returns each section: its slug, and its text with the heading.
pub(in crate::web) fn sections() -> impl Iterator<Item = (&'static str, &'static str)> {
    let starts = || {
        DOCUMENT
            .match_indices(HEADING)
            .map(|(at, _)| at)
            .filter(|at| DOCUMENT[..*at].ends_with('\n'))
    };
    let ends = starts().skip(1).chain([DOCUMENT.len()]);
    starts().zip(ends).map(|(start, end)| {
        let text = DOCUMENT[start..end].trim_end();
        let heading = text.lines().next().unwrap_or_default();
        (heading.trim_start_matches(HEADING), text)
    })
}

/// Returns the paragraphs of a problem type's section.
fn paragraphs(kind: Kind) -> impl Iterator<Item = &'static str> {
    let section = sections().find(|(slug, _)| *slug == kind.slug());
    section.map_or("", |(_, text)| text).split("\n\n")
}

/// Returns the meaning of a problem type: the first paragraph after its status.
pub(in crate::web) fn meaning(kind: Kind) -> &'static str {
    paragraphs(kind).nth(2).unwrap_or_default()
}

/// Returns an example of a problem type, from its section or made from the section's "Right".
pub(in crate::web) fn example(kind: Kind) -> Value {
    let lines = paragraphs(kind).flat_map(str::lines);
    let example = lines
        .filter(|line| line.starts_with('{'))
        .find_map(|line| serde_json::from_str(line).ok());
    example.unwrap_or_else(|| {
        let right = paragraphs(kind).find_map(|text| text.strip_prefix(RIGHT));
        json!({
            "type": kind.address(),
            "title": kind.title(),
            "status": kind.status().as_u16(),
            "detail": format!("It takes {}", right.unwrap_or_default().trim_end()),
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_problem_type_has_its_section_and_each_section_its_type() {
        let headings: Vec<&str> = sections().map(|(heading, _)| heading).collect();
        let types: Vec<&str> = Kind::ALL.iter().map(|kind| kind.slug()).collect();
        assert_eq!(headings, types, "in the order of the table, each once");
        assert_eq!(types.iter().collect::<BTreeSet<_>>().len(), types.len());
    }

    #[test]
    fn each_section_says_its_types_status_and_title_and_what_would_be_right() {
        for ((_, text), kind) in sections().zip(Kind::ALL) {
            let first = format!("Status {}, title \"{}\".", kind.status().as_u16(), kind.title());
            assert_eq!(text.lines().nth(2), Some(&*first), "{}", kind.slug());
            assert!(text.contains("\nRight: "), "{}", kind.slug());
        }
    }

    #[test]
    fn each_example_in_a_section_is_of_its_type() {
        let mut examples = 0;
        for ((_, text), kind) in sections().zip(Kind::ALL) {
            for line in text.lines().filter(|line| line.starts_with('{')) {
                let body: serde_json::Value = serde_json::from_str(line).expect(line);
                assert_eq!(
                    (&body["type"], &body["title"], &body["status"]),
                    (
                        &kind.address().into(),
                        &kind.title().into(),
                        &kind.status().as_u16().into()
                    ),
                    "{line}"
                );
                examples += 1;
            }
        }
        assert!(examples > 5, "{examples}");
    }
}
