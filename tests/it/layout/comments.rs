//! What comments name exists: the modules of a folder, files, and modules by their paths.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::source::{File, Source};

/// A path in a comment that begins with one of these is one from the repository's root, or from a folder
/// above its file.
const FOLDERS: [&str; 11] = [
    ".ci/",
    "benches/",
    "clients/",
    "docs/",
    "fuzz/",
    "lua/",
    "migrations/",
    "scripts/",
    "src/",
    "testkit/",
    "tests/",
];
/// Folders whose comments are read.
const COMMENTED: [&str; 7] = [
    "benches",
    "fuzz/targets",
    "lua",
    "migrations",
    "scripts",
    "src",
    "testkit/src",
];
/// Files that a script makes.
const MADE: [&str; 1] = ["src/schema.d.ts"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The names that a file's header lists, each before a colon; `None`: it lists no modules of this file.
fn listed(file: &File) -> Option<BTreeSet<&str>> {
    let items = file.text.lines().filter_map(|line| line.strip_prefix("//! - `"));
    let names: BTreeSet<&str> = items
        .filter_map(|item| item.split_once("`:"))
        .flat_map(|(names, _)| names.split("`, `"))
        .collect();
    let is_of_modules = file.modules.iter().any(|module| names.contains(&**module));
    is_of_modules.then_some(names)
}

/// The faults of the headers that list modules: what they miss, and what they make up.
fn faults_of_lists(source: &Source) -> Vec<String> {
    let lists = source.files.iter().filter_map(|file| Some((file, listed(file)?)));
    let faults = lists.flat_map(|(file, names)| {
        let modules: BTreeSet<&str> = file.modules.iter().map(String::as_str).collect();
        let missing = modules
            .difference(&names)
            .map(|name| format!("{}: lacks {name}", file.path));
        let unknown = names
            .difference(&modules)
            .map(|name| format!("{}: no module {name}", file.path));
        missing.chain(unknown).collect::<Vec<_>>()
    });
    faults.collect()
}

/// The text of a line's comment in Rust, SQL, Lua or a shell.
fn comment(line: &str) -> Option<&str> {
    let starts = ["//", "--", "#"];
    let line = line.trim_start();
    let whole = starts.iter().find_map(|start| line.strip_prefix(start));
    let behind = || line.split_once(" // ").map(|(_, comment)| comment);
    whole.or_else(behind)
}

/// The words of a comment, without what stands around them.
fn words(comment: &str) -> impl Iterator<Item = &str> {
    let words = comment.split(|one: char| one.is_whitespace() || "`'\"()[],;|".contains(one));
    words.map(|word| word.trim_end_matches(['.', ':']))
}

/// The files in this folder and below.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let files = paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] });
    files.collect()
}

/// Whether the path in a comment of this file is there. A path may stand for several files: then its folder
/// must be there.
fn is_there(word: &str, file: &Path) -> bool {
    let certain = match word.find(['*', '<', '{', '…', '$']) {
        Some(at) => word[..at].rsplit_once('/').map_or("", |(folder, _)| folder),
        None => word,
    };
    let mut above = file
        .ancestors()
        .skip(1)
        .take_while(|folder| folder.starts_with(root()));
    above.any(|folder| folder.join(certain).exists())
}

/// Whether a path of Rust, such as `web::routes::Route`, leads through modules that exist. What stands behind
/// the last module may be anything.
fn leads_through_modules(path: &str, source: &Source) -> bool {
    let names: Vec<&str> = path.split("::").collect();
    let is_module = |name: &&&str| name.chars().all(|one| one.is_ascii_lowercase() || one == '_');
    let modules = names[..names.len() - 1].iter().take_while(is_module).count();
    (1..=modules).all(|length| {
        let folder = names[..length].join("/");
        let places = [format!("{folder}.rs"), format!("{folder}/mod.rs")];
        places
            .iter()
            .any(|place| source.files.iter().any(|file| file.path == *place))
    })
}

#[test]
fn a_header_that_lists_the_modules_of_its_folder_lists_each_and_no_other() {
    let mut lists = 0;
    for folder in ["src", "testkit/src"] {
        let source = Source::read(&root().join(folder));
        lists += source.files.iter().filter_map(listed).count();
        assert_eq!(faults_of_lists(&source), [""; 0], "{folder}");
    }
    assert!(lists > 15, "{lists} lists are seen");
}

#[test]
fn every_file_that_a_comment_names_exists() {
    let (mut faults, mut seen) = (Vec::new(), 0);
    for path in COMMENTED.iter().flat_map(|folder| files(&root().join(folder))) {
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        for word in text.lines().filter_map(comment).flat_map(words) {
            let is_path = FOLDERS.iter().any(|folder| word.starts_with(folder));
            if !is_path || MADE.contains(&word) {
                continue;
            }
            seen += 1;
            if !is_there(word, &path) {
                faults.push(format!("{}: {word}", path.display()));
            }
        }
    }
    assert!(seen > 20, "{seen} paths are seen");
    assert_eq!(faults, [""; 0]);
}

#[test]
fn every_module_that_a_comment_names_by_its_path_exists() {
    let source = super::tally();
    let modules = &source.file("lib.rs").modules;
    let (mut faults, mut seen) = (Vec::new(), 0);
    for file in &source.files {
        for word in file.text.lines().filter_map(comment).flat_map(words) {
            let path = word.trim_start_matches("crate::").trim_end_matches('!');
            let Some((first, _)) = path.split_once("::") else {
                continue;
            };
            if modules.iter().any(|module| module == first) {
                seen += 1;
                if !leads_through_modules(path, &source) {
                    faults.push(format!("{}: {word}", file.path));
                }
            }
        }
    }
    assert!(seen > 5, "{seen} paths are seen");
    assert_eq!(faults, [""; 0]);
}

/// The notes of `make mutants` name lines of the source. A file that is gone has none.
#[test]
fn every_file_that_the_notes_of_mutants_name_exists() {
    for notes in [
        "rust.caught",
        "rust.equivalent",
        "texts.caught",
        "texts.equivalent",
    ] {
        let text = fs::read_to_string(root().join("tools/mutants").join(notes)).expect("the notes");
        let files: BTreeSet<&str> = text
            .lines()
            .filter(|line| FOLDERS.iter().any(|folder| line.starts_with(folder)))
            .filter_map(|line| Some(line.split_once(": ")?.0))
            .collect();
        assert!(files.len() > 3, "{notes}: {files:?}");
        let gone: Vec<&&str> = files.iter().filter(|file| !root().join(file).exists()).collect();
        assert_eq!(gone, [&""; 0], "{notes}");
    }
}

#[test]
fn what_a_comment_names_is_found_however_it_is_written() {
    let text = "//! - `one`: the first.\n//! - `two`, `three`: others.\nmod one; mod two; mod four;";
    let files = [
        ("lib.rs", text),
        ("one.rs", ""),
        ("two/mod.rs", ""),
        ("two/deep.rs", ""),
    ];
    let source = Source::new(
        files
            .map(|(path, text)| (path.to_owned(), text.to_owned()))
            .into(),
    );
    let faults = ["lib.rs: lacks four", "lib.rs: no module three"];
    assert_eq!(faults_of_lists(&source), faults);

    let comments = [
        "    // see `a/b.rs`.",
        "-- (a/b.rs),",
        "x(); // a/b.rs:",
        "#   a/b.rs",
    ];
    for line in comments {
        assert!(
            comment(line)
                .into_iter()
                .flat_map(words)
                .any(|word| word == "a/b.rs"),
            "{line}"
        );
    }
    assert_eq!(comment("let url = \"http://one/two\";"), None);

    let file = root().join("tests/it/main.rs");
    for (word, exists) in [
        ("src/lib.rs", true),
        ("src/gone.rs", false),
        ("src/ledger/*.sql", true),
        ("it/main.rs", true),
    ] {
        assert_eq!(is_there(word, &file), exists, "{word}");
    }
    for (path, exists) in [
        ("one::Type", true),
        ("two::deep::f", true),
        ("two::gone::Type", false),
        ("two::Type::f", true),
    ] {
        assert_eq!(leads_through_modules(path, &source), exists, "{path}");
    }
}
