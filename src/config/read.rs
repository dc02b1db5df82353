//! Reads the settings. Says in one line what is wrong with a setting.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use super::cells::CellCommand;
use super::secret_files::{self, SUFFIX, Secret, Secrets};
use super::{Command, Dev, Server, Stores, SyncWorker, Tally};
use crate::domain::{API_KEY_PREFIX, without_wrapping, wrapping};
use crate::store_url::StoreUrl;
use crate::telemetry;

/// A program's settings.
pub trait Settings: Parser + CommandFactory {
    /// Checks settings that go together. clap would take an empty variable for one that is given.
    ///
    /// # Errors
    /// When one is given without another that it needs: one line that names both.
    fn check(&self) -> Result<(), String>;

    /// Notes the files of those secrets that a program that runs for long reads again.
    fn note_files(&mut self, _read: &[Secret]) {}
}

impl Settings for Tally {
    fn check(&self) -> Result<(), String> {
        match &self.command {
            Command::Serve(serve) => serve.server.check(),
            Command::Dev(dev) => dev.check(),
            Command::Cell(CellCommand::Router(router)) => router.check(),
            _ => Ok(()),
        }
    }

    fn note_files(&mut self, read: &[Secret]) {
        if let Command::Serve(serve) = &mut self.command {
            serve.stores.note_files(read);
            if let Some(url) = &mut serve.server.operator_database_url {
                note_file(url, "operator_database_url", read);
            }
        }
    }
}

impl Settings for SyncWorker {
    fn check(&self) -> Result<(), String> {
        self.worker.webhook.check()
    }

    fn note_files(&mut self, read: &[Secret]) {
        self.stores.note_files(read);
    }
}

impl Stores {
    fn note_files(&mut self, read: &[Secret]) {
        note_file(&mut self.database_url, "database_url", read);
        note_file(&mut self.redis_url, "redis_url", read);
    }
}

/// Notes the file of this URL, unless it is from the command line. `id`: that of its argument.
fn note_file(url: &mut StoreUrl, id: &str, read: &[Secret]) {
    let of_file = read.iter().find(|secret| secret.id == id);
    if let Some(secret) = of_file.filter(|secret| without_wrapping(&secret.value) == url.as_str()) {
        *url = StoreUrl::in_file(url.as_str(), &secret.path);
    }
}

impl Dev {
    fn check(&self) -> Result<(), String> {
        // For clap, a URL from a file needs nothing beside it.
        if self.database_url.is_some() != self.redis_url.is_some() {
            return Err("one of DATABASE_URL and REDIS_URL is given; it takes both, or none".to_owned());
        }
        self.worker.webhook.check()?;
        self.server.check()
    }
}

impl Server {
    fn check(&self) -> Result<(), String> {
        if self.proxy_hops.is_some() && self.proxies.is_empty() {
            return Err(
                "--proxy-hops says how many addresses the proxies in --proxies add, and there are none (environment: \
                 TALLY_PROXY_HOPS, TALLY_PROXIES)"
                    .to_owned(),
            );
        }
        // For clap, a secret from a file needs nothing beside it.
        if self.jwt.secrets.is_some() && (self.jwt.audience.is_none() || self.jwt.issuer.is_none()) {
            return Err(
                "a secret of tokens needs --jwt-audience and --jwt-issuer (environment: TALLY_JWT_AUDIENCE, \
                 TALLY_JWT_ISSUER)"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

/// Reads the settings from the command line and the environment.
///
/// A wrong setting ends the program with exit code 2 and one line that names the setting.
pub fn read<P: Settings>() -> P {
    let refuse = |line: &str| -> ! {
        telemetry::complain(format_args!("{}: {line}", P::command().get_name()));
        std::process::exit(2);
    };
    let words = std::env::args_os().skip(1);
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let Secrets { command, read } = match secret_files::read(P::command(), &words) {
        Ok(read) => read,
        Err(line) => refuse(&line),
    };
    let parsed = command
        .try_get_matches_from(std::env::args_os())
        .and_then(|matches| P::from_arg_matches(&matches));
    match parsed {
        Ok(mut settings) => match settings.check() {
            Ok(()) => {
                settings.note_files(&read);
                settings
            }
            Err(line) => refuse(&line),
        },
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
            _ => {
                let command = P::command();
                refuse(&one_line(&error, &command, &secrets(&command, &read)));
            }
        },
    }
}

/// Returns the texts that must not be shown: the values of hidden settings, and API keys and URLs with a
/// user, wherever they stand on the command line by mistake. The longest comes first, so that no part of a
/// text remains.
pub(super) fn secrets(command: &clap::Command, from_files: &[Secret]) -> Vec<String> {
    let hidden = || {
        std::iter::once(command)
            .chain(command.get_subcommands())
            .flat_map(|one| std::iter::once(one).chain(one.get_subcommands()))
            .flat_map(clap::Command::get_arguments)
            .filter(|argument| argument.is_hide_env_values_set())
    };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut secrets: Vec<String> = hidden()
        .filter_map(|argument| std::env::var(argument.get_env()?).ok())
        .chain(from_files.iter().map(|secret| secret.value.clone()))
        .collect();
    for (at, argument) in arguments.iter().enumerate() {
        let (flag, value) = match argument.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (argument.as_str(), arguments.get(at + 1).map(String::as_str)),
        };
        let is_hidden = hidden().any(|hidden| hidden.get_long() == flag.strip_prefix("--"));
        secrets.extend(value.filter(|_| is_hidden).map(str::to_owned));
        let may_be_secret = |text: &str| text.contains('@') || text.contains(API_KEY_PREFIX);
        secrets.extend(value.filter(|value| may_be_secret(value)).map(str::to_owned));
        secrets.extend(may_be_secret(argument).then(|| argument.clone()));
    }
    // clap names the one part of a list that is wrong.
    let parts = secrets.iter().flat_map(|secret| secret.split(','));
    let parts: Vec<String> = parts
        .filter(|part| part.contains('@'))
        .map(str::to_owned)
        .collect();
    secrets.extend(parts);
    secrets.retain(|secret| !secret.is_empty());
    secrets.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets
}

/// Returns clap's message in one line, without these secrets. Adds the name of the setting's environment
/// variable, if it has one.
pub(super) fn one_line(error: &clap::Error, command: &clap::Command, secrets: &[String]) -> String {
    let mut text = error.render().to_string();
    for secret in secrets {
        text = text.replace(secret, "…");
    }
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut line = lines
        .next()
        .unwrap_or_default()
        .trim_start_matches("error: ")
        .to_owned();
    if let Some(values) = text
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with("[possible values"))
    {
        line = format!("{line} {values}");
    }
    let mut tips = text.lines().filter_map(|line| line.trim().strip_prefix("tip: "));
    if let Some(tip) = tips.find(|tip| tip.contains("similar")) {
        line = format!("{line}; {tip}");
    }
    // clap lists details after the headline, such as missing arguments.
    if line.ends_with(':') {
        let list: Vec<&str> = lines
            .take_while(|line| line.starts_with("--") || line.starts_with('<'))
            .collect();
        line = format!("{line} {}", list.join(", "));
    }
    let named = error.context().find_map(|(kind, value)| match (kind, value) {
        (ContextKind::InvalidArg, ContextValue::String(one)) => Some(vec![one.clone()]),
        (ContextKind::InvalidArg, ContextValue::Strings(all)) => Some(all.clone()),
        _ => None,
    });
    let variables: Vec<String> = named
        .unwrap_or_default()
        .iter()
        .filter_map(|flag| variable_of(command, flag))
        .collect();
    if variables.is_empty() {
        return line;
    }
    let values = variables
        .iter()
        .filter_map(|variable| std::env::var(variable).ok());
    format!("{line} (environment: {}{})", variables.join(", "), hint(values))
}

/// Says what stands around a value of the environment, where an env file has put it. Shows nothing of the value.
fn hint(mut values: impl Iterator<Item = String>) -> String {
    let found = values.find_map(|value| wrapping(&value));
    found.map_or(String::new(), |wrapping| format!("; the value {wrapping}"))
}

/// Returns the environment variable of the argument that clap calls `flag`.
fn variable_of(command: &clap::Command, flag: &str) -> Option<String> {
    let long = flag.trim_start_matches("--").split([' ', '=']).next()?;
    // Two subcommands may have a flag with the same name. The subcommand in use decides.
    let used = std::env::args()
        .nth(1)
        .and_then(|name| command.find_subcommand(name));
    std::iter::once(command)
        .chain(used)
        .flat_map(clap::Command::get_arguments)
        .find(|argument| argument.get_long() == Some(long))
        .and_then(|argument| argument.get_env())
        .map(|variable| variable.to_string_lossy().into_owned())
}

/// Returns the variables that begin with TALLY_ but name no setting. They are probably misspelt.
pub fn unknown_variables() -> Vec<String> {
    let commands = [Tally::command(), SyncWorker::command()];
    let known: Vec<String> = commands
        .iter()
        .flat_map(|command| std::iter::once(command).chain(command.get_subcommands()))
        .flat_map(clap::Command::get_arguments)
        .filter_map(|argument| Some((argument.get_env()?.to_string_lossy(), argument)))
        .flat_map(|(variable, argument)| {
            let of_file = argument
                .is_hide_env_values_set()
                .then(|| format!("{variable}{SUFFIX}"));
            std::iter::once(variable.into_owned()).chain(of_file)
        })
        .collect();
    std::env::vars_os()
        .filter_map(|(variable, _)| variable.into_string().ok())
        .filter(|variable| variable.starts_with("TALLY_") && !known.contains(variable))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(arguments: &[&str]) -> String {
        let error = match SyncWorker::try_parse_from(
            [
                "sync-worker",
                "--database-url=postgres://x/y",
                "--redis-url=redis://z",
            ]
            .iter()
            .chain(arguments),
        ) {
            Ok(_) => panic!("{arguments:?} was accepted"),
            Err(error) => error,
        };
        one_line(&error, &SyncWorker::command(), &[])
    }

    #[test]
    fn what_an_env_file_puts_around_a_value_is_named_and_the_value_is_not() {
        for (value, said) in [
            ("secret\r", "; the value ends with a line break"),
            (
                "\"secret\"",
                "; the value stands in quotes, which an env file keeps",
            ),
            ("\u{feff}secret", "; the value begins with a byte-order mark"),
            ("secret", ""),
        ] {
            assert_eq!(hint([value.to_owned()].into_iter()), said);
        }
    }

    #[test]
    fn the_definitions_of_both_programs_hold_together() {
        Tally::command().debug_assert();
        SyncWorker::command().debug_assert();
    }

    #[test]
    fn hops_are_refused_without_the_proxies_that_make_them() {
        let checked = |command: &str, arguments: &[&str]| {
            let stores = ["--database-url=postgres://x/y", "--redis-url=redis://z"];
            let words = ["tally", command]
                .into_iter()
                .chain(stores)
                .chain(arguments.iter().copied());
            Tally::try_parse_from(words)
                .map_err(|error| error.to_string())?
                .check()
        };
        for command in ["serve", "dev"] {
            for refused in [
                &["--proxy-hops=2"][..],
                &["--proxy-hops=2", "--proxies="],
                &["--proxy-hops=2", "--proxies= "],
            ] {
                let line = checked(command, refused).expect_err("it is refused");
                assert!(!line.contains('\n'), "{line}");
                for part in ["--proxy-hops", "TALLY_PROXY_HOPS", "TALLY_PROXIES"] {
                    assert!(line.contains(part), "{line} should contain {part}");
                }
            }
            for taken in [
                &[][..],
                &["--proxies=10.0.0.1"],
                &["--proxy-hops=2", "--proxies=10.0.0.1"],
            ] {
                assert_eq!(checked(command, taken), Ok(()), "{taken:?}");
            }
        }
    }

    #[test]
    fn what_is_mistyped_is_answered_with_what_is_similar() {
        for (words, similar) in [
            (&["tally", "imprt"][..], "'import'"),
            (&["tally", "item", "mkae", "x"], "'make'"),
            (&["tally", "serve", "--listn", "x"], "'--listen'"),
        ] {
            let error = Tally::try_parse_from(words).err().expect("it is refused");
            let line = one_line(&error, &Tally::command(), &[]);
            assert!(line.contains("similar") && line.contains(similar), "{line}");
            assert_eq!(line.lines().count(), 1, "{line}");
        }
    }

    #[test]
    fn a_wrong_setting_is_one_line_that_names_flag_and_variable_and_says_what_would_be_right() {
        for (argument, flag, variable, right) in [
            (
                "--flush-every=0s",
                "--flush-every",
                "TALLY_FLUSH_EVERY",
                "above 0",
            ),
            ("--retention=soon", "--retention", "TALLY_RETENTION", "10m"),
            (
                "--audit-cron=* * * * *",
                "--audit-cron",
                "TALLY_AUDIT_CRON",
                "six fields",
            ),
            (
                "--audit-cron=x * * * * *",
                "--audit-cron",
                "TALLY_AUDIT_CRON",
                "six fields",
            ),
            (
                "--flush-page=0",
                "--flush-page",
                "TALLY_FLUSH_PAGE",
                "1 to 100000",
            ),
        ] {
            let line = complaint(&[argument]);
            assert!(!line.contains('\n'), "{line}");
            for part in [flag, variable, right] {
                assert!(line.contains(part), "{line} should contain {part}");
            }
        }
    }
}
