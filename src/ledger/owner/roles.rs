//! The roles: what each login may do.

use std::fmt;

use super::OwnerLedger;
use crate::ledger::LedgerError;

/// What a login may do. Each is a role in Postgres that cannot log in itself.
/// `migrations/roles.sql` says what each role is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `tally serve`.
    Server,
    /// `sync-worker` and `tally audit`.
    Worker,
    /// Reports: they only read.
    Report,
    /// `tally void`.
    Operator,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Server, Self::Worker, Self::Report, Self::Operator];

    /// The role's name in Postgres.
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "tally_server",
            Self::Worker => "tally_worker",
            Self::Report => "tally_report",
            Self::Operator => "tally_operator",
        }
    }
}

/// Whether the roles could be created and granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roles {
    /// The roles exist, with exactly what they need.
    Granted,
    /// The login that migrates may not create or grant roles; with Postgres' own words. Tally then
    /// works without the roles, with the login that owns the tables.
    Refused(String),
}

impl fmt::Display for Roles {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [server, worker, report, operator] = Role::ALL.map(Role::name);
        match self {
            Self::Granted => write!(
                out,
                "the roles {server}, {worker}, {report} and {operator} are granted"
            ),
            Self::Refused(why) => write!(
                out,
                "the roles {server}, {worker}, {report} and {operator} are not granted ({why}); all works with \
                 the login that owns the tables. To have the roles, let one that may run: create role \
                 {server}; create role {worker}; create role {report}; create role {operator}; and then run \
                 tally migrate again"
            ),
        }
    }
}

impl OwnerLedger {
    /// Creates the roles unless they exist, and grants each what it needs. Several programs may do
    /// so at once, in one database or in several of a cluster.
    pub async fn grant_roles(&self) -> Result<Roles, LedgerError> {
        match self.apply(&[include_str!("../../../migrations/roles.sql")]).await {
            Ok(()) => Ok(Roles::Granted),
            Err(sqlx::Error::Database(error)) if is_refusal(&*error) => {
                Ok(Roles::Refused(error.message().to_owned()))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether the login may not do this: insufficient_privilege.
fn is_refusal(error: &dyn sqlx::error::DatabaseError) -> bool {
    error.code().as_deref() == Some("42501")
}
