//! The metrics: one table with the name, kind, unit, labels and help text of each.

use ::metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

/// A program that has metrics. `tally dev` is both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Server,
    Worker,
}

impl Program {
    /// Both programs.
    pub const ALL: [Self; 2] = [Self::Server, Self::Worker];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A label and its values. Without values: they are only known at run time.
#[derive(Clone, Copy, Debug)]
struct Label {
    name: &'static str,
    values: &'static [&'static str],
}

/// One metric. Its samples exist from the start, with the value 0, unless the values of its labels
/// are only known at run time.
#[derive(Clone, Copy, Debug)]
struct Metric {
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    programs: &'static [Program],
    labels: &'static [Label],
    /// The docstring of its name, with a space before each line.
    help: &'static str,
}

/// Reads the table: makes [`name`] with a constant for each metric, and `METRICS`.
macro_rules! metrics {
    ($(
        $(#[doc = $help:literal])+
        $constant:ident = $name:literal, $kind:ident of $unit:literal, $($program:ident)+ $(, $label:literal in $values:expr)*;
    )+) => {
        /// The names of all metrics.
        pub mod name {
            $($(#[doc = $help])+ pub const $constant: &str = $name;)+
        }

        const METRICS: &[Metric] = &[$(Metric {
            name: $name,
            kind: Kind::$kind,
            unit: $unit,
            programs: &[$(Program::$program),+],
            labels: &[$(Label { name: $label, values: &$values }),*],
            help: concat!($($help),+),
        }),+];

        /// The constants of [`name`], in the order of the table.
        #[cfg(test)]
        const CONSTANTS: &[&str] = &[$(stringify!($constant)),+];
    };
}

/// The outcomes of votes in [`name::VOTES`].
pub const VOTE_OUTCOMES: [&str; 8] = [
    "accepted",
    "repeated",
    "changed",
    "taken_back",
    "unknown_item",
    "declined",
    "refused",
    "failed",
];

/// Why calls of Postgres fail: the reasons in [`name::VOTE_FAILURES`].
pub const LEDGER_FAILURES: [&str; 9] = [
    "unreachable",
    "no_answer",
    "shutting_down",
    "no_connection",
    "disk_full",
    "read_only",
    "locked",
    "other_run",
    "other",
];

/// The jobs of workers, each done by one at a time.
pub const JOBS: [&str; 5] = [
    "roll_up",
    "audit",
    "delete_keys",
    "delete_addresses",
    "deliver_events",
];

// The name of a counter ends in `_total`; the name of a duration ends in `_seconds`.
metrics! {
    /// Votes by outcome; `declined`: a rule did not take them; `refused`: the queue was full;
    /// `failed`: Postgres did not store or did not confirm them.
    VOTES = "tally_votes_total", Counter of "votes", Server,
        "outcome" in VOTE_OUTCOMES;
    /// Votes that Postgres did not store or did not confirm, by why; `no_answer`: not in time; `no_connection`: it
    /// has none left; `locked`: someone holds a lock; `other_run`: it failed over or was started again.
    VOTE_FAILURES = "tally_vote_failures_total", Counter of "votes", Server,
        "why" in LEDGER_FAILURES;
    /// Votes that this server had acknowledged, and that Postgres did not have any more after a failover or a
    /// restore.
    LOST_VOTES = "tally_lost_votes_total", Counter of "votes", Server;
    /// Attempts to vote that a throttle refused, by what the throttle counts.
    THROTTLED = "tally_throttled_total", Counter of "attempts", Server,
        "by" in ["voter", "address", "item"];
    /// Votes in one batch.
    BATCH_VOTES = "tally_batch_votes", Histogram of "votes", Server;
    /// Votes that wait for a batch.
    QUEUE_DEPTH = "tally_queue_depth_votes", Gauge of "votes", Server;
    /// Time from a vote's entry into the queue to its answer.
    VOTE_SECONDS = "tally_vote_seconds", Histogram of "seconds", Server;
    /// Time of one batch's statement in Postgres.
    LEDGER_SECONDS = "tally_ledger_insert_seconds", Histogram of "seconds", Server;
    /// Time from a stored batch to its live counts, with missing ones seeded.
    LIVE_SECONDS = "tally_live_count_seconds", Histogram of "seconds", Server;
    /// Time of HTTP requests.
    HTTP_SECONDS = "tally_http_request_seconds", Histogram of "seconds", Server,
        "route" in [], "status" in [];
    /// Open connections of clients.
    CONNECTIONS = "tally_connections", Gauge of "connections", Server;
    /// Connections of clients that were refused because too many were open.
    CONNECTIONS_REFUSED = "tally_connections_refused_total", Counter of "connections", Server;
    /// Open live streams.
    STREAMS = "tally_streams", Gauge of "streams", Server;
    /// Live streams that were refused, by limit: that of this server, or that of one address.
    STREAMS_REFUSED = "tally_streams_refused_total", Counter of "streams", Server, "by" in ["server", "address"];
    /// Lists, searches and histories that were refused, by limit: that of this server, or that of one address.
    LISTS_REFUSED = "tally_lists_refused_total", Counter of "requests", Server, "by" in ["server", "address"];
    /// Events that live streams sent, without heartbeats.
    STREAM_EVENTS = "tally_stream_events_total", Counter of "events", Server;
    /// Time from one read of what a thread's streams watch to the next; longer under load.
    STREAM_TICK_SECONDS = "tally_stream_tick_seconds", Histogram of "seconds", Server;
    /// Administrative requests that were refused or failed, by whether the trail notes them.
    /// The trail notes none without a valid credential, and only a limited number a minute.
    REFUSED_ACTS = "tally_refused_acts_total", Counter of "requests", Server, "noted" in ["yes", "no"];
    /// Requests with a valid API key, by the id of the key.
    API_KEY_REQUESTS = "tally_api_key_requests_total", Counter of "requests", Server, "key" in [];
    /// Live counts that were missing when a batch wanted to add to them.
    MISSES = "tally_live_misses_total", Counter of "counts", Server;
    /// Exact counts that answered votes on cold items, for which no live count was made.
    COLD = "tally_cold_counts_total", Counter of "counts", Server;
    /// Counts of cold items that a worker saved after a roll-up.
    COLD_SAVES = "tally_cold_saves_total", Counter of "counts", Worker;
    /// Live counts that were seeded from an exact count.
    SEEDS = "tally_live_seeds_total", Counter of "counts", Server;
    /// Reads of exact counts that were cancelled because they took too long; their items wait
    /// without a live count.
    SEED_TIMEOUTS = "tally_seed_timeouts_total", Counter of "reads", Server;
    /// Live counts that were deleted because they may be wrong or old, by reason.
    INVALIDATIONS = "tally_live_invalidations_total", Counter of "counts", Server Worker,
        "why" in ["suspect", "age", "epoch", "crashed_writer", "refused", "audit"];
    /// Items whose live count this server suspects and has not invalidated yet.
    SUSPECTS = "tally_suspect_items", Gauge of "items", Server;
    /// Suspects that were dropped because there were too many; crashed-writer recovery rebuilds
    /// their counts.
    SUSPECTS_DROPPED = "tally_suspect_items_dropped_total", Counter of "items", Server;
    /// 1 while Redis answers this server, else 0; in between: some nodes of a Redis Cluster do, with this part of the items.
    REDIS_AVAILABLE = "tally_redis_available", Gauge of "0 to 1", Server;
    /// 1 while Redis has no memory for what votes write, else 0.
    REDIS_FULL = "tally_redis_out_of_memory", Gauge of "0 or 1", Server;
    /// How often Redis stopped answering this server.
    REDIS_FAILURES = "tally_redis_failures_total", Counter of "failures", Server;
    /// 1 while the server is ready: votes can be stored, and it is not about to stop; else 0.
    READY = "tally_ready", Gauge of "0 or 1", Server;
    /// 1 while Postgres stores votes, as far as this server knows, else 0.
    POSTGRES_AVAILABLE = "tally_postgres_available", Gauge of "0 or 1", Server;
    /// Connections to Postgres of each pool, besides those of batch writers; `keys`: what requests need;
    /// `readers`: lists and pages; `probes`: readiness.
    POOL = "tally_postgres_pool_connections", Gauge of "connections", Server,
        "pool" in ["keys", "readers", "probes"], "state" in ["used", "idle"];
    /// How far this program's clock is ahead of Postgres' clock, to the time of a query.
    CLOCK_AHEAD = "tally_clock_ahead_seconds", Gauge of "seconds", Server Worker;
    /// What `tally doctor` finds, as this worker sees the stores, once a minute; `wrong`: votes, counts or promises
    /// suffer; `look`: someone should look at it.
    DOCTOR_FINDINGS = "tally_doctor_findings", Gauge of "findings", Worker, "level" in ["wrong", "look"];
    /// How far Redis' clock is ahead of this worker's, to the time of a command.
    REDIS_CLOCK_AHEAD = "tally_redis_clock_ahead_seconds", Gauge of "seconds", Worker;
    /// Memory that Redis uses, and its `maxmemory`; 0: none.
    REDIS_MEMORY = "tally_redis_memory_bytes", Gauge of "bytes", Worker, "state" in ["used", "limit"];
    /// Connections of all programs to Postgres, and its `max_connections`.
    POSTGRES_CONNECTIONS = "tally_postgres_connections", Gauge of "connections", Worker, "state" in ["used", "limit"];
    /// Size of Tally's database.
    POSTGRES_SIZE = "tally_postgres_size_bytes", Gauge of "bytes", Worker;
    /// Transactions since the oldest one that is not frozen. Postgres stops at about 2.1 billion.
    UNFROZEN = "tally_postgres_unfrozen_transactions", Gauge of "transactions", Worker;
    /// How long the oldest prepared transaction has been open; 0: there is none.
    PREPARED_SECONDS = "tally_postgres_prepared_transaction_seconds", Gauge of "seconds", Worker;
    /// Always 1: which build this is.
    BUILD = "tally_build_info", Gauge of "1", Server Worker, "version" in [], "commit" in [];
    /// Live counts that were written behind to their items.
    FLUSHED = "tally_flushed_counts_total", Counter of "counts", Worker;
    /// Live counts that were deleted because they were saved and idle.
    EXPIRED = "tally_expired_counts_total", Counter of "counts", Worker;
    /// Saved counts that were rebuilt from the ledger.
    REBUILT = "tally_rebuilt_counts_total", Counter of "counts", Worker;
    /// Time of one flush of what has changed.
    FLUSH_SECONDS = "tally_flush_seconds", Histogram of "seconds", Worker;
    /// How long the oldest unsaved count may have been unsaved, as far as this worker has met it; at
    /// least as long as flushes fail.
    OLDEST_UNSAVED_SECONDS = "tally_oldest_unsaved_seconds", Gauge of "seconds", Worker;
    /// How long after the last flush this worker's next one is due, at the nearest tick:
    /// `TALLY_FLUSH_EVERY`, or up to 5 s while thousands of counts change.
    FLUSH_INTERVAL_SECONDS = "tally_flush_interval_seconds", Gauge of "seconds", Worker;
    /// How far apart the saves of one item are, because someone holds a transaction open; 0 when
    /// each flush saves all that has changed.
    SAVE_SPACING_SECONDS = "tally_save_spacing_seconds", Gauge of "seconds", Worker;
    /// Counts that this worker's last scan left unsaved.
    UNSAVED = "tally_unsaved_counts", Gauge of "counts", Worker;
    /// Items that this worker's last scan left to be rebuilt.
    REBUILDS_WAITING = "tally_rebuilds_waiting_items", Gauge of "items", Worker;
    /// How often the live counts were found in another epoch.
    EPOCHS = "tally_epoch_changes_total", Counter of "changes", Worker;
    /// Passes of the worker that failed.
    JOB_FAILURES = "tally_job_failures_total", Counter of "passes", Worker,
        "job_name" in ["flush", "scan", "roll_up", "audit"];
    /// How long the pass of this job that is under way has been running; 0 between passes.
    JOB_RUNNING_SECONDS = "tally_job_running_seconds", Gauge of "seconds", Worker,
        "job_name" in ["flush", "scan", "roll_up", "audit"];
    /// Runs of jobs that ended on this worker, by outcome; `lost`: the worker stalled, and
    /// another one took the job over.
    JOB_RUNS = "tally_job_runs_total", Counter of "runs", Worker,
        "job_name" in JOBS, "outcome" in ["done", "failed", "lost"];
    /// Time of one run of a job, on this worker.
    JOB_SECONDS = "tally_job_seconds", Histogram of "seconds", Worker, "job_name" in JOBS;
    /// When a run of the job last ended well on any worker, in seconds since 1970, as far as
    /// this worker knows; 0 before the first.
    JOB_SUCCESS = "tally_job_success_timestamp_seconds", Gauge of "seconds", Worker, "job_name" in JOBS;
    /// How many vote ids lie beyond the watermark. A server that seeds reads each of them once,
    /// each page of an audit all of them.
    WATERMARK_LAG = "tally_watermark_lag_votes", Gauge of "votes", Worker;
    /// Time of one audit.
    AUDIT_SECONDS = "tally_audit_seconds", Histogram of "seconds", Worker;
    /// Items that audits found wrong since the start; 0 unless something failed.
    AUDIT_WRONG_ITEMS = "tally_audit_wrong_items_total", Counter of "items", Worker;
    /// Votes by which audits found counts wrong since the start; 0 unless something failed.
    AUDIT_WRONG_VOTES = "tally_audit_wrong_votes_total", Counter of "votes", Worker;
    /// Items of the last audit, by verdict.
    AUDIT_ITEMS = "tally_audit_items", Gauge of "items", Worker,
        "verdict" in ["right", "in_flight", "rebuilding", "wrong"];
    /// By how many votes the last audit found counts wrong; 0 unless something failed.
    AUDIT_DRIFT = "tally_audit_drift_votes", Gauge of "votes", Worker;
    /// Tries to deliver an event to the webhook, by outcome; `refused`: it answered with a status of 400 to 499;
    /// `failed`: it answered otherwise, or not at all.
    EVENT_DELIVERIES = "tally_event_deliveries_total", Counter of "tries", Worker,
        "outcome" in ["delivered", "refused", "failed"];
    /// Events that wait for their delivery.
    EVENTS_WAITING = "tally_events_waiting", Gauge of "events", Worker;
    /// How long ago the oldest waiting event happened; 0: none waits.
    EVENTS_OLDEST_SECONDS = "tally_events_oldest_waiting_seconds", Gauge of "seconds", Worker;
    /// Events that were given up and are still kept: dead letters.
    EVENTS_DEAD = "tally_events_dead", Gauge of "events", Worker;
    /// Votes that are in files of `tally archive` alone, as of the last audit: it compares what they were on with
    /// their sums.
    ARCHIVED_VOTES = "tally_archived_votes", Gauge of "votes", Worker;
}

/// Upper bounds of the histograms of durations, in seconds: from half a millisecond to the longest
/// time that a batch may take.
const SECONDS_BOUNDS: [f64; 14] = [
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
];
/// Upper bounds of the histogram of batch sizes, in votes: up to the largest batch.
const BATCH_BOUNDS: [f64; 11] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];
/// The last of [`SECONDS_BOUNDS`].
pub(crate) const LARGEST_SECONDS_BOUND: f64 = SECONDS_BOUNDS[SECONDS_BOUNDS.len() - 1];
/// The last of [`BATCH_BOUNDS`].
pub(crate) const LARGEST_BATCH_BOUND: f64 = BATCH_BOUNDS[BATCH_BOUNDS.len() - 1];

fn builder() -> Result<PrometheusBuilder, BuildError> {
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS_BOUNDS)?
        .set_buckets_for_metric(Matcher::Full(name::BATCH_VOTES.to_owned()), &BATCH_BOUNDS)
}

/// Starts to collect the metrics of these programs. The handle renders them for `GET /metrics`; see
/// [`super::Upkeep`].
///
/// # Errors
/// When metrics are collected already.
pub fn init_metrics(programs: &[Program]) -> anyhow::Result<PrometheusHandle> {
    let handle = builder()?.install_recorder()?;
    describe(programs);
    metrics_process::Collector::default().describe();
    Ok(handle)
}

/// Gives each metric of these programs its help text and its samples, so that a rate also sees the
/// first event.
fn describe(programs: &[Program]) {
    let of_programs = |metric: &&Metric| metric.programs.iter().any(|program| programs.contains(program));
    for metric in METRICS.iter().filter(of_programs) {
        let (name, help) = (metric.name, metric.help.trim());
        match metric.kind {
            Kind::Counter => describe_counter!(name, metric.unit(), help),
            Kind::Gauge => describe_gauge!(name, metric.unit(), help),
            Kind::Histogram => describe_histogram!(name, metric.unit(), help),
        }
        for labels in metric.known_labels() {
            // A handle is enough: the sample is there with it.
            match metric.kind {
                Kind::Counter => drop(counter!(name, &labels)),
                Kind::Gauge => drop(gauge!(name, &labels)),
                Kind::Histogram => drop(histogram!(name, &labels)),
            }
        }
    }
}

impl Metric {
    fn unit(&self) -> Unit {
        if self.unit == "seconds" {
            Unit::Seconds
        } else {
            Unit::Count
        }
    }

    /// The labels of each sample that is known in advance: each value with each of the others.
    /// Empty if the values of a label are not known.
    fn known_labels(&self) -> Vec<Vec<(&'static str, &'static str)>> {
        let mut samples = vec![Vec::new()];
        for label in self.labels {
            let with = |sample: Vec<_>| {
                let values = label.values.iter();
                values.map(move |value| [sample.clone(), vec![(label.name, *value)]].concat())
            };
            samples = samples.into_iter().flat_map(with).collect();
        }
        samples
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR"))
    }

    fn metric(constant: &str) -> &'static Metric {
        let at = CONSTANTS.iter().position(|one| *one == constant);
        &METRICS[at.unwrap_or_else(|| panic!("{constant} is not in the table"))]
    }

    /// The table for `docs/operating/metrics.md`.
    fn markdown() -> String {
        let mut table =
            String::from("| metric | of | kind | unit | labels | meaning |\n|---|---|---|---|---|---|\n");
        for one in METRICS {
            let programs: Vec<String> = one
                .programs
                .iter()
                .map(|of| format!("{of:?}").to_lowercase())
                .collect();
            let labels: Vec<String> = one
                .labels
                .iter()
                .map(|label| match label.values {
                    [] => format!("`{}`", label.name),
                    values => format!("`{}`: {}", label.name, values.join(", ")),
                })
                .collect();
            table += &format!(
                "| `{}` | {} | {} | {} | {} | {} |\n",
                one.name,
                programs.join(", "),
                format!("{:?}", one.kind).to_lowercase(),
                one.unit,
                labels.join("; "),
                one.help.trim()
            );
        }
        table
    }

    #[test]
    fn the_table_in_the_documents_is_the_table_in_the_code() {
        let document =
            std::fs::read_to_string(root().join("docs/operating/metrics.md")).expect("the document");
        let block = document
            .split_once("<!-- metrics -->\n")
            .and_then(|(_, rest)| rest.split_once("<!-- /metrics -->"))
            .map(|(block, _)| block.trim());
        let table = markdown();
        assert_eq!(block, Some(table.trim()), "it should be:\n{table}");
    }

    #[test]
    fn a_name_says_kind_and_unit_and_no_name_stands_twice() {
        for one in METRICS {
            assert_eq!(one.name.ends_with("_total"), one.kind == Kind::Counter, "{one:?}");
            assert_eq!(one.name.ends_with("_seconds"), one.unit == "seconds", "{one:?}");
            assert!(one.help.trim().ends_with('.'), "{one:?}");
            assert_eq!(METRICS.iter().filter(|other| other.name == one.name).count(), 1);
        }
    }

    fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                sources(&path, files);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }

    /// Each metric that the code uses: its constant, the macro's name, and what follows the
    /// constant in the call.
    fn uses() -> Vec<(String, String, String)> {
        let mut files = Vec::new();
        sources(&root().join("src"), &mut files);
        let mut uses = Vec::new();
        for file in files
            .iter()
            .filter(|file| !file.ends_with("telemetry/metrics.rs"))
        {
            let text = std::fs::read_to_string(file).expect("a source");
            for call in text.split("metrics::").skip(1) {
                let Some((kind, rest)) = call.split_once("!(") else {
                    continue;
                };
                if !["counter", "gauge", "histogram"].contains(&kind) {
                    continue;
                }
                let constant = rest.trim_start().strip_prefix("name::");
                let constant = constant.unwrap_or_else(|| panic!("{}: {rest:.60}", file.display()));
                let end = constant.find([',', ')', '\n']).expect("an end");
                let (constant, rest) = constant.split_at(end);
                let labels = rest.split(')').next().unwrap_or_default();
                uses.push((constant.to_owned(), kind.to_owned(), labels.to_owned()));
            }
        }
        uses
    }

    #[test]
    fn the_code_uses_each_metric_of_the_table_as_the_table_says_and_no_other() {
        let uses = uses();
        for (constant, kind, labels) in &uses {
            let metric = metric(constant);
            assert_eq!(&format!("{:?}", metric.kind).to_lowercase(), kind, "{constant}");
            let given: Vec<&str> = labels.split("=>").collect();
            assert_eq!(given.len() - 1, metric.labels.len(), "{constant}{labels}");
            for (label, name) in metric.labels.iter().zip(&given) {
                assert!(
                    name.trim().ends_with(&format!("\"{}\"", label.name)),
                    "{constant}{labels}"
                );
            }
            // A value in the code is one of the table's.
            if let ([label], [_, value]) = (metric.labels, given.as_slice())
                && let Some(value) = value.trim().strip_prefix('"')
            {
                let value = value.split('"').next().unwrap_or_default();
                assert!(label.values.contains(&value), "{constant}{labels}");
            }
        }
        for constant in CONSTANTS {
            assert!(
                uses.iter().any(|(used, ..)| used == constant),
                "nothing uses {constant}"
            );
        }
    }

    /// The names with a HELP line, and those with a TYPE line.
    fn described(text: &str) -> [Vec<&str>; 2] {
        ["# HELP ", "# TYPE "].map(|start| {
            let names = text
                .lines()
                .filter_map(|line| line.strip_prefix(start)?.split(' ').next());
            let mut names: Vec<&str> = names.collect();
            names.sort_unstable();
            names
        })
    }

    #[test]
    fn each_program_shows_help_and_type_of_all_its_metrics_from_the_start() {
        for program in Program::ALL {
            let recorder = builder().expect("bounds").build_recorder();
            let handle = recorder.handle();
            ::metrics::with_local_recorder(&recorder, || describe(&[program]));
            let text = handle.render();
            let mut of_program: Vec<&str> = METRICS
                .iter()
                // The values of other labels are only known at run time.
                .filter(|one| one.labels.iter().all(|label| !label.values.is_empty()))
                .filter(|one| one.programs.contains(&program))
                .map(|one| one.name)
                .collect();
            of_program.sort_unstable();
            for names in described(&text) {
                assert_eq!(names, of_program, "{program:?}");
            }
        }
    }
}
