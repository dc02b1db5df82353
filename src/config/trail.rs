//! Settings of `tally trail`.

use clap::Args;

use super::database::Database;
use super::values::moment;
use crate::domain::{ActKind, Moment};

/// Acts that `tally trail` shows by default.
const TRAIL_DEFAULT_ACTS: i64 = 100;
/// The most acts that `tally trail` shows at once.
const TRAIL_LIMIT_ACTS: i64 = 10_000;

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
