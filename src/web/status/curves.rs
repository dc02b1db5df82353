//! The curves of the last hour: what each shows, and what is normal.

use crate::telemetry::VOTE_OUTCOMES;
use crate::web::status::figures::Figures;

/// The greatest normal median latency. At half load the median is 5 to 12 ms (docs/benchmarks.md). A server
/// whose votes wait for one more batch has a few times that.
const NORMAL_P50_SECONDS: f64 = 0.05;
/// The greatest normal p99 latency. At half load it is 30 to 45 ms. Five times that is a slow disk, a lock or
/// a full queue.
const NORMAL_P99_SECONDS: f64 = 0.2;
/// The most votes that normally wait: a full batch (`votes::BATCH_LIMIT_VOTES`). More votes wait for a second
/// batch.
const NORMAL_QUEUE_VOTES: f64 = crate::votes::BATCH_LIMIT_VOTES as f64;
/// The greatest normal mean size of batches: three quarters of a full batch. Above that, votes arrive almost
/// as fast as they can be stored.
const NORMAL_BATCH_VOTES: f64 = 0.75 * crate::votes::BATCH_LIMIT_VOTES as f64;
/// The greatest normal age of the oldest unsaved count: two flushes.
///
/// They are up to 5 s apart under load, and each may leave a locked row to the next.
const NORMAL_UNSAVED_SECONDS: f64 = 10.0;

/// The normal range of a curve. `None`: no bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normal {
    pub least: Option<f64>,
    pub most: Option<f64>,
    /// The reason, in a sentence.
    pub why: &'static str,
}

const fn any(why: &'static str) -> Normal {
    Normal {
        least: None,
        most: None,
        why,
    }
}

const fn at_most(most: f64, why: &'static str) -> Normal {
    Normal {
        least: None,
        most: Some(most),
        why,
    }
}

const fn at_least(least: f64, why: &'static str) -> Normal {
    Normal {
        least: Some(least),
        most: None,
        why,
    }
}

/// What is known of the stores and the workers at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Surroundings {
    /// Whether Postgres answered in time.
    pub has_postgres: bool,
    pub has_redis: bool,
    pub suspects: f64,
    /// `None`: Postgres did not answer.
    pub workers: Option<Workers>,
}

/// What all workers report together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Workers {
    pub alive: f64,
    pub unsaved_counts: f64,
    pub oldest_unsaved_seconds: f64,
    /// How many votes the last audit found wrong. `None`: there was no audit.
    pub drift_votes: Option<f64>,
}

/// The time between two samples.
pub struct Interval<'a> {
    pub before: &'a Figures,
    pub now: &'a Figures,
    pub seconds: f64,
    pub around: &'a Surroundings,
}

impl Interval<'_> {
    /// Returns how much of this there was per second.
    pub fn rate(&self, of: impl Fn(&Figures) -> f64) -> Option<f64> {
        // Below 0: the program counts from 0 again.
        let rate = (of(self.now) - of(self.before)) / self.seconds;
        (rate.is_finite() && rate >= 0.0).then_some(rate)
    }

    fn outcome(&self, outcome: &str) -> Option<f64> {
        let at = VOTE_OUTCOMES.iter().position(|one| *one == outcome)?;
        self.rate(|figures| figures.votes[at])
    }

    fn workers(&self, of: impl Fn(&Workers) -> Option<f64>) -> Option<f64> {
        self.around.workers.as_ref().and_then(of)
    }
}

/// A curve.
pub struct Curve {
    pub name: &'static str,
    pub unit: &'static str,
    /// The curve's title, for people.
    pub title: &'static str,
    pub normal: Normal,
    /// Returns the value. `None`: there is none.
    pub value: fn(&Interval) -> Option<f64>,
}

fn one_or_zero(is_so: bool) -> Option<f64> {
    Some(if is_so { 1.0 } else { 0.0 })
}

/// All curves, in display order.
pub static CURVES: [Curve; 24] = [
    Curve {
        name: "accepted",
        unit: "votes/s",
        title: "Votes accepted",
        normal: any("As many as voters cast."),
        value: |at| at.outcome("accepted"),
    },
    Curve {
        name: "repeated",
        unit: "votes/s",
        title: "Votes repeated",
        normal: any("Clients that retry, and voters who repeat their vote."),
        value: |at| at.outcome("repeated"),
    },
    Curve {
        name: "changed",
        unit: "votes/s",
        title: "Votes changed",
        normal: any("As many as voters change."),
        value: |at| at.outcome("changed"),
    },
    Curve {
        name: "taken_back",
        unit: "votes/s",
        title: "Votes taken back",
        normal: any("As many as voters take back."),
        value: |at| at.outcome("taken_back"),
    },
    Curve {
        name: "unknown_item",
        unit: "votes/s",
        title: "Votes on unknown items",
        normal: any("None, if frontends name only items that exist."),
        value: |at| at.outcome("unknown_item"),
    },
    Curve {
        name: "declined",
        unit: "votes/s",
        title: "Votes declined by a rule",
        normal: any("As many as voters cast on items that are full or closed."),
        value: |at| at.outcome("declined"),
    },
    Curve {
        name: "refused",
        unit: "votes/s",
        title: "Votes refused: the queue was full",
        normal: at_most(
            0.0,
            "The queue holds four batches. It is full when the stores cannot keep up.",
        ),
        value: |at| at.outcome("refused"),
    },
    Curve {
        name: "failed",
        unit: "votes/s",
        title: "Votes that Postgres did not store or confirm",
        normal: at_most(0.0, "Postgres confirms every batch unless it is unavailable."),
        value: |at| at.outcome("failed"),
    },
    Curve {
        name: "throttled",
        unit: "attempts/s",
        title: "Attempts that a throttle refused",
        normal: any("Few: only clients that try too often."),
        value: |at| at.rate(|figures| figures.throttled),
    },
    Curve {
        name: "latency_p50",
        unit: "seconds",
        title: "Vote latency, median",
        normal: at_most(NORMAL_P50_SECONDS, "The median is 5 to 12 ms at half load."),
        value: |at| at.now.vote_seconds.since(&at.before.vote_seconds).quantile(0.5),
    },
    Curve {
        name: "latency_p99",
        unit: "seconds",
        title: "Vote latency, p99",
        normal: at_most(
            NORMAL_P99_SECONDS,
            "The p99 is 30 to 45 ms at half load. Five times that means a slow disk, a lock or a full queue.",
        ),
        value: |at| at.now.vote_seconds.since(&at.before.vote_seconds).quantile(0.99),
    },
    Curve {
        name: "queue",
        unit: "votes",
        title: "Votes that wait for a batch",
        normal: at_most(
            NORMAL_QUEUE_VOTES,
            "One full batch. More votes wait for a second batch.",
        ),
        value: |at| Some(at.now.queue_votes),
    },
    Curve {
        name: "batch",
        unit: "votes",
        title: "Mean votes in a batch",
        normal: at_most(
            NORMAL_BATCH_VOTES,
            "Fuller batches mean that votes arrive almost as fast as they can be stored.",
        ),
        value: |at| at.now.batch_votes.since(&at.before.batch_votes).mean(),
    },
    Curve {
        name: "unsaved",
        unit: "counts",
        title: "Counts that are not saved yet",
        normal: any("As many as change between two flushes. Their age says whether the workers keep up."),
        value: |at| at.workers(|workers| Some(workers.unsaved_counts)),
    },
    Curve {
        name: "oldest_unsaved",
        unit: "seconds",
        title: "Age of the oldest unsaved count",
        normal: at_most(
            NORMAL_UNSAVED_SECONDS,
            "The time of two flushes, which are up to 5 s apart while thousands of counts change.",
        ),
        value: |at| at.workers(|workers| Some(workers.oldest_unsaved_seconds)),
    },
    Curve {
        name: "workers",
        unit: "workers",
        title: "Workers alive",
        normal: at_least(1.0, "Without a worker, counts are not saved or audited."),
        value: |at| at.workers(|workers| Some(workers.alive)),
    },
    Curve {
        name: "drift",
        unit: "votes",
        title: "Drift: votes that the last audit found wrong",
        normal: at_most(
            0.0,
            "Counts are exact unless something failed in a way that only the audit finds.",
        ),
        value: |at| at.workers(|workers| workers.drift_votes),
    },
    Curve {
        name: "suspects",
        unit: "items",
        title: "Items whose live count is suspect",
        normal: at_most(0.0, "They are repaired as soon as Redis answers."),
        value: |at| Some(at.around.suspects),
    },
    Curve {
        name: "streams",
        unit: "streams",
        title: "Live streams",
        normal: any("As many as there are open pages."),
        value: |at| Some(at.now.streams),
    },
    Curve {
        name: "streams_refused",
        unit: "streams/s",
        title: "Live streams refused",
        normal: at_most(
            0.0,
            "More than TALLY_STREAMS_LIMIT, or too many from one address: name your proxies.",
        ),
        value: |at| at.rate(|figures| figures.streams_refused),
    },
    Curve {
        name: "connections",
        unit: "connections",
        title: "Connections of clients",
        normal: any("As many as clients keep open."),
        value: |at| Some(at.now.connections),
    },
    Curve {
        name: "connections_refused",
        unit: "connections/s",
        title: "Connections refused",
        normal: at_most(0.0, "More than TALLY_CONNECTIONS_LIMIT: use more servers."),
        value: |at| at.rate(|figures| figures.connections_refused),
    },
    Curve {
        name: "postgres",
        unit: "1 or 0",
        title: "Postgres answers",
        normal: at_least(1.0, "Without Postgres, no votes are stored."),
        value: |at| one_or_zero(at.around.has_postgres),
    },
    Curve {
        name: "redis",
        unit: "1 or 0",
        title: "Redis answers",
        normal: at_least(1.0, "Without Redis, votes are stored, but counted later."),
        value: |at| one_or_zero(at.around.has_redis),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_curve_is_there_twice_and_each_outcome_of_votes_has_one() {
        for curve in &CURVES {
            assert_eq!(CURVES.iter().filter(|other| other.name == curve.name).count(), 1);
            assert!(curve.normal.why.ends_with('.'), "{}", curve.name);
        }
        for outcome in VOTE_OUTCOMES {
            assert!(CURVES.iter().any(|curve| curve.name == outcome), "{outcome}");
        }
    }

    #[test]
    fn what_was_counted_anew_has_no_rate() {
        let (mut before, now) = (Figures::default(), Figures::default());
        before.throttled = 5.0;
        let around = Surroundings::default();
        let interval = Interval {
            before: &before,
            now: &now,
            seconds: 5.0,
            around: &around,
        };
        assert_eq!(interval.rate(|figures| figures.throttled), None);
        let back = Interval {
            before: &now,
            now: &before,
            ..interval
        };
        assert_eq!(back.rate(|figures| figures.throttled), Some(1.0));
    }
}
