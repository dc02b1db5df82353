//! Holds the source to its layout: who imports whom, and where SQL and Redis are.
//! The order of the modules is that of `src/lib.rs`, and inside of the web that of
//! `src/web/mod.rs`.

mod comments;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use source::{File, Source};

fn tally() -> Source {
    Source::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
}

/// The files that import from a module above theirs, in words.
/// `order` lists the modules, the children of `parent`.
fn upward(source: &Source, parent: &str, order: &[String]) -> Vec<String> {
    let prefix = if parent.is_empty() {
        String::new()
    } else {
        format!("{parent}/")
    };
    let place = |file: &str| {
        let module = file.strip_prefix(&prefix)?.split(['/', '.']).next()?;
        order.iter().position(|one| one == module)
    };
    let imports = source.imports();
    let mut found = Vec::new();
    for (file, targets) in &imports {
        for target in targets {
            if let Some((from, to)) = place(file).zip(place(target))
                && from > to
            {
                found.push(format!("{file} imports from {target}"));
            }
        }
    }
    found
}

/// The circles: files that import each other, also through other files.
/// A file and the `mod.rs` above it are one module, so they form no circle.
fn circles(imports: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<BTreeSet<&str>> {
    let reached = |from| {
        let mut reached = BTreeSet::new();
        let mut next = vec![from];
        while let Some(file) = next.pop() {
            let targets = imports.get(file).into_iter().flatten().map(String::as_str);
            next.extend(targets.filter(|target| reached.insert(*target)));
        }
        reached
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> = imports
        .keys()
        .map(|file| (file.as_str(), reached(file.as_str())))
        .collect();
    let in_circle_with = |file: &str| {
        let others = reached[file].iter().copied();
        others
            .filter(|other| reached[other].contains(file))
            .collect::<BTreeSet<&str>>()
    };
    let circles = imports.keys().map(|file| in_circle_with(file));
    circles.filter(|circle| !circle.is_empty()).collect()
}

/// The files outside of these folders that name this crate.
fn naming<'s>(source: &'s Source, krate: &str, folders: &[&str]) -> Vec<&'s str> {
    let names = |file: &&File| file.names_crate(source, krate);
    let files = source.files.iter().filter(names).map(|file| file.path.as_str());
    files
        .filter(|path| !folders.iter().any(|folder| path.starts_with(folder)))
        .collect()
}

#[test]
fn each_module_imports_only_from_modules_below_it_in_the_list_of_lib_rs() {
    let source = tally();
    let order = source.file("lib.rs").modules.clone();
    assert!(order.len() > 15, "{order:?}");
    assert_eq!(upward(&source, "", &order), [""; 0]);
}

#[test]
fn each_module_of_the_web_imports_only_from_modules_below_it_in_the_list_of_its_mod_rs() {
    let source = tally();
    let file = source.file("web/mod.rs");
    let listed = file.text.lines().filter_map(|line| line.strip_prefix("//! - `"));
    let order: Vec<String> = listed
        .filter_map(|line| Some(line.split_once('`')?.0.to_owned()))
        .collect();
    let (named, declared): (BTreeSet<_>, BTreeSet<_>) =
        (order.iter().collect(), file.modules.iter().collect());
    assert_eq!(named, declared, "the list names each module");
    assert_eq!(upward(&source, "web", &order), [""; 0]);
}

#[test]
fn no_files_import_from_each_other_in_a_circle() {
    for folder in ["src", "testkit/src"] {
        let source = Source::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
        assert_eq!(circles(&source.imports()), BTreeSet::new(), "{folder}");
    }
}

#[test]
fn only_the_ledger_knows_sql_and_only_live_knows_redis() {
    let source = tally();
    assert_eq!(naming(&source, "sqlx", &["ledger/"]), [""; 0]);
    assert_eq!(naming(&source, "redis", &["live/"]), [""; 0]);
    assert_eq!(naming(&source, "deadpool_redis", &["live/"]), [""; 0]);
    assert!(!naming(&source, "sqlx", &[]).is_empty() && !naming(&source, "redis", &[]).is_empty());
}

#[test]
fn only_wiring_and_operators_commands_read_settings() {
    let imports = tally().imports();
    let reads = |targets: &BTreeSet<String>| targets.iter().any(|target| target.starts_with("config/"));
    let readers = imports.iter().filter(|(_, targets)| reads(targets));
    let others: Vec<&str> = readers
        .map(|(file, _)| file.as_str())
        .filter(|file| {
            !["app/", "operator/", "config/"]
                .iter()
                .any(|folder| file.starts_with(folder))
        })
        .collect();
    // limit_relations.rs compares the limits of all modules, and those of settings.
    assert_eq!(others, ["limit_relations.rs"]);
}

mod the_check_itself {
    use super::*;

    fn source(files: &[(&str, &str)]) -> Source {
        Source::new(
            files
                .iter()
                .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
                .collect(),
        )
    }

    #[test]
    fn finds_imports_however_they_are_written() {
        for text in [
            "use crate::low::{deep::{self, Other}, Third};",
            "use crate::{low::{Third, deep::Other as Renamed}};",
            "use super::super::low::deep;",
            "use crate::low; fn f() -> low::deep::Other { todo!() }",
            "fn f() { let _ = vec![crate::low::deep::CONSTANT]; }",
            "use crate::low::Facade;",
            "use super::Through;",
            "mod inner { use super::super::super::low::deep::Other; }",
        ] {
            let source = source(&[
                ("lib.rs", "mod high; mod low;"),
                ("high/mod.rs", "mod file; use crate::low::deep::Other as Through;"),
                ("high/file.rs", text),
                (
                    "low/mod.rs",
                    "mod deep; pub use deep::Other as Facade; pub struct Third;",
                ),
                ("low/deep.rs", "pub struct Other;"),
            ]);
            let found = source.imports()["high/file.rs"].contains("low/deep.rs");
            assert!(found, "{text}: {:?}", source.imports());
            let order = ["low", "high"].map(str::to_owned);
            assert!(!upward(&source, "", &order).is_empty(), "{text}");
            let order = ["high", "low"].map(str::to_owned);
            assert_eq!(upward(&source, "", &order), [""; 0], "{text}");
        }
    }

    #[test]
    fn sees_no_import_in_comments_texts_and_tests() {
        let source = source(&[
            ("lib.rs", "mod one; mod two; #[cfg(test)] mod tested;"),
            (
                "one.rs",
                "//! use crate::two;\n/* crate::two::X */ const T: &str = \"crate::two::X\"; \
                 #[cfg(test)] mod tests { use crate::two::X; } \
                 #[cfg(any(test, fuzzing))] use crate::two::Y; #[test] fn f() { sqlx::x() }",
            ),
            ("two.rs", ""),
            ("tested.rs", "use crate::two::X;"),
        ]);
        assert!(
            source.imports().values().all(BTreeSet::is_empty),
            "{:?}",
            source.imports()
        );
        assert_eq!(naming(&source, "sqlx", &[]), [""; 0]);
    }

    #[test]
    fn finds_a_circle_of_files_and_none_between_a_file_and_its_module() {
        let circular = [
            ("lib.rs", "mod one;"),
            ("one/mod.rs", "mod a; mod b; mod c; pub use a::A; pub struct Own;"),
            ("one/a.rs", "use super::b::B; pub struct A;"),
            ("one/b.rs", "use super::c::C; pub struct B;"),
            ("one/c.rs", "use super::{A, Own}; pub struct C;"),
        ];
        let imports = source(&circular).imports();
        let circle = BTreeSet::from(["one/a.rs", "one/b.rs", "one/c.rs"]);
        assert_eq!(circles(&imports), BTreeSet::from([circle]));
        let mut straight = circular;
        straight[4].1 = "use super::Own; pub struct C;";
        assert_eq!(circles(&source(&straight).imports()), BTreeSet::new());
    }

    #[test]
    fn finds_who_names_a_crate_but_not_a_module_of_that_name() {
        let source = source(&[
            ("lib.rs", "mod dev; mod one; mod two;"),
            ("dev/mod.rs", "mod redis; pub use redis::Private;"),
            ("dev/redis.rs", "pub struct Private;"),
            ("one.rs", "fn f(redis: &crate::dev::Private) { redis.x() }"),
            ("two.rs", "fn f() { redis::cmd(1) }"),
        ]);
        assert_eq!(naming(&source, "redis", &[]), ["two.rs"]);
        assert_eq!(naming(&source, "redis", &["two"]), [""; 0]);
    }
}

/// Text from elsewhere is escaped there.
#[test]
fn only_telemetry_writes_to_standard_output_and_standard_error() {
    let source = tally();
    let writes = |file: &&File| {
        ["println!", "print!(", "stdout().lock", "stderr().lock"]
            .iter()
            .any(|one| file.text.contains(one))
    };
    let files = source.files.iter().filter(writes).map(|file| file.path.as_str());
    let others: Vec<&str> = files.filter(|path| !path.starts_with("telemetry/")).collect();
    assert_eq!(others, [""; 0]);
}

/// What stands in a file's place is looked at there. `dev` reads what its own stores write.
#[test]
fn only_files_reads_files() {
    let source = tally();
    let reads = |file: &&File| {
        [
            &["std", "fs", "read"][..],
            &["std", "fs", "read_to_string"],
            &["std", "fs", "File", "open"],
            &["tokio", "fs", "read"],
            &["tokio", "fs", "read_to_string"],
            &["tokio", "fs", "File", "open"],
        ]
        .iter()
        .any(|path| file.names(path))
    };
    let files = source.files.iter().filter(reads).map(|file| file.path.as_str());
    let others: Vec<&str> = files
        .filter(|path| *path != "files.rs" && !path.starts_with("dev/"))
        .collect();
    assert_eq!(others, [""; 0]);
    assert!(source.file("files.rs").names(&["std", "fs", "File", "open"]));
}
