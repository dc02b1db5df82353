//! Notes how far this server's votes are counted. A sync worker then knows what a server that dies
//! may have left uncounted, and what the audit must take as in flight.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::domain::{PostgresRun, VoteId};
use crate::ledger::{LedgerError, ServerLedger};
use crate::live::{LiveCounts, Place};
use crate::telemetry::trouble;

/// How often the progress is noted while votes come. If a server dies, the counts of about as many
/// votes are rebuilt.
pub const NOTE_EVERY: Duration = Duration::from_millis(250);
/// How long a note waits for batches under way. Then the next note takes over.
pub(crate) const BATCHES_LIMIT: Duration = Duration::from_secs(2);
/// The time between two looks whether they have ended.
const BATCHES_EVERY: Duration = Duration::from_millis(5);

/// After so many looks in a row the workers' Redis is another one.
const ELSEWHERE_LOOKS: u32 = 2;
/// After so long an empty Redis is none that workers are about to enter. They do that within seconds.
const EMPTY_LIMIT: Duration = Duration::from_secs(10);
/// Two looks that are further apart say nothing of the time between them.
const EMPTY_LOOKS_WITHIN: Duration = Duration::from_secs(3);
/// How often votes are then left to crashed-writer recovery. Each batch writer takes a new connection for that.
const LEAVE_EVERY: Duration = Duration::from_secs(1);

/// The last entries of buckets, and whether there are those of another kind of Redis.
type Entries = (Vec<(i16, String)>, bool);

/// Notes how far one server's votes are counted.
pub struct ProgressNotes {
    ledger: ServerLedger,
    live_counts: LiveCounts,
    noted: Option<(VoteId, PostgresRun)>,
    /// How often in a row it looked as if workers counted in another Redis, and when connections were last abandoned for
    /// that.
    elsewhere_looks: u32,
    left_at: Option<Instant>,
    /// When Redis looked empty first, and last, without a look in between that found something else.
    empty: Option<(Instant, Instant)>,
    /// Whether counts were elsewhere since the last note. Then nobody knows where the votes since then were counted.
    were_elsewhere: bool,
    /// Connections that are left to crashed-writer recovery and have not ended yet.
    abandoned: Vec<String>,
}

impl ProgressNotes {
    /// Without notes yet.
    pub fn new(ledger: ServerLedger, live_counts: LiveCounts) -> Self {
        Self {
            ledger,
            live_counts,
            noted: None,
            elsewhere_looks: 0,
            left_at: None,
            empty: None,
            were_elsewhere: false,
            abandoned: Vec::new(),
        }
    }

    /// Notes the progress again and again. Never ends.
    pub async fn run(&mut self) {
        loop {
            sleep(NOTE_EVERY).await;
            if let Err(error) = self.note().await {
                // The part that stores votes has logged it as well.
                tracing::debug!(%error, "the progress of the batch writers was not noted");
            }
        }
    }

    /// Notes the progress once, if there is any.
    ///
    /// The ids are read first: a batch that begins later draws higher ones. A batch under way may
    /// have lower ids, so it has to end. Then its votes are counted, or their items are suspect, so
    /// there must be no suspects either. They must be counted where the workers' counts are, too: this program may
    /// not have heard yet that another Redis was promoted, and may end before it does.
    pub async fn note(&mut self) -> Result<(), LedgerError> {
        let (last, run) = self.ledger.last_vote_id().await?;
        if self.noted == Some((last, run)) {
            return Ok(());
        }
        if !self.batches_have_ended().await || self.live_counts.suspect_total() > 0 {
            return Ok(());
        }
        let entries = self.ledger.last_entries(self.live_counts.bucket_count()).await?;
        match self.place(&entries).await {
            Place::Here => {
                self.elsewhere_looks = 0;
                if std::mem::take(&mut self.were_elsewhere) {
                    self.abandoned.extend(self.ledger.abandon_writers());
                }
            }
            Place::Unknown | Place::Empty => {
                self.elsewhere_looks = 0;
                return Ok(());
            }
            Place::Elsewhere => {
                self.were_elsewhere = true;
                self.elsewhere_looks += 1;
                // A worker may be entering an epoch just now, or these votes were left to recovery a moment ago.
                if self.elsewhere_looks < ELSEWHERE_LOOKS
                    || self.left_at.is_some_and(|at| at.elapsed() < LEAVE_EVERY)
                {
                    return Ok(());
                }
                let error = "set REDIS_URL to that of the workers, and restart";
                trouble!(error, %error; "the workers count in another Redis: they rebuild the counts of this program's votes");
                self.left_at = Some(Instant::now());
                self.abandoned.extend(self.ledger.abandon_writers());
            }
        }
        // Asked only now, when no suspect is left: while Redis is unavailable, new ones may come
        // all the time.
        if self.live_counts.take_dropped() {
            // Nobody knows any more which counts are wrong. Recovery rebuilds all of them.
            self.abandoned.extend(self.ledger.abandon_writers());
        }
        if !self.abandoned.is_empty() {
            // Batches that begin from here on have connections of their own. If a writer has
            // nothing to store, its connection would stay open.
            if self.batches_have_ended().await {
                self.ledger.end_connections(&self.abandoned).await?;
                self.abandoned.clear();
            }
            return Ok(());
        }
        self.ledger.note_counted(last, run).await?;
        self.noted = Some((last, run));
        Ok(())
    }

    /// Where the workers' counts are. Where they are elsewhere, counts there lack this program's votes.
    async fn place(&mut self, (entries, are_of_another): &Entries) -> Place {
        let mut place = if entries.is_empty() && *are_of_another {
            Place::Elsewhere
        } else {
            // A Redis that does not answer says nothing.
            self.live_counts.place(entries).await.unwrap_or(Place::Unknown)
        };
        let now = Instant::now();
        self.empty = match (place, self.empty) {
            (Place::Empty, Some((first, last))) if last.elapsed() < EMPTY_LOOKS_WITHIN => Some((first, now)),
            (Place::Empty, _) => Some((now, now)),
            _ => None,
        };
        if self.empty.is_some_and(|(first, _)| first.elapsed() > EMPTY_LIMIT) {
            place = Place::Elsewhere;
        }
        if place == Place::Elsewhere && !self.ledger.has_workers().await.unwrap_or(false) {
            return Place::Unknown;
        }
        place
    }

    /// Waits until the batches under way have ended. Returns false when that takes too long.
    async fn batches_have_ended(&self) -> bool {
        let under_way = self.ledger.batches_under_way();
        let deadline = Instant::now() + BATCHES_LIMIT;
        while !under_way.iter().all(|batch| batch.has_ended()) {
            if Instant::now() >= deadline {
                return false;
            }
            sleep(BATCHES_EVERY).await;
        }
        true
    }
}
