//! Settings of an operator's commands: `tally item`, `poll`, `watch`, `ballots`, `key`, `trail` and `cell`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};

use super::values::cells;
use crate::domain::{ActKind, ApiKey, Cell, Moment, Scope};

/// Acts that `tally trail` shows by default.
const TRAIL_DEFAULT_ACTS: i64 = 100;
/// The most acts that `tally trail` shows at once.
const TRAIL_LIMIT_ACTS: i64 = 10_000;

pub(super) fn moment(text: &str) -> Result<Moment, String> {
    text.parse::<Moment>().map_err(|error| error.to_string())
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

/// The server's address, and the output format.
#[derive(Args, Clone, Debug)]
pub struct Remote {
    /// The URL of the server
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

    /// Print the server's answers unchanged, each as a line of JSON
    #[arg(long)]
    pub json: bool,
}

/// The credential that a client sends.
#[derive(Args, Clone, Debug)]
pub struct Credential {
    /// An API key, if the server needs one
    #[arg(long, env = "TALLY_API_KEY", hide_env_values = true, value_parser = api_key, value_name = "KEY")]
    pub api_key: Option<ApiKey>,
}

/// Reads an API key. The error does not repeat the value.
pub fn api_key(text: &str) -> Result<ApiKey, String> {
    ApiKey::parse(text)
        .ok_or_else(|| "it is not an API key; a key is tally_ and 64 hexadecimal digits".to_owned())
}

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

    /// Take votes from this time on, such as 2030-01-31T18:00:00Z
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
    /// The item or poll: its id, or key: followed by your own key
    pub id: String,

    #[command(flatten)]
    pub remote: Remote,
}

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

/// `tally item import`.
#[derive(Args)]
pub struct ItemImport {
    /// The file, with a name on each line, or a key, a tab and a name; - reads standard input. An item whose
    /// key exists already stays as it is. A line that gives it another name is refused
    pub file: PathBuf,

    #[command(flatten)]
    pub remote: Remote,
}

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

    /// Take votes from this time on, such as 2030-01-31T18:00:00Z
    #[arg(long, value_parser = moment, value_name = "TIME")]
    pub opens_at: Option<Moment>,

    /// Take votes until this time
    #[arg(long, value_parser = moment, value_name = "TIME")]
    pub closes_at: Option<Moment>,

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

    /// Take votes from this time on, such as 2030-01-31T18:00:00Z
    #[arg(long, value_parser = moment, value_name = "TIME")]
    pub opens_at: Option<Moment>,

    /// Take votes until this time
    #[arg(long, value_parser = moment, value_name = "TIME")]
    pub closes_at: Option<Moment>,

    #[command(flatten)]
    pub remote: Remote,
}

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
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=super::BALLOTS_LIMIT), value_name = "BALLOTS")]
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

/// The database's address, and the output format.
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
    /// Create an API key, and show it once
    Create(ApiKeyCreate),
    /// List API keys, without their secrets
    List(Database),
    /// Revoke an API key: servers refuse it within 60 s
    Revoke(ApiKeyRevoke),
    /// Create an API key that replaces another one, which still works for a while
    Rotate(ApiKeyRotate),
}

impl ApiKeyCommand {
    /// Returns the database's address and the output format.
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
    /// The key's owner, or where the key is used
    pub name: String,

    /// The scopes of the key: vote, admin or report; separated by commas
    #[arg(long, required = true, value_delimiter = ',', value_name = "SCOPE")]
    pub scope: Vec<Scope>,

    /// The time at which the key expires, such as 2030-01-31T18:00:00Z
    #[arg(long, value_parser = moment, value_name = "TIME")]
    pub expires_at: Option<Moment>,

    #[command(flatten)]
    pub database: Database,
}

/// `tally key revoke`.
#[derive(Args)]
pub struct ApiKeyRevoke {
    /// The key's id, as tally key list shows it
    pub id: i64,

    #[command(flatten)]
    pub database: Database,
}

/// `tally key rotate`.
#[derive(Args)]
pub struct ApiKeyRotate {
    /// The key's id, as tally key list shows it
    pub id: i64,

    /// How long the old key still works
    #[arg(long, default_value = "1h", value_parser = super::duration, value_name = "DURATION")]
    pub grace: std::time::Duration,

    #[command(flatten)]
    pub database: Database,
}

/// `tally trail`.
#[derive(Args)]
pub struct Trail {
    /// The most acts to show
    #[arg(long, default_value_t = TRAIL_DEFAULT_ACTS, value_parser = clap::value_parser!(i64).range(1..=TRAIL_LIMIT_ACTS), value_name = "ACTS")]
    pub limit: i64,

    /// Only acts at this time or later, by Postgres' clock, such as 2030-01-31T18:00:00Z
    #[arg(long, value_parser = moment, value_name = "TIME")]
    pub since: Option<Moment>,

    /// Only acts before this time
    #[arg(long, value_parser = moment, value_name = "TIME")]
    pub until: Option<Moment>,

    /// Only acts that were noted before the act with this id: the next page
    #[arg(long, value_name = "ID")]
    pub before: Option<i64>,

    /// Only acts of this actor, such as api_key:3, login:ada or anyone
    #[arg(long, value_name = "WHO")]
    pub who: Option<String>,

    /// Only acts of this kind, such as item.create
    #[arg(long, value_parser = act_kind, value_name = "WHAT")]
    pub what: Option<&'static str>,

    #[command(flatten)]
    pub database: Database,
}

/// Finds the kind of act with this name.
fn act_kind(text: &str) -> Result<&'static str, String> {
    let mut names = ActKind::ALL.iter().map(|kind| kind.name());
    names.find(|name| *name == text).ok_or_else(|| {
        let names: Vec<&str> = ActKind::ALL.iter().map(|kind| kind.name()).collect();
        format!("it takes one of {}", names.join(", "))
    })
}

/// `tally cell`.
#[derive(Subcommand)]
pub enum CellCommand {
    /// Make a new, empty database the next cell, and print what to do then
    Make(CellMake),
    /// Print the file of a router before the cells
    Router(CellRouter),
}

/// `tally cell make`.
#[derive(Args)]
pub struct CellMake {
    /// The new cell's Postgres, with the login that will own the tables
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_parser = super::store_url, value_name = "URL")]
    pub database_url: String,

    /// The cell that the database becomes: the number after the last one's
    #[arg(long, env = "TALLY_CELL", value_name = "CELL")]
    pub cell: Cell,
}

/// `tally cell router`.
#[derive(Args)]
pub struct CellRouter {
    /// The router's program
    #[arg(value_enum, value_name = "PROGRAM")]
    pub program: RouterFor,

    /// The servers of a cell, such as 10.0.0.11:8080, separated by commas; repeat the flag for each cell, in their order
    #[arg(long, required = true, value_name = "SERVERS")]
    pub servers: Vec<CellServers>,

    /// In how many cells, from cell 0 on, items and polls with own keys lie. It never changes: a key's cell depends on it
    #[arg(long, env = "TALLY_KEY_CELLS", default_value_t = 1, value_parser = cells, value_name = "CELLS")]
    pub key_cells: u16,

    /// The first cell that takes new items and polls; those after it do too
    #[arg(long, default_value_t = 0, value_name = "CELL")]
    pub new_from: u16,
}

impl CellRouter {
    /// Returns how many cells take new items.
    pub fn new_cells(&self) -> u16 {
        let cells = u16::try_from(self.servers.len()).unwrap_or(u16::MAX);
        cells.saturating_sub(self.new_from).max(1)
    }

    /// Checks that the cells that are named are there.
    ///
    /// # Errors
    /// When there are fewer: one line.
    pub fn check(&self) -> Result<(), String> {
        let cells = self.servers.len();
        if usize::from(self.new_from) >= cells {
            return Err(format!(
                "--new-from is {}, and --servers gives {cells} cells, from 0 on",
                self.new_from
            ));
        }
        if usize::from(self.key_cells) > cells {
            return Err(format!(
                "--key-cells is {}, and --servers gives {cells} cells",
                self.key_cells
            ));
        }
        Ok(())
    }
}

/// A program that routes requests to cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RouterFor {
    Haproxy,
    Nginx,
}

/// The addresses of a cell's servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellServers(pub Vec<String>);

/// Accepts hosts with ports, separated by commas.
impl FromStr for CellServers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_address = |address: &str| {
            let is_host = |host: &str| {
                !host.is_empty()
                    && host
                        .bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || b".-[]:".contains(&byte))
            };
            address
                .rsplit_once(':')
                .is_some_and(|(host, port)| is_host(host) && port.parse::<u16>().is_ok())
        };
        if text.split(',').all(is_address) {
            Ok(Self(text.split(',').map(str::to_owned).collect()))
        } else {
            Err("it takes addresses with ports, like 10.0.0.11:8080,10.0.0.12:8080".to_owned())
        }
    }
}
