//! The metrics: each one moves with its condition. And the traces.
//! Metrics are the process's own, so no other test may run in this process.

mod programs;
mod server;
mod traces;
mod worker;

use crate::helpers::eventually;
use crate::helpers::metrics::metric;

/// Set for a test that runs in a process of its own.
const ALONE: &str = "TALLY_TEST_ALONE";

/// Whether this test has the process, and with it all metrics, to itself.
pub fn is_alone() -> bool {
    std::env::var_os("NEXTEST").is_some() || std::env::var_os(ALONE).is_some()
}

/// Runs the test in another process, if other tests share this one.
/// Then returns true. `cargo test` runs all tests in one process; nextest gives each its own.
pub async fn passes_alone(name: &str) -> bool {
    if is_alone() {
        return false;
    }
    let mut test = tokio::process::Command::new(std::env::current_exe().expect("this program"));
    test.args(["--exact", name]).env(ALONE, "1");
    let output = test.output().await.expect("this program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    true
}

/// Each of these samples has this value.
fn assert_values(values: &[(&str, f64)]) {
    for (sample, expected) in values {
        let found = metric(sample);
        assert!(
            (found - expected).abs() < 1e-9,
            "{sample} is {found}, not {expected}"
        );
    }
}

/// Waits until each of these samples is above 0.
async fn until_above_0(samples: &[&str]) {
    for sample in samples {
        eventually(&format!("{sample} is above 0"), async || {
            (metric(sample) > 0.0).then_some(())
        })
        .await;
    }
}
