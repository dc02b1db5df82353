//! Settings of `tally voter`.

use clap::{Args, Subcommand};

use super::Stores;
use super::database::Database;
use crate::domain::{VoterEditKind, VoterId};

fn voter_id(text: &str) -> Result<VoterId, String> {
    VoterId::parse(text.to_owned()).map_err(|error| error.to_string())
}

/// A voter who may have been erased.
fn any_voter_id(text: &str) -> Result<VoterId, String> {
    VoterId::parse_stored(text.to_owned()).map_err(|error| error.to_string())
}

/// `tally voter`.
#[derive(Subcommand)]
pub enum Voter {
    /// Show what a voter has in the ledger
    Show(VoterShow),
    /// Give a voter another voter id, which has no votes yet
    Rename(VoterRename),
    /// Make a voter's votes another voter's; where one voter cannot hold both, the first one's are taken back
    Merge(VoterMerge),
    /// Forget a voter: a random id takes the voter's place, and the votes still count
    Erase(VoterErase),
    /// List edits of voters, and how far each is
    List(Database),
}

/// `tally voter show`.
#[derive(Args)]
pub struct VoterShow {
    /// The voter
    #[arg(value_parser = any_voter_id)]
    pub voter: VoterId,

    /// Also print each row that the voter has in the ledger, as a line of JSON
    #[arg(long)]
    pub rows: bool,

    #[command(flatten)]
    pub database: Database,
}

/// `tally voter rename`.
#[derive(Args)]
pub struct VoterRename {
    /// The voter
    #[arg(value_parser = voter_id)]
    pub voter: VoterId,

    /// The new voter id
    #[arg(value_name = "NEW", value_parser = voter_id)]
    pub to: VoterId,

    #[command(flatten)]
    pub edit: Edit,
}

/// `tally voter merge`.
#[derive(Args)]
pub struct VoterMerge {
    /// The voter whose votes become the other's
    #[arg(value_parser = voter_id)]
    pub voter: VoterId,

    /// The voter who has all votes afterwards
    #[arg(value_name = "INTO", value_parser = voter_id)]
    pub to: VoterId,

    #[command(flatten)]
    pub edit: Edit,
}

/// `tally voter erase`.
#[derive(Args)]
pub struct VoterErase {
    /// The voter
    #[arg(value_parser = voter_id)]
    pub voter: VoterId,

    #[command(flatten)]
    pub edit: Edit,
}

/// What the edits of a voter share.
#[derive(Args)]
pub struct Edit {
    /// Do it, or what is left of it; without this, only say what would be done
    #[arg(long)]
    pub apply: bool,

    /// Print the result as a line of JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub stores: Stores,
}

impl Voter {
    /// Returns the kind of edit, the voters and the options, if the command is an edit.
    pub fn edit(&self) -> Option<(VoterEditKind, &VoterId, Option<&VoterId>, &Edit)> {
        match self {
            Self::Rename(command) => Some((
                VoterEditKind::Rename,
                &command.voter,
                Some(&command.to),
                &command.edit,
            )),
            Self::Merge(command) => Some((
                VoterEditKind::Merge,
                &command.voter,
                Some(&command.to),
                &command.edit,
            )),
            Self::Erase(command) => Some((VoterEditKind::Erase, &command.voter, None, &command.edit)),
            Self::Show(_) | Self::List(_) => None,
        }
    }

    /// Returns the database's address.
    pub fn database_url(&self) -> &str {
        match self {
            Self::Show(command) => &command.database.database_url,
            Self::List(database) => &database.database_url,
            Self::Rename(command) => command.edit.stores.database_url.as_str(),
            Self::Merge(command) => command.edit.stores.database_url.as_str(),
            Self::Erase(command) => command.edit.stores.database_url.as_str(),
        }
    }
}
