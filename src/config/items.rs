//! Settings of `tally item`, and those that `tally poll` shares.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::remote::Remote;
use super::values::moment;
use crate::domain::Moment;

/// `tally item`.
#[derive(Subcommand)]
pub enum Item {
    /// Create an item
    Make(ItemMake),
    /// Show an item and its counts
    Show(Show),
    /// Edit an item: its name, its times, or whether lists show it
    Edit(ItemEdit),
    /// Show or set to whom an item is open on a closed server
    Access(Access),
    /// Create an item for each line of a file
    Import(ItemImport),
}

/// `tally item make`.
#[derive(Args)]
pub struct ItemMake {
    /// The item's name
    pub name: String,

    /// Your own key for the item; /v1/items/key:… then finds the item
    #[arg(long)]
    pub key: Option<String>,

    /// Take only up-votes
    #[arg(long)]
    pub no_down_votes: bool,

    /// Take at most this many votes
    #[arg(long, value_name = "VOTES")]
    pub max_votes: Option<i64>,

    /// Give votes the numbers 1, 2, 3 and so on
    #[arg(long)]
    pub numbered: bool,

    /// Take only votes with a ballot
    #[arg(long)]
    pub by_ballot: bool,

    #[command(flatten)]
    pub times: Times,

    #[command(flatten)]
    pub remote: Remote,
}

/// When something new takes votes.
#[derive(Args)]
pub struct Times {
    /// Take votes from this time on, such as 2030-01-31T18:00:00Z
    #[arg(long, value_parser = moment, value_name = "TIME")]
    pub opens_at: Option<Moment>,

    /// Take votes until this time
    #[arg(long, value_parser = moment, value_name = "TIME")]
    pub closes_at: Option<Moment>,
}

/// `tally item edit`.
#[derive(Args)]
pub struct ItemEdit {
    /// The item: its id, or key: followed by your own key
    pub id: String,

    /// The new name
    #[arg(long)]
    pub name: Option<String>,

    #[command(flatten)]
    pub edits: Edits,

    #[command(flatten)]
    pub remote: Remote,
}

/// `tally item import`.
#[derive(Args)]
pub struct ItemImport {
    /// The file, with a name on each line, or a key, a tab and a name; - reads standard input. An item whose
    /// key exists already stays as it is. A line that gives it another name is refused
    pub file: PathBuf,

    #[command(flatten)]
    pub remote: Remote,
}

/// `tally item show`, `tally poll show`.
#[derive(Args)]
pub struct Show {
    /// The item or poll: its id, or key: followed by your own key
    pub id: String,

    #[command(flatten)]
    pub remote: Remote,
}

/// The edits that `tally item edit` and `tally poll edit` share.
#[derive(Args)]
pub struct Edits {
    /// Leave the item or poll out of lists; its votes and counts stay
    #[arg(long, conflicts_with = "unhide")]
    pub hide: bool,

    /// Show the item or poll in lists again
    #[arg(long)]
    pub unhide: bool,

    /// Take votes from this time on; none means at once
    #[arg(long, value_parser = time_or_none, value_name = "TIME")]
    pub opens_at: Option<TimeOrNone>,

    /// Take votes until this time; none means without an end; a time in the past closes it now
    #[arg(long, value_parser = time_or_none, value_name = "TIME")]
    pub closes_at: Option<TimeOrNone>,
}

/// A time to set, or `none` to remove it. It is a type of its own, because clap takes an option in an option
/// for a flag whose value may be left out.
#[derive(Clone, Copy, Debug)]
pub struct TimeOrNone(pub Option<Moment>);

fn time_or_none(text: &str) -> Result<TimeOrNone, String> {
    match text {
        "none" => Ok(TimeOrNone(None)),
        text => moment(text)
            .map(|time| TimeOrNone(Some(time)))
            .map_err(|error| format!("{error}, or none")),
    }
}

/// `tally item access`, `tally poll access`.
#[derive(Args)]
pub struct Access {
    /// The item or poll: its id, or key: followed by your own key
    pub id: String,

    /// Set what anyone may do: anonymous (vote without a voter; not in a poll), voters (vote as any voter,
    /// and see what a voter holds); separated by commas
    #[arg(long, value_delimiter = ',', value_name = "WHAT", conflicts_with = "closed")]
    pub open: Option<Vec<String>>,

    /// Close it: anyone may do only what the server allows
    #[arg(long)]
    pub closed: bool,

    #[command(flatten)]
    pub remote: Remote,
}
