//! What the documents name exists: files, headings, paths, targets, modules.
//!
//! Each test lists all faults of its kind at once. The parser knows the Markdown that the documents
//! use: code blocks, code spans, inline links, headings that begin with `#`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The most bytes of a page, so that it stays a page for one reader.
const PAGE_LIMIT_BYTES: usize = 20 * 1024;
/// A path in a code span begins with one of these folders.
const FOLDERS: [&str; 15] = [
    ".ci/",
    "benches/",
    "clients/",
    "deploy/",
    "docs/",
    "examples/",
    "fuzz/",
    "lua/",
    "migrations/",
    "scripts/",
    "src/",
    "target/",
    "testkit/",
    "tests/",
    "tools/",
];
/// Folders that hold no documents of the project.
const FOREIGN: [&str; 4] = ["target", "node_modules", "dist", "test-results"];
/// Where the names of settings and metrics come from.
const SOURCES: [&str; 10] = [
    "Makefile",
    "benches",
    "clients/typescript/src",
    "docker-compose.yml",
    "examples",
    "migrations",
    "scripts",
    "src",
    "testkit",
    "tests",
];
/// Names that a document makes up in an example.
const EXAMPLES: [&str; 1] = ["tally_restored"];
/// What Prometheus adds to the name of a histogram.
const HISTOGRAM_ENDS: [&str; 3] = ["_bucket", "_count", "_sum"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All files in this folder and below, but those of hidden and foreign folders.
fn files(folder: &Path) -> Vec<PathBuf> {
    if folder.is_file() {
        return vec![folder.to_owned()];
    }
    let entries = std::fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| !name.starts_with('.') && !FOREIGN.contains(&name))
    };
    paths.filter(is_ours).flat_map(|path| files(&path)).collect()
}

/// A document, and what a reader of it may follow.
#[derive(Debug, Default, PartialEq)]
struct Document {
    /// From the root of the repository.
    path: String,
    bytes: usize,
    /// The anchors of its headings, by GitHub's rules.
    anchors: BTreeSet<String>,
    /// The targets of its links.
    links: Vec<String>,
    /// Its code spans, without the backticks.
    spans: Vec<String>,
    /// The lines of its code blocks.
    code: Vec<String>,
}

impl Document {
    fn parse(path: &str, text: &str) -> Self {
        let mut document = Self {
            path: path.to_owned(),
            bytes: text.len(),
            ..Self::default()
        };
        let mut repeats = BTreeMap::new();
        let mut is_code = false;
        for line in text.lines() {
            if line.trim_start().starts_with("```") {
                is_code = !is_code;
            } else if is_code {
                document.code.push(line.to_owned());
            } else {
                document.add_line(line, &mut repeats);
            }
        }
        assert!(!is_code, "{path}: a code block does not end");
        document
    }

    fn add_line(&mut self, line: &str, repeats: &mut BTreeMap<String, usize>) {
        let (prose, spans) = without_spans(line);
        self.spans.extend(spans);
        self.links.extend(links(&prose));
        let heading = line.trim_start_matches('#');
        if line.starts_with('#') && heading.starts_with(' ') {
            let anchor = anchor(heading.trim());
            let before = repeats.entry(anchor.clone()).or_insert(0);
            self.anchors.insert(match *before {
                0 => anchor,
                repeat => format!("{anchor}-{repeat}"),
            });
            *before += 1;
        }
    }

    /// The path of a link's target from the repository's root; `None`: it is outside.
    fn target(&self, link: &str) -> Option<String> {
        let folder = Path::new(&self.path).parent().expect("a file is in a folder");
        let mut parts: Vec<&str> = folder.iter().filter_map(|part| part.to_str()).collect();
        for part in link.split('/') {
            match part {
                "" | "." => {}
                ".." => _ = parts.pop()?,
                part => parts.push(part),
            }
        }
        Some(parts.join("/"))
    }
}

/// A line with each code span emptied, and the spans.
fn without_spans(line: &str) -> (String, Vec<String>) {
    let (mut prose, mut spans) = (String::new(), Vec::new());
    let mut rest = line;
    while let Some(start) = rest.find('`') {
        let ticks = rest[start..].len() - rest[start..].trim_start_matches('`').len();
        let (before, after) = (&rest[..start], &rest[start + ticks..]);
        let Some(end) = after.find(&"`".repeat(ticks)) else {
            break;
        };
        spans.push(after[..end].to_owned());
        prose += before;
        prose += "``";
        rest = &after[end + ticks..];
    }
    prose += rest;
    (prose, spans)
}

/// The targets of the inline links of a line without code spans.
fn links(prose: &str) -> Vec<String> {
    let targets = prose.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split_once(')'));
    // A title may stand behind the target.
    targets
        .filter_map(|(target, _)| target.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

/// The anchor that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    // Only the text of a link counts.
    let mut text = String::new();
    let mut rest = heading;
    while let Some((before, after)) = rest.split_once("](") {
        text += &before.replacen('[', "", 1);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text += rest;
    text.to_lowercase()
        .chars()
        .filter(|one| one.is_alphanumeric() || matches!(one, ' ' | '-' | '_'))
        .map(|one| if one == ' ' { '-' } else { one })
        .collect()
}

fn documents() -> Vec<Document> {
    let files = files(root());
    let pages = files
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let documents: Vec<Document> = pages
        .map(|path| {
            let path = path.strip_prefix(root()).expect("below the root");
            let path = path.to_str().expect("a path in Unicode");
            Document::parse(path, &read(path))
        })
        .collect();
    assert!(documents.len() > 10, "documents are found");
    documents
}

fn assert_none(faults: Vec<String>) {
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
}

#[test]
fn every_link_leads_to_a_file_and_to_a_heading_of_it() {
    let documents = documents();
    let anchors: BTreeMap<&str, &BTreeSet<String>> = documents
        .iter()
        .map(|document| (document.path.as_str(), &document.anchors))
        .collect();
    let (mut faults, mut followed) = (Vec::new(), 0);
    for document in &documents {
        for link in &document.links {
            let is_elsewhere = link.contains("://") || link.starts_with("mailto:") || link.starts_with('/');
            if is_elsewhere {
                continue;
            }
            followed += 1;
            let (file, fragment) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => Some(document.path.clone()),
                file => document.target(file),
            };
            let Some(target) = target.filter(|target| root().join(target).exists()) else {
                faults.push(format!("{}: ({link}): no such file", document.path));
                continue;
            };
            let has = |of: &&&BTreeSet<String>| of.contains(fragment);
            if !fragment.is_empty() && anchors.get(&*target).filter(has).is_none() {
                faults.push(format!("{}: ({link}): no such heading", document.path));
            }
        }
    }
    assert!(followed > 100, "{followed} links are followed");
    assert_none(faults);
}

#[test]
fn every_path_in_a_code_span_exists() {
    let (mut faults, mut seen) = (Vec::new(), 0);
    for document in documents() {
        let folder = Path::new(&document.path).parent().expect("a folder");
        for word in document.spans.iter().flat_map(|span| span.split_whitespace()) {
            let word = word.trim_matches(|one| matches!(one, ',' | ':' | ';' | '\'' | '"' | '(' | ')'));
            // Files that a build makes are not there before.
            if !FOLDERS.iter().any(|folder| word.starts_with(folder)) || word.starts_with("target/") {
                continue;
            }
            seen += 1;
            // A path that stands for several files: its folder must exist.
            let certain = match word.find(['*', '<', '{', '…']) {
                Some(at) => word[..at].rsplit_once('/').map_or("", |(folder, _)| folder),
                None => word,
            };
            let is_there = |from: &Path| from.join(certain).exists();
            if !is_there(root()) && !is_there(&root().join(folder)) {
                faults.push(format!("{}: `{word}` does not exist", document.path));
            }
        }
    }
    assert!(seen > 30, "{seen} paths are seen");
    assert_none(faults);
}

#[test]
fn no_page_is_too_long() {
    let documents = documents().into_iter();
    let faults = documents.filter(|document| document.bytes > PAGE_LIMIT_BYTES);
    let faults = faults.map(|Document { path, bytes, .. }| {
        format!("{path}: has {bytes} bytes; a page has at most {PAGE_LIMIT_BYTES}")
    });
    assert_none(faults.collect());
}

#[test]
fn every_problem_type_in_the_rules_has_its_section() {
    let problems = Document::parse("docs/problems.md", &read("docs/problems.md"));
    let rules = read("docs/rules.md");
    let (_, table) = rules
        .split_once("| status | `type`")
        .expect("the table of problem types");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let types: Vec<String> = rows
        .filter_map(|row| row.split('|').nth(2))
        .flat_map(|cell| without_spans(cell).1)
        .collect();
    assert!(types.len() > 20, "{types:?}");
    let faults = types.iter().filter(|slug| !problems.anchors.contains(*slug));
    assert_none(faults.map(|slug| format!("docs/rules.md: {slug}")).collect());
}

/// The modules that `src/lib.rs` makes public, in its order.
fn modules() -> Vec<String> {
    let source = read("src/lib.rs");
    let (always, _) = source
        .split_once("#[cfg(")
        .expect("what is for tests stands last");
    let lines = always.lines().filter_map(|line| line.strip_prefix("pub mod "));
    let modules: Vec<String> = lines.map(|line| line.trim_end_matches(';').to_owned()).collect();
    assert!(modules.len() > 10, "{modules:?}");
    modules
}

/// The text below this heading, up to the next one.
fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let (_, rest) = text
        .split_once(heading)
        .unwrap_or_else(|| panic!("no {heading:?}"));
    rest.split("\n## ").next().unwrap_or_default()
}

#[test]
fn the_order_of_the_modules_is_that_of_the_library() {
    let development = read("docs/development.md");
    let rows = section(&development, "\n## Modules\n").lines();
    let rows = rows.filter(|line| line.starts_with("| `"));
    let table: Vec<String> = rows
        .flat_map(|row| without_spans(row.split('|').nth(1).unwrap_or_default()).1)
        .collect();
    assert_eq!(table, modules(), "docs/development.md");

    let architecture = read("ARCHITECTURE.md");
    let mut lines = section(&architecture, "\n## The map\n").lines();
    let list = lines
        .find(|line| line.starts_with('`'))
        .expect("the list of modules");
    assert_eq!(without_spans(list).1, modules(), "ARCHITECTURE.md");
}

/// The targets of a command: its words after `make`, without variables.
fn targets(command: &str) -> impl Iterator<Item = &str> {
    let words = command
        .strip_prefix("make ")
        .unwrap_or_default()
        .split_whitespace();
    let words = words.take_while(|word| !matches!(*word, "#" | "&&" | "|" | ";"));
    words.filter(|word| word.chars().all(|one| one.is_ascii_lowercase() || one == '-'))
}

#[test]
fn every_target_that_the_documents_make_is_in_the_makefile() {
    let makefile = read("Makefile");
    let known: BTreeSet<&str> = makefile
        .lines()
        .filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()))
        .filter_map(|line| line.split_once(':'))
        .map(|(target, _)| target)
        .collect();
    let (mut faults, mut seen) = (Vec::new(), 0);
    for document in documents() {
        for command in document.spans.iter().chain(&document.code) {
            for target in targets(command) {
                seen += 1;
                if !known.contains(target) {
                    faults.push(format!("{}: make {target}", document.path));
                }
            }
        }
    }
    assert!(seen > 20, "{seen} targets are seen");
    assert_none(faults);
}

/// The names in a text that begin with `start`.
fn names<'a>(text: &'a str, start: &str) -> BTreeSet<&'a str> {
    let words = text.split(|one: char| !(one.is_ascii_alphanumeric() || one == '_'));
    words
        .filter(|word| word.starts_with(start) && word.len() > start.len() && !word.ends_with('_'))
        .collect()
}

#[test]
fn every_setting_metric_and_role_that_the_documents_name_is_in_the_sources() {
    let sources: Vec<String> = SOURCES
        .iter()
        .flat_map(|folder| files(&root().join(folder)))
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .collect();
    let known: BTreeSet<&str> = sources
        .iter()
        .flat_map(|text| names(text, "TALLY_").into_iter().chain(names(text, "tally_")))
        .collect();
    let (mut faults, mut seen) = (Vec::new(), 0);
    for document in documents() {
        let text = read(&document.path);
        for name in names(&text, "TALLY_").into_iter().chain(names(&text, "tally_")) {
            seen += 1;
            let metric = HISTOGRAM_ENDS.iter().find_map(|end| name.strip_suffix(end));
            let is_known = known.contains(name) || EXAMPLES.contains(&name);
            if !is_known && !metric.is_some_and(|name| known.contains(name)) {
                faults.push(format!("{}: {name}", document.path));
            }
        }
    }
    assert!(seen > 50, "{seen} names are seen");
    assert_none(faults);
}

/// The value of this key in a line of a file of alerts: `key: value`, also in `{ key: value }`.
fn value<'a>(rule: &'a str, key: &str) -> &'a str {
    let of_line = |line: &'a str| line.split(key).nth(1)?.strip_prefix(": ");
    let found = rule.lines().find_map(of_line);
    found.map_or("", |value| value.trim_end_matches('}').trim())
}

#[test]
fn each_alert_leads_to_an_entry_with_what_to_look_at_to_type_and_whom_to_wake() {
    let alerts = read("deploy/prometheus/tally-alerts.yml");
    let rules: Vec<&str> = alerts.split("- alert: ").skip(1).collect();
    let mut faults = Vec::new();
    let mut known = BTreeSet::new();
    for rule in rules {
        let name = rule.lines().next().unwrap_or_default().trim();
        let page = match value(rule, "severity") {
            "page" => "docs/operating/alerts.md",
            _ => "docs/operating/alerts-tickets.md",
        };
        known.insert(name);
        let leads = value(rule, "runbook");
        if leads != format!("{page}#{}", anchor(name)) {
            faults.push(format!("{name} leads to {leads}"));
        }
        let text = read(page);
        let entry = section(&text, &format!("\n## {name}\n"));
        for word in ["Means", "Look", "Do", "Then you see", "Wake"] {
            if entry.matches(&format!("- *{word}*")).count() != 1 {
                faults.push(format!("the entry of {name} in {page} has not one *{word}*"));
            }
        }
    }
    for page in ["docs/operating/alerts.md", "docs/operating/alerts-tickets.md"] {
        let text = read(page);
        let headings = text.lines().filter_map(|line| line.strip_prefix("## "));
        faults.extend(
            headings
                .filter(|heading| !known.contains(heading))
                .map(|heading| format!("{page}: no alert is called {heading}")),
        );
    }
    assert!(!known.is_empty());
    assert_none(faults);
}

#[test]
fn each_decision_has_a_status_and_stands_in_the_index() {
    let index = documents()
        .into_iter()
        .find(|document| document.path == "docs/decisions/README.md")
        .expect("the index");
    let listed: Vec<String> = index.links.iter().filter_map(|link| index.target(link)).collect();
    let (mut faults, mut seen) = (Vec::new(), 0);
    for Document { path, .. } in documents() {
        if !path.starts_with("docs/decisions/") || path == index.path {
            continue;
        }
        seen += 1;
        let text = read(&path);
        let status = text.lines().nth(2).and_then(|line| line.strip_prefix("Status: "));
        let starts = ["accepted", "superseded by [", "retired"];
        if !status.is_some_and(|status| starts.iter().any(|start| status.starts_with(start))) {
            faults.push(format!("{path}: no status"));
        }
        if !listed.contains(&path) {
            faults.push(format!("{path}: not in the index"));
        }
    }
    assert!(seen > 50, "{seen} decisions are seen");
    assert_none(faults);
}

#[test]
fn a_document_is_read_as_github_shows_it() {
    let text = "# `a_b`: what's *in* it\n\n## Again\n\nSee [x](a.md#b \"title\") and `[no](link.md)`, ``a`b``.\n\n\
                ## Again\n\n```\n# no heading\n[no](link.md)\nmake test\n```\n\n## [Linked](c.md) – dash\n#hash\n";
    let document = Document::parse("docs/one/page.md", text);
    let anchors: Vec<&str> = document.anchors.iter().map(String::as_str).collect();
    assert_eq!(anchors, ["a_b-whats-in-it", "again", "again-1", "linked--dash"]);
    assert_eq!(document.links, ["a.md#b", "c.md"]);
    assert_eq!(document.spans, ["a_b", "[no](link.md)", "a`b"]);
    assert_eq!(document.code, ["# no heading", "[no](link.md)", "make test"]);
    assert_eq!(document.target("../two.md").as_deref(), Some("docs/two.md"));
    assert_eq!(document.target("../../README.md").as_deref(), Some("README.md"));
    assert_eq!(document.target("../../../outside.md"), None);
    let made: Vec<&str> = targets("make lint test EXAMPLES=10 # both").collect();
    assert_eq!(made, ["lint", "test"]);
    assert_eq!(targets("remake test").count(), 0);
    let found = names("`TALLY_OPEN`, TALLY_ and XTALLY_NO", "TALLY_");
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["TALLY_OPEN"]);
}
