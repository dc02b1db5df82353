//! `/problems`: what each problem type means. docs/PROBLEMS.md, embedded in the binary.

use actix_web::{HttpRequest, HttpResponse};

use super::pages::file;
use crate::http::problem::Problem;

const DOCUMENT: &str = include_str!("../../../docs/PROBLEMS.md");
const CONTENT_TYPE: &str = "text/markdown; charset=utf-8";
/// What begins a section; a slug follows.
const HEADING: &str = "## ";

/// Shows the whole document.
pub async fn list() -> HttpResponse {
    file(CONTENT_TYPE, DOCUMENT)
}

/// Shows the section of one problem type.
pub async fn show(request: HttpRequest) -> Result<HttpResponse, Problem> {
    let slug = request.match_info().query("slug");
    match sections().find(|(heading, _)| *heading == slug) {
        Some((_, text)) => Ok(file(CONTENT_TYPE, text)),
        None => Err(Problem::not_found(request.path())),
    }
}

/// Each section: its slug, and its text from the heading on.
fn sections() -> impl Iterator<Item = (&'static str, &'static str)> {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::http::problem::Kind;

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
