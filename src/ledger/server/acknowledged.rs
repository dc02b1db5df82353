//! Which votes this server has acknowledged lately. After a failover to a standby that lagged, or a restore to an
//! earlier time, the ledger may lack some of them. Nobody else knows which.
//!
//! A vote is recognized by its id, its item and the time of its batch. An id alone may have been given to another
//! vote since.
//!
//! Each vote is looked for once in each later run of Postgres. What is there stays remembered: the next run may
//! lack it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::ServerLedger;
use crate::domain::{ItemId, Moment, PostgresRun, VoteId};
use crate::ledger::losses::{LOSSES_SHOWN_ITEMS, Losses, in_words, losses};
use crate::ledger::runs::run_of;
use crate::ledger::{LedgerError, OtherRun};

/// For how long an acknowledged vote is remembered. A standby that lags further behind should not be promoted.
pub const ACKNOWLEDGED_LIMIT_AGE: Duration = Duration::from_secs(600);
/// The most votes that are remembered: by calculation 24 MB, and up to twice that while a part grows.
pub const ACKNOWLEDGED_LIMIT_VOTES: usize = 1_000_000;
/// For how long votes go into one part.
const PART_AGE: Duration = Duration::from_secs(1);
/// The most votes that are looked for with one statement.
const LOOK_LIMIT_VOTES: usize = 10_000;
/// The most items of a loss that are noted, those with the most lost votes first.
const LOSS_LIMIT_ITEMS: usize = 10_000;
/// The most runs of Postgres that are kept apart.
const RUNS_LIMIT: usize = 100;

/// What a server remembers of its acknowledged votes. Cheap to clone; clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Acknowledged(Arc<Mutex<Remembered>>);

#[derive(Debug, Default)]
struct Remembered {
    /// The oldest first.
    parts: VecDeque<Part>,
    votes: usize,
    /// The runs of Postgres in the order in which they were first seen to take writes.
    runs: Vec<PostgresRun>,
    /// What is known of a look that has not ended.
    look: Look,
    /// Losses that are not stored yet.
    unstored: VecDeque<Loss>,
}

/// Votes of about a second.
#[derive(Debug)]
struct Part {
    since: Instant,
    /// The last run of Postgres that had them.
    run: PostgresRun,
    votes: Vec<Acknowledgement>,
}

/// A row of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Acknowledgement {
    id: i64,
    item: i64,
    /// `vote.created_at`, in µs since 1970.
    created_at: i64,
}

#[derive(Debug, Default)]
struct Look {
    /// The run that lacks these.
    run: Option<PostgresRun>,
    lost: Vec<Acknowledgement>,
    /// Whether a vote that is there came before the first one that is lost.
    is_whole: bool,
}

/// Acknowledged votes that the ledger no longer has: rows, so also changes and retractions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Drawn by the server, so that a repeat of the statement stores nothing.
    token: String,
    pub votes: u64,
    /// When the first and the last of them had been stored, by the clock of the Postgres that stored them.
    pub first_at: Moment,
    pub last_at: Moment,
    first_id: VoteId,
    last_id: VoteId,
    /// The votes of each item.
    items: BTreeMap<i64, i64>,
    /// Whether the server remembers an earlier vote that is still there. If not, earlier ones may be lost, too.
    pub is_whole: bool,
}

impl Loss {
    /// How many items the votes were on.
    pub fn item_total(&self) -> usize {
        self.items.len()
    }

    /// The items with the most of them, in words.
    pub fn items_in_words(&self) -> String {
        let shown = self
            .items_by_votes()
            .into_iter()
            .take(LOSSES_SHOWN_ITEMS as usize);
        in_words(shown, self.items.len() as i64)
    }

    /// The items and their votes, the most first.
    fn items_by_votes(&self) -> Vec<(i64, i64)> {
        let mut items: Vec<(i64, i64)> = self.items.iter().map(|(item, votes)| (*item, *votes)).collect();
        items.sort_by_key(|(item, votes)| (std::cmp::Reverse(*votes), *item));
        items
    }

    /// `None`: nothing is lost.
    fn of(look: &Look) -> Option<Self> {
        let ids = || look.lost.iter().map(|vote| vote.id);
        let times = || look.lost.iter().map(|vote| vote.created_at);
        let mut items = BTreeMap::new();
        for vote in &look.lost {
            *items.entry(vote.item).or_default() += 1;
        }
        Some(Self {
            token: format!("{:032x}", rand::random::<u128>()),
            votes: look.lost.len() as u64,
            first_at: Moment::from_micros(times().min()?),
            last_at: Moment::from_micros(times().max()?),
            first_id: VoteId::new(ids().min()?),
            last_id: VoteId::new(ids().max()?),
            items,
            is_whole: look.is_whole,
        })
    }
}

impl Acknowledged {
    /// Notes the rows of a committed batch.
    pub fn note(&self, run: PostgresRun, created_at: i64, rows: impl Iterator<Item = (VoteId, ItemId)>) {
        let votes = rows.map(|(id, item)| Acknowledgement {
            id: id.get(),
            item: item.get(),
            created_at,
        });
        self.lock()
            .add(Instant::now(), run, votes, ACKNOWLEDGED_LIMIT_VOTES);
    }

    fn lock(&self) -> MutexGuard<'_, Remembered> {
        // No panic leaves it half changed, so the poison says nothing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Remembered {
    fn add(
        &mut self,
        now: Instant,
        run: PostgresRun,
        votes: impl Iterator<Item = Acknowledgement>,
        limit_votes: usize,
    ) {
        self.see(run);
        let is_current =
            |part: &Part| part.run == run && now.saturating_duration_since(part.since) < PART_AGE;
        if !self.parts.back().is_some_and(is_current) {
            self.parts.push_back(Part {
                since: now,
                run,
                votes: Vec::new(),
            });
        }
        let Some(part) = self.parts.back_mut() else { return };
        let before = part.votes.len();
        part.votes.extend(votes);
        self.votes += part.votes.len() - before;
        while let Some(first) = self.parts.front()
            && (self.votes > limit_votes
                || now.saturating_duration_since(first.since) > ACKNOWLEDGED_LIMIT_AGE)
        {
            self.votes -= first.votes.len();
            self.parts.pop_front();
        }
    }

    fn see(&mut self, run: PostgresRun) {
        if self.runs.last() == Some(&run) || self.runs.contains(&run) {
            return;
        }
        if self.runs.len() >= RUNS_LIMIT {
            self.runs.remove(0);
        }
        self.runs.push(run);
    }

    /// Whether this run is before that one. One that was not seen yet is the last. An old primary that answers
    /// again says nothing about votes that were stored after it was replaced.
    fn is_before(&self, run: PostgresRun, other: PostgresRun) -> bool {
        let place = |run| self.runs.iter().position(|one| *one == run).unwrap_or(usize::MAX);
        place(run) < place(other)
    }

    /// Where the first part is that this run has not been asked for.
    fn next_part(&self, run: PostgresRun) -> Option<usize> {
        self.parts.iter().position(|part| self.is_before(part.run, run))
    }

    /// If the last look did not end before Postgres became a later run: has this run asked for what that one
    /// lacked.
    fn look_again(&mut self, run: PostgresRun) {
        let Some(of) = self.look.run.filter(|of| self.is_before(*of, run)) else {
            return;
        };
        let look = std::mem::take(&mut self.look);
        let first = self.parts.front().map_or_else(Instant::now, |part| part.since);
        self.votes += look.lost.len();
        self.parts.push_front(Part {
            since: first.checked_sub(Duration::from_nanos(1)).unwrap_or(first),
            run: of,
            votes: look.lost,
        });
    }

    /// Takes in what this run has of a part.
    fn looked(&mut self, since: Instant, run: PostgresRun, is_lost: &[bool]) {
        // It may have become too old meanwhile.
        let place = self.parts.iter().position(|part| part.since == since);
        let Some((at, part)) = place.and_then(|at| Some((at, self.parts.get_mut(at)?))) else {
            return;
        };
        // Votes of the earlier run that came meanwhile are looked for next.
        let late = part.votes.split_off(is_lost.len().min(part.votes.len()));
        let later = Part {
            since: part.since + Duration::from_nanos(1),
            run: part.run,
            votes: late,
        };
        let before = part.votes.len();
        let mut kept = Vec::new();
        for (vote, is_lost) in part.votes.drain(..).zip(is_lost) {
            if *is_lost {
                self.look.lost.push(vote);
            } else {
                self.look.is_whole |= self.look.lost.is_empty();
                kept.push(vote);
            }
        }
        part.votes = kept;
        part.run = run;
        self.votes -= before - part.votes.len();
        self.look.run = Some(run);
        if !later.votes.is_empty() {
            self.parts.insert(at + 1, later);
        }
    }
}

impl ServerLedger {
    /// Whether this server remembers votes that it acknowledged over an earlier run of Postgres than the last one
    /// that it saw. Asks nobody.
    pub fn may_have_losses(&self) -> bool {
        let Some(run) = self.runs.last() else { return false };
        let remembered = self.acknowledged.lock();
        remembered.next_part(run).is_some() || !remembered.look.lost.is_empty()
    }

    /// Looks for the votes that this server acknowledged over earlier runs of Postgres. Returns those that are not
    /// there any more: [`ServerLedger::store_losses`] stores them. Each is returned once.
    ///
    /// # Errors
    /// When Postgres is unavailable, does not take writes (a standby may still lag), or is another run than at
    /// the beginning. Nothing is forgotten: look again.
    pub async fn find_loss(&self) -> Result<Option<Loss>, LedgerError> {
        let run = run_of(&self.database.pool).await?;
        let ledger = self.only_in(Some(run));
        // What a standby lacks may still come.
        ledger.look_for(&[]).await?;
        self.acknowledged.lock().see(run);
        self.acknowledged.lock().look_again(run);
        loop {
            let (since, votes) = {
                let remembered = self.acknowledged.lock();
                match remembered.next_part(run).and_then(|at| remembered.parts.get(at)) {
                    Some(part) => (part.since, part.votes.clone()),
                    None => break,
                }
            };
            let mut is_lost = Vec::with_capacity(votes.len());
            for some in votes.chunks(LOOK_LIMIT_VOTES) {
                is_lost.extend(ledger.look_for(some).await?);
            }
            self.acknowledged.lock().looked(since, run, &is_lost);
        }
        let mut remembered = self.acknowledged.lock();
        if remembered.look.run != Some(run) {
            // An old primary answers again: a later run will tell.
            return Ok(None);
        }
        let loss = Loss::of(&std::mem::take(&mut remembered.look));
        remembered.unstored.extend(loss.clone());
        Ok(loss)
    }

    /// Whether each of these votes is lost.
    async fn look_for(&self, votes: &[Acknowledgement]) -> Result<Vec<bool>, LedgerError> {
        let ids: Vec<i64> = votes.iter().map(|vote| vote.id).collect();
        let items: Vec<i64> = votes.iter().map(|vote| vote.item).collect();
        let times: Vec<i64> = votes.iter().map(|vote| vote.created_at).collect();
        let found = sqlx::query_file!("src/ledger/sql/lost_votes.sql", &ids, &items, &times)
            .fetch_one(&self.database.pool)
            .await?;
        if found.is_standby {
            return Err(OtherRun.into());
        }
        let mut is_lost = vec![false; votes.len()];
        for position in found.lost.unwrap_or_default() {
            let at = usize::try_from(position - 1).ok();
            if let Some(is_lost) = at.and_then(|at| is_lost.get_mut(at)) {
                *is_lost = true;
            }
        }
        Ok(is_lost)
    }

    /// Stores the losses that were found.
    ///
    /// # Errors
    /// When Postgres did not store one, or did not confirm it: try again.
    pub async fn store_losses(&self) -> Result<(), LedgerError> {
        loop {
            let first = self.acknowledged.lock().unstored.front().cloned();
            let Some(loss) = first else { return Ok(()) };
            self.store_loss(&loss).await?;
            self.acknowledged.lock().unstored.pop_front();
        }
    }

    async fn store_loss(&self, loss: &Loss) -> Result<(), LedgerError> {
        let mut items = loss.items_by_votes();
        items.truncate(LOSS_LIMIT_ITEMS);
        let (items, votes): (Vec<i64>, Vec<i64>) = items.into_iter().unzip();
        sqlx::query_file!(
            "src/ledger/sql/store_loss.sql",
            loss.token,
            i64::try_from(loss.votes).unwrap_or(i64::MAX),
            loss.first_at.micros(),
            loss.last_at.micros(),
            loss.first_id.get(),
            loss.last_id.get(),
            i64::try_from(loss.item_total()).unwrap_or(i64::MAX),
            loss.is_whole,
            &items,
            &votes
        )
        .execute(&self.database.pool)
        .await?;
        Ok(())
    }

    /// All losses that servers have found.
    pub async fn losses(&self) -> Result<Losses, LedgerError> {
        losses(&self.database.pool).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 4;

    fn run(number: i64) -> PostgresRun {
        PostgresRun::new(number)
    }

    fn votes(ids: impl IntoIterator<Item = i64>) -> Vec<Acknowledgement> {
        let votes = ids.into_iter().map(|id| Acknowledgement {
            id,
            item: id % 2,
            created_at: 10 * id,
        });
        votes.collect()
    }

    fn ids(remembered: &Remembered) -> Vec<i64> {
        let votes = remembered.parts.iter().flat_map(|part| &part.votes);
        votes.map(|vote| vote.id).collect()
    }

    #[test]
    fn the_latest_votes_are_remembered_up_to_an_age_and_a_number() {
        let start = Instant::now();
        let mut remembered = Remembered::default();
        let mut add = |at, new: &[i64]| {
            remembered.add(at, run(1), votes(new.iter().copied()).into_iter(), LIMIT);
            (ids(&remembered), remembered.votes, remembered.parts.len())
        };
        assert_eq!(add(start, &[1]), (vec![1], 1, 1));
        assert_eq!(add(start, &[2]), (vec![1, 2], 2, 1), "small batches go together");
        assert_eq!(add(start + PART_AGE, &[3, 4]), (vec![1, 2, 3, 4], 4, 2));
        assert_eq!(add(start + PART_AGE, &[5]), (vec![3, 4, 5], 3, 1));
        let later = start + PART_AGE + ACKNOWLEDGED_LIMIT_AGE;
        assert_eq!(add(later, &[6]), (vec![3, 4, 5, 6], 4, 2));
        let too_late = later + Duration::from_nanos(1);
        assert_eq!(add(too_late, &[]), (vec![6], 1, 1));
    }

    /// Looks for all votes in this run, which lacks those.
    fn look(remembered: &mut Remembered, run: PostgresRun, lacks: &[i64]) -> Option<Loss> {
        remembered.see(run);
        while let Some(at) = remembered.next_part(run) {
            let part = &remembered.parts[at];
            let is_lost = part.votes.iter().map(|vote| lacks.contains(&vote.id));
            let (since, is_lost): (Instant, Vec<bool>) = (part.since, is_lost.collect());
            remembered.looked(since, run, &is_lost);
        }
        Loss::of(&std::mem::take(&mut remembered.look))
    }

    #[test]
    fn what_a_later_run_has_stays_remembered_and_what_it_lacks_is_lost_once() {
        let start = Instant::now();
        let mut remembered = Remembered::default();
        remembered.add(start, run(1), votes(1..=3).into_iter(), 100);
        assert_eq!(look(&mut remembered, run(2), &[]), None, "a restart");
        remembered.add(start + PART_AGE, run(2), votes(4..=6).into_iter(), 100);
        let loss = look(&mut remembered, run(3), &[2, 3, 4, 6]).expect("a loss");
        assert_eq!((loss.votes, loss.item_total(), loss.is_whole), (4, 2, true));
        assert_eq!((loss.first_id, loss.last_id), (VoteId::new(2), VoteId::new(6)));
        let moments = [20, 60].map(Moment::from_micros);
        assert_eq!([loss.first_at, loss.last_at], moments);
        assert_eq!((ids(&remembered), remembered.votes), (vec![1, 5], 2));
        assert_eq!(look(&mut remembered, run(3), &[1]), None, "it was asked");
        let loss = look(&mut remembered, run(4), &[1, 5]).expect("a loss");
        assert!(!loss.is_whole, "earlier ones may be lost, too");
        assert_eq!(loss.items, BTreeMap::from([(1, 2)]));
    }

    #[test]
    fn an_old_primary_that_answers_again_is_not_asked_for_votes_that_are_newer_than_it() {
        let mut remembered = Remembered::default();
        remembered.see(run(1));
        remembered.add(Instant::now(), run(2), votes([1]).into_iter(), 100);
        assert_eq!(remembered.next_part(run(1)), None);
        assert_eq!(remembered.next_part(run(3)), Some(0), "a new one is the last");
    }

    #[test]
    fn votes_of_the_earlier_run_that_come_during_a_look_are_looked_for_next() {
        let start = Instant::now();
        let mut remembered = Remembered::default();
        remembered.add(start, run(1), votes([1, 2]).into_iter(), 100);
        remembered.see(run(2));
        remembered.add(start, run(1), votes([3]).into_iter(), 100);
        remembered.looked(start, run(2), &[false, true]);
        assert_eq!((ids(&remembered), remembered.votes), (vec![1, 3], 2));
        let loss = look(&mut remembered, run(2), &[3]).expect("a loss");
        assert_eq!((loss.votes, loss.is_whole), (2, true));
    }

    #[test]
    fn what_one_run_lacked_is_looked_for_again_if_another_run_answers_before_the_look_has_ended() {
        let start = Instant::now();
        let mut remembered = Remembered::default();
        remembered.add(start, run(1), votes([1, 2]).into_iter(), 100);
        remembered.add(start + PART_AGE, run(1), votes([3]).into_iter(), 100);
        // A replaced primary for a moment: it lacks one, and the look is cut off.
        remembered.see(run(2));
        remembered.looked(start, run(2), &[false, true]);
        assert_eq!(remembered.votes, 2);
        remembered.look_again(run(1));
        assert_eq!(remembered.look.lost.len(), 1, "it is not later");
        remembered.see(run(3));
        remembered.look_again(run(3));
        assert_eq!(remembered.votes, 3);
        assert_eq!(look(&mut remembered, run(3), &[]), None, "they are there");
    }
}
