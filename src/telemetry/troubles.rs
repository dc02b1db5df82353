//! Troubles that many requests may meet. The log has each cause when it begins, each minute while it lasts, with
//! how often it came, and when it is over: an hour without Postgres must not fill a disk.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};

/// How often the log says that a trouble goes on.
const REPORT_EVERY: Duration = Duration::from_secs(60);
/// A trouble that has not come for so long is over.
const OVER_AFTER: Duration = Duration::from_secs(30);
/// The most troubles with different causes. Further causes count as one.
const CAUSES_LIMIT: usize = 100;
/// The most characters of a cause by which it is kept apart from others.
const CAUSE_LIMIT_CHARS: usize = 200;
const OTHER_CAUSES: &str = "other causes";
/// How often this is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

static TROUBLES: LazyLock<Mutex<Troubles>> = LazyLock::new(Mutex::default);

#[derive(Debug, Default)]
struct Troubles(HashMap<(&'static str, String), Trouble>);

/// What has happened again and again, for the same cause.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Trouble {
    began_at: Instant,
    last_at: Instant,
    reported_at: Instant,
    /// Since the beginning.
    times: u64,
    /// Since the log last said so.
    times_unreported: u64,
}

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    what: &'static str,
    cause: String,
    times: u64,
    /// `None`: it goes on.
    lasted: Option<Duration>,
}

impl Troubles {
    /// Notes that this has happened. Returns whether it is news.
    fn note(&mut self, what: &'static str, cause: &impl Display, now: Instant) -> bool {
        let cause: String = cause.to_string().chars().take(CAUSE_LIMIT_CHARS).collect();
        let mut key = (what, cause);
        if self.0.len() >= CAUSES_LIMIT && !self.0.contains_key(&key) {
            key.1 = OTHER_CAUSES.to_owned();
        }
        let mut is_news = false;
        let trouble = self.0.entry(key).or_insert_with(|| {
            is_news = true;
            Trouble {
                began_at: now,
                last_at: now,
                reported_at: now,
                times: 0,
                times_unreported: 0,
            }
        });
        trouble.last_at = now;
        trouble.times += 1;
        trouble.times_unreported += u64::from(!is_news);
        is_news
    }

    /// What the log has to say now.
    fn report(&mut self, now: Instant) -> Vec<Line> {
        let mut lines = Vec::new();
        self.0.retain(|(what, cause), trouble| {
            let line = |times, lasted| Line {
                what,
                cause: cause.clone(),
                times,
                lasted,
            };
            if now.saturating_duration_since(trouble.last_at) >= OVER_AFTER {
                // The log has the only time already.
                if trouble.times > 1 {
                    lines.push(line(trouble.times, Some(trouble.last_at - trouble.began_at)));
                }
                return false;
            }
            if trouble.times_unreported > 0
                && now.saturating_duration_since(trouble.reported_at) >= REPORT_EVERY
            {
                lines.push(line(trouble.times_unreported, None));
                (trouble.reported_at, trouble.times_unreported) = (now, 0);
            }
            true
        });
        lines
    }
}

/// Notes that this has happened. Returns whether it is news, which the caller logs: see [`trouble`].
pub fn is_news(what: &'static str, cause: &impl Display) -> bool {
    let mut troubles = TROUBLES.lock().unwrap_or_else(PoisonError::into_inner);
    troubles.note(what, cause, Instant::now())
}

/// Has the log say which troubles go on, and which are over. Never ends.
pub async fn keep_reporting() {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let lines = {
            let mut troubles = TROUBLES.lock().unwrap_or_else(PoisonError::into_inner);
            troubles.report(Instant::now())
        };
        for Line {
            what,
            cause,
            times,
            lasted,
        } in lines
        {
            match lasted {
                None => tracing::warn!(error = %cause, times, "it goes on: {what}"),
                Some(lasted) => {
                    let seconds = lasted.as_secs();
                    tracing::info!(error = %cause, times, seconds, "it is over: {what}");
                }
            }
        }
    }
}

/// Logs a trouble that may come with each request, with its cause: at this level if it is news, else at `debug`,
/// and as [`keep_reporting`] says while it lasts. What is no cause (an id, a number) belongs in a field.
///
/// ```ignore
/// trouble!(error, %error, votes = 3; "a batch of votes was not stored");
/// ```
macro_rules! trouble {
    ($level:ident, %$cause:expr $(, $field:ident = $value:expr)*; $what:literal) => {
        if $crate::telemetry::is_news($what, &$cause) {
            tracing::$level!(error = %$cause $(, $field = $value)*, $what);
        } else {
            tracing::debug!(error = %$cause $(, $field = $value)*, $what);
        }
    };
}
pub(crate) use trouble;

#[cfg(test)]
mod tests {
    use super::*;

    const WHAT: &str = "a batch was not stored";

    #[test]
    fn a_cause_is_reported_when_it_begins_each_minute_with_how_often_it_came_and_when_it_is_over() {
        let (mut troubles, start) = (Troubles::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut lines = Vec::new();
        let news: Vec<u64> = (0..150)
            .filter(|second| {
                let is_news = troubles.note(WHAT, &"no disk", at(*second));
                lines.extend(troubles.report(at(*second)));
                is_news
            })
            .collect();
        assert_eq!(news, [0]);
        let line = |times, lasted: Option<u64>| Line {
            what: WHAT,
            cause: "no disk".to_owned(),
            times,
            lasted: lasted.map(Duration::from_secs),
        };
        assert_eq!(lines, [line(60, None), line(60, None)]);
        assert_eq!(troubles.report(at(178)), []);
        assert_eq!(troubles.report(at(179)), [line(150, Some(149))]);
        assert!(troubles.note(WHAT, &"no disk", at(180)), "it begins again");
        assert_eq!(troubles.report(at(240)), [], "once is no trouble that lasts");
    }

    #[test]
    fn causes_are_kept_apart_up_to_a_limit() {
        let (mut troubles, now) = (Troubles::default(), Instant::now());
        let news = (0..2 * CAUSES_LIMIT).filter(|cause| troubles.note(WHAT, cause, now));
        // And the first of the others.
        assert_eq!(news.count(), CAUSES_LIMIT + 1);
        assert_eq!(troubles.0.len(), CAUSES_LIMIT + 1);
    }
}
