//! Judges the throttles: no window takes more than its limit, and none refuses what it must take.

use std::time::Instant;

use super::{Attempt, Outcome, ThrottledRecords};

/// The most problems that are reported.
const SHOWN: usize = 10;

impl ThrottledRecords {
    /// Returns what is wrong, in words. Each window may have been counted anew so many times: by a server that
    /// counted alone, and after Redis had lost it.
    pub fn judge(&self, counted_anew: u64) -> Vec<String> {
        let mut problems: Vec<String> = self.wrong_answers.iter().take(SHOWN).cloned().collect();
        for (window, attempts) in &self.attempts {
            let limit = window.limit();
            let admitted = attempts
                .iter()
                .filter(|attempt| attempt.outcome == Outcome::Admitted)
                .count() as u64;
            let most = limit * (1 + counted_anew);
            if admitted > most {
                problems.push(format!(
                    "{window:?} has admitted {admitted} attempts, and takes {most}"
                ));
            }
            let refused = attempts
                .iter()
                .filter(|attempt| attempt.outcome == Outcome::Refused);
            let early = refused
                .map(|attempt| taken_before(attempts, attempt.ended))
                .find(|taken| *taken < limit);
            problems.extend(early.map(|taken| {
                format!("{window:?} has refused an attempt after {taken} others, and takes {limit}")
            }));
        }
        problems.truncate(SHOWN);
        problems
    }
}

/// How many places may have been taken by then.
fn taken_before(attempts: &[Attempt], moment: Instant) -> u64 {
    let may_have = |attempt: &&Attempt| {
        matches!(attempt.outcome, Outcome::Admitted | Outcome::Unknown) && attempt.began < moment
    };
    attempts.iter().filter(may_have).count() as u64
}
