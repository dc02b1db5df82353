//! Settings of the commands that take data out of Tally and into it: `tally export` and `tally import`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Stores;
use super::database::Database;
use crate::domain::VoteId;
use crate::ledger::{ExportFormat, ExportTable};

/// An id after which an export begins.
fn after(text: &str) -> Result<VoteId, String> {
    match text.parse::<i64>() {
        Ok(id) if id >= 0 => Ok(VoteId::new(id)),
        _ => Err("it takes the id of a vote, or 0".to_owned()),
    }
}

/// `tally export`.
#[derive(Args)]
pub struct Export {
    /// The table
    #[arg(value_enum)]
    pub table: ExportTable,

    /// The output format
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub format: ExportFormat,

    /// Only votes with ids above this one. With the `until` of the last export, these are the votes that are
    /// new since
    #[arg(long, value_parser = after, allow_negative_numbers = true, value_name = "VOTE")]
    pub after: Option<VoteId>,

    /// Write to this file, which must not exist yet. Until the export ends, its name ends in .part
    #[arg(long, value_parser = super::values::path, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Continue an export of votes that was interrupted, after the last row of FILE.part
    #[arg(long, requires = "out", conflicts_with_all = ["after", "no_head"])]
    pub resume: bool,

    /// Leave out the first line, which says of which Tally and snapshot the rows are
    #[arg(long)]
    pub no_head: bool,

    /// Postgres or a standby, with a login in the role tally_report: postgres://user:password@host:port/database
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_parser = super::store_url, value_name = "URL")]
    pub database_url: String,
}

/// What stands between two fields of a line.
#[derive(Clone, Copy, Debug)]
pub enum Delimiter {
    Character(u8),
    /// Any number of blanks and tabs.
    Blanks,
}

fn delimiter(text: &str) -> Result<Delimiter, String> {
    match text.as_bytes() {
        b"blanks" => Ok(Delimiter::Blanks),
        b"\\t" | b"tab" => Ok(Delimiter::Character(b'\t')),
        [byte @ (b'\t' | b' ' | b'!'..=b'~')] if !matches!(byte, b'"' | b'#') => {
            Ok(Delimiter::Character(*byte))
        }
        _ => Err("it takes one character of ASCII, such as , or ; or tab, or blanks".to_owned()),
    }
}

fn neutral(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rating) if rating.is_finite() => Ok(rating),
        _ => Err("it takes a number".to_owned()),
    }
}

/// `tally import`.
#[derive(Subcommand)]
pub enum Import {
    /// Import votes. Items must be there, or give --make-items
    ///
    /// Each vote is stored once, also if the command is interrupted and run again. A voter who holds a vote on the
    /// item keeps it. An empty voter_id is an anonymous vote, an empty value an up-vote. Places, numbers and choices
    /// are limited as for other votes; opening times and ballots do not matter. Exit code 0: every line is stored.
    Votes(ImportVotes),
    /// Import items, with their rules, as tally export writes them; polls come first
    Items(ImportFile),
    /// Import polls, as tally export writes them. Their choices are items, which come next
    Polls(ImportFile),
}

/// `tally import votes`.
#[derive(Args)]
pub struct ImportVotes {
    /// The file
    pub file: PathBuf,

    /// The format of the file
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub format: ExportFormat,

    /// The file's columns. Of a file whose first line does not name them: the name of each, in their order; _ leaves
    /// one out. Of other files: NAME=THEIRS, for each column that the file calls otherwise. Names: item_id, item_key
    /// or item_name; voter_id, value (1 or -1) or rating, created_at, change_number, number
    #[arg(long, value_delimiter = ',', value_name = "COLUMNS")]
    pub columns: Vec<String>,

    /// What stands between two fields of CSV: one character, tab, or blanks (any number of blanks and tabs)
    #[arg(long, default_value = ",", value_parser = delimiter, value_name = "CHARACTER")]
    pub delimiter: Delimiter,

    /// A rating above this number is an up-vote; one below it, a down-vote
    #[arg(long, default_value = "0", value_parser = neutral, allow_negative_numbers = true, value_name = "RATING")]
    pub neutral: f64,

    /// Create items that do not exist, by their key or name
    #[arg(long)]
    pub make_items: bool,

    /// Only say what cannot be read, and store nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Write all refused lines to this new file, each with its reason
    #[arg(long, value_name = "FILE")]
    pub refused: Option<PathBuf>,

    /// Print the result as a line of JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub stores: Stores,
}

/// `tally import items`, `tally import polls`.
#[derive(Args)]
pub struct ImportFile {
    /// The file
    pub file: PathBuf,

    /// The format of the file
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub format: ExportFormat,

    /// The file's columns, as for votes, if its first line does not name them as tally export does
    #[arg(long, value_delimiter = ',', value_name = "COLUMNS")]
    pub columns: Vec<String>,

    /// What stands between two fields of CSV: one character, tab, or blanks (any number of blanks and tabs)
    #[arg(long, default_value = ",", value_parser = delimiter, value_name = "CHARACTER")]
    pub delimiter: Delimiter,

    /// Only say what cannot be read, and store nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Write all refused lines to this new file, each with its reason
    #[arg(long, value_name = "FILE")]
    pub refused: Option<PathBuf>,

    #[command(flatten)]
    pub database: Database,
}
