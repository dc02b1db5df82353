//! Waiting until the system itself says that it is at rest.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::bail;
use tokio::time::{Instant, sleep};

use crate::cluster::Cluster;

/// How long a healed system may take. An audit finds what nobody else has after
/// TALLY_IN_FLIGHT_LIMIT (15 s); twice that, and time for a busy machine.
pub const REST_LIMIT: Duration = Duration::from_secs(60);
pub const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The first audit to end may have begun before the last vote.
const AUDITS: usize = 2;

/// At rest, by its own figures: every server is ready and doubts nothing; every
/// worker has left nothing unsaved and nothing to recount, and its audit, begun
/// after this call, has found every item right.
///
/// # Errors
/// What the last figures were, if that does not come true.
pub async fn wait(cluster: &Cluster) -> anyhow::Result<()> {
    let http = reqwest::Client::new();
    let deadline = Instant::now() + REST_LIMIT;
    let mut audits: Vec<Vec<String>> = vec![Vec::new(); cluster.worker_urls.len()];
    loop {
        let why = match look(&http, cluster, &mut audits).await {
            Ok(None) => return Ok(()),
            Ok(Some(why)) => why,
            Err(error) => format!("{error:#}"),
        };
        if Instant::now() > deadline {
            bail!("it never said that it is at rest: {why}");
        }
        sleep(LOOK_EVERY).await;
    }
}

/// What still speaks against it.
async fn look(
    http: &reqwest::Client,
    cluster: &Cluster,
    audits: &mut [Vec<String>],
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
        for name in ["tally_live_doubts_items", "tally_queue_depth_votes"] {
            if metrics.get(name).is_none_or(|value| value != "0") {
                return Ok(Some(format!("{url} has {name} {:?}", metrics.get(name))));
            }
        }
    }
    for (url, audits) in cluster.worker_urls.iter().zip(audits) {
        let metrics = metrics(http, url).await?;
        if let Some(audit) = metrics.get("tally_audit_last_timestamp_seconds")
            && audits.last() != Some(audit)
        {
            audits.push(audit.clone());
        }
        // The first one seen is from before.
        if audits.len() <= AUDITS {
            return Ok(Some(format!("{url} has not audited since")));
        }
        for name in [
            "tally_unsaved_counts",
            "tally_doubted_counts",
            r#"tally_audit_items{verdict="in_flight"}"#,
            r#"tally_audit_items{verdict="doubted"}"#,
            r#"tally_audit_items{verdict="wrong"}"#,
            "tally_audit_drift_votes",
        ] {
            if metrics.get(name).is_none_or(|value| value != "0") {
                return Ok(Some(format!("{url} has {name} {:?}", metrics.get(name))));
            }
        }
    }
    Ok(None)
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
