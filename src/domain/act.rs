//! Administrative acts: what the trail notes.

use std::fmt;
use std::net::IpAddr;

use serde::Serialize;
use serde_json::Value;

use super::{ApiKeyId, Moment};

/// One line for each kind of act: its name here and in the trail.
macro_rules! kinds {
    ($($(#[doc = $help:literal])+ $name:ident = $text:literal;)+) => {
        /// What an administrative act does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ActKind {
            $($(#[doc = $help])+ $name,)+
        }

        impl ActKind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Its name in the trail.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }
        }
    };
}

kinds! {
    /// An item is created.
    ItemCreate = "item.create";
    /// An item is edited.
    ItemEdit = "item.edit";
    /// Who may vote on an item is set.
    ItemAccess = "item.access";
    /// A poll is created.
    PollCreate = "poll.create";
    /// A poll is edited.
    PollEdit = "poll.edit";
    /// A choice is added to a poll.
    ChoiceCreate = "choice.create";
    /// Who may vote in a poll is set.
    PollAccess = "poll.access";
    /// Ballots are created.
    BallotsCreate = "ballots.create";
    /// An API key is created.
    ApiKeyCreate = "api_key.create";
    /// An API key is rotated: a new one is created in its place.
    ApiKeyRotate = "api_key.rotate";
    /// An API key is revoked.
    ApiKeyRevoke = "api_key.revoke";
    /// A voiding is created.
    VoidingCreate = "voiding.create";
    /// The votes of a voiding, or the rest of them, are taken back.
    VoidingRun = "voiding.run";
    /// The votes of a voiding, or the rest of them, are cast again.
    VoidingUndo = "voiding.undo";
    /// An edit of a voter is created: a renaming, a merge or an erasure.
    VoterEditCreate = "voter_edit.create";
    /// An edit of a voter, or the rest of it, is done.
    VoterEditRun = "voter_edit.run";
    /// Votes of a file, or the rest of them, are imported.
    VotesImport = "votes.import";
    /// Items of a file are imported.
    ItemsImport = "items.import";
    /// Polls of a file are imported.
    PollsImport = "polls.import";
    /// Votes of what has closed are written to a file, which is compared with the ledger.
    ArchiveRun = "archive.run";
    /// Votes that a checked file has are deleted from the ledger.
    ArchiveDrop = "archive.drop";
    /// An archive is given up before a vote is deleted.
    ArchiveCancel = "archive.cancel";
    /// Someone asks for an audit, which a worker then does.
    AuditAsk = "audit.ask";
    /// An audit looks for wrong counts and has them rebuilt.
    AuditRepair = "audit.repair";
    /// Events are delivered again.
    EventResend = "event.resend";
    /// Migrations are run.
    Migrate = "migrate";
}

/// Who acts over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    ApiKey(ApiKeyId),
    /// `TALLY_OPEN` opens administration, and there is no credential.
    Anyone,
}

impl fmt::Display for Who {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ApiKey(id) => write!(out, "api_key:{}", id.0),
            Self::Anyone => out.write_str("anyone"),
        }
    }
}

/// Who acts over HTTP, and from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actor {
    pub who: Who,
    pub address: Option<IpAddr>,
}

/// What became of an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ActOutcome {
    /// The outcome follows in a later row, unless the program is ended before.
    Begun,
    Done,
    /// The act was not allowed, or not possible.
    Refused,
    /// The act could not be done, or nobody knows whether it was.
    Failed,
}

/// An act that is to be noted. The statement that does the act notes its target.
#[derive(Clone, Debug, Serialize)]
pub struct NewAct {
    /// `None`: the login in Postgres.
    who: Option<String>,
    tool: String,
    address: Option<IpAddr>,
    what: &'static str,
    outcome: ActOutcome,
    problem: Option<String>,
    begun_id: Option<i64>,
    details: Value,
}

impl NewAct {
    /// An act over HTTP, with the outcome "done".
    pub fn over_http(actor: Actor, what: ActKind) -> Self {
        Self {
            who: Some(actor.who.to_string()),
            address: actor.address,
            ..Self::with(what, "http")
        }
    }

    /// An act from the command line, by this tool's login, with the outcome "done".
    pub fn with(what: ActKind, tool: &str) -> Self {
        Self {
            who: None,
            tool: tool.to_owned(),
            address: None,
            what: what.name(),
            outcome: ActOutcome::Done,
            problem: None,
            begun_id: None,
            // An object, into which a statement may put what it learns.
            details: Value::Object(serde_json::Map::new()),
        }
    }

    /// More about the act: an object, never with a key, a ballot, a password or a voter.
    #[must_use]
    pub fn details(self, details: Value) -> Self {
        Self { details, ..self }
    }

    /// Sets the outcome, and the problem type that is its reason.
    #[must_use]
    pub fn outcome(self, outcome: ActOutcome, problem: Option<&str>) -> Self {
        Self {
            outcome,
            problem: problem.map(str::to_owned),
            ..self
        }
    }

    /// Says that this is the outcome of the act whose beginning is this row.
    #[must_use]
    pub fn of(self, begun_id: Option<i64>) -> Self {
        Self { begun_id, ..self }
    }

    /// The act as the ledger takes it.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A row of the trail.
#[derive(Clone, Debug, Serialize)]
pub struct Act {
    pub id: i64,
    pub acted_at: Moment,
    /// `api_key:3`, `login:tally_op` or `anyone`.
    pub who: String,
    pub what: String,
    /// What the act was done on: `item:5`.
    pub target: Option<String>,
    /// `begun`, `done`, `refused` or `failed`.
    pub outcome: String,
    /// The problem type of a refusal or failure.
    pub problem: Option<String>,
    /// `http`, or a program.
    pub tool: String,
    pub address: Option<String>,
    /// The login in Postgres that noted it.
    pub login: String,
    /// The row that notes the act's beginning.
    pub begun_id: Option<i64>,
    pub details: Value,
}

/// Which rows of the trail to show; `None`: it does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrailFilter {
    /// Noted at this time or later, by the database's clock.
    pub since: Option<Moment>,
    /// Noted before this time.
    pub until: Option<Moment>,
    /// Older than this row.
    pub before_id: Option<i64>,
    pub who: Option<String>,
    pub what: Option<String>,
}
