//! Reads the values of settings and checks their limits.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::domain::{CELLS_LIMIT, CHOICES_LIMIT_ITEMS, ItemId, ItemName, Moment, without_wrapping, wrapping};
use crate::store_url::StoreUrl;

/// A cron expression of six fields, seconds first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron(String);

impl Cron {
    /// Returns the six fields.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for Cron {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{why}; it takes six fields, seconds first, like 0 * * * * *");
        let fields = text.split_whitespace().count();
        if fields != 6 {
            return Err(wrong(&format!("it has {fields} fields")));
        }
        // The scheduler's own parser decides what is valid.
        tokio_cron_scheduler::Job::new(text, |_, _| {}).map_err(|_| wrong("it is not a cron expression"))?;
        Ok(Self(text.to_owned()))
    }
}

/// Reads a time.
pub fn moment(text: &str) -> Result<Moment, String> {
    text.parse::<Moment>().map_err(|error| error.to_string())
}

/// Checks the URL of a store. A bare `/`, `?` or `#` in a password would end the URL's host part. The rest of
/// the password would then be read as a database's name or a parameter, and logs and errors could show it. So
/// such a URL is refused. What files and env files put around a URL is left out.
pub fn store_url(text: &str) -> Result<String, String> {
    let text = without_wrapping(text);
    let after_scheme = text.split_once("://").map_or("", |(_, rest)| rest);
    let after_host = after_scheme
        .find(['/', '?', '#'])
        .map_or("", |end| &after_scheme[end..]);
    if after_host.contains('@') {
        return Err(
            "there is an @ after its host; in user and password, write / as %2F, ? as %3F, # as %23, @ as %40"
                .to_owned(),
        );
    }
    Ok(text.to_owned())
}

/// Reads the URL of a store whose login may be read again.
pub fn login_url(text: &str) -> Result<StoreUrl, String> {
    store_url(text).map(StoreUrl::from)
}

/// Reads the address of a collector. An empty one is none, as OpenTelemetry's specification has it.
pub fn collector_url(text: &str) -> Result<String, String> {
    let text = store_url(text)?;
    if text.is_empty() || text.starts_with("http://") {
        return Ok(text);
    }
    Err("it begins with http:// and has no TLS: send spans to a collector near Tally".to_owned())
}

/// Reads an item's id.
pub fn item_id(text: &str) -> Result<ItemId, String> {
    text.parse()
        .map_err(|()| "it takes an id, like 5; tally item show finds the id of a key".to_owned())
}

/// Reads the value of a claim. Each character counts, so a value with something around it is refused: no token
/// would have it.
pub fn claim(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("it is empty".to_owned());
    }
    match wrapping(text) {
        Some(wrapping) => Err(format!("it {wrapping}")),
        None => Ok(text.to_owned()),
    }
}

/// Reads a path. What an env file puts around it would be a part of its name.
pub fn path(text: &str) -> Result<PathBuf, String> {
    claim(text).map(PathBuf::from)
}

/// Reads a duration above 0, such as `500ms`, `10s`, `10m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(duration) if duration > DURATION_LIMIT => Err(format!(
            "it takes at most {} days",
            DURATION_LIMIT.as_secs() / 86_400
        )),
        Ok(duration) if duration.is_zero() => {
            Err("it takes a duration above 0, like 500ms, 10s, 10m".to_owned())
        }
        Ok(duration) => Ok(duration),
        Err(_) => Err("it takes a duration like 500ms, 10s, 10m".to_owned()),
    }
}

/// Reads how long browsers use only https: at least a second, since 0 would tell them to forget it.
pub fn hsts(text: &str) -> Result<Duration, String> {
    a_second_or_longer(text, "1y")
}

/// Reads how long hashes of client addresses are kept.
pub fn address_retention(text: &str) -> Result<Duration, String> {
    a_second_or_longer(text, "30d")
}

fn a_second_or_longer(text: &str, example: &str) -> Result<Duration, String> {
    let age = duration(text)?;
    if age.as_secs() == 0 {
        return Err(format!("it takes 1 s or longer, like {example}"));
    }
    Ok(age)
}

/// The shortest wait for a stalled batch writer: longer than the slowest batch takes (`src/limit_relations.rs`). With
/// a shorter wait, an audit would take votes that are being counted for lost votes.
pub const WRITER_STALL_LEAST: Duration = Duration::from_secs(30);

/// Reads how long to wait for a stalled batch writer.
pub fn writer_stall_limit(text: &str) -> Result<Duration, String> {
    let limit = duration(text)?;
    if limit < WRITER_STALL_LEAST {
        return Err(format!("it takes {} s or longer", WRITER_STALL_LEAST.as_secs()));
    }
    Ok(limit)
}

/// The longest duration of any setting. Postgres and Redis calculate exactly with it.
pub const DURATION_LIMIT: Duration = Duration::from_secs(10 * 365 * 86_400);
/// The largest page of the scan or the audit. A larger page gains nothing, and its rebuild
/// would hold row locks for too long.
pub const PAGE_LIMIT: usize = 100_000;
/// The most requests that `tally replay` has under way at once.
pub const REPLAY_LIMIT_CONNECTIONS: usize = 4096;
/// The most connections that a server may serve at once. Each may hold up to
/// 280 KiB of what its client sends.
pub const SERVED_LIMIT_CONNECTIONS: usize = 1_000_000;
/// The highest number of a column in a file of votes.
pub const REPLAY_LIMIT_COLUMNS: usize = 1000;

/// Reads the size of a page.
pub fn page(text: &str) -> Result<usize, String> {
    whole(text, PAGE_LIMIT)
}

/// Reads a number of connections.
pub fn connections(text: &str) -> Result<usize, String> {
    whole(text, REPLAY_LIMIT_CONNECTIONS)
}

/// Reads the most connections of a server.
pub fn served(text: &str) -> Result<usize, String> {
    whole(text, SERVED_LIMIT_CONNECTIONS)
}

/// Reads a number of cells.
pub fn cells(text: &str) -> Result<u16, String> {
    let number = whole(text, usize::from(CELLS_LIMIT))?;
    Ok(u16::try_from(number).unwrap_or(CELLS_LIMIT))
}

/// Reads the number of a column, counted from 1.
pub fn column(text: &str) -> Result<usize, String> {
    whole(text, REPLAY_LIMIT_COLUMNS)
}

/// Reads a rating, which may be any number.
pub fn rating(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|rating: &f64| rating.is_finite());
    number.ok_or_else(|| "it takes a number".to_owned())
}

/// Reads the title of a poll.
pub fn title(text: &str) -> Result<ItemName, String> {
    ItemName::parse(text.to_owned()).map_err(|error| format!("it {error}"))
}

/// Reads how many choices of a poll a voter may hold. 0 means any number.
pub fn choices(text: &str) -> Result<usize, String> {
    if text == "0" {
        return Ok(0);
    }
    whole(text, CHOICES_LIMIT_ITEMS).map_err(|error| format!("{error}, or 0 for any number"))
}

fn whole(text: &str, limit: usize) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| (1..=limit).contains(number))
        .ok_or_else(|| format!("it takes a whole number from 1 to {limit}"))
}

/// Reads a rate in votes per second.
pub fn rate(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|rate: &f64| rate.is_finite() && *rate >= 0.1 && *rate <= 1_000_000.0)
        .ok_or_else(|| "it takes a number from 0.1 to 1000000".to_owned())
}
