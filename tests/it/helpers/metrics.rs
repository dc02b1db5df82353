//! The metrics of the test's own process, and of programs.

use std::collections::HashMap;
use std::sync::OnceLock;

use metrics_exporter_prometheus::PrometheusHandle;

use crate::telemetry::is_alone;

pub fn metrics() -> PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE
        .get_or_init(|| {
            tally::telemetry::init_metrics(&tally::telemetry::Program::ALL).expect("metrics start once")
        })
        .clone()
}

/// The value of a sample, named as in the text: `name` or `name{label="value"}`.
/// Metrics are the process's own: a test that reads them begins with `passes_alone`.
pub fn metric(sample: &str) -> f64 {
    assert!(
        is_alone(),
        "other tests of this process move {sample}, too: call passes_alone first"
    );
    let text = metrics().render();
    let value = text.lines().find_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        (name == sample).then(|| value.parse().ok())?
    });
    value.unwrap_or_else(|| panic!("no {sample} in {text}"))
}

/// The samples of the program at this address, by their names with labels; `None`: it does not answer.
pub async fn samples(base: &str) -> Option<HashMap<String, f64>> {
    let answer = reqwest::get(format!("{base}/metrics")).await.ok()?;
    let text = answer.text().await.ok()?;
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    Some(text.lines().filter_map(sample).collect())
}
