//! `tally replay FILE`: casts a file of votes over HTTP, and reports the result.
//!
//! It knows the server only as any client does.

pub(crate) mod file;
mod report;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::client::Client;
use crate::telemetry;
use file::{Columns, Votes};
pub(crate) use report::LATENCY_LIMIT_US;
pub use report::Report;

/// How many bad lines are shown. The rest are counted.
const SHOWN_LIMIT_LINES: usize = 20;

/// What to cast, and where.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// The file; `-` is standard input.
    pub file: PathBuf,
    /// The servers, used in turn.
    pub urls: Vec<reqwest::Url>,
    /// The voter's column, counted from 1; 0: anonymous votes.
    pub voter: usize,
    /// The item's column, counted from 1.
    pub item: usize,
    /// The value's column, counted from 1; 0: all votes are 1.
    pub value: usize,
    /// Requests under way at once.
    pub connections: usize,
    /// Votes a second; `None`: as fast as the servers answer.
    pub rate: Option<f64>,
}

/// Casts the votes of the file and prints the report. Returns whether every vote is stored and
/// no line was bad.
///
/// # Errors
/// When the file cannot be read, or the items cannot be found or made.
pub async fn run(options: ReplayOptions) -> anyhow::Result<bool> {
    let votes = read(&options)?;
    let clients: Vec<Client> = options
        .urls
        .iter()
        .map(|url| Client::new(url, options.connections))
        .collect::<Result<_, _>>()?;
    if votes.len() == 0 {
        bail!("{} holds no vote that could be cast", options.file.display());
    }
    let votes = Arc::new(votes);
    let clients = Arc::new(clients);
    let items = Arc::new(find_items(&votes, &clients, options.connections).await?);
    let report = cast(&votes, &items, &clients, &options).await?;
    telemetry::print(&report);
    Ok(votes.bad_lines == 0 && report.is_clean())
}

fn read(options: &ReplayOptions) -> anyhow::Result<Votes> {
    let columns = Columns {
        voter: options.voter,
        item: options.item,
        value: options.value,
    };
    let input: Box<dyn BufRead> = if options.file.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        let file = std::fs::File::open(&options.file)
            .with_context(|| format!("cannot open {}", options.file.display()))?;
        Box::new(BufReader::new(file))
    };
    let mut shown = 0;
    let votes = file::read(input, columns, |line, why| {
        shown += 1;
        if shown <= SHOWN_LIMIT_LINES {
            eprintln!("line {line}: {why}");
        }
    })
    .with_context(|| format!("cannot read {}", options.file.display()))?;
    if shown > SHOWN_LIMIT_LINES {
        eprintln!("… and {} more bad lines", shown - SHOWN_LIMIT_LINES);
    }
    Ok(votes)
}

/// The id of each item of the file. An item is made if there is none of its name.
async fn find_items(
    votes: &Arc<Votes>,
    clients: &Arc<Vec<Client>>,
    connections: usize,
) -> anyhow::Result<Vec<i64>> {
    let total = votes.items.len();
    let bar = progress(total, "items");
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks: JoinSet<anyhow::Result<Vec<(usize, i64)>>> = JoinSet::new();
    for number in 0..connections.min(total) {
        let (votes, clients, next, bar) = (
            Arc::clone(votes),
            Arc::clone(clients),
            Arc::clone(&next),
            bar.clone(),
        );
        tasks.spawn(async move {
            let mut found = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(name) = votes.items.get(at) else {
                    return Ok(found);
                };
                found.push((
                    at,
                    clients[number % clients.len()].find_or_create_item(name).await?,
                ));
                bar.inc(1);
            }
        });
    }
    let mut ids = vec![0; total];
    while let Some(ended) = tasks.join_next().await {
        for (at, id) in ended?? {
            ids[at] = id;
        }
    }
    bar.finish_and_clear();
    Ok(ids)
}

async fn cast(
    votes: &Arc<Votes>,
    items: &Arc<Vec<i64>>,
    clients: &Arc<Vec<Client>>,
    options: &ReplayOptions,
) -> anyhow::Result<Report> {
    let bar = progress(votes.len(), "votes");
    let next = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    let mut tasks: JoinSet<anyhow::Result<Report>> = JoinSet::new();
    for number in 0..options.connections.min(votes.len()) {
        let (votes, items, clients) = (Arc::clone(votes), Arc::clone(items), Arc::clone(clients));
        let (next, bar, rate) = (Arc::clone(&next), bar.clone(), options.rate);
        tasks.spawn(async move {
            let client = &clients[number % clients.len()];
            let mut report = Report::new()?;
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(vote) = votes.get(at) else {
                    return Ok(report);
                };
                let due = match rate {
                    // An open loop: the vote is due at its time, even if it is sent later.
                    Some(rate) => {
                        let due = started + Duration::from_secs_f64(at as f64 / rate);
                        sleep_until(due).await;
                        due
                    }
                    None => Instant::now(),
                };
                let outcome = client.cast(items[vote.item], vote.voter, vote.value).await;
                report.add(outcome, due.elapsed());
                bar.inc(1);
            }
        });
    }
    let mut total = Report::new()?;
    while let Some(ended) = tasks.join_next().await {
        total.merge(ended??)?;
    }
    total.took = started.elapsed();
    bar.finish_and_clear();
    Ok(total)
}

/// A progress bar on standard error. There is none if that is no terminal.
fn progress(total: usize, what: &'static str) -> ProgressBar {
    let template = format!("{{bar:40}} {{pos}} of {{len}} {what}, {{per_sec}}, {{eta}} left");
    let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total as u64).with_style(style)
}
