//! A private Postgres, a private Redis with its Sentinels or a private Redis Cluster, and a private HAProxy: for `tally
//! dev`, the tests and the bench.

mod cluster;
mod haproxy;
mod postgres;
mod process;
mod redis;
mod sentinels;

use std::path::{Path, PathBuf};

pub use cluster::PrivateCluster;
pub use haproxy::PrivateProxy;
pub use postgres::{Durability, PrivatePostgres};
pub use process::{Process, free_port};
pub use redis::{PrivateRedis, redis_login_url};
pub use sentinels::PrivateSentinels;

use crate::telemetry;

/// The folder itself, or one that Postgres can reach. Postgres refuses to run as root, and its user
/// may have no way into root's folders.
///
/// # Errors
/// When neither folder can be created.
pub fn usable_folder(folder: &Path) -> anyhow::Result<PathBuf> {
    if process::can_enter(folder)? {
        return Ok(folder.to_owned());
    }
    let name: String = folder
        .to_string_lossy()
        .chars()
        .map(|one| if one.is_ascii_alphanumeric() { one } else { '-' })
        .collect();
    let other = Path::new("/var/tmp").join(format!("tally{name}"));
    std::fs::create_dir_all(&other)?;
    telemetry::complain(format_args!(
        "Postgres, which does not run as root, cannot reach {}; its data are in {}",
        folder.display(),
        other.display()
    ));
    Ok(other)
}
