//! Who may do what: the roles that server, worker and reports log in with.

use std::fmt;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection, Executor};
use tokio::time::sleep;

use super::{Ledger, LedgerError};

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

impl Ledger {
    /// Makes the roles unless they are there, and grants each what it needs. Safe
    /// to run several at once, in one database and in several of a cluster.
    ///
    /// # Errors
    /// When Postgres is away.
    pub async fn grant_roles(&self) -> Result<Roles, LedgerError> {
        let mut tries = 1;
        loop {
            // One text of several statements: one transaction, ended by its end.
            match self.pool.execute(include_str!("sql/roles.sql")).await {
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

/// Makes a login for each of these roles, or gives the one that is there this
/// password. For private databases; a login's name may have letters and underscores only.
///
/// # Errors
/// When Postgres is away, or the roles were not made.
pub async fn create_logins(admin_url: &str, logins: &[(Role, &str, &str)]) -> Result<(), LedgerError> {
    // The passwords stand in the statements: sqlx is not to log them, nor is Postgres.
    let options: PgConnectOptions = admin_url.parse()?;
    let options = options.disable_statement_logging().options([
        ("log_statement", "none"),
        ("log_min_duration_statement", "-1"),
        ("log_min_error_statement", "panic"),
    ]);
    let mut connection = PgConnection::connect_with(&options).await?;
    for (role, login, password) in logins {
        if !super::is_plain(login) {
            return Err(sqlx::Error::Configuration(format!("{login:?} is no plain login").into()).into());
        }
        // Such a statement takes no parameters: Postgres itself puts them into its text.
        let statement = sqlx::query_scalar!(
            r#"select case when exists (select from pg_roles where rolname = $1)
                      then format('alter role %I login password %L', $1::text, $2::text)
                      else format('create role %I login password %L in role %I', $1::text, $2::text, $3::text)
                 end as "statement!""#,
            login,
            password,
            role.name()
        )
        .fetch_one(&mut connection)
        .await?;
        connection.execute(statement.as_str()).await?;
    }
    Ok(connection.close().await?)
}
