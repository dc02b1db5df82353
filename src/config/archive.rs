//! Settings of `tally archive`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

use super::database::Database;
use super::values::moment;
use crate::domain::{ArchiveId, ItemId, Moment, PollId, Reference};

fn archive_id(text: &str) -> Result<ArchiveId, String> {
    text.parse().map_err(|()| {
        "it takes an archive's id, as tally archive list shows it: a positive number".to_owned()
    })
}

/// `tally archive`.
#[derive(Subcommand)]
pub enum Archive {
    /// Move all votes of items and polls that have closed to a file
    ///
    /// Without --apply it only says what would be archived. The file is read back and compared with the ledger before
    /// a vote is dropped. Counts and results stay; the votes cannot be voided any more.
    Run(ArchiveRun),
    /// Continue an archive that was interrupted
    Resume(ArchiveResume),
    /// Give up an archive of which no vote is dropped yet
    Cancel(ArchiveCancel),
    /// List the archives
    List(Database),
    /// Check files of archives against what Tally has noted of them; exit code 0 if they are as they were written
    Verify(ArchiveVerify),
}

impl Archive {
    /// Returns the database's address and the output format.
    pub fn database(&self) -> &Database {
        match self {
            Self::Run(run) => &run.database,
            Self::Resume(resume) => &resume.database,
            Self::Cancel(cancel) => &cancel.database,
            Self::List(database) => database,
            Self::Verify(verify) => &verify.database,
        }
    }
}

/// `tally archive run`.
#[derive(Args)]
#[command(group(ArgGroup::new("of").required(true).multiple(true).args(["closed_before", "item", "poll"])))]
pub struct ArchiveRun {
    /// Archive what closed before this time, such as 2030-01-31T18:00:00Z, and at least an hour ago
    #[arg(long, value_parser = moment, value_name = "TIME", conflicts_with_all = ["item", "poll"])]
    pub closed_before: Option<Moment>,

    /// Archive this item: its id, or key: followed by your own key; repeat the flag for each item
    #[arg(long)]
    pub item: Vec<Reference<ItemId>>,

    /// Archive this poll with all its choices: its id, or key: followed by your own key; repeat the flag for each poll
    #[arg(long)]
    pub poll: Vec<Reference<PollId>>,

    /// The folder for the file
    #[arg(long, value_parser = super::values::path, value_name = "FOLDER")]
    pub out: Option<PathBuf>,

    /// Write the file, check it, and drop the votes; without this, only say what would be archived
    #[arg(long, requires = "out")]
    pub apply: bool,

    /// Only say what would be archived, as without --apply
    #[arg(long, conflicts_with = "apply")]
    pub dry_run: bool,

    #[command(flatten)]
    pub database: Database,
}

/// `tally archive resume`.
#[derive(Args)]
pub struct ArchiveResume {
    /// The archive's id, as tally archive list shows it
    #[arg(value_parser = archive_id)]
    pub id: ArchiveId,

    /// The folder of its file
    #[arg(long, value_parser = super::values::path, value_name = "FOLDER")]
    pub out: PathBuf,

    #[command(flatten)]
    pub database: Database,
}

/// `tally archive cancel`.
#[derive(Args)]
pub struct ArchiveCancel {
    /// The archive's id, as tally archive list shows it
    #[arg(value_parser = archive_id)]
    pub id: ArchiveId,

    #[command(flatten)]
    pub database: Database,
}

/// `tally archive verify`.
#[derive(Args)]
pub struct ArchiveVerify {
    /// The files
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    #[command(flatten)]
    pub database: Database,
}
