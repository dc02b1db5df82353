//! Settings of `tally void`.

use std::net::IpAddr;

use clap::{ArgGroup, Args};

use super::values::moment;
use super::{AddressSettings, Stores};
use crate::domain::{ApiKeyId, ItemId, Moment, Reference, VoteId};

fn vote_id(text: &str) -> Result<VoteId, String> {
    text.parse()
        .map_err(|()| "it takes a vote's id: a positive number".to_owned())
}

fn api_key_id(text: &str) -> Result<ApiKeyId, String> {
    text.parse()
        .map_err(|()| "it takes an API key's id, as tally key list shows it: a positive number".to_owned())
}

/// `tally void`.
#[derive(Args)]
#[command(group(ArgGroup::new("of").required(true).multiple(true)
    .args(["voter", "item", "from", "until", "address", "address_of", "api_key", "resume", "undo", "list"])))]
pub struct Void {
    /// Void votes of this voter
    #[arg(long)]
    pub voter: Option<String>,

    /// Void votes on this item: its id, or key: followed by your own key
    #[arg(long)]
    pub item: Option<Reference<ItemId>>,

    /// Void votes that were cast at this time or later, by Postgres' clock
    #[arg(long, value_parser = moment, value_name = "TIME")]
    pub from: Option<Moment>,

    /// Void votes that were cast before this time
    #[arg(long, value_parser = moment, value_name = "TIME")]
    pub until: Option<Moment>,

    /// Void votes from this client address. Needs the servers' TALLY_ADDRESS_KEYS
    #[arg(long, requires = "address_keys")]
    pub address: Option<IpAddr>,

    /// Void votes from the same client as this vote
    #[arg(long, value_parser = vote_id, value_name = "VOTE", conflicts_with = "address")]
    pub address_of: Option<VoteId>,

    /// Void votes that were cast with this API key, also after it was revoked
    #[arg(long, value_parser = api_key_id, value_name = "ID")]
    pub api_key: Option<ApiKeyId>,

    #[command(flatten)]
    pub address_settings: AddressSettings,

    /// The reason, which is stored with the voiding
    #[arg(long, required_unless_present_any = ["resume", "undo", "list"])]
    pub reason: Option<String>,

    /// Void the votes; without this, only count them
    #[arg(long)]
    pub apply: bool,

    /// Resume a voiding, or the undoing of one, that was interrupted
    #[arg(long, value_name = "VOIDING", conflicts_with_all = ["voter", "item", "from", "until", "address", "address_of", "api_key", "reason", "apply", "undo", "list"])]
    pub resume: Option<i64>,

    /// Cast the votes of a voiding again, as far as their items and voters still allow it
    #[arg(long, value_name = "VOIDING", conflicts_with_all = ["voter", "item", "from", "until", "address", "address_of", "api_key", "reason", "apply", "list"])]
    pub undo: Option<i64>,

    /// List the voidings
    #[arg(long, conflicts_with_all = ["voter", "item", "from", "until", "address", "address_of", "api_key", "reason", "apply"])]
    pub list: bool,

    /// Print the result as a line of JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub stores: Stores,
}
