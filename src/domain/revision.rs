//! Redis' time: the revision of a live count, and readings of the clock.

use std::fmt;
use std::time::Duration;

use super::Moment;

/// Names one change of a live count. It is the Redis time of the change, in µs since 1970, and
/// always greater than the revision of the count's change before. A saved count's revision is in
/// `item.counted_at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Revision(i64);

impl Revision {
    /// From µs since 1970.
    pub fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// µs since 1970.
    pub fn micros(self) -> i64 {
        self.0
    }
}

/// RFC 3339 in UTC.
impl fmt::Display for Revision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        Moment::from_micros(self.0).fmt(formatter)
    }
}

/// A reading of Redis' clock, in µs since 1970. The clock may go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RedisTime(i64);

impl RedisTime {
    /// From µs since 1970.
    pub fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// From whole seconds since 1970.
    pub fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000))
    }

    /// From the reply to TIME: whole seconds, and the µs beyond them.
    pub fn from_time_reply(seconds: i64, micros: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000).saturating_add(micros))
    }

    /// The time since the change with this revision; 0 if it is later than `self`.
    pub fn since_change(self, change: Revision) -> Duration {
        self.since(Self(change.0))
    }

    /// The time since `earlier`; 0 if it is later than `self`.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The time so long before this one.
    pub fn before(self, age: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(i64::try_from(age.as_micros()).unwrap_or(i64::MAX)),
        )
    }

    /// The revision of a change at this time.
    pub fn as_revision(self) -> Revision {
        Revision(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_shown_in_utc() {
        assert_eq!(
            Revision::from_micros(1_500_000).to_string(),
            "1970-01-01T00:00:01.5Z"
        );
    }

    #[test]
    fn the_time_since_something_later_is_0() {
        let now = RedisTime::from_time_reply(1, 5);
        assert_eq!(
            now.since_change(Revision::from_micros(1_000_002)),
            Duration::from_micros(3)
        );
        assert_eq!(now.since_change(Revision::from_micros(1_000_006)), Duration::ZERO);
        assert_eq!(now.since(RedisTime::from_seconds(2)), Duration::ZERO);
        assert_eq!(
            now.before(Duration::from_micros(6)),
            RedisTime::from_micros(999_999)
        );
    }
}
