//! Checks every count that was answered against what was sent and acknowledged.

use std::time::Duration;

use testkit::answered_counts::{History, Vote};

use crate::records::Records;
use crate::windows::Windows;

/// How many findings the report writes out.
const NAMED_LIMIT: usize = 5;

/// The result of this check.
#[derive(Clone, Debug, Default)]
pub struct Answered {
    /// Counts that were answered as current.
    pub answers: u64,
    /// Those of them that were answered in a window ([`Windows`]).
    pub in_windows: u64,
    /// Impossible counts in windows.
    pub outside_in_windows: u64,
    /// Impossible counts while no window was open: there must be none.
    pub outside: u64,
    /// Possible counts while no window was open that lacked a vote: one that was acknowledged
    /// with a null count, or as a repeat ([`crate::records::Timed::uncounted`]).
    pub behind: u64,
    /// How long windows were open.
    pub windows: Duration,
    /// In words.
    pub findings: Vec<String>,
}

/// Checks all answers of a round.
pub fn judge(records: &Records, windows: &Windows) -> Answered {
    let history = History::new(records.timed.iter().map(|timed| timed.vote));
    // This history counts every vote from its acknowledgement on.
    let strict = History::new(records.timed.iter().map(|timed| Vote {
        acknowledged: timed.vote.acknowledged.into_iter().chain(timed.uncounted).min(),
        ..timed.vote
    }));
    let mut answered = Answered {
        answers: records.answers.len() as u64,
        windows: windows.open_for(),
        ..Answered::default()
    };
    for answer in &records.answers {
        let bounds = history.bounds(answer);
        let is_possible = bounds.hold(answer.count);
        let in_window = windows.overlap(answer.began, answer.ended);
        answered.in_windows += u64::from(in_window);
        match (is_possible, in_window) {
            (true, true) => {}
            (true, false) => {
                answered.behind += u64::from(!strict.bounds(answer).hold(answer.count));
            }
            (false, true) => answered.outside_in_windows += 1,
            (false, false) => {
                answered.outside += 1;
                if answered.findings.len() < NAMED_LIMIT {
                    answered
                        .findings
                        .push(format!("an impossible count: {answer:?}; it may be {bounds:?}"));
                }
            }
        }
    }
    answered
}
