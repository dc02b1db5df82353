//! Moments: times, most of them of the database's clock.

use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Serialize, Serializer};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A time in µs since 1970, as Postgres keeps it, in the years 0 to 9999 (RFC 3339).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment(i64);

/// Why a text is no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it takes a time like 2030-01-31T18:00:00Z or 2030-01-31T18:00:00+01:00 (RFC 3339)")]
pub struct InvalidMoment;

impl Moment {
    /// The time now, by this machine's clock. 1970, if that is earlier.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    /// From µs since 1970.
    pub fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// µs since 1970.
    pub fn micros(self) -> i64 {
        self.0
    }

    /// The time in UTC; `None` outside of RFC 3339's years 0 to 9999.
    fn rfc3339(self) -> Option<String> {
        let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1000).ok()?;
        time.format(&Rfc3339).ok()
    }
}

/// Reads RFC 3339, and cuts off what is less than a µs.
impl FromStr for Moment {
    type Err = InvalidMoment;

    fn from_str(text: &str) -> Result<Self, InvalidMoment> {
        let time = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| InvalidMoment)?;
        let micros = time.unix_timestamp_nanos().div_euclid(1000);
        let moment = i64::try_from(micros).map(Self).map_err(|_| InvalidMoment)?;
        // With another offset, the time may lie outside of the years that can be written in UTC.
        moment.rfc3339().map(|_| moment).ok_or(InvalidMoment)
    }
}

/// RFC 3339 in UTC.
impl fmt::Display for Moment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.rfc3339().unwrap_or_else(|| format!("{} µs", self.0));
        formatter.write_str(&text)
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read_with_any_offset_and_written_in_utc() {
        for (text, utc) in [
            ("2030-01-31T18:00:00Z", "2030-01-31T18:00:00Z"),
            ("2030-01-31T18:00:00+01:00", "2030-01-31T17:00:00Z"),
            ("1969-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999999Z"),
            ("2030-01-31t18:00:00.1234567z", "2030-01-31T18:00:00.123456Z"),
        ] {
            let moment: Moment = text.parse().expect("a time");
            assert_eq!(moment.to_string(), utc, "{text}");
        }
        for text in [
            "",
            "2030-01-31",
            "2030-01-31T18:00:00",
            "tomorrow",
            "2030-02-30T18:00:00Z",
            "9999-12-31T23:59:59-01:00",
        ] {
            assert_eq!(text.parse::<Moment>(), Err(InvalidMoment), "{text:?}");
        }
    }
}
