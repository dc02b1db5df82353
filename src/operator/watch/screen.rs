//! The display of `tally watch`: lines, a table that is drawn again, or JSON.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Deserialize;
use serde_json::Value;

use crate::operator::events::Event;
use crate::telemetry;
use crate::telemetry::Plain;

/// How much of a name the table shows.
const NAME_LIMIT_CHARACTERS: usize = 40;

/// The most items, and the most polls, in the table. A server that is none of Tally's may send more than anyone
/// watches.
const SHOWN_LIMIT_ENTRIES: usize = 1000;

/// The content of an event.
#[derive(Debug, Default, Deserialize)]
struct Counts {
    items: Vec<Item>,
    polls: Vec<Poll>,
}

/// The displayed part of an item. Counts are `None` while they are hidden.
#[derive(Clone, Debug, Deserialize)]
struct Item {
    id: i64,
    name: String,
    vote_count: Option<i64>,
    up_count: Option<i64>,
    down_count: Option<i64>,
    current: bool,
}

/// The displayed part of a poll.
#[derive(Clone, Debug, Deserialize)]
struct Poll {
    id: i64,
    title: String,
    voter_count: Option<i64>,
    choices: Vec<Choice>,
    current: bool,
}

#[derive(Clone, Debug, Deserialize)]
struct Choice {
    name: String,
    vote_count: Option<i64>,
}

/// The display of counts.
pub(super) struct Screen {
    kind: Kind,
    /// Everything that was shown, in order of its first appearance.
    items: Vec<Item>,
    polls: Vec<Poll>,
}

enum Kind {
    /// Each event, unchanged.
    Json,
    /// A line for each item and poll that changed.
    Lines,
    /// A table that is drawn again.
    Table(ProgressBar),
}

impl Screen {
    pub fn new(as_json: bool) -> Self {
        let kind = match (as_json, std::io::stdout().is_terminal()) {
            (true, _) => Kind::Json,
            (false, false) => Kind::Lines,
            (false, true) => {
                let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stdout());
                bar.set_style(
                    ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_bar()),
                );
                Kind::Table(bar)
            }
        };
        Self {
            kind,
            items: Vec::new(),
            polls: Vec::new(),
        }
    }

    /// Shows an event. Events other than `counts` are of a later version, and are ignored.
    pub fn show(&mut self, event: &Event) -> anyhow::Result<()> {
        if event.kind != "counts" {
            return Ok(());
        }
        let wrong = "the server sent an event that is not Tally's";
        if let Kind::Json = self.kind {
            // One line, whatever the event contains.
            let value: Value = serde_json::from_str(&event.data).context(wrong)?;
            telemetry::print(format_args!("{}\n", Plain(&value)));
            return Ok(());
        }
        let counts: Counts = serde_json::from_str(&event.data).context(wrong)?;
        if let Kind::Lines = self.kind {
            telemetry::print(lines(&counts));
            return Ok(());
        }
        for item in counts.items {
            put(&mut self.items, item, |item| item.id);
        }
        for poll in counts.polls {
            put(&mut self.polls, poll, |poll| poll.id);
        }
        self.draw("");
        Ok(())
    }

    /// Says that the stream is lost and the counts may be old.
    pub fn lost(&mut self, why: &str, pause: Duration) {
        let seconds = pause.as_secs_f64();
        let note = format!(
            "the stream is lost ({}); opening it again in {seconds:.1} s",
            Plain(why)
        );
        match self.kind {
            Kind::Table(_) => self.draw(&note),
            _ => telemetry::complain(note),
        }
    }

    fn draw(&self, note: &str) {
        if let Kind::Table(bar) = &self.kind {
            bar.set_message(format!("{}{note}", table(&self.items, &self.polls)));
        }
    }

    /// Leaves the last drawing in place.
    pub fn leave(self) {
        if let Kind::Table(bar) = self.kind {
            bar.abandon();
        }
    }
}

/// Replaces the entry with the same id, or adds it below the limit.
fn put<T>(all: &mut Vec<T>, new: T, id: impl Fn(&T) -> i64) {
    let is_below_limit = all.len() < SHOWN_LIMIT_ENTRIES;
    match all.iter_mut().find(|one| id(one) == id(&new)) {
        Some(one) => *one = new,
        None if is_below_limit => all.push(new),
        None => {}
    }
}

/// Writes a count, or that it is hidden.
fn count(count: Option<i64>) -> String {
    count.map_or_else(|| "hidden".to_owned(), |count| count.to_string())
}

fn state(current: bool) -> &'static str {
    if current { "current" } else { "not current" }
}

fn short(name: &str) -> String {
    let name = Plain(name).to_string();
    if name.chars().count() <= NAME_LIMIT_CHARACTERS {
        return name;
    }
    let kept: String = name.chars().take(NAME_LIMIT_CHARACTERS - 1).collect();
    format!("{kept}…")
}

/// Writes a line for each item and each poll.
fn lines(counts: &Counts) -> String {
    let mut text = String::new();
    // Writing to a text never fails.
    for item in &counts.items {
        let (net, ups, downs) = (
            count(item.vote_count),
            count(item.up_count),
            count(item.down_count),
        );
        let (name, state) = (Plain(&item.name), state(item.current));
        let _ = writeln!(
            text,
            "item {}  {name}  {net}  up {ups}  down {downs}  {state}",
            item.id
        );
    }
    for poll in &counts.polls {
        let choices: Vec<String> = poll
            .choices
            .iter()
            .map(|choice| format!("{} {}", Plain(&choice.name), count(choice.vote_count)))
            .collect();
        let (title, voters, state) = (Plain(&poll.title), count(poll.voter_count), state(poll.current));
        let choices = choices.join(", ");
        let _ = writeln!(
            text,
            "poll {}  {title}  {choices}  voters {voters}  {state}",
            poll.id
        );
    }
    text
}

/// Writes everything that is watched, with a line for each item and each choice.
fn table(items: &[Item], polls: &[Poll]) -> String {
    let names = items.iter().map(|item| short(&item.name));
    let titles = polls.iter().map(|poll| short(&poll.title));
    let choices = polls
        .iter()
        .flat_map(|poll| &poll.choices)
        .map(|choice| short(&choice.name));
    let width = names
        .chain(titles)
        .chain(choices)
        .map(|name| name.chars().count())
        .max();
    let width = width.unwrap_or(0) + 2;
    let mut text = String::new();
    let mut row = |id: &str, name: &str, cells: [&str; 4]| {
        let [net, ups, downs, state] = cells;
        let _ = writeln!(
            text,
            "{id:>6}  {name:<width$} {net:>9} {ups:>9} {downs:>9}  {state}"
        );
    };
    row("", "", ["count", "up", "down", ""]);
    for item in items {
        let counts = [
            count(item.vote_count),
            count(item.up_count),
            count(item.down_count),
        ];
        let cells = [&*counts[0], &*counts[1], &*counts[2], state(item.current)];
        row(&item.id.to_string(), &short(&item.name), cells);
    }
    for poll in polls {
        let voters = format!("{}, {} voters", state(poll.current), count(poll.voter_count));
        row(&poll.id.to_string(), &short(&poll.title), ["", "", "", &voters]);
        for choice in &poll.choices {
            let name = format!("  {}", short(&choice.name));
            row("", &name, [&count(choice.vote_count), "", "", ""]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown() -> Counts {
        serde_json::from_value(serde_json::json!({
            "items": [
                { "id": 7, "name": "A\u{1b}[2J post", "vote_count": 3, "up_count": 4, "down_count": 1, "current": true },
                { "id": 8, "name": "x".repeat(200), "vote_count": null, "up_count": null, "down_count": null, "current": false },
            ],
            "polls": [{ "id": 2, "title": "Lunch?", "voter_count": 5, "current": true,
                "choices": [{ "name": "soup", "vote_count": 5 }] }],
        }))
        .expect("counts")
    }

    #[test]
    fn lines_and_table_show_each_count_and_no_control_characters() {
        let counts = shown();
        let lines = lines(&counts);
        assert!(
            lines.starts_with("item 7  A\\u001b[2J post  3  up 4  down 1  current\n"),
            "{lines}"
        );
        assert!(
            lines.contains("hidden  up hidden  down hidden  not current\n"),
            "{lines}"
        );
        assert!(
            lines.ends_with("poll 2  Lunch?  soup 5  voters 5  current\n"),
            "{lines}"
        );
        let table = table(&counts.items, &counts.polls);
        assert!(!table.contains('\u{1b}') && table.lines().count() == 5, "{table}");
        assert!(table.lines().all(|line| line.chars().count() < 110), "{table}");
        assert!(table.contains("current, 5 voters"), "{table}");
    }
}
