//! The metrics: what each says when its condition is there.

use crate::helpers::eventually;
use crate::helpers::tally::{Tally, metrics};

/// How many samples of this histogram are in its buckets. Only the Debug of the handle tells:
/// to render the metrics would put them there.
fn samples_in_buckets(histogram: &str) -> Option<u64> {
    let state = format!("{:?}", metrics());
    let (_, state) = state.split_once("distributions: ")?;
    let (_, state) = state.split_once(&format!("\"{histogram}\": "))?;
    let (_, state) = state.split_once("Histogram(Histogram { count: ")?;
    state.split(',').next()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_are_worked_off_while_nobody_scrapes() {
    let mut tally = Tally::start().await;
    let item = tally.item("x").await;
    for _ in 0..20 {
        tally.add(item, 1).await;
    }
    eventually("the samples are in their buckets", async || {
        (samples_in_buckets("tally_vote_seconds") == Some(20)).then_some(())
    })
    .await;
    // A stopped server works off no more.
    tally.stop().await;
}
