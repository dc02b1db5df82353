//! Settings of `tally poll`.

use clap::{Args, Subcommand};

use super::items::{Access, Edits, Show, Times};
use super::remote::Remote;

/// `tally poll`.
#[derive(Subcommand)]
pub enum Poll {
    /// Create a poll
    Make(PollMake),
    /// Show a poll and its results
    Show(Show),
    /// Edit a poll: its title, its times, or whether lists show it
    Edit(PollEdit),
    /// Add a choice to a poll that has not closed
    AddChoice(AddChoice),
    /// Create a poll with the choices and the rules of another one
    Copy(PollCopy),
    /// Show or set to whom a poll is open on a closed server
    Access(Access),
}

/// `tally poll make`.
#[derive(Args)]
pub struct PollMake {
    /// The poll's title
    pub title: String,

    /// A choice; repeat the flag for each choice
    #[arg(long = "choice", required = true, value_name = "NAME")]
    pub choices: Vec<String>,

    /// Your own key for the poll; /v1/polls/key:… then finds the poll
    #[arg(long)]
    pub key: Option<String>,

    /// The most choices that one voter may hold; 0 means any number
    #[arg(long, default_value_t = 1, value_name = "CHOICES")]
    pub max_choices: i64,

    #[command(flatten)]
    pub times: Times,

    /// Show no counts before the poll closes
    #[arg(long, requires = "closes_at")]
    pub hide_results: bool,

    /// Take only votes with a ballot
    #[arg(long)]
    pub by_ballot: bool,

    /// Keep no link between a ballot and its vote
    #[arg(long, requires = "by_ballot")]
    pub secret: bool,

    #[command(flatten)]
    pub remote: Remote,
}

/// `tally poll edit`.
#[derive(Args)]
pub struct PollEdit {
    /// The poll: its id, or key: followed by your own key
    pub id: String,

    /// The new title
    #[arg(long)]
    pub title: Option<String>,

    #[command(flatten)]
    pub edits: Edits,

    #[command(flatten)]
    pub remote: Remote,
}

/// `tally poll add-choice`.
#[derive(Args)]
pub struct AddChoice {
    /// The poll: its id, or key: followed by your own key
    pub id: String,

    /// The choice's name
    pub name: String,

    #[command(flatten)]
    pub remote: Remote,
}

/// `tally poll copy`.
#[derive(Args)]
pub struct PollCopy {
    /// The other poll: its id, or key: followed by your own key
    pub id: String,

    /// Another title
    #[arg(long)]
    pub title: Option<String>,

    /// Your own key for the new poll
    #[arg(long)]
    pub key: Option<String>,

    #[command(flatten)]
    pub times: Times,

    #[command(flatten)]
    pub remote: Remote,
}
