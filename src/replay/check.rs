//! Compares the counts that the server shows after a replay with those of the file.

use std::fmt::{self, Write};
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use tokio::time::{Instant, sleep};

use super::Target;
use super::expected::{Expected, Held};
use crate::client::{Client, Poll};
use crate::telemetry;
use crate::telemetry::Plain;

/// How long to wait until the counts are those of the file. A vote whose answer had no count, as
/// while Redis is unavailable, is counted later.
const AGREE_LIMIT: Duration = Duration::from_secs(5);
/// The time between two looks at the counts.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// How many different items are shown. The rest are counted.
const SHOWN_LIMIT_ITEMS: usize = 10;

/// Prints a poll's results. Returns whether they are those of the file.
///
/// # Errors
/// When the server does not answer.
pub async fn poll(client: &Client, id: i64, target: &Target, expected: &Expected) -> anyhow::Result<bool> {
    let until = Instant::now() + AGREE_LIMIT;
    loop {
        let results = Results::new(client.poll(id).await?, target, expected);
        if results.agree() || Instant::now() >= until {
            telemetry::print(&results);
            return Ok(results.agree());
        }
        sleep(ASK_EVERY).await;
    }
}

/// A poll's results beside those of the file.
struct Results {
    poll: Poll,
    /// For each choice, in the poll's order.
    choices: Vec<i64>,
    voters: i64,
}

impl Results {
    fn new(poll: Poll, target: &Target, expected: &Expected) -> Self {
        let of_file = |item: i64| {
            let at = target.items.iter().position(|(id, _)| *id == item)?;
            Some(expected.items[at].ups)
        };
        Self {
            choices: poll
                .choices
                .iter()
                .map(|choice| of_file(choice.item_id).unwrap_or(0))
                .collect(),
            voters: expected.voters,
            poll,
        }
    }

    fn agree(&self) -> bool {
        let shown = self.poll.choices.iter().map(|choice| choice.vote_count);
        shown.eq(self.choices.iter().map(|votes| Some(*votes))) && self.poll.voter_count == Some(self.voters)
    }
}

impl fmt::Display for Results {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "\npoll {}: {}", self.poll.id, Plain(&self.poll.title))?;
        let mut line = |name: &str, shown: Option<i64>, share: Option<f64>, of_file: i64| {
            let share = share.map_or(String::new(), |share| format!("{:.1}%", share * 100.0));
            let shown_text = shown.map_or("?".to_owned(), |votes| votes.to_string());
            write!(out, "  {shown_text:>10} {share:>6}  {}", Plain(name))?;
            if shown != Some(of_file) {
                write!(out, " (by the file: {of_file})")?;
            }
            writeln!(out)
        };
        for (choice, of_file) in self.poll.choices.iter().zip(&self.choices) {
            line(&choice.name, choice.vote_count, choice.share, *of_file)?;
        }
        line("voters", self.poll.voter_count, None, self.voters)?;
        out.write_str(if self.agree() {
            "The results are those of the file.\n"
        } else {
            "The results are NOT those of the file.\n"
        })
    }
}

/// Prints how many items have the counts of the file. Returns whether all items have them that this
/// replay created: others may hold other votes.
///
/// # Errors
/// When the server does not answer.
pub async fn items(
    clients: &[Client],
    target: &Target,
    expected: &Expected,
    connections: usize,
) -> anyhow::Result<bool> {
    let until = Instant::now() + AGREE_LIMIT;
    let found: Vec<Counts> = stream::iter(target.items.iter().zip(&expected.items).enumerate())
        .map(|(at, ((id, is_new), held))| read(&clients[at % clients.len()], *id, *is_new, *held, until))
        .buffered(connections)
        .try_collect()
        .await?;
    let (alike, other): (Vec<Counts>, Vec<Counts>) = found.into_iter().partition(Counts::agree);
    let mut text = String::new();
    let (ups, downs) = expected
        .items
        .iter()
        .fold((0, 0), |(ups, downs), held| (ups + held.ups, downs + held.downs));
    writeln!(
        text,
        "\nThe file leaves {ups} up-votes and {downs} down-votes of {} voters.",
        expected.voters
    )?;
    writeln!(
        text,
        "{} of {} items have the counts of the file.",
        alike.len(),
        alike.len() + other.len()
    )?;
    for counts in other.iter().take(SHOWN_LIMIT_ITEMS) {
        writeln!(text, "{counts}")?;
    }
    if other.len() > SHOWN_LIMIT_ITEMS {
        writeln!(text, "  … and {} more", other.len() - SHOWN_LIMIT_ITEMS)?;
    }
    telemetry::print(text);
    Ok(other.iter().all(|counts| !counts.is_new))
}

/// An item's counts beside those of the file.
struct Counts {
    id: i64,
    is_new: bool,
    shown: Option<Held>,
    of_file: Held,
}

impl Counts {
    fn agree(&self) -> bool {
        self.shown == Some(self.of_file)
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "  item {}: ", self.id)?;
        match self.shown {
            Some(Held { ups, downs }) => write!(out, "{ups} up and {downs} down")?,
            None => out.write_str("counts are hidden")?,
        }
        let Held { ups, downs } = self.of_file;
        write!(out, "; by the file {ups} and {downs}")?;
        out.write_str(if self.is_new {
            ""
        } else {
            "; it was there before and may hold other votes"
        })
    }
}

/// Asks until the counts are those of the file.
async fn read(
    client: &Client,
    id: i64,
    is_new: bool,
    of_file: Held,
    until: Instant,
) -> anyhow::Result<Counts> {
    loop {
        let item = client.item(id).await?;
        let shown = item.up_count.zip(item.down_count);
        let counts = Counts {
            id,
            is_new,
            shown: shown.map(|(ups, downs)| Held { ups, downs }),
            of_file,
        };
        // An item that may hold other votes has nothing to wait for.
        if counts.agree() || !is_new || Instant::now() >= until {
            return Ok(counts);
        }
        sleep(ASK_EVERY).await;
    }
}
