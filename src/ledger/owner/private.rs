//! A database and logins for a private Postgres: `tally dev` and the tests.

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection, Executor};

use super::Role;
use crate::ledger::LedgerError;

/// Whether a name can stand in a statement without quotes.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// Creates a database unless it exists. `name` may only have lowercase letters and underscores.
///
/// # Errors
/// When the name is not allowed.
pub async fn create_database(admin_url: &str, name: &str) -> Result<(), LedgerError> {
    if !is_plain(name) {
        return Err(sqlx::Error::Configuration(format!("{name:?} is no plain database name").into()).into());
    }
    let mut connection = PgConnection::connect(admin_url).await?;
    let exists = sqlx::query_scalar!(
        r#"select exists (select from pg_database where datname = $1) as "exists!""#,
        name
    )
    .fetch_one(&mut connection)
    .await?;
    if !exists {
        connection
            .execute(format!("create database {name}").as_str())
            .await?;
    }
    Ok(())
}

/// Creates a login for each of these: role, login's name, password. An existing login gets the
/// password. For private databases. A name may only have lowercase letters and underscores.
///
/// # Errors
/// When the roles do not exist, or a name is not allowed.
pub async fn create_logins(admin_url: &str, logins: &[(Role, &str, &str)]) -> Result<(), LedgerError> {
    // The statements hold the passwords: neither sqlx nor Postgres may log them.
    let options: PgConnectOptions = admin_url.parse()?;
    let options = options.disable_statement_logging().options([
        ("log_statement", "none"),
        ("log_min_duration_statement", "-1"),
        ("log_min_error_statement", "panic"),
    ]);
    let mut connection = PgConnection::connect_with(&options).await?;
    for (role, login, password) in logins {
        if !is_plain(login) {
            return Err(sqlx::Error::Configuration(format!("{login:?} is no plain login").into()).into());
        }
        // `create role` takes no parameters, so Postgres itself quotes the values.
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
