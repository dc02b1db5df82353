//! What an operator types: `tally item`, `poll`, `watch`, `ballots`, `void`, `key` and `trail`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

use super::{AddressSettings, Stores};
use crate::domain::{ActKind, ApiKey, ItemId, Moment, Reference, Scope, VoteId};

/// Acts that `tally trail` shows, unless --limit says otherwise.
const TRAIL_DEFAULT_ACTS: i64 = 100;
/// Acts that it shows at once, at the most.
const TRAIL_LIMIT_ACTS: i64 = 10_000;

fn moment(text: &str) -> Result<Moment, String> {
    text.parse::<Moment>().map_err(|error| error.to_string())
}

fn vote_id(text: &str) -> Result<VoteId, String> {
    text.parse()
        .map_err(|()| "it takes a vote's id: a positive number".to_owned())
}

/// A time to be set, or `none` to take it away. A type of its own: clap takes an option in an option
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

/// Where the server is, and how to print.
#[derive(Args, Clone, Debug)]
pub struct Remote {
    /// Where the server is
    #[arg(
        long,
        env = "TALLY_URL",
        hide_env_values = true,
        default_value = "http://127.0.0.1:8080",
        value_name = "URL"
    )]
    pub url: reqwest::Url,

    #[command(flatten)]
    pub credential: Credential,

    /// Print the server's answers as they are, a line of JSON each
    #[arg(long)]
    pub json: bool,
}

/// What a client shows a server.
#[derive(Args, Clone, Debug)]
pub struct Credential {
    /// An API key, if the server asks for one
    #[arg(long, env = "TALLY_API_KEY", hide_env_values = true, value_parser = api_key, value_name = "KEY")]
    pub api_key: Option<ApiKey>,
}

/// Reads an API key. What is wrong with one is said without it.
pub fn api_key(text: &str) -> Result<ApiKey, String> {
    ApiKey::parse(text).ok_or_else(|| "it is no API key; one is tally_ and 64 hexadecimal digits".to_owned())
}

/// `tally item`.
#[derive(Subcommand)]
pub enum Item {
    /// Make an item
    Make(ItemMake),
    /// Show an item and its counts
    Show(Show),
    /// Edit an item: its name, its times, whether lists show it
    Edit(ItemEdit),
    /// Show to whom an item is open on a closed server, or set it
    Access(Access),
    /// Make an item of each line of a file
    Import(ItemImport),
}

/// `tally item make`.
#[derive(Args)]
pub struct ItemMake {
    /// The item's name
    pub name: String,

    /// Your own key for it, by which /v1/items/key:… finds it
    #[arg(long)]
    pub key: Option<String>,

    /// Take up-votes only
    #[arg(long)]
    pub no_down_votes: bool,

    /// Take this many votes at the most
    #[arg(long, value_name = "VOTES")]
    pub max_votes: Option<i64>,

    /// Give votes the numbers 1, 2, 3 and so on
    #[arg(long)]
    pub numbered: bool,

    /// Take a vote with each ballot only
    #[arg(long)]
    pub by_ballot: bool,

    /// Take votes from this time on, like 2030-01-31T18:00:00Z
    #[arg(long, value_parser = moment, value_name = "TIME")]
    pub opens_at: Option<Moment>,

    /// Take votes until this time
    #[arg(long, value_parser = moment, value_name = "TIME")]
    pub closes_at: Option<Moment>,

    #[command(flatten)]
    pub remote: Remote,
}

/// `tally item show`, `tally poll show`.
#[derive(Args)]
pub struct Show {
    /// Its id, or key: and its key
    pub id: String,

    #[command(flatten)]
    pub remote: Remote,
}

/// `tally watch`.
#[derive(Args)]
pub struct Watch {
    /// An item: its id, or key: and its key
    #[arg(value_name = "ITEM", required_unless_present = "polls")]
    pub items: Vec<String>,

    /// A poll: its id, or key: and its key; give it again for each
    #[arg(long = "poll", value_name = "POLL")]
    pub polls: Vec<String>,

    #[command(flatten)]
    pub remote: Remote,
}

/// What `tally item edit` and `tally poll edit` change alike.
#[derive(Args)]
pub struct Edits {
    /// Leave it out of lists; its votes and counts stay
    #[arg(long, conflicts_with = "unhide")]
    pub hide: bool,

    /// Show it in lists again
    #[arg(long)]
    pub unhide: bool,

    /// Take votes from this time on; none: at once
    #[arg(long, value_parser = time_or_none, value_name = "TIME")]
    pub opens_at: Option<TimeOrNone>,

    /// Take votes until this time; none: for good; a time that has passed closes it now
    #[arg(long, value_parser = time_or_none, value_name = "TIME")]
    pub closes_at: Option<TimeOrNone>,
}

/// `tally item edit`.
#[derive(Args)]
pub struct ItemEdit {
    /// Its id, or key: and its key
    pub id: String,

    /// The new name
    #[arg(long)]
    pub name: Option<String>,

    #[command(flatten)]
    pub edits: Edits,

    #[command(flatten)]
    pub remote: Remote,
}

/// `tally item access`, `tally poll access`.
#[derive(Args)]
pub struct Access {
    /// Its id, or key: and its key
    pub id: String,

    /// Set what anyone may do: anonymous (vote without a voter; not in a poll), voters (vote as any
    /// voter, and see what a voter holds); several, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "WHAT", conflicts_with = "closed")]
    pub open: Option<Vec<String>>,

    /// Close it: what the server lets anyone do, and no more
    #[arg(long)]
    pub closed: bool,

    #[command(flatten)]
    pub remote: Remote,
}

/// `tally item import`.
#[derive(Args)]
pub struct ItemImport {
    /// A name a line, or a key, a tab and a name; - reads standard input. An item whose key is
    /// there already is left as it is, and a line that gives it another name is refused
    pub file: PathBuf,

    #[command(flatten)]
    pub remote: Remote,
}

/// `tally poll`.
#[derive(Subcommand)]
pub enum Poll {
    /// Make a poll
    Make(PollMake),
    /// Show a poll and its results
    Show(Show),
    /// Edit a poll: its title, its times, whether lists show it
    Edit(PollEdit),
    /// Show to whom a poll is open on a closed server, or set it
    Access(Access),
}

/// `tally poll make`.
#[derive(Args)]
pub struct PollMake {
    /// The poll's title
    pub title: String,

    /// A choice; give it again for each
    #[arg(long = "choice", required = true, value_name = "NAME")]
    pub choices: Vec<String>,

    /// Your own key for it, by which /v1/polls/key:… finds it
    #[arg(long)]
    pub key: Option<String>,

    /// How many choices one voter may hold; 0: any number
    #[arg(long, default_value_t = 1, value_name = "CHOICES")]
    pub max_choices: i64,

    /// Take votes from this time on, like 2030-01-31T18:00:00Z
    #[arg(long, value_parser = moment, value_name = "TIME")]
    pub opens_at: Option<Moment>,

    /// Take votes until this time
    #[arg(long, value_parser = moment, value_name = "TIME")]
    pub closes_at: Option<Moment>,

    /// Show no counts before the poll closes
    #[arg(long, requires = "closes_at")]
    pub hide_results: bool,

    /// Take a vote with each ballot only
    #[arg(long)]
    pub by_ballot: bool,

    /// Keep nothing that says which ballot bought which vote
    #[arg(long, requires = "by_ballot")]
    pub secret: bool,

    #[command(flatten)]
    pub remote: Remote,
}

/// `tally poll edit`.
#[derive(Args)]
pub struct PollEdit {
    /// Its id, or key: and its key
    pub id: String,

    /// The new title
    #[arg(long)]
    pub title: Option<String>,

    #[command(flatten)]
    pub edits: Edits,

    #[command(flatten)]
    pub remote: Remote,
}

/// `tally ballots`.
#[derive(Args)]
#[command(group(ArgGroup::new("of").required(true).args(["item", "poll"])))]
pub struct Ballots {
    /// For this item: its id, or key: and its key
    #[arg(long, value_name = "ITEM")]
    pub item: Option<String>,

    /// For this poll: its id, or key: and its key
    #[arg(long, value_name = "POLL")]
    pub poll: Option<String>,

    /// How many ballots
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=super::BALLOTS_LIMIT), value_name = "BALLOTS")]
    pub count: u64,

    /// Until when they buy votes
    #[arg(long, value_parser = moment, value_name = "TIME")]
    pub expires_at: Option<Moment>,

    /// The file that gets them, a line each: a new one, that only you may read. They are shown
    /// nowhere else, and never again
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,

    #[command(flatten)]
    pub remote: Remote,
}

/// `tally void`.
#[derive(Args)]
#[command(group(ArgGroup::new("of").required(true).multiple(true)
    .args(["voter", "item", "from", "until", "address", "address_of", "resume", "undo", "list"])))]
pub struct Void {
    /// Void votes of this voter
    #[arg(long)]
    pub voter: Option<String>,

    /// Void votes on this item: its id, or key: and its key
    #[arg(long)]
    pub item: Option<Reference<ItemId>>,

    /// Void votes that were cast at this time or later, by Postgres' clock
    #[arg(long, value_parser = moment, value_name = "TIME")]
    pub from: Option<Moment>,

    /// Void votes that were cast before this time
    #[arg(long, value_parser = moment, value_name = "TIME")]
    pub until: Option<Moment>,

    /// Void votes that came from this client: its address. Takes TALLY_ADDRESS_KEYS, as the servers have it
    #[arg(long, requires = "address_keys")]
    pub address: Option<IpAddr>,

    /// Void votes that came from the same client as this vote
    #[arg(long, value_parser = vote_id, value_name = "VOTE", conflicts_with = "address")]
    pub address_of: Option<VoteId>,

    #[command(flatten)]
    pub address_settings: AddressSettings,

    /// Why; kept with the voiding
    #[arg(long, required_unless_present_any = ["resume", "undo", "list"])]
    pub reason: Option<String>,

    /// Do it; without this, only say what would be done
    #[arg(long)]
    pub apply: bool,

    /// Go on with a voiding, or the undoing of one, that was interrupted
    #[arg(long, value_name = "VOIDING", conflicts_with_all = ["voter", "item", "from", "until", "address", "address_of", "reason", "apply", "undo", "list"])]
    pub resume: Option<i64>,

    /// Cast the votes of a voiding again, as far as their items and voters still allow it
    #[arg(long, value_name = "VOIDING", conflicts_with_all = ["voter", "item", "from", "until", "address", "address_of", "reason", "apply", "list"])]
    pub undo: Option<i64>,

    /// Show the voidings
    #[arg(long, conflicts_with_all = ["voter", "item", "from", "until", "address", "address_of", "reason", "apply"])]
    pub list: bool,

    /// Print the result as a line of JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub stores: Stores,
}

/// Where Postgres is, and how to print.
#[derive(Args, Clone)]
pub struct Database {
    /// Postgres, with a login in the role tally_operator: postgres://user:password@host:port/database
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_parser = super::store_url, value_name = "URL")]
    pub database_url: String,

    /// Print the result as lines of JSON
    #[arg(long)]
    pub json: bool,
}

/// `tally key`.
#[derive(Subcommand)]
pub enum ApiKeyCommand {
    /// Make an API key, and show it: once
    Create(ApiKeyCreate),
    /// Show the API keys: whose they are, not the keys
    List(Database),
    /// Revoke an API key: servers refuse it within 60 s
    Revoke(ApiKeyRevoke),
    /// Make an API key in place of one, which still works for a while
    Rotate(ApiKeyRotate),
}

impl ApiKeyCommand {
    /// Where Postgres is.
    pub fn database(&self) -> &Database {
        match self {
            Self::Create(create) => &create.database,
            Self::List(database) => database,
            Self::Revoke(revoke) => &revoke.database,
            Self::Rotate(rotate) => &rotate.database,
        }
    }
}

/// `tally key create`.
#[derive(Args)]
pub struct ApiKeyCreate {
    /// Whose it is, or where it is used
    pub name: String,

    /// What it allows: vote, admin or report; several, separated by commas
    #[arg(long, required = true, value_delimiter = ',', value_name = "SCOPE")]
    pub scope: Vec<Scope>,

    /// Until when it works, like 2030-01-31T18:00:00Z
    #[arg(long, value_parser = moment, value_name = "TIME")]
    pub expires_at: Option<Moment>,

    #[command(flatten)]
    pub database: Database,
}

/// `tally key revoke`.
#[derive(Args)]
pub struct ApiKeyRevoke {
    /// Its id, as tally key list shows it
    pub id: i64,

    #[command(flatten)]
    pub database: Database,
}

/// `tally key rotate`.
#[derive(Args)]
pub struct ApiKeyRotate {
    /// Its id, as tally key list shows it
    pub id: i64,

    /// How long the old one still works
    #[arg(long, default_value = "1h", value_parser = super::duration, value_name = "DURATION")]
    pub grace: std::time::Duration,

    #[command(flatten)]
    pub database: Database,
}

/// `tally trail`.
#[derive(Args)]
pub struct Trail {
    /// How many acts
    #[arg(long, default_value_t = TRAIL_DEFAULT_ACTS, value_parser = clap::value_parser!(i64).range(1..=TRAIL_LIMIT_ACTS), value_name = "ACTS")]
    pub limit: i64,

    /// Acts at this time or later, by Postgres' clock, like 2030-01-31T18:00:00Z
    #[arg(long, value_parser = moment, value_name = "TIME")]
    pub since: Option<Moment>,

    /// Acts before this time
    #[arg(long, value_parser = moment, value_name = "TIME")]
    pub until: Option<Moment>,

    /// Acts that were noted before the one of this id: the next page
    #[arg(long, value_name = "ID")]
    pub before: Option<i64>,

    /// Acts of this one only, like api_key:3, login:ada or anyone
    #[arg(long, value_name = "WHO")]
    pub who: Option<String>,

    /// Acts of this kind only, like item.create
    #[arg(long, value_parser = act_kind, value_name = "WHAT")]
    pub what: Option<&'static str>,

    #[command(flatten)]
    pub database: Database,
}

/// The kind of act of this name.
fn act_kind(text: &str) -> Result<&'static str, String> {
    let mut names = ActKind::ALL.iter().map(|kind| kind.name());
    names.find(|name| *name == text).ok_or_else(|| {
        let names: Vec<&str> = ActKind::ALL.iter().map(|kind| kind.name()).collect();
        format!("it takes one of {}", names.join(", "))
    })
}
