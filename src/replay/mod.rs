//! `tally replay FILE`: casts a file of votes over HTTP, and reports the result.
//!
//! It uses only what any client can use.

mod check;
mod expected;
pub(crate) mod file;
mod report;
mod turns;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::client::{Client, Outcome};
use crate::domain::{ApiKey, CHOICES_LIMIT_ITEMS, ItemName, Value};
use crate::{files, telemetry};
use expected::Expected;
use file::{Vote, Votes};
use turns::Turns;

pub use file::{Columns, Values};
pub(crate) use report::LATENCY_LIMIT_US;
pub use report::Report;

/// How many bad lines are shown. The rest are counted.
const SHOWN_LIMIT_LINES: usize = 20;
/// The most lines of a file. All its votes are in memory, ten million in a gigabyte.
const FILE_LIMIT_LINES: usize = 100_000_000;

/// What to cast, and where.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// The file; `-` is standard input.
    pub file: PathBuf,
    /// The servers, used in turn.
    pub urls: Vec<reqwest::Url>,
    pub columns: Columns,
    /// The poll to create; `None`: the votes go to items with their names.
    pub poll: Option<PollOptions>,
    /// How many requests are under way at once.
    pub connections: usize,
    /// Votes per second; `None`: as fast as the servers answer.
    pub rate: Option<f64>,
    /// The API key for the servers.
    pub api_key: Option<ApiKey>,
}

/// A poll whose choices are the file's items.
#[derive(Clone, Debug)]
pub struct PollOptions {
    pub title: ItemName,
    /// How many choices one voter may hold; 0: any number.
    pub max_choices: usize,
}

/// How the lines of a file take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The first vote of a voter on an item counts.
    FirstVotes,
    /// A voter's lines on one item take effect in order, and the last one stays.
    Changes,
    /// A voter's lines take effect in order.
    Poll,
}

impl ReplayOptions {
    fn mode(&self) -> Mode {
        match (&self.poll, self.columns.values) {
            (Some(_), _) => Mode::Poll,
            (None, Values::Rating { .. }) => Mode::Changes,
            (None, Values::Up | Values::Column(_)) => Mode::FirstVotes,
        }
    }
}

/// Where the votes go.
struct Target {
    /// The id of each of [`Votes::items`], and whether this replay created it.
    items: Vec<(i64, bool)>,
    /// The poll that this replay created.
    poll: Option<i64>,
}

/// Casts the votes of the file and prints the report. Returns whether every line took effect, no
/// line was bad, and the counts are those of the file where they can be compared.
///
/// # Errors
/// When the options contradict each other, the file cannot be read, or the items or the poll cannot
/// be found or created.
pub async fn run(options: ReplayOptions) -> anyhow::Result<bool> {
    let mode = options.mode();
    if mode != Mode::FirstVotes && options.columns.voter == 0 {
        bail!(
            "--voter is 0, so all votes are anonymous; --rating and --poll take a column that names voters"
        );
    }
    let votes = read(&options)?;
    let clients: Vec<Client> = options
        .urls
        .iter()
        .map(|url| Client::new(url, options.connections, options.api_key.as_ref()))
        .collect::<Result<_, _>>()?;
    let name = options.file.display();
    if votes.len() == 0 {
        bail!("{name} holds no vote that could be cast");
    }
    let choices = votes.items.len();
    if mode == Mode::Poll && choices > CHOICES_LIMIT_ITEMS {
        bail!("{name} has {choices} different items; a poll takes at most {CHOICES_LIMIT_ITEMS} choices");
    }
    let max_choices = options.poll.as_ref().map(|poll| poll.max_choices);
    let expected = (mode != Mode::FirstVotes).then(|| Expected::of(&votes, max_choices));

    let target = match &options.poll {
        Some(poll) => make_poll(poll, &votes, &clients[0]).await?,
        None => find_items(&votes, &clients, options.connections).await?,
    };
    let replay = Arc::new(Replay {
        mode,
        votes,
        clients,
        target,
        expected,
        turns: Turns::default(),
        rate: options.rate,
        started: Instant::now(),
    });
    let report = replay.cast_all(options.connections).await?;
    telemetry::print(&report);
    let is_clean = replay.votes.bad_lines == 0 && report.is_clean();
    let Some(expected) = &replay.expected else {
        return Ok(is_clean);
    };
    let agrees = match replay.target.poll {
        Some(id) => check::poll(&replay.clients[0], id, &replay.target, expected).await?,
        None => check::items(&replay.clients, &replay.target, expected, options.connections).await?,
    };
    Ok(is_clean && agrees)
}

fn read(options: &ReplayOptions) -> anyhow::Result<Votes> {
    let lines = files::lines(&options.file, FILE_LIMIT_LINES)?;
    let mut shown = 0;
    let votes = file::read(lines, options.columns, |line, why| {
        shown += 1;
        if shown <= SHOWN_LIMIT_LINES {
            telemetry::complain(format_args!("line {line}: {why}"));
        }
    })?;
    if shown > SHOWN_LIMIT_LINES {
        telemetry::complain(format_args!("… and {} more bad lines", shown - SHOWN_LIMIT_LINES));
    }
    Ok(votes)
}

/// Finds the items of the file, and creates those that do not exist.
async fn find_items(votes: &Votes, clients: &[Client], connections: usize) -> anyhow::Result<Target> {
    let bar = progress(votes.items.len(), "items");
    let items = stream::iter(votes.items.iter().enumerate())
        .map(|(at, name)| clients[at % clients.len()].find_or_create_item(name))
        .buffered(connections)
        .inspect(|_| bar.inc(1))
        .try_collect()
        .await?;
    bar.finish_and_clear();
    Ok(Target { items, poll: None })
}

/// Creates the poll, with the items of the file as its choices.
async fn make_poll(options: &PollOptions, votes: &Votes, client: &Client) -> anyhow::Result<Target> {
    let title = options.title.as_str();
    let poll = client.create_poll(title, &votes.items, options.max_choices);
    let poll = poll.await?;
    let items = votes.items.iter().map(|name| {
        let choice = poll.choices.iter().find(|choice| choice.name == *name);
        choice
            .map(|choice| (choice.item_id, true))
            .with_context(|| format!("the server made a poll without the choice {name}"))
    });
    Ok(Target {
        items: items.collect::<anyhow::Result<_>>()?,
        poll: Some(poll.id),
    })
}

/// Votes on their way.
struct Replay {
    mode: Mode,
    votes: Votes,
    clients: Vec<Client>,
    target: Target,
    /// `None`: only first votes count.
    expected: Option<Expected>,
    turns: Turns,
    rate: Option<f64>,
    started: Instant,
}

impl Replay {
    async fn cast_all(self: &Arc<Self>, connections: usize) -> anyhow::Result<Report> {
        let bar = progress(self.votes.len(), "votes");
        let mut tasks: JoinSet<anyhow::Result<Report>> = JoinSet::new();
        for number in 0..connections.min(self.votes.len()) {
            let (replay, bar) = (Arc::clone(self), bar.clone());
            tasks.spawn(async move { replay.cast_some(number, &bar).await });
        }
        let mut total = self.report()?;
        while let Some(ended) = tasks.join_next().await {
            total.merge(ended??)?;
        }
        total.took = self.started.elapsed();
        bar.finish_and_clear();
        Ok(total)
    }

    fn report(&self) -> anyhow::Result<Report> {
        Report::new(self.mode != Mode::FirstVotes)
    }

    /// Casts line after line, one at a time, until there are no more.
    async fn cast_some(&self, number: usize, bar: &ProgressBar) -> anyhow::Result<Report> {
        let client = &self.clients[number % self.clients.len()];
        let mut report = self.report()?;
        loop {
            let mut turn = self.turns.next(|at| self.key(at));
            let Some(vote) = self.votes.get(turn.at) else {
                return Ok(report);
            };
            // An open loop: the vote is due at its time, even if it is sent later.
            let due = self
                .rate
                .map(|rate| self.started + Duration::from_secs_f64(turn.at as f64 / rate));
            if let Some(due) = due {
                sleep_until(due).await;
            }
            turn.wait().await;
            let due = due.unwrap_or_else(Instant::now);
            let outcome = self.cast(client, turn.at, vote).await;
            drop(turn);
            report.add(outcome, due.elapsed());
            bar.inc(1);
        }
    }

    /// The key of lines that keep their order: one voter and one item, or in a poll one voter.
    fn key(&self, at: usize) -> Option<(&str, usize)> {
        let vote = self.votes.get(at)?;
        match self.mode {
            Mode::FirstVotes => None,
            Mode::Changes => Some((vote.voter?, vote.item)),
            Mode::Poll => Some((vote.voter?, 0)),
        }
    }

    async fn cast(&self, client: &Client, at: usize, vote: Vote<'_>) -> Outcome {
        let (item, _) = self.target.items[vote.item];
        match (self.mode, vote.voter, vote.value) {
            (Mode::FirstVotes, voter, Some(value)) => client.cast(item, voter, value).await,
            (Mode::FirstVotes, _, None) | (_, None, _) => {
                Outcome::Failed("a line without a voter takes nothing back".to_owned())
            }
            (Mode::Changes, Some(voter), value) => client.set(item, voter, value).await,
            (Mode::Poll, Some(voter), value) => {
                // A choice takes no down-votes.
                let value = value.filter(|value| *value == Value::UP);
                let outcome = client.set(item, voter, value).await;
                let moves = self.expected.as_ref().is_some_and(|expected| expected.moves(at));
                if outcome == Outcome::Accepted && moves {
                    Outcome::Changed
                } else {
                    outcome
                }
            }
        }
    }
}

/// A progress bar on standard error, if that is a terminal.
fn progress(total: usize, what: &'static str) -> ProgressBar {
    let template = format!("{{bar:40}} {{pos}} of {{len}} {what}, {{per_sec}}, {{eta}} left");
    let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total as u64).with_style(style)
}
