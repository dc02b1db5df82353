//! Settings of `tally cell`.

use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};

use super::values::{cells, store_url};
use crate::domain::Cell;

/// `tally cell`.
#[derive(Subcommand)]
pub enum CellCommand {
    /// Make a new, empty database the next cell, and print what to do then
    Make(CellMake),
    /// Print the file of a router before the cells
    Router(CellRouter),
}

/// `tally cell make`.
#[derive(Args)]
pub struct CellMake {
    /// The new cell's Postgres, with the login that will own the tables
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_parser = store_url, value_name = "URL")]
    pub database_url: String,

    /// The cell that the database becomes: the number after the last one's
    #[arg(long, env = "TALLY_CELL", value_name = "CELL")]
    pub cell: Cell,
}

/// `tally cell router`.
#[derive(Args)]
pub struct CellRouter {
    /// The router's program
    #[arg(value_enum, value_name = "PROGRAM")]
    pub program: RouterFor,

    /// The servers of a cell, such as 10.0.0.11:8080, separated by commas; repeat the flag for each cell, in their order
    #[arg(long, required = true, value_name = "SERVERS")]
    pub servers: Vec<CellServers>,

    /// In how many cells, from cell 0 on, items and polls with own keys lie. It never changes: a key's cell depends on it
    #[arg(long, env = "TALLY_KEY_CELLS", default_value_t = 1, value_parser = cells, value_name = "CELLS")]
    pub key_cells: u16,

    /// The first cell that takes new items and polls; those after it do too
    #[arg(long, default_value_t = 0, value_name = "CELL")]
    pub new_from: u16,
}

impl CellRouter {
    /// Returns how many cells take new items.
    pub fn new_cells(&self) -> u16 {
        let cells = u16::try_from(self.servers.len()).unwrap_or(u16::MAX);
        cells.saturating_sub(self.new_from).max(1)
    }

    /// Checks that the cells that are named are there.
    ///
    /// # Errors
    /// When there are fewer: one line.
    pub fn check(&self) -> Result<(), String> {
        let cells = self.servers.len();
        if usize::from(self.new_from) >= cells {
            return Err(format!(
                "--new-from is {}, and --servers gives {cells} cells, from 0 on",
                self.new_from
            ));
        }
        if usize::from(self.key_cells) > cells {
            return Err(format!(
                "--key-cells is {}, and --servers gives {cells} cells",
                self.key_cells
            ));
        }
        Ok(())
    }
}

/// A program that routes requests to cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RouterFor {
    Haproxy,
    Nginx,
}

/// The addresses of a cell's servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellServers(pub Vec<String>);

/// Accepts hosts with ports, separated by commas.
impl FromStr for CellServers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_address = |address: &str| {
            let is_host = |host: &str| {
                !host.is_empty()
                    && host
                        .bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || b".-[]:".contains(&byte))
            };
            address
                .rsplit_once(':')
                .is_some_and(|(host, port)| is_host(host) && port.parse::<u16>().is_ok())
        };
        if text.split(',').all(is_address) {
            Ok(Self(text.split(',').map(str::to_owned).collect()))
        } else {
            Err("it takes addresses with ports, like 10.0.0.11:8080,10.0.0.12:8080".to_owned())
        }
    }
}
