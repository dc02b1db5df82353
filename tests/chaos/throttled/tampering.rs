//! Ways to break what the throttled clients recorded, each with a part of the finding that it must cause.

use super::{Outcome, ThrottledRecords};

/// Whether some window has refused an attempt.
pub fn is_enough(records: &ThrottledRecords) -> bool {
    records.attempts().1 > 0
}

/// Broken records.
pub fn records(right: &ThrottledRecords) -> Vec<(ThrottledRecords, &'static str)> {
    let change = |from: Outcome, to: Outcome| {
        let mut broken = right.clone();
        for attempt in broken.attempts.values_mut().flatten() {
            if attempt.outcome == from {
                attempt.outcome = to;
            }
        }
        broken
    };
    // The last place of a full window was free.
    let mut free = right.clone();
    for attempts in free.attempts.values_mut() {
        if let Some(at) = attempts
            .iter()
            .position(|attempt| attempt.outcome == Outcome::Admitted)
        {
            attempts[at].outcome = Outcome::RefusedByOther;
            attempts.retain(|attempt| attempt.outcome != Outcome::Unknown);
        }
    }
    vec![
        (change(Outcome::Refused, Outcome::Admitted), "has admitted"),
        (
            change(Outcome::Admitted, Outcome::RefusedByOther),
            "has refused an attempt after",
        ),
        (free, "has refused an attempt after"),
    ]
}
