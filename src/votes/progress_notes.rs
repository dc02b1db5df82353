//! Notes how far this server's votes are counted. A sync worker then knows what a server that dies
//! may have left uncounted, and what the audit must take as in flight.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::domain::{PostgresRun, VoteId};
use crate::ledger::{LedgerError, ServerLedger};
use crate::live::{ELSEWHERE_LOOKS, LiveCounts, Place};
use crate::telemetry::trouble;

/// How often the progress is noted while votes come. If a server dies, the counts of about as many
/// votes are rebuilt.
pub const NOTE_EVERY: Duration = Duration::from_millis(250);
/// How long a note waits for batches under way. Then the next note takes over.
pub(crate) const BATCHES_LIMIT: Duration = Duration::from_secs(2);
/// The time between two looks whether they have ended.
const BATCHES_EVERY: Duration = Duration::from_millis(5);

/// After so long an empty Redis is none that workers are about to enter. They do that within seconds.
const EMPTY_LIMIT: Duration = Duration::from_secs(10);
/// Two looks that are further apart say nothing of the time between them.
const EMPTY_LOOKS_WITHIN: Duration = Duration::from_secs(3);
/// How often it is looked where the counts are while nobody votes, or once they are elsewhere.
const SLOW_LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often votes are left to crashed-writer recovery. Each batch writer takes a new connection for that.
const LEAVE_EVERY: Duration = Duration::from_secs(1);
/// The pause of the last note after a look that found nothing: Redis may need a moment.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Its pause after a note that failed.
const NOTE_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// Notes how far one server's votes are counted.
pub struct ProgressNotes {
    ledger: ServerLedger,
    live_counts: LiveCounts,
    noted: Option<(VoteId, PostgresRun)>,
    /// How often in a row it looked as if workers counted in another Redis, and when connections were last abandoned for
    /// that.
    elsewhere_looks: u32,
    left_at: Option<Instant>,
    looked_at: Option<Instant>,
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
            looked_at: None,
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

    /// Notes the progress of a program that stores no more votes: until Postgres has it, or another try would be in vain.
    pub async fn note_last(&mut self) {
        loop {
            let pause = match self.note().await {
                Ok(true) => return,
                Ok(false) => {
                    tracing::debug!("the last votes are not noted yet: where counts are is not known");
                    LOOK_AGAIN_AFTER
                }
                // The pool notices only when it uses a connection that it ended with the thread that opened it.
                Err(error) => {
                    tracing::debug!(%error, "the last votes are not noted yet");
                    NOTE_AGAIN_AFTER
                }
            };
            sleep(pause).await;
        }
    }

    /// Notes the progress once, if there is any.
    ///
    /// The ids are read first: a batch that begins later draws higher ones. A batch under way may
    /// have lower ids, so it has to end. Then its votes are counted, or their items are suspect, so
    /// there must be no suspects either. They must be counted where the workers' counts are, too: this program may
    /// not have heard yet that another Redis was promoted, and may end before it does.
    ///
    /// Returns whether another try at once would be in vain. If not, nobody can say for a moment where the counts are.
    pub async fn note(&mut self) -> Result<bool, LedgerError> {
        let (last, run) = self.ledger.last_vote_id().await?;
        let have_ended = self.batches_have_ended().await?;
        let is_noted = self.noted == Some((last, run));
        let is_slow = is_noted || self.elsewhere_looks >= ELSEWHERE_LOOKS;
        if is_slow && self.looked_at.is_some_and(|at| at.elapsed() < SLOW_LOOK_EVERY) {
            return Ok(true);
        }
        // Also while nobody votes: counts that are read must be the workers', too.
        let place = self.look().await?;
        if is_noted || !have_ended {
            if self.were_elsewhere && is_noted && have_ended && place == Place::Here {
                // Asked once more after the look: a vote that came before it may have been counted elsewhere. Later ones
                // are counted over connections that were made since.
                self.were_elsewhere = self.ledger.last_vote_id().await? != (last, run);
            }
            return Ok(true);
        }
        // What was left to recovery a moment ago may not have ended yet.
        let have_left = self.left_at.is_some_and(|at| at.elapsed() < LEAVE_EVERY);
        match place {
            Place::Here | Place::Entering => {
                if self.live_counts.suspect_total() > 0 {
                    return Ok(true);
                }
                if self.were_elsewhere && have_left {
                    return Ok(true);
                }
                // Asked only now, when no suspect is left: while Redis is unavailable, new ones may come all the time.
                // Nobody knows any more which counts of the dropped ones are wrong: recovery rebuilds all of them.
                let have_dropped = self.live_counts.take_dropped();
                if std::mem::take(&mut self.were_elsewhere) || have_dropped {
                    self.left_at = Some(Instant::now());
                    self.abandoned.extend(self.ledger.abandon_writers());
                }
            }
            Place::Unknown => return Ok(false),
            Place::EnteringElsewhere | Place::Empty => return Ok(true),
            Place::Elsewhere | Place::Behind => {
                // A single look says little.
                if self.elsewhere_looks < ELSEWHERE_LOOKS || have_left {
                    return Ok(true);
                }
                let error = "set REDIS_URL to that of the workers, and restart";
                trouble!(
                    error, %error;
                    "the workers count in another Redis: they rebuild the counts of this program's votes"
                );
                self.left_at = Some(Instant::now());
                self.abandoned.extend(self.ledger.abandon_writers());
            }
        }
        if !self.abandoned.is_empty() {
            // Batches that begin from here on have connections of their own. If a writer has
            // nothing to store, its connection would stay open.
            if self.batches_have_ended().await? {
                self.ledger.end_connections(&self.abandoned).await?;
                self.abandoned.clear();
            }
            return Ok(true);
        }
        self.ledger.note_counted(last, run).await?;
        self.noted = Some((last, run));
        Ok(true)
    }

    /// Where the workers' counts are. If they have left this Redis, its counts lack votes of others: these are no longer
    /// shown.
    async fn look(&mut self) -> Result<Place, LedgerError> {
        let (entries, are_of_another) = self.ledger.last_entries(self.live_counts.bucket_count()).await?;
        let mut places = self.live_counts.places(&entries, are_of_another).await;
        self.looked_at = Some(Instant::now());
        let place = Place::of_all(&places);
        let is_empty_for_long = self.is_empty_for_long(place == Place::Empty);
        // Workers have never been in this one, or are in one of another kind: what it counts is left to recovery. It may
        // be the one that all are about to move to, so its counts are shown.
        let is_another = is_empty_for_long || (entries.is_empty() && are_of_another);
        let mut place = if is_another { Place::Elsewhere } else { place };
        // Whatever follows: nobody knows where the votes since the last note were counted.
        self.were_elsewhere |= matches!(place, Place::Elsewhere | Place::EnteringElsewhere | Place::Empty);
        // Without workers, their last entry may be an old one.
        if place == Place::Elsewhere && !self.ledger.has_workers().await? {
            places.retain(|(_, place)| !place.is_left());
            place = Place::Unknown;
        }
        self.live_counts.note_places(&places);
        self.elsewhere_looks = match place {
            Place::Elsewhere => self.elsewhere_looks.saturating_add(1),
            _ => 0,
        };
        Ok(place)
    }

    /// Whether the looks since the limit have found an empty Redis, with this one.
    fn is_empty_for_long(&mut self, is_empty: bool) -> bool {
        let now = Instant::now();
        self.empty = match self.empty {
            _ if !is_empty => None,
            Some((first, last)) if last.elapsed() < EMPTY_LOOKS_WITHIN => Some((first, now)),
            _ => Some((now, now)),
        };
        self.empty.is_some_and(|(first, _)| first.elapsed() > EMPTY_LIMIT)
    }

    /// Waits until the batches under way have ended. Returns false when that takes too long. Looks meanwhile where the
    /// counts are: others' batches may be counted.
    async fn batches_have_ended(&mut self) -> Result<bool, LedgerError> {
        let under_way = self.ledger.batches_under_way();
        let deadline = Instant::now() + BATCHES_LIMIT;
        let mut next_look = Instant::now() + NOTE_EVERY;
        while !under_way.iter().all(|batch| batch.has_ended()) {
            let now = Instant::now();
            if now >= deadline {
                return Ok(false);
            }
            if now >= next_look {
                self.look().await?;
                next_look = now + NOTE_EVERY;
            }
            sleep(BATCHES_EVERY).await;
        }
        Ok(true)
    }
}
