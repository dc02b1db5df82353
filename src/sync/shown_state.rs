//! What a worker shows while a pass runs. A pass that hangs must not look like one that has nothing
//! to do.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::ages::UnsavedAges;
use super::health::{Why, Work};
use super::{FlushReport, SyncError};
use crate::ledger::{EndedPass, Heartbeat};
use crate::telemetry::name;

/// A pass over what changed counts as hanging after this. What it has not read yet may have been
/// unsaved for as long. A pass that ends within a tick has nothing to show.
const HANGING_AFTER: Duration = Duration::from_secs(3);
/// How often the ages are updated in the metrics.
const SHOW_EVERY: Duration = Duration::from_secs(1);

/// What goes on in a worker. Cheap to clone; clones share the state.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    began: Instant,
    ages: UnsavedAges,
    /// When each job's running pass began.
    running: HashMap<&'static str, Instant>,
    /// When a running pass last got something done.
    progress: HashMap<&'static str, Instant>,
    /// Since when each job has not ended well, and why.
    failing: HashMap<&'static str, (Instant, Why)>,
    /// When each job last ended well.
    ended_well: HashMap<&'static str, Instant>,
    last_pass: Option<LastPass>,
    /// Counts that were left unsaved by the last pass that could tell.
    unsaved_counts: u64,
    /// Counts that all passes wrote to their items: flushed or rebuilt.
    saved_counts: u64,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            ages: UnsavedAges::default(),
            running: HashMap::new(),
            progress: HashMap::new(),
            failing: HashMap::new(),
            ended_well: HashMap::new(),
            last_pass: None,
            unsaved_counts: 0,
            saved_counts: 0,
        }
    }
}

impl Inner {
    /// How long the oldest unsaved count has been unsaved. While passes fail or hang, unsaved
    /// counts may be as old as that.
    fn oldest_unsaved(&self, now: Instant) -> Duration {
        let failing = self
            .failing
            .get("flush")
            .map(|(since, _)| now.duration_since(*since));
        let running = self.running.get("flush").map(|since| now.duration_since(*since));
        let hanging = running.filter(|running| *running >= HANGING_AFTER);
        self.ages
            .oldest(now)
            .max(failing.unwrap_or_default())
            .max(hanging.unwrap_or_default())
    }
}

/// The last pass over what changed that has ended.
#[derive(Debug)]
struct LastPass {
    ended: Instant,
    took: Duration,
    is_done: bool,
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic cannot leave the ages half changed, so the poison says nothing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `call` with the ages of unsaved counts.
    pub fn ages<Answer>(&self, call: impl FnOnce(&mut UnsavedAges) -> Answer) -> Answer {
        call(&mut self.lock().ages)
    }

    /// Begins a pass of this job. It ends when the guard is dropped.
    pub fn begin(&self, job: &'static str) -> Pass {
        self.lock().running.insert(job, Instant::now());
        Pass {
            watch: self.clone(),
            job,
        }
    }

    /// Notes how a pass of this job ended. Returns for how long it had failed, if it is well again.
    pub fn ended<T>(&self, job: &'static str, ended: &Result<T, SyncError>) -> Option<Duration> {
        let mut inner = self.lock();
        match ended {
            Ok(_) => {
                inner.ended_well.insert(job, Instant::now());
                inner.failing.remove(job).map(|(since, _)| since.elapsed())
            }
            Err(error) => {
                let why = Why::from(error);
                let now = Instant::now();
                inner.failing.entry(job).or_insert((now, why)).1 = why;
                None
            }
        }
    }

    /// Notes that a running pass of this job has got something done.
    pub fn progressed(&self, job: &'static str) {
        self.lock().progress.insert(job, Instant::now());
    }

    /// What is known of this job.
    pub fn work(&self, job: &'static str) -> Work {
        let inner = self.lock();
        Work {
            ended_well: inner.ended_well.get(job).copied(),
            failing: inner.failing.get(job).copied(),
            running: inner.running.get(job).map(|began| {
                let progress = inner.progress.get(job);
                progress.map_or(*began, |progress| *progress.max(began))
            }),
        }
    }

    /// Notes that a pass over what changed has ended. `report` says how; `None`: a store did not
    /// answer.
    pub fn pass_ended(&self, began: Instant, report: Option<&FlushReport>) {
        let now = Instant::now();
        let mut inner = self.lock();
        inner.last_pass = Some(LastPass {
            ended: now,
            took: now.duration_since(began),
            is_done: report.is_some(),
        });
        if let Some(report) = report {
            inner.unsaved_counts = report.unsaved as u64;
            inner.saved_counts += (report.flushed + report.rebuilt) as u64;
        }
    }

    /// The worker's heartbeat, as of now.
    pub fn heartbeat(&self) -> Heartbeat {
        let now = Instant::now();
        let inner = self.lock();
        Heartbeat {
            age: now.duration_since(inner.began),
            pass: inner.last_pass.as_ref().map(|pass| EndedPass {
                ended: now.duration_since(pass.ended),
                took: pass.took,
                is_done: pass.is_done,
            }),
            unsaved_counts: inner.unsaved_counts,
            oldest_unsaved: inner.oldest_unsaved(now),
            saved_counts: inner.saved_counts,
        }
    }

    /// Shows the ages in the metrics.
    pub fn show(&self) {
        let now = Instant::now();
        let inner = self.lock();
        metrics::gauge!(name::OLDEST_UNSAVED_SECONDS).set(inner.oldest_unsaved(now).as_secs_f64());
        for (job, since) in &inner.running {
            let running = now.duration_since(*since);
            metrics::gauge!(name::JOB_RUNNING_SECONDS, "job_name" => *job).set(running.as_secs_f64());
        }
    }

    /// Shows the ages again and again. Never ends.
    pub async fn keep_showing(self) {
        let mut ticks = interval(SHOW_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            self.show();
        }
    }
}

/// A pass that is under way.
#[derive(Debug)]
pub(super) struct Pass {
    watch: Watch,
    job: &'static str,
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut inner = self.watch.lock();
        inner.running.remove(self.job);
        metrics::gauge!(name::JOB_RUNNING_SECONDS, "job_name" => self.job).set(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::LiveError;

    #[test]
    fn a_pass_is_under_way_from_its_beginning_until_its_guard_is_dropped() {
        let watch = Watch::default();
        let is_running = |job| watch.lock().running.contains_key(job);
        let flush = watch.begin("flush");
        let scan = watch.begin("scan");
        assert!(is_running("flush") && is_running("scan"));
        drop(flush);
        assert!(!is_running("flush") && is_running("scan"));
        drop(scan);
        assert!(!is_running("scan"));
    }

    #[test]
    fn while_a_pass_hangs_the_oldest_unsaved_count_may_be_as_old_as_the_pass() {
        let watch = Watch::default();
        let pass = watch.begin("flush");
        assert_eq!(watch.heartbeat().oldest_unsaved, Duration::ZERO);
        let began = Instant::now().checked_sub(HANGING_AFTER);
        watch.lock().running.extend(began.map(|began| ("flush", began)));
        assert!(watch.heartbeat().oldest_unsaved >= HANGING_AFTER);
        drop(pass);
        assert_eq!(watch.heartbeat().oldest_unsaved, Duration::ZERO);
    }

    #[test]
    fn while_flushes_fail_the_oldest_unsaved_count_may_be_as_old_as_the_first_that_failed() {
        let watch = Watch::default();
        let long = Duration::from_secs(7);
        let failed = || Err::<(), _>(SyncError::Live(LiveError::Unavailable));
        watch.ended("flush", &failed());
        let began = Instant::now().checked_sub(long);
        let failing = began.map(|began| ("flush", (began, Why::Redis)));
        watch.lock().failing.extend(failing);
        watch.ended("flush", &failed());
        assert!(watch.heartbeat().oldest_unsaved >= long);
        let failed_for = watch.ended("flush", &Ok(()));
        assert!(failed_for.is_some_and(|failed_for| failed_for >= long));
        assert_eq!(watch.ended("flush", &Ok(())), None, "it is no news any more");
        assert_eq!(watch.heartbeat().oldest_unsaved, Duration::ZERO);
    }
}
