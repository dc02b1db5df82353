//! Compares the documents with the settings and commands of the programs.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command, CommandFactory, Parser};

use super::{SyncWorker, Tally};

/// The logger itself reads `RUST_LOG`, so no program has a flag for it.
const NOT_OF_CLAP: &str = "RUST_LOG";
/// Flags whose names differ from their variables' names.
const SHORT_FLAGS: [(&str, &str); 2] = [("TALLY_WORKER_LISTEN", "listen"), ("TALLY_DEV_FOLDER", "folder")];
/// Arguments that a documented command may leave out, because its environment has them.
const FROM_ENVIRONMENT: [&str; 3] = ["--database-url", "--redis-url", "--address-keys"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A setting, as a row of the table or as the programs have it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Setting {
    default: Option<String>,
    /// The programs with this setting, by their names in the table: `all`, `server`, `worker`, or a command.
    of: BTreeSet<String>,
}

/// The rows of the table in `docs/operating/settings.md`.
fn documented() -> BTreeMap<String, Setting> {
    let document = std::fs::read_to_string(root().join("docs/operating/settings.md")).expect("the document");
    let (_, rest) = document
        .split_once("| variable | default | of | meaning |\n")
        .expect("the table");
    let lines = rest.lines().skip(1).take_while(|line| line.starts_with('|'));
    let rows = lines.map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        // A default that is a value is in backticks. Anything else is prose.
        let default = cells[2].strip_prefix('`').and_then(|cell| cell.split('`').next());
        let setting = Setting {
            default: default.map(str::to_owned),
            of: cells[3].split(", ").map(str::to_owned).collect(),
        };
        (cells[1].trim_matches('`').to_owned(), setting)
    });
    rows.collect()
}

/// Each command with its arguments that have a variable: `sync-worker`, and each command of `tally`.
fn programs() -> Vec<(String, Vec<Arg>)> {
    fn with_variable(command: &Command) -> Vec<Arg> {
        let below = command.get_subcommands().flat_map(with_variable);
        let own = command.get_arguments().filter(|one| one.get_env().is_some());
        own.cloned().chain(below).collect()
    }
    let tally = Tally::command();
    // The arguments of `tally` itself are global.
    let global: Vec<&Arg> = tally
        .get_arguments()
        .filter(|one| one.get_env().is_some())
        .collect();
    let commands = tally.get_subcommands().map(|command| {
        let arguments = with_variable(command)
            .into_iter()
            .chain(global.iter().copied().cloned());
        (command.get_name().to_owned(), arguments.collect())
    });
    let worker = ("sync-worker".to_owned(), with_variable(&SyncWorker::command()));
    commands.chain([worker]).collect()
}

/// The settings that the programs have.
fn built() -> BTreeMap<String, Setting> {
    let programs = programs();
    let mut settings = BTreeMap::<String, Setting>::new();
    for (program, arguments) in &programs {
        for argument in arguments {
            let variable = argument
                .get_env()
                .expect("a variable")
                .to_string_lossy()
                .into_owned();
            let flag = SHORT_FLAGS
                .iter()
                .find(|(name, _)| *name == variable)
                .map_or_else(
                    || {
                        variable
                            .trim_start_matches("TALLY_")
                            .to_lowercase()
                            .replace('_', "-")
                    },
                    |(_, flag)| (*flag).to_owned(),
                );
            assert_eq!(argument.get_long(), Some(flag.as_str()), "{variable}");
            let setting = settings.entry(variable).or_default();
            setting.of.insert(program.clone());
            let default = match argument.get_action() {
                ArgAction::SetTrue => Some("false".to_owned()),
                _ => argument
                    .get_default_values()
                    .first()
                    .map(|value| value.to_string_lossy().into_owned()),
            };
            setting.default = default.filter(|value| !value.is_empty());
        }
    }
    let all: BTreeSet<String> = programs.into_iter().map(|(program, _)| program).collect();
    for setting in settings.values_mut() {
        if setting.of == all {
            setting.of = BTreeSet::from(["all".to_owned()]);
        }
        // `tally dev` has the settings of the server and the worker.
        for (program, name) in [("serve", "server"), ("sync-worker", "worker")] {
            if setting.of.contains("dev") && setting.of.remove(program) {
                setting.of.insert(name.to_owned());
            }
        }
        if setting.of.contains("server") || setting.of.contains("worker") {
            setting.of.remove("dev");
        }
    }
    settings
}

#[test]
fn the_table_of_settings_has_each_setting_with_its_default_and_its_programs_and_no_other() {
    let mut documented = documented();
    assert!(documented.remove(NOT_OF_CLAP).is_some(), "{NOT_OF_CLAP}");
    let built = built();
    assert!(built.len() > 30, "{built:?}");
    for (variable, setting) in &built {
        assert_eq!(documented.remove(variable).as_ref(), Some(setting), "{variable}");
    }
    assert!(documented.is_empty(), "no program has {documented:?}");
}

/// Returns all Markdown files in this folder and below.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .flat_map(|path| if path.is_dir() { pages(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect()
}

/// Splits a line into words as a shell does, up to a comment: one list for each command of a pipe.
fn commands_of(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    for one in line.chars() {
        match quote {
            Some(end) if one == end => quote = None,
            Some(_) => word.get_or_insert_default().push(one),
            None if one == '\'' || one == '"' => {
                word.get_or_insert_default();
                quote = Some(one);
            }
            None if one == '#' && word.is_none() => break,
            None if one.is_whitespace() || one == '|' => {
                commands.last_mut().expect("one").extend(word.take());
                if one == '|' {
                    commands.push(Vec::new());
                }
            }
            None => word.get_or_insert_default().push(one),
        }
    }
    commands.last_mut().expect("one").extend(word);
    commands
}

/// Returns the command lines of `tally` and `sync-worker` in a page's code blocks, without leading variables.
fn documented_commands(page: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut is_in_block = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_in_block = !is_in_block;
        } else if is_in_block {
            for command in commands_of(line) {
                // A variable may contain a placeholder with spaces: TALLY_ADDRESS_KEYS=<as the servers have
                // it>.
                let program = command
                    .iter()
                    .position(|word| word == "tally" || word == "sync-worker");
                // The operator's shell (docs/operating/install.md) puts `with FILE` before a command.
                let is_prefix = |word: &str| word == "with" || word.contains('=');
                let is_program = program.is_some_and(|at| at == 0 || is_prefix(&command[0]));
                if let (Some(at), true) = (program, is_program) {
                    found.push(command[at..].to_vec());
                }
            }
        }
    }
    found
}

/// Returns why the programs refuse this command line. `None`: they accept it, or lack only what the
/// environment has.
fn refusal(words: &[String]) -> Option<String> {
    let words = words.iter().map(OsString::from);
    let parsed = match words.clone().next() {
        Some(program) if program == "tally" => Tally::try_parse_from(words).map(drop),
        _ => SyncWorker::try_parse_from(words).map(drop),
    };
    let error = parsed.err()?;
    let missing = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(missing)) if error.kind() == ErrorKind::MissingRequiredArgument => missing,
        _ => return Some(error.to_string()),
    };
    let is_given = |one: &String| FROM_ENVIRONMENT.iter().any(|flag| one.starts_with(flag));
    (!missing.iter().all(is_given)).then(|| error.to_string())
}

#[test]
fn the_programs_take_each_command_that_the_documents_show() {
    let mut shown = 0;
    for page in pages(&root().join("docs"))
        .into_iter()
        .chain([root().join("README.md")])
    {
        let text = std::fs::read_to_string(&page).expect("text");
        for command in documented_commands(&text) {
            shown += 1;
            assert_eq!(
                refusal(&command),
                None,
                "{}: {}",
                page.display(),
                command.join(" ")
            );
        }
    }
    assert!(shown > 30, "{shown}");
}

#[test]
fn a_command_with_a_flag_or_a_value_that_no_program_takes_is_noticed() {
    let page = "```\nX=y z tally key create 'a b' --scope vote   # shown once\nzcat x | tally replay - --ratings 3\ntally void --from now --reason x\n```\ntally nothing";
    let commands = documented_commands(page);
    assert_eq!(commands.len(), 3, "{commands:?}");
    assert_eq!(commands[0][1..], ["key", "create", "a b", "--scope", "vote"]);
    let refused: Vec<bool> = commands.iter().map(|one| refusal(one).is_some()).collect();
    assert_eq!(refused, [false, true, true]);
}
