//! Settings of `tally watch`.

use clap::Args;

use super::remote::Remote;

/// `tally watch`.
#[derive(Args)]
pub struct Watch {
    /// An item: its id, or key: followed by your own key
    #[arg(value_name = "ITEM", required_unless_present = "polls")]
    pub items: Vec<String>,

    /// A poll: its id, or key: followed by your own key; repeat the flag for each poll
    #[arg(long = "poll", value_name = "POLL")]
    pub polls: Vec<String>,

    #[command(flatten)]
    pub remote: Remote,
}
