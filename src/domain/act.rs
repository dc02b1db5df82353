//! Administrative acts: what the trail notes.

use std::fmt;
use std::net::IpAddr;

use serde::Serialize;
use serde_json::Value;

use super::{ApiKeyId, Moment};

/// What is done, one line each: its name here and in the trail.
macro_rules! kinds {
    ($($(#[doc = $help:literal])+ $name:ident = $text:literal;)+) => {
        /// What an administrative act does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ActKind {
            $($(#[doc = $help])+ $name,)+
        }

        impl ActKind {
            /// All of them.
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
    /// An item is made.
    ItemCreate = "item.create";
    /// An item is edited.
    ItemEdit = "item.edit";
    /// It is set to whom an item is open.
    ItemAccess = "item.access";
    /// A poll is made.
    PollCreate = "poll.create";
    /// A poll is edited.
    PollEdit = "poll.edit";
    /// It is set to whom a poll is open.
    PollAccess = "poll.access";
    /// Ballots are made.
    BallotsCreate = "ballots.create";
    /// An API key is made.
    ApiKeyCreate = "api_key.create";
    /// An API key is made in the place of another one.
    ApiKeyRotate = "api_key.rotate";
    /// An API key is revoked.
    ApiKeyRevoke = "api_key.revoke";
    /// A voiding is made.
    VoidingCreate = "voiding.create";
    /// The votes of a voiding are taken back, or the rest of them.
    VoidingRun = "voiding.run";
    /// The votes of a voiding are cast again, or the rest of them.
    VoidingUndo = "voiding.undo";
    /// An audit is asked for, which a worker does.
    AuditAsk = "audit.ask";
    /// Wrong counts are looked for, and rebuilt.
    AuditRepair = "audit.repair";
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
    /// Its outcome is noted later, unless the program is ended before.
    Begun,
    Done,
    /// It was not allowed, or not possible.
    Refused,
    /// It could not be done, or nobody knows whether it was.
    Failed,
}

/// An act to be noted. What it was done on is noted by the statement that does it.
#[derive(Clone, Debug, Serialize)]
pub struct NewAct {
    /// Without it: the login in Postgres.
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
    /// An act over HTTP that is done.
    pub fn over_http(actor: Actor, what: ActKind) -> Self {
        Self {
            who: Some(actor.who.to_string()),
            address: actor.address,
            ..Self::with(what, "http")
        }
    }

    /// An act from the command line, of the login of this tool, that is done.
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

    /// What else says what is done: an object, never with a key, a ballot, a password or a voter.
    #[must_use]
    pub fn details(self, details: Value) -> Self {
        Self { details, ..self }
    }

    /// What became of it, and the problem type that says why.
    #[must_use]
    pub fn outcome(self, outcome: ActOutcome, problem: Option<&str>) -> Self {
        Self {
            outcome,
            problem: problem.map(str::to_owned),
            ..self
        }
    }

    /// The outcome of the act whose beginning is this row of the trail.
    #[must_use]
    pub fn of(self, begun_id: Option<i64>) -> Self {
        Self { begun_id, ..self }
    }

    /// As the ledger takes it.
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
    /// On what: `item:5`.
    pub target: Option<String>,
    /// begun, done, refused or failed.
    pub outcome: String,
    /// The problem type that says why it was refused or failed.
    pub problem: Option<String>,
    /// `http`, or a program.
    pub tool: String,
    pub address: Option<String>,
    /// The login in Postgres that noted it.
    pub login: String,
    /// The row that notes its beginning.
    pub begun_id: Option<i64>,
    pub details: Value,
}

/// Which rows of the trail; `None`: it does not matter.
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
