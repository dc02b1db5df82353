//! Cold items: votes on them make no live count, so no flush saves them. A roll-up sums these votes in any
//! case; then the worker saves the counts of those items that have no live count.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{SyncError, Worker};
use crate::domain::{CountDelta, ExactCount, ItemId, RedisTime, Revision, VoteId};
use crate::ledger::{
    EpochNumber, JobLease, LedgerError, Overtaken, RebuiltCount, SafeVoteId, SavedState, SavingProgress,
};
use crate::live::ColdToken;
use crate::live::LiveError;
use crate::telemetry::{name, trouble};

/// How soon after the last roll-up the next one comes, while saved counts lack votes on cold items.
pub(super) const COLD_ROLL_UP_EVERY: Duration = Duration::from_secs(1);
/// How long the token of cold votes stays, at least. A reader that asks Redis more often than this sees that a
/// count that it knows may have changed.
pub(crate) const COLD_TOKEN_LEAST: Duration = Duration::from_secs(10);
/// How far back the revision of a count lies that is saved without a look at Redis. A live count that was
/// seeded meanwhile, and is not saved yet, has a higher one; else it is rebuilt.
const COLD_REVISION_AGE: Duration = Duration::from_secs(15);
/// The most items that are saved with one statement. The worker rests half as long as each took.
const COLD_PAGE_LIMIT_ITEMS: usize = 500;
const COLD_REST_PART: u32 = 2;
/// The longest rest.
const COLD_REST_LIMIT: Duration = Duration::from_millis(100);
/// How many roll-ups a worker remembers.
const ROLL_UPS_LIMIT: usize = 16;
/// The most vote ids whose items are read at once, to save what was not saved with its roll-up; and how long a
/// roll-up does so.
const COLD_LEFT_LIMIT_IDS: i64 = 10_000;
const COLD_LEFT_LIMIT: Duration = Duration::from_secs(2);

/// What a worker knows of the token of cold votes. Shared by its clones.
#[derive(Debug, Default)]
pub(super) struct ColdVotes(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The last token that it saw. It stays when someone deletes it in Redis.
    token: Option<Token>,
    /// Of this worker's last roll-ups, in order: a moment before it, and the last vote id that was drawn after
    /// that. Later votes were drawn after that moment.
    roll_ups: VecDeque<(SavedState, VoteId)>,
    /// The incarnation of Postgres that these are of.
    incarnation: String,
}

#[derive(Clone, Debug)]
struct Token {
    name: ColdToken,
    seen_at: Instant,
    /// Every vote on a cold item that this token or one before it stands for has an id up to this one.
    drawn: VoteId,
}

/// What the token says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ColdState {
    /// Saved counts lack votes: roll up.
    Behind,
    /// All are saved. The token may go.
    Saved { token: ColdToken },
    /// Nothing is to be done now.
    Quiet,
}

/// Whether there were votes on cold items.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cold {
    /// None: flushes and rebuilds save all votes.
    No,
    /// Redis' time before the roll-up.
    Yes(RedisTime),
    /// Redis does not say.
    Unknown,
}

impl ColdVotes {
    /// Takes in the token and, read after it, how far saving is.
    fn look(&self, name: ColdToken, progress: SavingProgress, now: Instant) -> ColdState {
        let mut known = self.lock();
        let token = match known.token.take() {
            Some(token) if token.name == name => token,
            _ => Token {
                name,
                seen_at: now,
                drawn: progress.drawn,
            },
        };
        let state = if progress.saved < token.drawn {
            ColdState::Behind
        } else if now.duration_since(token.seen_at) >= COLD_TOKEN_LEAST {
            ColdState::Saved {
                token: token.name.clone(),
            }
        } else {
            ColdState::Quiet
        };
        known.token = Some(token);
        state
    }

    /// Whether the votes of the last token that this worker saw are not all saved.
    fn has_unsaved(&self, progress: SavingProgress) -> bool {
        let known = self.lock();
        known
            .token
            .as_ref()
            .is_some_and(|token| progress.saved < token.drawn)
    }

    /// Notes a roll-up: a moment before it, and the last vote id that was drawn after that.
    pub fn rolls_up(&self, before: SavedState, safe: &SafeVoteId) {
        let mut known = self.lock();
        // Another one may draw the same ids again, of votes and of transactions.
        if before.incarnation.as_ref() != Some(&safe.incarnation) {
            return;
        }
        if known.incarnation != safe.incarnation {
            known.roll_ups.clear();
            known.incarnation.clone_from(&safe.incarnation);
        }
        if known.roll_ups.len() >= ROLL_UPS_LIMIT {
            known.roll_ups.pop_front();
        }
        known.roll_ups.push_back((before, safe.vote_id));
    }

    /// A moment before which no vote above this id was drawn. `None`: this worker knows of none.
    fn before_votes_above(&self, watermark: VoteId) -> Option<SavedState> {
        let known = self.lock();
        let before = known.roll_ups.iter().rev().find(|(_, drawn)| *drawn <= watermark);
        before.map(|(moment, _)| moment.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // No panic leaves it half changed, so the poison means nothing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Worker {
    /// Whether saved counts lack votes on cold items. If they have all of them, and the last of these votes is
    /// long enough ago, clears the token.
    pub(super) async fn is_behind_cold_votes(&self) -> Result<bool, SyncError> {
        let Some(token) = self.counters.cold_token().await? else {
            return Ok(false);
        };
        // After the token: all its votes have ids up to the last one drawn.
        let progress = self.ledger.saving_progress().await?;
        match self.cold_votes.look(token, progress, Instant::now()) {
            ColdState::Behind => Ok(true),
            ColdState::Quiet => Ok(false),
            ColdState::Saved { token } => {
                self.counters.clear_cold(&token).await?;
                Ok(false)
            }
        }
    }

    /// Whether there were votes on cold items that may be unsaved; `time`: Redis' time before the roll-up. Each
    /// such vote sets the token before its server notes it as counted. Someone may have deleted it since.
    pub(super) async fn cold_votes_since(&self, time: Option<RedisTime>, progress: SavingProgress) -> Cold {
        match (self.counters.cold_token().await, time) {
            (Ok(None), _) if !self.cold_votes.has_unsaved(progress) => Cold::No,
            (Ok(_), Some(time)) => Cold::Yes(time),
            (Ok(_), None) | (Err(_), _) => Cold::Unknown,
        }
    }

    /// Saves the cold items of votes that are rolled up already, and that were not saved with their roll-up:
    /// another worker died, or Redis was unavailable. What takes longer than [`COLD_LEFT_LIMIT`], the next roll-up
    /// goes on with.
    ///
    /// # Errors
    /// When another worker has taken the job over.
    pub(super) async fn save_left(
        &self,
        lease: &JobLease,
        safe: &SafeVoteId,
        epoch: EpochNumber,
    ) -> Result<(), SyncError> {
        let began = Instant::now();
        let SavingProgress { saved, watermark, .. } = self.ledger.saving_progress().await?;
        let mut after = saved.get();
        while after < watermark.get() && began.elapsed() < COLD_LEFT_LIMIT && !self.is_stopping() {
            // There may be a large gap, as of a sequence that was set ahead.
            let next = self.ledger.next_vote_id(VoteId::new(after), watermark).await?;
            let first = next.map_or(watermark.get(), |next| next.get() - 1);
            let last = watermark.get().min(first.saturating_add(COLD_LEFT_LIMIT_IDS));
            let (from, to) = (VoteId::new(first), VoteId::new(last));
            let items = self.ledger.items_of_votes(from, to).await?;
            let saving = async {
                for page in items.chunks(COLD_PAGE_LIMIT_ITEMS) {
                    let began = Instant::now();
                    self.save_exact(page).await?;
                    sleep((began.elapsed() / COLD_REST_PART).min(COLD_REST_LIMIT)).await;
                }
                Ok(self.ledger.note_saved(lease, safe, epoch, to).await?)
            };
            let saved = saving.await;
            if !self.noted(saved)? {
                break;
            }
            after = last;
        }
        Ok(())
    }

    /// Saves the cold items among those to which a roll-up has just added these sums: of the votes above `after`,
    /// up to `up_to`. Returns whether it is done: without Redis nobody knows which items are cold.
    ///
    /// Most cold items have a saved count that was the audited count until now, and nobody has written it since an
    /// earlier roll-up: it holds no later vote. They take the new audited count, with nothing asked of Redis: if
    /// such an item has a live count after all, the next flush saves that one, under a higher revision. All others
    /// are looked at.
    ///
    /// # Errors
    /// When another worker has taken the job over.
    pub(super) async fn save_sums(
        &self,
        sums: &[CountDelta],
        cold: Cold,
        lease: &JobLease,
        safe: &SafeVoteId,
        epoch: EpochNumber,
        (after, up_to): (VoteId, VoteId),
    ) -> Result<bool, SyncError> {
        let time = match cold {
            Cold::Yes(time) => time,
            Cold::No => {
                let noted = self.ledger.note_saved(lease, safe, epoch, up_to).await;
                return self.noted(noted.map_err(SyncError::from));
            }
            Cold::Unknown => return self.noted(Err(LiveError::Unavailable.into())),
        };
        let unwritten = self.cold_votes.before_votes_above(after);
        let saving = async {
            let mut unwritten = unwritten.as_ref();
            for page in sums.chunks(COLD_PAGE_LIMIT_ITEMS) {
                let began = Instant::now();
                if self.save_page(page, time, &mut unwritten).await? > 0 {
                    sleep((began.elapsed() / COLD_REST_PART).min(COLD_REST_LIMIT)).await;
                }
            }
            Ok(self.ledger.note_saved(lease, safe, epoch, up_to).await?)
        };
        let saved = saving.await;
        self.noted(saved)
    }

    /// Whether cold items were saved. The watermark must move all the same, since exact counts read what is
    /// beyond it. So only the loss of the lease is an error.
    fn noted(&self, saved: Result<(), SyncError>) -> Result<bool, SyncError> {
        match saved {
            Ok(()) => Ok(true),
            Err(error @ SyncError::Ledger(LedgerError::Overtaken(Overtaken::LeaseLost(_)))) => Err(error),
            Err(error) => {
                trouble!(warn, %error; "counts of cold items are not saved; trying again with each roll-up");
                Ok(false)
            }
        }
    }

    /// Saves one page of cold items. Returns how many had to be looked at or written.
    async fn save_page(
        &self,
        page: &[CountDelta],
        time: RedisTime,
        unwritten: &mut Option<&SavedState>,
    ) -> Result<usize, SyncError> {
        let saved = match *unwritten {
            Some(unwritten) => {
                let revision = time.before(COLD_REVISION_AGE).as_revision();
                self.ledger.save_audited_counts(page, revision, unwritten).await
            }
            None => Ok(Some(HashSet::new())),
        };
        let written = match saved {
            Ok(None) => {
                metrics::counter!(name::COLD_SAVES).increment(page.len() as u64);
                return Ok(page.len());
            }
            Ok(Some(written)) => written,
            // Someone has locked the row of one of them. All further ones are looked at, which waits for nobody.
            Err(error) if error.is_lock_timeout() => {
                *unwritten = None;
                HashSet::new()
            }
            Err(error) => return Err(error.into()),
        };
        metrics::counter!(name::COLD_SAVES).increment(written.len() as u64);
        let others = page.iter().map(|one| one.item_id);
        let others: Vec<ItemId> = others.filter(|item| !written.contains(item)).collect();
        Ok(written.len() + self.save_exact(&others).await?)
    }

    /// Saves the exact counts of those of these items that have no live count. Returns how many it read.
    ///
    /// It is a rebuild that nobody requested. The votes that it is for have been counted: each asked Redis, and
    /// found a live count or none. The steps, and why they come in this order:
    /// 1. The epoch's number is read, as for all that is saved.
    /// 2. The counters are read. An item with a live count is left to the flush: the count has the votes,
    ///    because they were added to it, or because it was seeded later. An item with a rebuild request is left
    ///    to the rebuild.
    /// 3. The exact counts and `counted_at` are read under one snapshot.
    /// 4. The counters are read again, with Redis' time: a live count that is seeded after this step has a
    ///    revision from later. So it is not refused, unless the clock steps back; then it is rebuilt.
    /// 5. Each exact count is written if `counted_at` is still what step 3 read. For what was not written, or
    ///    whose row someone has locked, a rebuild is requested.
    async fn save_exact(&self, items: &[ItemId]) -> Result<usize, SyncError> {
        let epoch = self.epoch_number().await?;
        let counters = self.counters.read(items).await?;
        let without_count = counters
            .iter()
            .filter(|one| one.count.is_none() && one.rebuild.is_none());
        let cold: Vec<ItemId> = without_count.map(|one| one.item_id).collect();
        if cold.is_empty() {
            return Ok(0);
        }
        // An item that does not exist is left out.
        let exact = self.ledger.exact_counts(&cold).await?;
        let found: Vec<ItemId> = exact.iter().map(|one| one.item_id).collect();
        let counters = self.counters.read(&found).await?;
        let counts: Vec<RebuiltCount> = exact
            .into_iter()
            .zip(counters)
            .filter(|(_, counter)| counter.count.is_none() && counter.rebuild.is_none())
            .map(|(exact, counter)| RebuiltCount {
                revision: revision_after(&exact, counter.now.as_revision()),
                exact,
            })
            .collect();
        let written = self.ledger.save_rebuilt_counts(&counts, epoch).await?;
        metrics::counter!(name::COLD_SAVES).increment(written.len() as u64);
        let items = counts.iter().map(|one| one.exact.item_id);
        let left: Vec<ItemId> = items.filter(|item| !written.contains(item)).collect();
        self.counters.invalidate(&left).await?;
        Ok(cold.len())
    }
}

/// Pure: a revision above that of the item's saved count, whatever Redis' clock says. So `counted_at` grows with
/// each change, and nobody takes a changed count for the one that was read.
fn revision_after(exact: &ExactCount, now: Revision) -> Revision {
    let least = exact.counted_at.map_or(0, |counted_at| counted_at.micros() + 1);
    now.max(Revision::from_micros(least))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::Bucket;

    fn named(token: &str) -> ColdToken {
        ColdToken(vec![(Bucket::FIRST, token.to_owned())])
    }

    fn progress(saved: i64, drawn: i64) -> SavingProgress {
        SavingProgress {
            saved: VoteId::new(saved),
            watermark: VoteId::new(saved),
            drawn: VoteId::new(drawn),
        }
    }

    #[test]
    fn a_token_is_cleared_once_its_votes_are_saved_and_readers_had_time_to_see_it() {
        let (votes, start) = (ColdVotes::default(), Instant::now());
        let look = |token: &str, saved: i64, drawn: i64, seconds: u64| {
            votes.look(
                named(token),
                progress(saved, drawn),
                start + Duration::from_secs(seconds),
            )
        };
        assert!(!votes.has_unsaved(progress(5, 9)), "there was no token");
        assert_eq!(look("a", 5, 9, 1), ColdState::Behind);
        // Later votes are not of this token.
        assert_eq!(look("a", 8, 20, 2), ColdState::Behind);
        // Also if someone deletes the token.
        assert!(votes.has_unsaved(progress(8, 20)) && !votes.has_unsaved(progress(9, 20)));
        assert_eq!(look("a", 9, 20, 3), ColdState::Quiet);
        assert_eq!(look("a", 9, 20, 10), ColdState::Quiet);
        let saved = |token: &str| ColdState::Saved { token: named(token) };
        assert_eq!(look("a", 9, 20, 11), saved("a"));
        // Another vote on a cold item.
        assert_eq!(look("b", 19, 20, 12), ColdState::Behind);
        assert_eq!(look("b", 20, 30, 22), saved("b"));
    }
}
