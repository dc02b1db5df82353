//! The settings that a program would start with here, each with where it comes from. Secrets are not shown.

use std::fmt::Write as _;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory};

use super::read::{one_line, secrets};
use super::secret_files::{self, Secret, Secrets};
use super::{SyncWorker, Tally};
use crate::telemetry::Plain;

/// The settings of `tally serve` and of `sync-worker`, a line each: variable, value, source.
///
/// # Errors
/// When a setting is wrong: one line that names it.
pub fn effective() -> Result<String, String> {
    let mut tally = Tally::command();
    // Global settings reach a subcommand only when the whole command is built.
    tally.build();
    let serve = tally.find_subcommand("serve").cloned();
    let serve = serve.ok_or_else(|| "this program has no server".to_owned())?;
    let programs = [("tally serve", serve), ("sync-worker", SyncWorker::command())];
    let mut text = String::new();
    for (name, command) in programs {
        let Secrets { command, read } = secret_files::read(command, &[])?;
        let command = command
            .no_binary_name(true)
            .mut_args(|argument| argument.required(false));
        let arguments: Vec<Arg> = command.get_arguments().cloned().collect();
        let matches = matches(command, name, &read)?;
        // Writing to a text does not fail.
        let _ = writeln!(text, "# {name}");
        for argument in arguments {
            if let Some(line) = line(&argument, &matches, &read) {
                text += &line;
            }
        }
    }
    Ok(text)
}

fn matches(command: Command, program: &str, read: &[Secret]) -> Result<ArgMatches, String> {
    let nothing: [&str; 0] = [];
    let settings = command.clone();
    settings.try_get_matches_from(nothing).map_err(|error| {
        format!(
            "{program}: {}",
            one_line(&error, &command, &secrets(&command, read))
        )
    })
}

/// `None`: the argument has no variable.
fn line(argument: &Arg, matches: &ArgMatches, read: &[Secret]) -> Option<String> {
    let variable = argument.get_env().map(|name| name.to_string_lossy().into_owned());
    let id = argument.get_id().as_str();
    let from_file = read.iter().find(|secret| secret.id == *argument.get_id());
    let variable = variable.or_else(|| from_file.map(|secret| secret.variable.clone()))?;
    let source = match (from_file, matches.value_source(id)) {
        (Some(secret), _) => format!("file {}", secret.path.display()),
        (None, Some(ValueSource::EnvVariable)) => "environment".to_owned(),
        (None, Some(ValueSource::CommandLine)) => "command line".to_owned(),
        (None, Some(_)) => "default".to_owned(),
        (None, None) => "not set".to_owned(),
    };
    let value = match argument.get_action() {
        ArgAction::SetTrue => matches.get_flag(id).to_string(),
        _ if source == "not set" => "-".to_owned(),
        _ if argument.is_hide_env_values_set() => "(secret)".to_owned(),
        _ => {
            let raw = matches.get_raw(id).into_iter().flatten();
            let values: Vec<_> = raw.map(|value| value.to_string_lossy()).collect();
            values.join(",")
        }
    };
    let value = if value.is_empty() { "-" } else { &value };
    Some(format!("{variable}\t{}\t{}\n", Plain(value), Plain(source)))
}
