//! Settings of `tally event`.

use clap::{ArgGroup, Args, Subcommand};

use super::database::Database;
use crate::domain::EventId;

/// Events that `tally event list` shows by default.
const LIST_DEFAULT_EVENTS: i64 = 100;
/// The most events that `tally event list` shows at once.
const LIST_LIMIT_EVENTS: i64 = 10_000;

fn event_id(text: &str) -> Result<EventId, String> {
    text.parse()
        .map_err(|()| "it takes an event's id, as tally event list shows it: a positive number".to_owned())
}

/// `tally event`.
#[derive(Subcommand)]
pub enum EventCommand {
    /// List events, newest first
    List(EventList),
    /// Show an event with what the webhook is sent
    Show(EventShow),
    /// Have events delivered again
    Resend(EventResend),
}

impl EventCommand {
    /// Returns the database's address and the output format.
    pub fn database(&self) -> &Database {
        match self {
            Self::List(list) => &list.database,
            Self::Show(show) => &show.database,
            Self::Resend(resend) => &resend.database,
        }
    }
}

/// `tally event list`.
#[derive(Args)]
pub struct EventList {
    /// Only dead letters: events that a worker gave up
    #[arg(long, conflicts_with = "waiting")]
    pub dead: bool,

    /// Only events that are to be delivered
    #[arg(long)]
    pub waiting: bool,

    /// The most events to show
    #[arg(long, default_value_t = LIST_DEFAULT_EVENTS, value_parser = clap::value_parser!(i64).range(1..=LIST_LIMIT_EVENTS), value_name = "EVENTS")]
    pub limit: i64,

    /// Only events with a lower id than this one: the next page
    #[arg(long, value_parser = event_id, value_name = "ID")]
    pub before: Option<EventId>,

    #[command(flatten)]
    pub database: Database,
}

/// `tally event show`.
#[derive(Args)]
pub struct EventShow {
    /// The event's id, as tally event list shows it
    #[arg(value_parser = event_id)]
    pub id: EventId,

    #[command(flatten)]
    pub database: Database,
}

/// `tally event resend`.
#[derive(Args)]
#[command(group(ArgGroup::new("which").required(true).args(["id", "dead"])))]
pub struct EventResend {
    /// The event's id, as tally event list shows it; also one that was delivered
    #[arg(value_parser = event_id)]
    pub id: Option<EventId>,

    /// All dead letters
    #[arg(long)]
    pub dead: bool,

    #[command(flatten)]
    pub database: Database,
}
