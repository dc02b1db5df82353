//! Who may do what: the roles that server, worker and reports log in with.

use std::fmt;
use std::time::Duration;

use sqlx::Executor;
use tokio::time::sleep;

use super::OwnerLedger;
use crate::ledger::LedgerError;

/// How often granting is tried when someone else changes the same grants meanwhile.
const GRANT_LIMIT_TRIES: u32 = 10;
/// How long it waits in between.
const GRANT_EVERY: Duration = Duration::from_millis(50);

/// What a login may do; each is a role of Postgres that cannot log in itself.
/// `sql/roles.sql` says what each is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `tally serve`.
    Server,
    /// `sync-worker` and `tally audit`.
    Worker,
    /// Reports: reading only.
    Report,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Server, Self::Worker, Self::Report];

    /// The role's name in Postgres.
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "tally_server",
            Self::Worker => "tally_worker",
            Self::Report => "tally_report",
        }
    }
}

/// Whether the roles could be made and granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roles {
    /// They are there and have what they need, and nothing else.
    Granted,
    /// The login that migrates may not; what Postgres said. Tally works all the
    /// same with the login that owns the tables.
    Refused(String),
}

impl fmt::Display for Roles {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [server, worker, report] = Role::ALL.map(Role::name);
        match self {
            Self::Granted => write!(out, "the roles {server}, {worker} and {report} are granted"),
            Self::Refused(why) => write!(
                out,
                "the roles {server}, {worker} and {report} are not granted ({why}); all works with the \
                 login that owns the tables. To have the roles, let one that may run: create role {server}; \
                 create role {worker}; create role {report}; and then run tally migrate again"
            ),
        }
    }
}

impl OwnerLedger {
    /// Makes the roles unless they are there, and grants each what it needs. Safe
    /// to run several at once, in one database and in several of a cluster.
    ///
    /// # Errors
    /// When Postgres is unavailable.
    pub async fn grant_roles(&self) -> Result<Roles, LedgerError> {
        let mut tries = 1;
        loop {
            // One text of several statements: one transaction, ended by its end.
            match self.database.pool.execute(include_str!("../sql/roles.sql")).await {
                Ok(_) => return Ok(Roles::Granted),
                Err(sqlx::Error::Database(error)) if is_refusal(&*error) => {
                    return Ok(Roles::Refused(error.message().to_owned()));
                }
                Err(sqlx::Error::Database(error)) if is_collision(&*error) && tries < GRANT_LIMIT_TRIES => {
                    tries += 1;
                    sleep(GRANT_EVERY).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// insufficient_privilege.
fn is_refusal(error: &dyn sqlx::error::DatabaseError) -> bool {
    error.code().as_deref() == Some("42501")
}

/// "tuple concurrently updated", an internal error to Postgres, and a deadlock.
fn is_collision(error: &dyn sqlx::error::DatabaseError) -> bool {
    matches!(error.code().as_deref(), Some("XX000" | "40P01"))
}
