//! A finding, and what both stores have findings about.

use std::time::Duration;

use serde::Serialize;

use crate::domain::Moment;

/// The clocks of programs and stores may differ by so much without harm: tokens bear 30 s.
const CLOCK_LIMIT: Duration = Duration::from_secs(5);
/// The part of a limit, in percent, above which it is nearly used up.
const NEARLY_PERCENT: i64 = 85;

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Votes, counts or promises suffer.
    Wrong,
    /// Someone should look at it.
    Look,
    Well,
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub level: Level,
    pub what: String,
    /// What to do; `None`: nothing.
    #[serde(rename = "do")]
    pub remedy: Option<String>,
}

impl Finding {
    pub fn wrong(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            level: Level::Wrong,
            what: what.into(),
            remedy: Some(remedy.into()),
        }
    }

    pub fn look(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            level: Level::Look,
            ..Self::wrong(what, remedy)
        }
    }

    pub fn well(what: impl Into<String>) -> Self {
        Self {
            level: Level::Well,
            what: what.into(),
            remedy: None,
        }
    }
}

/// Whether so much of a limit is used that it is nearly used up.
pub(super) fn is_nearly(used: i64, limit: i64) -> bool {
    limit > 0 && used.saturating_mul(100) >= limit.saturating_mul(NEARLY_PERCENT)
}

fn apart(one: Moment, other: Moment) -> Duration {
    Duration::from_micros(one.micros().abs_diff(other.micros()))
}

pub(super) fn clock(store: &str, of_store: Moment, here: Moment) -> Option<Finding> {
    let apart = apart(of_store, here);
    (apart > CLOCK_LIMIT).then(|| {
        Finding::look(
            format!(
                "the clocks of {store} and of this machine are {} s apart",
                apart.as_secs()
            ),
            "set the wrong one right (chrony)",
        )
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn now() -> Moment {
        Moment::from_micros(1_900_000_000_000_000)
    }

    /// The level and the words of the only finding beside the summary.
    pub fn only(found: Vec<Finding>) -> (Level, String) {
        let mut bad = found.into_iter().filter(|finding| finding.level != Level::Well);
        let first = bad.next().expect("something is found");
        assert_eq!(bad.next(), None, "{first:?}");
        assert!(first.remedy.is_some());
        (first.level, first.what)
    }
}
