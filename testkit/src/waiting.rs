//! Waits for a condition.

use std::time::Duration;

use anyhow::bail;
use tokio::time::{Instant, sleep};

/// How long [`eventually`] waits.
/// No test measures this: a slow machine only waits longer.
pub const CONDITION_LIMIT: Duration = Duration::from_secs(60);
/// How often a condition is checked.
pub const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Waits until `condition` returns something. Returns that.
///
/// # Errors
/// After `limit`. The error names `what`.
pub async fn until<T>(
    what: &str,
    limit: Duration,
    mut condition: impl AsyncFnMut() -> Option<T>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = condition().await {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            bail!("never came true within {limit:?}: {what}");
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Waits until `condition` returns something.
/// Fails the test if that takes too long.
pub async fn eventually<T>(what: &str, condition: impl AsyncFnMut() -> Option<T>) -> T {
    until(what, CONDITION_LIMIT, condition)
        .await
        .unwrap_or_else(|error| panic!("{error}"))
}
