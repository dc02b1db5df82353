//! Rows: what `make bench` measured of each workload, case and round.
//! results.json has them in this form.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::{System, Topology};

/// A row of votes and reads, as in results.json.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub workload: String,
    pub system: System,
    #[serde(default)]
    pub topology: Topology,
    pub round: usize,
    pub connections: usize,
    pub servers: usize,
    pub ledger_rows: i64,
    /// Whether the ledger is in ranges.
    #[serde(default)]
    pub in_ranges: bool,
    /// How many votes a request has. More than 1: the request is a batch.
    pub votes_per_request: usize,
    pub sync_delay_ms: f64,
    pub votes: u64,
    pub votes_per_second: f64,
    /// Votes and reads per second.
    pub requests_per_second: f64,
    /// In a closed loop: each connection sends when the last request is answered.
    pub closed_loop_ms: Latency,
    /// In an open loop at half of the system's maximum.
    /// A latency begins when its request was due.
    pub open_loop_ms: Option<OpenLatency>,
    /// The part of the requests that got 304.
    pub unchanged_part: f64,
    /// Null when the workload has no votes.
    pub cpu_us_per_vote: Option<CpuEach>,
    pub cpu_us_per_request: CpuEach,
    /// The part of the closed loop in which the generator's thread was busy.
    /// Near 1, the generator is the limit.
    pub generator_busy: f64,
    pub wal_bytes_per_vote: Option<f64>,
    /// Acknowledged votes = rows = counts, item by item.
    /// For the no-op baseline: no request failed.
    pub verified: bool,
    /// Why it is not verified.
    pub fault: Option<String>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Latency {
    pub p50: f64,
    pub p99: f64,
    pub p99_9: f64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct OpenLatency {
    pub requests_per_second: f64,
    #[serde(flatten)]
    pub latency: Latency,
}

impl Row {
    /// Votes and reads per second.
    pub fn rate(&self) -> f64 {
        self.requests_per_second.max(self.votes_per_second)
    }
}

impl Latency {
    /// The percentiles of a histogram of microseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let ms = |part| histogram.value_at_quantile(part) as f64 / 1000.0;
        Self {
            p50: ms(0.5),
            p99: ms(0.99),
            p99_9: ms(0.999),
        }
    }
}

/// CPU µs by process, for each vote, request or counter.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CpuEach {
    pub server: f64,
    /// Tally's sync worker. All sums add it to the server's part.
    pub worker: f64,
    pub postgres: f64,
    pub redis: f64,
    /// The load generator's, which is in no sum.
    pub generator: f64,
}

impl CpuEach {
    /// The sum without the generator's.
    pub fn sum(&self) -> f64 {
        self.server + self.worker + self.postgres + self.redis
    }
}

/// A row of the worker's work, as in results.json.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerRow {
    pub workload: String,
    pub system: System,
    pub round: usize,
    pub connections: usize,
    pub servers: usize,
    /// How many counters were written or scanned, votes audited, or counters to seed.
    pub count: u64,
    pub seconds: f64,
    pub count_per_second: f64,
    /// Null if a load ran at the same time.
    pub cpu_us_each: Option<CpuEach>,
    pub wal_bytes_each: Option<f64>,
    /// How many cores worker and Redis used.
    pub cores: Option<f64>,
    /// The most votes beyond the watermark, in seconds of voting.
    pub tail_seconds: Option<f64>,
    /// The slowest of several seeds' reads of the hottest item's exact count.
    pub seed_ms: Option<f64>,
    /// Table and indexes.
    pub disk_bytes_per_vote: Option<DiskBytes>,
    pub redis_bytes_per_counter: Option<f64>,
    pub snapshot: Option<SnapshotCost>,
    pub split: Option<SplitCost>,
    /// Votes per second before this was done, and while it was done.
    /// For the audit, before is the mean of before and after.
    pub votes_per_second_before: Option<f64>,
    pub votes_per_second: Option<f64>,
    pub verified: bool,
    pub fault: Option<String>,
}

/// What an open snapshot costs.
/// The size of the table `item`, and the slowest look-up of ten items.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SnapshotCost {
    pub item_bytes_before: i64,
    pub item_bytes_after: i64,
    pub lookup_ms_before: f64,
    pub lookup_ms_after: f64,
}

/// What it costs to split a full ledger into ranges while votes go on.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SplitCost {
    /// How long votes were locked out.
    pub locked_ms: f64,
    /// The slowest answer to a vote, for as long before the split as it is measured, and in the split.
    pub slowest_answer_ms_before: f64,
    pub slowest_answer_ms: f64,
    /// Votes with their indexes.
    pub ledger_bytes_before: i64,
    pub ledger_bytes_after: i64,
}

/// Bytes on disk by relation, for each vote.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct DiskBytes {
    pub table: f64,
    pub primary_key: f64,
    pub vote_once: f64,
}

impl DiskBytes {
    pub fn sum(&self) -> f64 {
        self.table + self.primary_key + self.vote_once
    }
}

impl WorkerRow {
    /// A row without the figures that only some workloads measure.
    pub fn new(
        workload: impl Into<String>,
        round: usize,
        count: u64,
        seconds: f64,
        fault: Option<String>,
    ) -> Self {
        Self {
            workload: workload.into(),
            system: System::Tally,
            round,
            connections: 0,
            servers: 0,
            count,
            seconds,
            count_per_second: count as f64 / seconds,
            cpu_us_each: None,
            wal_bytes_each: None,
            cores: None,
            tail_seconds: None,
            seed_ms: None,
            disk_bytes_per_vote: None,
            redis_bytes_per_counter: None,
            snapshot: None,
            split: None,
            votes_per_second_before: None,
            votes_per_second: None,
            verified: fault.is_none(),
            fault,
        }
    }

    /// Adds a server's votes per second before and during the work, and connections.
    pub fn under_load(self, connections: usize, before: f64, during: f64) -> Self {
        Self {
            connections,
            servers: 1,
            votes_per_second_before: Some(before),
            votes_per_second: Some(during),
            ..self
        }
    }
}

/// A row of live streams, as in results.json.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StreamRow {
    pub workload: String,
    pub round: usize,
    pub watchers: usize,
    pub items: i64,
    /// Before the watchers came, and after they left.
    pub votes_per_second_without: [f64; 2],
    pub votes_per_second_with: f64,
    /// The rate with watchers, divided by the mean rate without.
    pub speed_ratio: f64,
    /// CPU of all processes but the watchers for each vote at full speed, with events.
    /// Before the watchers came, and with them.
    pub cpu_us_per_vote: [f64; 2],
    /// Cores that the watchers themselves used to read their events.
    pub watchers_cores: f64,
    /// At the same time.
    pub events_per_second_at_full_speed: f64,
    /// At half of the speed without watchers.
    pub events_per_second: f64,
    pub cpu_us_per_event_of_server: f64,
    pub cpu_us_per_event_of_redis: f64,
    /// From a vote's answer until a stream shows its count.
    pub delay_ms_p50: f64,
    pub delay_ms_p99: f64,
    pub delays: u64,
    /// Memory of the server, with what it allocates for the connection.
    pub bytes_per_stream: f64,
    pub fault: Option<String>,
}

/// A row of streams that nobody reads, as in results.json.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeafRow {
    pub workload: String,
    pub round: usize,
    /// How many streams were open at once.
    pub streams: usize,
    pub votes_per_second_without: f64,
    /// While all streams are open.
    pub votes_per_second_with: f64,
    pub speed_ratio: f64,
    /// How many streams were still open then.
    pub open_in_the_end: usize,
    /// The server's resident memory before the streams, at most, and after them.
    pub memory_bytes: [u64; 3],
    /// The system's memory for all sockets, both ends: before, and at most.
    pub socket_bytes: [u64; 2],
    /// From the cut of half of the streams until the server had ended them.
    pub cut_off_seconds: f64,
    /// From then until the server had ended the other streams by itself.
    pub ended_seconds: f64,
    pub fault: Option<String>,
}

impl DeafRow {
    /// The server's memory for each stream, at most.
    pub fn bytes_per_stream(&self) -> f64 {
        self.memory_bytes[1].saturating_sub(self.memory_bytes[0]) as f64 / self.streams.max(1) as f64
    }
}

/// A row of one kind of credential in one round, as in results.json.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CredentialRow {
    pub workload: String,
    pub round: usize,
    pub with: With,
    pub turns: usize,
    /// The medians of the turns. CPU time is of all processes except the generator.
    pub requests_per_second: f64,
    pub cpu_us_per_request: f64,
    /// The server's part of the CPU time.
    pub server_us_per_request: f64,
    /// CPU beyond a vote with nothing in the same turn: all processes, the server.
    pub more_us: Option<Spread>,
    pub server_more_us: Option<Spread>,
    /// Why acknowledged votes, rows and counts do not agree, for all kinds together.
    pub fault: Option<String>,
}

/// The spread of a figure that was measured several times.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Spread {
    pub quarter: f64,
    pub median: f64,
    pub three_quarters: f64,
}

impl Spread {
    /// `None` without values.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let at = |part: usize| values.get(values.len() * part / 4).copied();
        Some(Self {
            quarter: at(1)?,
            median: at(2)?,
            three_quarters: at(3)?,
        })
    }
}

/// What comes with a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum With {
    /// Nothing: everything is open.
    Nothing,
    /// A backend's API key.
    ApiKey,
    Cookie,
    /// A token with ES256 that the server has checked before.
    Token,
    /// A token that the server has not checked before.
    FreshToken,
    /// No credential, under throttles.
    Throttles,
    /// No credential, under a throttle that refuses nearly all votes.
    FullThrottle,
}

impl With {
    pub const ALL: [Self; 7] = [
        Self::Nothing,
        Self::ApiKey,
        Self::Cookie,
        Self::Token,
        Self::FreshToken,
        Self::Throttles,
        Self::FullThrottle,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::ApiKey => "an API key",
            Self::Cookie => "a cookie",
            Self::Token => "a remembered token",
            Self::FreshToken => "a fresh token",
            Self::Throttles => "three throttles",
            Self::FullThrottle => "a throttle that refuses",
        }
    }
}
