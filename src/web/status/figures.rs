//! The server's metrics at one moment, read from the text that Prometheus reads. So each figure is counted in
//! one place.

use crate::telemetry::{VOTE_OUTCOMES, name};

/// The metrics at one moment. Totals are since the program's start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// The votes of each of [`VOTE_OUTCOMES`].
    pub votes: [f64; VOTE_OUTCOMES.len()],
    pub throttled: f64,
    pub vote_seconds: Histogram,
    pub batch_votes: Histogram,
    pub queue_votes: f64,
    pub connections: f64,
    pub connections_refused: f64,
    pub streams: f64,
    pub streams_refused: f64,
    pub stream_events: f64,
}

/// A histogram in Prometheus' form.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Upper bounds, each with the number of values up to it. Without the infinite bound.
    buckets: Vec<(f64, f64)>,
    sum: f64,
    count: f64,
}

impl Figures {
    /// Reads the text of `GET /metrics`. Figures that are missing stay 0.
    pub fn read(text: &str) -> Self {
        let mut figures = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((sample, value)) = line.rsplit_once(' ') else {
                continue;
            };
            let (metric, labels) = sample.split_once('{').unwrap_or((sample, ""));
            let Ok(value) = value.parse::<f64>() else { continue };
            figures.add(metric, labels, value);
        }
        figures
    }

    fn add(&mut self, metric: &str, labels: &str, value: f64) {
        match metric {
            name::VOTES => {
                let outcome = label(labels, "outcome");
                let at = VOTE_OUTCOMES.iter().position(|one| Some(*one) == outcome);
                if let Some(total) = at.and_then(|at| self.votes.get_mut(at)) {
                    *total += value;
                }
            }
            name::THROTTLED => self.throttled += value,
            name::QUEUE_DEPTH => self.queue_votes = value,
            name::CONNECTIONS => self.connections = value,
            name::CONNECTIONS_REFUSED => self.connections_refused = value,
            name::STREAMS => self.streams = value,
            name::STREAMS_REFUSED => self.streams_refused += value,
            name::STREAM_EVENTS => self.stream_events = value,
            _ => {
                if let Some(part) = metric.strip_prefix(name::VOTE_SECONDS) {
                    self.vote_seconds.add(part, labels, value);
                } else if let Some(part) = metric.strip_prefix(name::BATCH_VOTES) {
                    self.batch_votes.add(part, labels, value);
                }
            }
        }
    }
}

/// Returns the value of a label among `a="b",c="d"}`. The labels that are read here have no quotes in their
/// values.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let mut labels = labels.trim_end_matches('}').split(',');
    labels.find_map(|label| {
        let (of, value) = label.split_once('=')?;
        (of == name).then(|| value.trim_matches('"'))
    })
}

impl Histogram {
    fn add(&mut self, part: &str, labels: &str, value: f64) {
        match part {
            "_sum" => self.sum = value,
            "_count" => self.count = value,
            "_bucket" => {
                let bound = label(labels, "le").and_then(|bound| bound.parse::<f64>().ok());
                if let Some(bound) = bound.filter(|bound| bound.is_finite()) {
                    self.buckets.push((bound, value));
                }
            }
            _ => {}
        }
    }

    /// Returns what was added since this earlier state.
    pub fn since(&self, before: &Self) -> Self {
        let earlier = |at: usize| before.buckets.get(at).map_or(0.0, |(_, count)| *count);
        let buckets = self.buckets.iter().enumerate();
        Self {
            buckets: buckets
                .map(|(at, (bound, count))| (*bound, count - earlier(at)))
                .collect(),
            sum: self.sum - before.sum,
            count: self.count - before.count,
        }
    }

    /// Returns the mean of its values. `None`: it has no values.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }

    /// Returns the value that this share of its values does not exceed, to the precision of the buckets.
    /// Within a bucket, values count as evenly spread. Above the last bound, it is the last bound. `None`: it
    /// has no values.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        if self.count <= 0.0 {
            return None;
        }
        let wanted = share * self.count;
        let (mut least, mut below) = (0.0, 0.0);
        for (bound, count) in &self.buckets {
            if *count >= wanted && *count > below {
                return Some(least + (bound - least) * ((wanted - below) / (count - below)).max(0.0));
            }
            (least, below) = (*bound, *count);
        }
        Some(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP tally_votes_total Votes.\n# TYPE tally_votes_total counter\n\
        tally_votes_total{outcome=\"accepted\"} 12\ntally_votes_total{outcome=\"failed\"} 3\n\
        tally_votes_total{outcome=\"of another version\"} 9\n\n\
        tally_throttled_total{by=\"voter\"} 2\ntally_throttled_total{by=\"item\"} 5\n\
        tally_queue_depth_votes 7\ntally_streams 4\n\
        tally_vote_seconds_bucket{le=\"0.001\"} 10\ntally_vote_seconds_bucket{le=\"0.002\"} 30\n\
        tally_vote_seconds_bucket{le=\"+Inf\"} 40\ntally_vote_seconds_sum 0.5\ntally_vote_seconds_count 40\n\
        no number\ntally_streams x\n";

    #[test]
    fn figures_are_read_from_the_text_of_the_metrics() {
        let figures = Figures::read(TEXT);
        assert_eq!(figures.votes, [12.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0]);
        assert_eq!(
            (figures.throttled, figures.queue_votes, figures.streams),
            (7.0, 7.0, 4.0)
        );
        assert_eq!(figures.vote_seconds.mean(), Some(0.0125));
        assert_eq!(figures.batch_votes.mean(), None);
        assert_eq!(Figures::read(""), Figures::default());
    }

    #[test]
    fn a_quantile_lies_within_the_bucket_that_has_it() {
        let seconds = Figures::read(TEXT).vote_seconds;
        assert_eq!(seconds.quantile(0.25), Some(0.001));
        assert_eq!(seconds.quantile(0.5), Some(0.0015));
        // Beyond the last bound nothing more is known.
        assert_eq!(seconds.quantile(0.99), Some(0.002));
        let nothing = seconds.since(&seconds);
        assert_eq!((nothing.quantile(0.5), nothing.mean()), (None, None));
        let all = seconds.since(&Histogram::default());
        assert_eq!(all, seconds);
    }
}
