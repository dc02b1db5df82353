//! Settings of `tally key`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::database::Database;
use super::values::{duration, moment};
use crate::domain::{Moment, Scope};

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
    #[arg(long, default_value = "1h", value_parser = duration, value_name = "DURATION")]
    pub grace: Duration,

    #[command(flatten)]
    pub database: Database,
}
