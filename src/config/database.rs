//! Settings of each operator's command that asks Postgres: its address, the output format.

use clap::Args;

use super::values::store_url;

/// The database's address, and the output format.
#[derive(Args, Clone)]
pub struct Database {
    /// Postgres, with a login in the role tally_operator: postgres://user:password@host:port/database
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_parser = store_url, value_name = "URL")]
    pub database_url: String,

    /// Print the result as lines of JSON
    #[arg(long)]
    pub json: bool,
}
