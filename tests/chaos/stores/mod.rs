//! What faults do to a round's Postgres and Redis.

mod failover;
mod postgres;
mod redis;
pub mod sessions;
mod tenant;

use std::path::Path;

use tally::dev::{Durability, PrivatePostgres};
use testkit::stores::make_template;

pub use failover::{AllLost, VoteRow};
pub use postgres::{Postgres, hold_row, hold_snapshot};
pub use redis::Redis;
pub use tenant::write_beside;

/// A migrated Postgres, stopped, that every round copies.
pub async fn template(folder: &Path) -> anyhow::Result<PrivatePostgres> {
    // The write-ahead log must fit onto the small disk.
    let settings = ["alter system set max_wal_size = '96MB'"];
    make_template(&folder.join("template"), Durability::Full, &settings).await
}
