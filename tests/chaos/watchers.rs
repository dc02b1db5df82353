//! Watchers: clients of live streams through both servers, while everything breaks. A watcher opens
//! a lost stream again, from the last event that it was shown. In the end each watcher must have been
//! shown the right counts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::bail;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::check::Counts;

/// Watchers of each server, unless `WATCHERS` says otherwise.
pub const WATCHERS_PER_SERVER: i64 = 4;
/// Items that each of them watches; neighbours share some of them.
const ITEMS_PER_WATCHER: i64 = 60;
/// A watcher that hears nothing for longer opens its stream again: two heartbeats, and time for a busy
/// machine.
const SILENCE_LIMIT: Duration = Duration::from_secs(40);
/// When a stream that ended or was refused is opened again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// How soon after everything is exact the watchers should be shown the right counts. On a busy machine it
/// may take longer; the report says how often.
pub const BEHIND_LIMIT: Duration = Duration::from_secs(2);
/// A watcher that is shown wrong counts for so long fails the round.
const WRONG_LIMIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What was shown last of an item: its sum, its down-votes, and whether they are current.
type Shown = (i64, i64, bool);

/// What a watcher was shown.
#[derive(Debug, Default)]
struct Seen {
    items: HashMap<i64, Shown>,
    events: u64,
    /// How often a stream was opened.
    opened: u64,
}

struct Watcher {
    url: String,
    /// The items that it watches.
    items: std::ops::Range<i64>,
    seen: Arc<Mutex<Seen>>,
}

/// All watchers of a round.
pub struct Watchers {
    watchers: Vec<Watcher>,
    // Dropped with them.
    _tasks: JoinSet<()>,
}

impl Watchers {
    /// Starts `count` watchers of each server, on the first of `items` items.
    pub fn start(urls: &[String], count: i64, items: i64) -> Self {
        let mut watchers = Vec::new();
        let mut tasks = JoinSet::new();
        for server in urls {
            for at in 0..count {
                // Each begins in the middle of the one before it.
                let first = 1 + at * ITEMS_PER_WATCHER / 2;
                let first = first.min(items);
                let range = first..(first + ITEMS_PER_WATCHER).min(items + 1);
                let ids: Vec<String> = range.clone().map(|id| id.to_string()).collect();
                let url = format!("{server}/v1/stream?items={}", ids.join(","));
                let seen = Arc::new(Mutex::new(Seen::default()));
                tasks.spawn(watch(url.clone(), Arc::clone(&seen)));
                watchers.push(Watcher {
                    url: server.clone(),
                    items: range,
                    seen,
                });
            }
        }
        Self {
            watchers,
            _tasks: tasks,
        }
    }

    /// Events that they were sent, and streams that they opened.
    pub fn events(&self) -> (u64, u64) {
        let seen = self.watchers.iter().map(|watcher| {
            let seen = watcher.seen.lock().unwrap_or_else(PoisonError::into_inner);
            (seen.events, seen.opened)
        });
        seen.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    /// Waits until each watcher was shown these counts, which are exact.
    ///
    /// # Errors
    /// When one was shown something else for longer than [`WRONG_LIMIT`].
    pub async fn until_right(&self, counts: &[Counts]) -> anyhow::Result<Duration> {
        let truth: HashMap<i64, (i64, i64)> = counts
            .iter()
            .map(|one| (one.item, (one.ledger, one.downs.0)))
            .collect();
        let began = Instant::now();
        loop {
            let Some(wrong) = self.wrong(&truth) else {
                return Ok(began.elapsed());
            };
            if began.elapsed() > WRONG_LIMIT {
                bail!("a stream shows something else {WRONG_LIMIT:?} after all was exact: {wrong}");
            }
            sleep(LOOK_EVERY).await;
        }
    }

    fn wrong(&self, truth: &HashMap<i64, (i64, i64)>) -> Option<String> {
        self.watchers.iter().find_map(|watcher| {
            let seen = watcher.seen.lock().unwrap_or_else(PoisonError::into_inner);
            watcher.items.clone().find_map(|item| {
                let (net, downs) = truth.get(&item).copied().unwrap_or_default();
                let shown = seen.items.get(&item);
                (shown != Some(&(net, downs, true))).then(|| {
                    format!(
                        "{}: item {item} has {net}, {downs} of them down; shown: {shown:?}",
                        watcher.url
                    )
                })
            })
        })
    }
}

async fn watch(url: String, seen: Arc<Mutex<Seen>>) {
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let mut last_id = String::new();
    loop {
        // Whatever ends it: a killed server, a cut connection, a refusal.
        let _ = listen(&http, &url, &mut last_id, &seen).await;
        sleep(AGAIN_AFTER).await;
    }
}

/// Listens until the stream ends.
async fn listen(
    http: &reqwest::Client,
    url: &str,
    last_id: &mut String,
    seen: &Mutex<Seen>,
) -> anyhow::Result<()> {
    let mut request = http.get(url);
    if !last_id.is_empty() {
        request = request.header("last-event-id", last_id.as_str());
    }
    let mut answer = timeout(SILENCE_LIMIT, request.send())
        .await??
        .error_for_status()?;
    seen.lock().unwrap_or_else(PoisonError::into_inner).opened += 1;
    let mut rest = String::new();
    while let Some(bytes) = timeout(SILENCE_LIMIT, answer.chunk()).await?? {
        rest += std::str::from_utf8(&bytes)?;
        while let Some((frame, later)) = rest.split_once("\n\n") {
            let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name));
            if let (Some(id), Some(data)) = (field("id: "), field("data: ")) {
                let event: Value = serde_json::from_str(data)?;
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.events += 1;
                for item in event["items"].as_array().into_iter().flatten() {
                    let number = |name: &str| item[name].as_i64().unwrap_or(i64::MIN);
                    let shown = (
                        number("vote_count"),
                        number("down_count"),
                        item["current"] == true,
                    );
                    seen.items.insert(number("id"), shown);
                }
                // Only a whole event counts as seen.
                *last_id = id.to_owned();
            }
            rest = later.to_owned();
        }
    }
    Ok(())
}
