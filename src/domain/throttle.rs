//! Throttles: how often a voter, a client or an item may have a vote.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// The most throttles: each attempt passes all of them.
pub const THROTTLES_LIMIT: usize = 8;
/// The longest interval.
pub const INTERVAL_LIMIT: Duration = Duration::from_secs(86_400);

/// What a throttle counts attempts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThrottledBy {
    Voter,
    Address,
    Item,
}

impl ThrottledBy {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Voter, Self::Address, Self::Item];

    /// The kind's name in settings, keys and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Voter => "voter",
            Self::Address => "address",
            Self::Item => "item",
        }
    }
}

/// The most attempts in an interval, for each voter, client address or item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    pub by: ThrottledBy,
    pub limit: NonZeroU32,
    /// Whole seconds: the header fields for clients have no others.
    pub interval: Duration,
}

impl fmt::Display for Throttle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by, limit, interval } = self;
        write!(out, "{}:{limit}/{}s", by.name(), interval.as_secs())
    }
}

/// Reads `<by>:<attempts>/<interval>`, like `voter:10/1m`.
impl FromStr for Throttle {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text}: a throttle is like voter:10/1m: voter, address or item, a number of votes, and an interval \
                 of whole seconds up to {} h",
                INTERVAL_LIMIT.as_secs() / 3600
            )
        };
        let (by, rest) = text.split_once(':').ok_or_else(wrong)?;
        let (limit, interval) = rest.split_once('/').ok_or_else(wrong)?;
        let by = ThrottledBy::ALL.into_iter().find(|one| one.name() == by);
        let interval = humantime::parse_duration(interval).ok().filter(|interval| {
            interval.subsec_nanos() == 0 && (Duration::from_secs(1)..=INTERVAL_LIMIT).contains(interval)
        });
        match (by, limit.parse(), interval) {
            (Some(by), Ok(limit), Some(interval)) => Ok(Self { by, limit, interval }),
            _ => Err(wrong()),
        }
    }
}

/// The throttles of a server, up to [`THROTTLES_LIMIT`]. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Throttles(Arc<[Throttle]>);

impl Throttles {
    /// Each of them.
    pub fn all(&self) -> &[Throttle] {
        &self.0
    }

    /// The windows of an attempt: `of` says whose window of a throttle it is. `None`: the throttle
    /// does not look at the attempt.
    pub fn windows(&self, of: impl Fn(&Throttle) -> Option<u128>) -> Windows {
        let mut windows = Windows::default();
        for (window, throttle) in windows.0.iter_mut().zip(self.all()) {
            *window = of(throttle);
        }
        windows
    }

    /// The throttles that look at an attempt, each with the attempt's window of it.
    pub fn looking_at<'a>(&'a self, windows: &'a Windows) -> impl Iterator<Item = (Window, &'a Throttle)> {
        let numbered = self.all().iter().enumerate();
        numbered.filter_map(|(number, throttle)| Some((windows.of(number)?, throttle)))
    }
}

/// Reads throttles, separated by commas. An empty text means no throttles.
impl FromStr for Throttles {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let texts = text.split(',').map(str::trim).filter(|_| !text.trim().is_empty());
        let all = texts.map(str::parse).collect::<Result<Vec<Throttle>, _>>()?;
        if all.len() > THROTTLES_LIMIT {
            return Err(format!("it takes up to {THROTTLES_LIMIT} throttles"));
        }
        // Two equal ones would count in the same windows.
        let is_twice = |at: usize| {
            let of = |one: &Throttle| (one.by, one.interval);
            all[..at].iter().any(|other| of(other) == of(&all[at]))
        };
        match (0..all.len()).find(|at| is_twice(*at)) {
            Some(at) => Err(format!("{}: this interval is there twice", all[at])),
            None => Ok(Self(all.into())),
        }
    }
}

/// Identifies a window: by an item's id, or by 128 bits of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Window {
    /// The index of its throttle, from 0 on.
    pub throttle: usize,
    pub of: u128,
}

/// The windows of an attempt to vote, from [`Throttles::windows`].
///
/// The list has a gap for each throttle that does not look at the attempt. Its fields are private, so
/// that nobody closes the gaps and then pairs a window with another throttle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windows([Option<u128>; THROTTLES_LIMIT]);

impl Windows {
    /// The window of the throttle with this index. `None`: the throttle does not look at the attempt.
    pub fn of(&self, throttle: usize) -> Option<Window> {
        let of = self.0.get(throttle).copied().flatten()?;
        Some(Window { throttle, of })
    }

    /// Each window. It knows its throttle.
    pub fn iter(&self) -> impl Iterator<Item = Window> {
        (0..THROTTLES_LIMIT).filter_map(|throttle| self.of(throttle))
    }
}

/// A refusal because a window is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// The index of the throttle, from 0 on.
    pub throttle: usize,
    /// How long its window stays full.
    pub left: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttles_are_a_list_of_numbers_of_votes_in_intervals() {
        let throttles: Throttles = "voter:10/1m, voter:1/2s,address:100/1h,item:5/1s"
            .parse()
            .expect("throttles");
        let texts: Vec<String> = throttles.all().iter().map(Throttle::to_string).collect();
        assert_eq!(
            texts,
            ["voter:10/60s", "voter:1/2s", "address:100/3600s", "item:5/1s"]
        );
        assert_eq!("".parse(), Ok(Throttles::default()));
    }

    #[test]
    fn what_is_no_throttle_is_refused() {
        for wrong in [
            "voter",
            "voter:10",
            "voter:10/",
            "voter:0/1m",
            "voter:-1/1m",
            "voter:1/0s",
            "voter:1/500ms",
            "voter:1/1500ms",
            "voter:1/25h",
            "voters:1/1m",
            "voter:1/1m,",
            "voter:1/1m,voter:2/60s",
            "voter:4294967296/1m",
        ] {
            assert!(wrong.parse::<Throttles>().is_err(), "{wrong}");
        }
        let nine: Vec<String> = (1..=9).map(|seconds| format!("voter:1/{seconds}s")).collect();
        assert!(nine.join(",").parse::<Throttles>().is_err());
    }
}
