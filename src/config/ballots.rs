//! Settings of `tally ballots`.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::remote::Remote;
use super::values::moment;
use crate::domain::Moment;

/// The most ballots that one `tally ballots` creates.
const BALLOTS_LIMIT: u64 = 10_000_000;

/// `tally ballots`.
#[derive(Args)]
#[command(group(ArgGroup::new("of").required(true).args(["item", "poll"])))]
pub struct Ballots {
    /// Create ballots for this item: its id, or key: followed by your own key
    #[arg(long, value_name = "ITEM")]
    pub item: Option<String>,

    /// Create ballots for this poll: its id, or key: followed by your own key
    #[arg(long, value_name = "POLL")]
    pub poll: Option<String>,

    /// The number of ballots
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=BALLOTS_LIMIT), value_name = "BALLOTS")]
    pub count: u64,

    /// The time at which the ballots expire
    #[arg(long, value_parser = moment, value_name = "TIME")]
    pub expires_at: Option<Moment>,

    /// The file for the ballots, one on each line: a new file that only you may read. The ballots are not
    /// shown anywhere else, and never again
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,

    #[command(flatten)]
    pub remote: Remote,
}
