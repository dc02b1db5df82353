//! What the tests stand on.

pub mod programs;
pub mod stores;
pub mod tally;

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How long a condition may take to come true before the test gives up. Nothing is
/// measured by it: a slow machine waits longer, that is all.
const CONDITION_LIMIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Waits until `condition` returns something.
pub async fn eventually<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + CONDITION_LIMIT;
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(Instant::now() < deadline, "never came true: {what}");
        sleep(LOOK_EVERY).await;
    }
}
