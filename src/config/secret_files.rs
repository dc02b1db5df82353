//! Secrets from files: `<VARIABLE>_FILE` names a file that holds the value of a secret setting, as Docker,
//! Kubernetes and systemd put secrets.

use std::path::PathBuf;

use clap::{Command, Id};

use crate::domain::without_wrapping;
use crate::files;

/// What a variable's name ends in that names a file.
pub const SUFFIX: &str = "_FILE";

/// A command with the secrets that were read for it.
pub struct Secrets {
    pub command: Command,
    pub read: Vec<Secret>,
}

/// A secret that was read from a file.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    /// The argument that takes it.
    pub id: Id,
    /// The variable of the setting.
    pub variable: String,
    pub path: PathBuf,
    /// For what hides it from messages.
    pub value: String,
}

/// Reads the files of the secrets of this command, and of its subcommand that `words` (the command line) name.
/// What stands on the command line goes before a file.
///
/// # Errors
/// When a file cannot be read, is empty, or the variable itself is set, too: one line that names the variable.
pub fn read(command: Command, words: &[String]) -> Result<Secrets, String> {
    read_with(command, words, &|variable| std::env::var(variable).ok())
}

fn read_with(
    mut command: Command,
    words: &[String],
    variable_of: &impl Fn(&str) -> Option<String>,
) -> Result<Secrets, String> {
    let mut all = Vec::new();
    let secret = command.get_arguments().filter(|one| one.is_hide_env_values_set());
    let secret: Vec<_> = secret
        .filter_map(|one| Some((one.get_id().clone(), one.get_env()?.to_str()?.to_owned())))
        .collect();
    for (id, variable) in secret {
        let is_set = |variable: &str| variable_of(variable).filter(|value| !value.is_empty());
        let file_variable = format!("{variable}{SUFFIX}");
        let Some(path) = is_set(&file_variable) else {
            continue;
        };
        if is_set(&variable).is_some() {
            return Err(format!(
                "{variable} and {file_variable} are both set; set one of them"
            ));
        }
        let is_empty = variable_of(&variable).is_some();
        let path = PathBuf::from(without_wrapping(&path));
        let value = files::secret(&path).map_err(|why| format!("{file_variable}: {why}"))?;
        all.push(Secret {
            id: id.clone(),
            variable,
            path,
            value: value.clone(),
        });
        command = command.mut_arg(id, |argument| {
            let argument = argument
                .required(false)
                .default_value(value)
                .hide_default_value(true);
            // clap would take an empty variable for a value.
            if is_empty { argument.env(None) } else { argument }
        });
    }
    // The words before it are flags of this command and their values.
    let below = words.iter().enumerate().find_map(|(at, word)| {
        let below = command.find_subcommand(word)?;
        Some((below.get_name().to_owned(), at + 1))
    });
    if let Some((name, rest)) = below {
        let mut read = Ok(());
        command = command.mut_subcommand(name, |below| {
            match read_with(below.clone(), &words[rest..], variable_of) {
                Ok(of_below) => {
                    all.extend(of_below.read);
                    of_below.command
                }
                Err(why) => {
                    read = Err(why);
                    below
                }
            }
        });
        read?;
    }
    Ok(Secrets { command, read: all })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use clap::Arg;

    use super::*;

    fn program() -> Command {
        let secret = Arg::new("url")
            .long("url")
            .env("TALLY_TEST_URL")
            .hide_env_values(true);
        let plain = Arg::new("plain").long("plain").env("TALLY_TEST_PLAIN");
        let run = Command::new("run").args([secret.required(true), plain]);
        Command::new("program").subcommands([run, Command::new("other")])
    }

    /// What the secret is. An error is one line.
    fn url(words: &[&str], variables: &[(&str, &str)]) -> Result<Option<String>, String> {
        let variables: HashMap<&str, &str> = variables.iter().copied().collect();
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let read = read_with(program(), &words, &|variable| {
            variables.get(variable).map(|value| (*value).to_owned())
        })?;
        let matches = read
            .command
            .try_get_matches_from(std::iter::once("program".to_owned()).chain(words))
            .map_err(|error| error.to_string())?;
        let below = matches.subcommand().map(|(_, below)| below);
        Ok(below.and_then(|below| below.try_get_one::<String>("url").ok().flatten().cloned()))
    }

    #[test]
    fn a_secret_is_read_from_the_file_that_its_variable_names_unless_the_command_line_has_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("secret");
        std::fs::write(&file, "from a file\n").expect("a file");
        let path = file.display().to_string();
        let variables = [("TALLY_TEST_URL_FILE", path.as_str()), ("TALLY_TEST_URL", "")];
        assert_eq!(url(&["run"], &variables), Ok(Some("from a file".to_owned())));
        let given = url(&["run", "--url", "given"], &variables);
        assert_eq!(given, Ok(Some("given".to_owned())));
        assert_eq!(url(&["other"], &[("TALLY_TEST_URL_FILE", "/none")]), Ok(None));
        assert!(url(&["run"], &[]).is_err(), "it is needed");
    }

    #[test]
    fn a_file_that_is_missing_empty_or_too_much_and_a_variable_beside_it_are_refused_in_one_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let of = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(of("empty"), "\n").expect("a file");
        std::fs::write(of("long"), vec![b'a'; files::SECRET_LIMIT_BYTES as usize + 1]).expect("a file");
        std::fs::write(of("bytes"), [b'a', 0xff]).expect("a file");
        for name in ["missing", "empty", "long", "bytes", ""] {
            let why = url(&["run"], &[("TALLY_TEST_URL_FILE", of(name).as_str())]).expect_err(name);
            assert!(
                why.starts_with("TALLY_TEST_URL_FILE: ") && !why.contains('\n'),
                "{why}"
            );
        }
        let both = [("TALLY_TEST_URL_FILE", "/none"), ("TALLY_TEST_URL", "a")];
        let why = url(&["run"], &both).expect_err("both");
        assert_eq!(
            why,
            "TALLY_TEST_URL and TALLY_TEST_URL_FILE are both set; set one of them"
        );
    }
}
