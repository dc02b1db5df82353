//! The results of the rounds: the progress line, the table, results.json.

use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::faults::Fault;
use crate::round::Round;
use crate::watchers::BEHIND_LIMIT;

/// All rounds so far.
#[derive(Default)]
pub struct Report {
    rounds: Vec<Round>,
}

/// One line of the table.
struct Row {
    name: &'static str,
    injected: usize,
    acknowledged: u64,
    lost: u64,
    counted_twice: u64,
    seconds: Vec<f64>,
}

impl Report {
    pub fn add(&mut self, round: Round) {
        self.rounds.push(round);
    }

    fn sum(&self, of: impl Fn(&Round) -> u64) -> u64 {
        self.rounds.iter().map(of).sum()
    }

    pub fn not_exact(&self) -> usize {
        self.rounds.iter().filter(|round| !round.is_exact()).count()
    }

    /// The progress line's text.
    pub fn line(&self) -> String {
        format!(
            "{} faults, {} votes acknowledged, {} lost, {} counted twice, {} rounds not exact",
            self.sum(|round| round.injected.len() as u64),
            self.sum(|round| round.verdict.acknowledged),
            self.sum(|round| round.verdict.lost),
            self.sum(|round| round.verdict.counted_twice),
            self.not_exact(),
        )
    }

    fn rows(&self) -> Vec<Row> {
        Fault::ALL
            .iter()
            .map(|fault| {
                let with: Vec<&Round> = self
                    .rounds
                    .iter()
                    .filter(|round| round.injected.iter().any(|one| one.fault == *fault))
                    .collect();
                let injected = with
                    .iter()
                    .flat_map(|round| &round.injected)
                    .filter(|one| one.fault == *fault);
                Row {
                    name: fault.name(),
                    injected: injected.clone().count(),
                    acknowledged: injected.map(|one| one.acknowledged).sum(),
                    lost: with.iter().map(|round| round.verdict.lost).sum(),
                    counted_twice: with.iter().map(|round| round.verdict.counted_twice).sum(),
                    seconds: seconds(with.iter().copied()),
                }
            })
            .collect()
    }

    /// The table, with a line for each fault. A round's losses and its time to exact appear at
    /// each of its faults.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:<50} {:>8} {:>13} {:>5} {:>8} {:>8} {:>8}\n",
            "", "", "acknowledged", "", "counted", "s until", "exact"
        );
        text += &format!(
            "{:<50} {:>8} {:>13} {:>5} {:>8} {:>8} {:>8}\n",
            "fault", "injected", "meanwhile", "lost", "twice", "median", "worst"
        );
        for row in self.rows() {
            text += &format!(
                "{:<50} {:>8} {:>13} {:>5} {:>8} {:>8} {:>8}\n",
                row.name,
                row.injected,
                row.acknowledged,
                row.lost,
                row.counted_twice,
                shown(median(&row.seconds)),
                shown(row.seconds.last().copied()),
            );
        }
        let all = seconds(self.rounds.iter());
        text += &format!(
            "{} rounds, {}; exact again after {} s (median), {} s (worst)\n",
            self.rounds.len(),
            self.line(),
            shown(median(&all)),
            shown(all.last().copied()),
        );
        text += &format!(
            "{} counts answered: {} while no window was open, {} of them impossible; {} in windows, {} of them impossible\n",
            self.sum(|round| round.answered.answers),
            self.sum(|round| round.answered.answers - round.answered.in_windows),
            self.sum(|round| round.answered.outside),
            self.sum(|round| round.answered.in_windows),
            self.sum(|round| round.answered.outside_in_windows),
        );
        text += &format!(
            "{} of the possible ones lacked a vote that was acknowledged with a null count or as a repeat\n",
            self.sum(|round| round.answered.behind),
        );
        text += &format!(
            "{} requests of rules answered: changes, retractions, limited and numbered votes, moves in polls\n",
            self.sum(|round| round.decided),
        );
        text += &format!(
            "{} requests with ballots, {} votes bought; {} voidings of {} votes, {} of them cast again; tally void killed {} times\n",
            self.sum(|round| round.drawn.ballots_sent),
            self.sum(|round| round.drawn.ballots_bought),
            self.sum(|round| round.drawn.voidings),
            self.sum(|round| round.drawn.voided),
            self.sum(|round| round.drawn.restored),
            self.sum(|round| round.drawn.killed),
        );
        text += &format!(
            "{} voters renamed, merged or erased, and a file imported in each round; these programs killed {} times\n",
            self.sum(|round| round.drawn.edits),
            self.sum(|round| round.drawn.edits_killed),
        );
        text += &format!(
            "{} votes by key, {} reads, {} answers that there is no such key; {} votes on an item that their clients did not name\n",
            self.sum(|round| round.keyed.0),
            self.sum(|round| round.keyed.2),
            self.sum(|round| round.keyed.1),
            self.sum(|round| round.verdict.misdirected),
        );
        text += &format!(
            "{} acknowledged votes went with primaries of Postgres; {} ids of votes and {} of items were given out again\n",
            self.sum(|round| round.verdict.went_with_primary),
            self.sum(|round| round.given_again.0),
            self.sum(|round| round.given_again.1),
        );
        text += &format!(
            "{} deliveries of events to a webhook that fails one in six\n",
            self.sum(|round| round.sent_events),
        );
        text += &format!(
            "{} hostile settings of sessions in Postgres from the beginning on\n",
            self.sum(|round| round.sessions),
        );
        text += &format!(
            "{} attempts admitted by throttles with windows of a day, {} refused\n",
            self.sum(|round| round.attempts.0),
            self.sum(|round| round.attempts.1),
        );
        let mut shown: Vec<f64> = self
            .rounds
            .iter()
            .filter_map(|round| round.shown_after.as_ref().map(Duration::as_secs_f64))
            .collect();
        shown.sort_by(f64::total_cmp);
        text += &format!(
            "{} events of {} live streams; all right {} s after all was exact (median), {} s (worst), later than {} s in {} rounds\n",
            self.sum(|round| round.watched.0),
            self.sum(|round| round.watched.1),
            self::shown(median(&shown)),
            self::shown(shown.last().copied()),
            BEHIND_LIMIT.as_secs(),
            shown
                .iter()
                .filter(|after| **after > BEHIND_LIMIT.as_secs_f64())
                .count(),
        );
        text += &format!(
            "{} votes refused by throttles, {} because their tokens had run out by a server's clock\n",
            self.sum(|round| round.drawn.throttled),
            self.sum(|round| round.drawn.ran_out)
        );
        text
    }

    /// The report as Markdown: a line for each fault, then their sum.
    pub fn markdown(&self) -> String {
        let mut text = "| fault | injected | acknowledged meanwhile | lost | counted twice | exact again, median s | worst s |\n|---|--:|--:|--:|--:|--:|--:|\n".to_owned();
        for row in self.rows() {
            text += &format!(
                "| {} | {} | {} | {} | {} | {} | {} |\n",
                row.name,
                row.injected,
                row.acknowledged,
                row.lost,
                row.counted_twice,
                shown(median(&row.seconds)),
                shown(row.seconds.last().copied()),
            );
        }
        let all = seconds(self.rounds.iter());
        text += &format!(
            "| **all, {} rounds** | **{}** | {} in all | **{}** | **{}** | **{}** | **{}** |\n",
            self.rounds.len(),
            self.sum(|round| round.injected.len() as u64),
            self.sum(|round| round.verdict.acknowledged),
            self.sum(|round| round.verdict.lost),
            self.sum(|round| round.verdict.counted_twice),
            shown(median(&all)),
            shown(all.last().copied()),
        );
        text
    }

    /// What results.json has.
    pub fn results(&self) -> Value {
        let all = seconds(self.rounds.iter());
        let rows: Vec<Value> = self
            .rows()
            .iter()
            .map(|row| {
                json!({
                    "fault": row.name,
                    "injected": row.injected,
                    "acknowledged": row.acknowledged,
                    "lost": row.lost,
                    "counted_twice": row.counted_twice,
                    "median_seconds_to_exact": median(&row.seconds),
                    "worst_seconds_to_exact": row.seconds.last(),
                })
            })
            .collect();
        let rounds: Vec<Value> = self
            .rounds
            .iter()
            .map(|round| {
                json!({
                    "seed": round.seed,
                    "faults": round.injected.iter().map(|one| one.fault.name()).collect::<Vec<_>>(),
                    "acknowledged": round.verdict.acknowledged,
                    "seconds_to_exact": round.exact_after.as_ref().map(Duration::as_secs_f64),
                    "answers": answered(std::slice::from_ref(round)),
                    "events_of_streams": round.watched.0,
                    "streams_opened": round.watched.1,
                    "seconds_until_shown": round.shown_after.as_ref().map(Duration::as_secs_f64),
                    "seconds_in_windows": round.answered.windows.as_secs_f64(),
                    "problems": round.problems,
                })
            })
            .collect();
        json!({
            "rounds": self.rounds.len(),
            "faults": self.sum(|round| round.injected.len() as u64),
            "acknowledged": self.sum(|round| round.verdict.acknowledged),
            "lost": self.sum(|round| round.verdict.lost),
            "counted_twice": self.sum(|round| round.verdict.counted_twice),
            "answers": answered(&self.rounds),
            "rounds_not_exact": self.not_exact(),
            "median_seconds_to_exact": median(&all),
            "worst_seconds_to_exact": all.last(),
            "rows": rows,
            "each_round": rounds,
        })
    }
}

/// How many counts were answered, where, and how many of them were impossible.
fn answered(rounds: &[Round]) -> Value {
    let sum = |of: fn(&Round) -> u64| -> u64 { rounds.iter().map(of).sum() };
    json!({
        "checked": sum(|round| round.answered.answers),
        "in_windows": sum(|round| round.answered.in_windows),
        "impossible_in_windows": sum(|round| round.answered.outside_in_windows),
        "impossible_otherwise": sum(|round| round.answered.outside),
        "behind": sum(|round| round.answered.behind),
    })
}

/// The rounds' times to exact, sorted.
fn seconds<'a>(rounds: impl Iterator<Item = &'a Round>) -> Vec<f64> {
    let mut seconds: Vec<f64> = rounds
        .filter_map(|round| round.exact_after.as_ref().map(Duration::as_secs_f64))
        .collect();
    seconds.sort_by(f64::total_cmp);
    seconds
}

fn median(sorted: &[f64]) -> Option<f64> {
    sorted.get(sorted.len() / 2).copied()
}

fn shown(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.2}"))
}

/// Describes a round that failed, and how to play it again.
pub fn failure(round: &Round, folder: &Path) -> String {
    format!(
        "round with SEED={} is not exact; its logs are in {}\n  {}",
        round.seed,
        folder.display(),
        round.problems.join("\n  ")
    )
}

/// The progress line. Without a terminal nothing is shown.
pub fn progress(rounds: u64) -> ProgressBar {
    let bar = ProgressBar::new(rounds);
    if let Ok(style) = ProgressStyle::with_template("{pos}/{len} rounds {bar:20} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}
