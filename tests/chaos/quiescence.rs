//! Waits until the programs themselves report that they are quiescent.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::bail;
use tokio::time::{Instant, sleep};

use crate::cluster::Cluster;
use crate::credentials;

/// How long a repaired system may take: the slowest repair, that of an audit, begins after 15 s;
/// the rest is time for a busy machine.
pub const QUIESCENCE_LIMIT: Duration = Duration::from_secs(60);
pub const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How many scans, and audits, must have ended. The first may have begun before the wait.
const PASSES: usize = 2;

/// The values that a worker has reported for a metric that every pass changes.
#[derive(Default)]
struct Passes {
    seen: Vec<String>,
}

impl Passes {
    /// Whether enough passes have ended since the first look.
    fn are_enough(&mut self, value: Option<&String>) -> bool {
        if let Some(value) = value
            && self.seen.last() != Some(value)
        {
            self.seen.push(value.clone());
        }
        self.seen.len() > PASSES
    }
}

/// Waits until the programs' own metrics show them quiescent: every server is ready and
/// has no suspect; every worker has nothing unsaved and nothing to rebuild, and if it
/// audits, it has found every item right. All of this in passes that begin after this call.
///
/// # Errors
/// When that does not come true. The error has the last metric that was not right.
pub async fn wait(cluster: &Cluster, audits: bool) -> anyhow::Result<()> {
    let http = credentials::backend();
    let deadline = Instant::now() + QUIESCENCE_LIMIT;
    let mut workers: Vec<(Passes, Passes)> = Vec::new();
    workers.resize_with(cluster.worker_urls.len(), Default::default);
    loop {
        let why = match look(&http, cluster, &mut workers, audits).await {
            Ok(None) => return Ok(()),
            Ok(Some(why)) => why,
            Err(error) => format!("{error:#}"),
        };
        if Instant::now() > deadline {
            bail!("it never reported that it is quiescent: {why}");
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Why it is not quiescent yet.
async fn look(
    http: &reqwest::Client,
    cluster: &Cluster,
    workers: &mut [(Passes, Passes)],
    audits: bool,
) -> anyhow::Result<Option<String>> {
    for url in &cluster.urls {
        let ready = http
            .get(format!("{url}/health/ready"))
            .send()
            .await?
            .text()
            .await?;
        if !ready.contains(r#""status":"ready""#) {
            return Ok(Some(format!("{url} is not ready: {ready}")));
        }
        let metrics = metrics(http, &format!("{url}/metrics")).await?;
        if let Some(why) = is_above_0(&metrics, &["tally_suspect_items", "tally_queue_depth_votes"]) {
            return Ok(Some(format!("{url}: {why}")));
        }
    }
    for (url, (scanned, audited)) in cluster.worker_urls.iter().zip(workers) {
        let metrics = metrics(http, url).await?;
        let scanned = scanned.are_enough(metrics.get("tally_flush_seconds_count"));
        let audited = audited.are_enough(metrics.get("tally_audit_seconds_count"));
        if !scanned || audits && !audited {
            return Ok(Some(format!("{url}: no scan or no audit has ended since")));
        }
        let mut names = vec!["tally_unsaved_counts", "tally_rebuilds_waiting_items"];
        if audits {
            names.extend([
                r#"tally_audit_items{verdict="in_flight"}"#,
                r#"tally_audit_items{verdict="rebuilding"}"#,
                r#"tally_audit_items{verdict="wrong"}"#,
                "tally_audit_drift_votes",
            ]);
        }
        if let Some(why) = is_above_0(&metrics, &names) {
            return Ok(Some(format!("{url}: {why}")));
        }
    }
    Ok(None)
}

fn is_above_0(metrics: &HashMap<String, String>, names: &[&str]) -> Option<String> {
    names
        .iter()
        .map(|name| (name, metrics.get(*name)))
        .find(|(_, value)| value.is_none_or(|value| value != "0"))
        .map(|(name, value)| format!("{name} is {value:?}"))
}

/// Every metric by its name and labels.
async fn metrics(http: &reqwest::Client, url: &str) -> anyhow::Result<HashMap<String, String>> {
    let text = http.get(url).send().await?.error_for_status()?.text().await?;
    Ok(text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect())
}
