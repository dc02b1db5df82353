//! The stamp of a table: which run it is of.

use std::fmt;

use anyhow::{Result, bail};

use super::results::Run;

/// The date and the commit of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub date: String,
    pub commit: String,
}

impl Stamp {
    /// The stamp of a run.
    ///
    /// # Errors
    /// When the run names no commit.
    pub fn of(run: &Run) -> Result<Self> {
        let Some(commit) = run.commit.clone() else {
            bail!("the results name no commit; run `make bench` in a clone");
        };
        if run.has_changes {
            bail!(
                "the results are of {commit} with changes that are in no commit; commit them and run `make bench`"
            );
        }
        Ok(Self {
            date: run.date.clone(),
            commit,
        })
    }

    /// The run's page in docs/runs.
    pub fn file(&self) -> String {
        format!("{}-{}.md", self.date, self.commit)
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Run of {}, commit {}", self.date, self.commit)
    }
}

/// The stamp in a text, in the form that [`Stamp`] writes.
pub fn stamp(text: &str) -> Option<Stamp> {
    let (_, after) = text.split_once("Run of ")?;
    let (date, after) = after.split_once(", commit ")?;
    let commit: String = after.chars().take_while(char::is_ascii_alphanumeric).collect();
    (date.len() == "YYYY-MM-DD".len() && !commit.is_empty()).then(|| Stamp {
        date: date.to_owned(),
        commit,
    })
}
