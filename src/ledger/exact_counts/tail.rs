//! The votes beyond the watermark, as one connection has read them.
//!
//! Exact counts need the sum of an item's votes beyond the watermark. There is no index by item: it would
//! cost each vote more than all else that Postgres does for it (docs/decisions/postgres). So a
//! program reads each of these votes once, by its id, and keeps the sums. Of a vote's row only
//! the voter changes, so what was read once stays true over the same connection.
//!
//! Ids are drawn in order, and committed in any order. An id that is passed and was not there is *open*:
//! its vote may still be committed, or it will never be. It is asked for again with each read, until the
//! watermark has passed it, or it is known to be decided.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use crate::domain::Count;

/// The most open ids that are asked for with each read: each costs it about as much as a vote. Votes behind
/// further ones are read anew each time. Then it is worth finding out which ids will never be used.
pub(super) const OPEN_LIMIT_IDS: usize = 2000;
/// The most votes that are kept one by one, so that the watermark can pass them: by calculation 24 MB. If
/// there are more, only their sums are kept, and they are read anew once the watermark has moved.
pub(super) const KEPT_LIMIT_VOTES: usize = 1_000_000;
/// The most items whose sums are kept: by calculation 60 MB.
pub(super) const SUMS_LIMIT_ITEMS: usize = 1_000_000;

/// A vote beyond the watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TailVote {
    pub id: i64,
    pub item: i64,
    pub value: i16,
    pub change_number: i16,
}

impl TailVote {
    /// What it adds to its item's count.
    fn count(self) -> Count {
        Count::of_row(self.value, self.change_number)
    }
}

/// What was read of the votes beyond the watermark.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// Votes up to here are in the audited counts.
    watermark: i64,
    /// All votes up to here were read, but for the open ids. Never below the watermark.
    read_to: i64,
    /// Ids between the watermark and `read_to` that were not there.
    open: BTreeSet<i64>,
    /// The sums of the votes that were read, by item. No entry: a sum of nothing.
    sums: HashMap<i64, Count>,
    /// The votes that were read, unless there are too many.
    kept: Kept,
}

/// Votes in the order of their ids, and what tells whether these are all.
#[derive(Debug, Default)]
struct Kept {
    in_order: VecDeque<TailVote>,
    /// Those whose ids had been passed before they were there.
    late: BTreeMap<i64, TailVote>,
    /// There were too many: none are kept.
    is_full: bool,
}

impl Kept {
    fn add(&mut self, vote: TailVote) {
        if self.is_full {
            return;
        }
        if self.in_order.back().is_some_and(|last| last.id > vote.id) {
            self.late.insert(vote.id, vote);
        } else {
            self.in_order.push_back(vote);
        }
        if self.in_order.len() + self.late.len() > KEPT_LIMIT_VOTES {
            *self = Self {
                is_full: true,
                ..Self::default()
            };
        }
    }

    /// Takes out the votes up to this id.
    fn take_to(&mut self, id: i64) -> impl Iterator<Item = TailVote> {
        let beyond = self.late.split_off(&(id + 1));
        let late = std::mem::replace(&mut self.late, beyond);
        let passed = self.in_order.partition_point(|vote| vote.id <= id);
        self.in_order.drain(..passed).chain(late.into_values())
    }
}

/// What a read of the tail found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Together with these sums, which are not kept, all votes that the read could see.
    All(HashMap<i64, Count>),
    /// A part of them: read on.
    Some,
    /// The tail no longer fits the watermark, and is empty now: read again.
    Outdated,
    /// Too many votes lie behind ids that may still be used.
    BehindOpenIds,
    /// Too many items have votes beyond the watermark. The tail is empty now.
    TooManyItems,
}

impl Tail {
    /// The id after which to read on.
    pub fn read_to(&self) -> i64 {
        self.read_to
    }

    /// The ids to ask for again, in order.
    pub fn open(&self) -> Vec<i64> {
        self.open.iter().copied().collect()
    }

    /// The sum of an item's votes that were read.
    pub fn sum(&self, item: i64) -> Count {
        self.sums.get(&item).copied().unwrap_or_default()
    }

    /// Takes what was read under one snapshot: the watermark, at most `limit` votes after
    /// [`Tail::read_to`] (or the watermark, if that is higher), and those of [`Tail::open`] that were there.
    /// `decided`: before the read, every vote up to this id was committed, or would never be.
    pub fn take(&mut self, watermark: i64, decided: i64, mut votes: Vec<TailVote>, limit: usize) -> Taken {
        let asked_after = self.read_to.max(watermark);
        if !self.pass(watermark) {
            *self = Self::default();
            return Taken::Outdated;
        }
        votes.sort_unstable_by_key(|vote| vote.id);
        let first_new = votes.partition_point(|vote| vote.id <= asked_after);
        let (were_open, new) = votes.split_at(first_new);
        for vote in were_open {
            if self.open.remove(&vote.id) {
                self.add(*vote);
            }
        }
        self.open = self.open.split_off(&(decided.saturating_add(1)));
        let mut left = HashMap::<i64, Count>::new();
        for (at, vote) in new.iter().enumerate() {
            let first_open = self.read_to.max(decided).saturating_add(1);
            let opened = usize::try_from(vote.id.saturating_sub(first_open)).unwrap_or_default();
            if self.open.len() + opened <= OPEN_LIMIT_IDS {
                self.open.extend(first_open..vote.id);
                self.read_to = vote.id;
                self.add(*vote);
            } else {
                for vote in &new[at..] {
                    *left.entry(vote.item).or_default() += vote.count();
                }
                break;
            }
        }
        if self.sums.len() > SUMS_LIMIT_ITEMS {
            *self = Self::default();
            return Taken::TooManyItems;
        }
        match (new.len() >= limit, left.is_empty()) {
            (false, _) => Taken::All(left),
            (true, true) => Taken::Some,
            (true, false) => Taken::BehindOpenIds,
        }
    }

    /// Lets the watermark pass votes: they are in the audited counts now. Returns whether it could.
    fn pass(&mut self, watermark: i64) -> bool {
        if watermark == self.watermark {
            return true;
        }
        // A watermark that went back is that of a database that was restored.
        if watermark < self.watermark || self.kept.is_full {
            return false;
        }
        for vote in self.kept.take_to(watermark) {
            let sum = self.sums.entry(vote.item).or_default();
            *sum += -vote.count();
            if *sum == Count::ZERO {
                self.sums.remove(&vote.item);
            }
        }
        self.open = self.open.split_off(&(watermark + 1));
        self.watermark = watermark;
        self.read_to = self.read_to.max(watermark);
        true
    }

    fn add(&mut self, vote: TailVote) {
        *self.sums.entry(vote.item).or_default() += vote.count();
        self.kept.add(vote);
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// A ledger of votes that are drawn in order and committed in any order.
    #[derive(Default)]
    struct Ledger {
        watermark: i64,
        decided: i64,
        committed: BTreeMap<i64, TailVote>,
    }

    impl Ledger {
        fn commit(&mut self, id: i64, item: i64, value: i16) {
            let vote = TailVote {
                id,
                item,
                value,
                change_number: 0,
            };
            self.committed.insert(id, vote);
        }

        /// As `exact_counts.sql` reads.
        fn read(&self, tail: &Tail, limit: usize) -> Vec<TailVote> {
            let after = tail.read_to().max(self.watermark);
            let new = self.committed.range(after + 1..).take(limit);
            let open = tail.open().into_iter();
            let open = open.filter_map(|id| self.committed.get(&id).copied());
            new.map(|(_, vote)| *vote).chain(open).collect()
        }

        fn sum(&self, item: i64) -> Count {
            let beyond = self.committed.range(self.watermark + 1..);
            let of_item = beyond.filter(|(_, vote)| vote.item == item);
            of_item.fold(Count::ZERO, |mut sum, (_, vote)| {
                sum += vote.count();
                sum
            })
        }
    }

    fn take_all(tail: &mut Tail, ledger: &Ledger, limit: usize) -> HashMap<i64, Count> {
        loop {
            let votes = ledger.read(tail, limit);
            match tail.take(ledger.watermark, ledger.decided, votes, limit) {
                Taken::All(left) => return left,
                Taken::Some | Taken::Outdated => {}
                more => panic!("{more:?}"),
            }
        }
    }

    fn assert_exact(tail: &mut Tail, ledger: &Ledger, limit: usize) {
        let left = take_all(tail, ledger, limit);
        for item in 0..5 {
            let mut sum = tail.sum(item);
            sum += left.get(&item).copied().unwrap_or_default();
            assert_eq!(sum, ledger.sum(item), "item {item}: {tail:?}");
        }
    }

    #[test]
    fn a_vote_that_is_committed_after_a_later_one_is_found_by_the_next_read() {
        let (mut tail, mut ledger) = (Tail::default(), Ledger::default());
        ledger.commit(3, 1, 1);
        assert_exact(&mut tail, &ledger, 100);
        assert_eq!(tail.open(), [1, 2]);
        ledger.commit(2, 1, -1);
        assert_exact(&mut tail, &ledger, 100);
        assert_eq!(tail.open(), [1]);
    }

    #[test]
    fn the_watermark_takes_votes_and_open_ids_out_whether_they_were_read_or_not() {
        let (mut tail, mut ledger) = (Tail::default(), Ledger::default());
        ledger.commit(2, 1, 1);
        ledger.commit(5, 2, 1);
        assert_exact(&mut tail, &ledger, 100);
        ledger.commit(4, 1, 1);
        ledger.commit(6, 1, 1);
        ledger.commit(7, 1, 1);
        ledger.watermark = 6;
        assert_exact(&mut tail, &ledger, 100);
        assert!(tail.open().is_empty());
        assert_eq!(tail.sums.len(), 1);
    }

    #[test]
    fn a_watermark_that_goes_back_is_another_databases_and_all_is_read_again() {
        let (mut tail, mut ledger) = (Tail::default(), Ledger::default());
        ledger.watermark = 4;
        ledger.commit(5, 1, 1);
        assert_exact(&mut tail, &ledger, 100);
        ledger.commit(2, 1, 1);
        ledger.watermark = 1;
        assert_exact(&mut tail, &ledger, 100);
    }

    #[test]
    fn behind_a_wide_gap_votes_are_read_anew_each_time_until_the_watermark_has_passed_it() {
        let (mut tail, mut ledger) = (Tail::default(), Ledger::default());
        ledger.commit(1, 1, 1);
        let far = i64::MAX - 10;
        ledger.commit(far, 1, 1);
        for _ in 0..2 {
            assert_exact(&mut tail, &ledger, 100);
            assert_eq!(tail.read_to(), 1);
        }
        // More than one read can take.
        ledger.commit(far + 1, 2, 1);
        let votes = ledger.read(&tail, 2);
        assert_eq!(tail.take(0, 0, votes, 2), Taken::BehindOpenIds);
        ledger.decided = far - 1;
        assert_exact(&mut tail, &ledger, 2);
        assert_eq!(tail.read_to(), far + 1);
    }

    #[test]
    fn a_decided_id_is_asked_for_no_more() {
        let (mut tail, mut ledger) = (Tail::default(), Ledger::default());
        ledger.commit(9, 1, 1);
        assert_exact(&mut tail, &ledger, 100);
        ledger.commit(4, 1, 1);
        ledger.decided = 6;
        ledger.commit(12, 1, 1);
        assert_exact(&mut tail, &ledger, 100);
        assert_eq!(tail.open(), [7, 8, 10, 11]);
    }

    #[test]
    fn sums_of_more_votes_than_are_kept_one_by_one_stay_right_and_are_read_again_behind_a_watermark() {
        let (mut tail, mut ledger) = (Tail::default(), Ledger::default());
        let votes = KEPT_LIMIT_VOTES as i64 + 10;
        (1..=votes).for_each(|id| ledger.commit(id, id % 5, 1));
        assert_exact(&mut tail, &ledger, 50_000);
        assert!(tail.kept.is_full);
        ledger.watermark = votes - 3;
        assert_exact(&mut tail, &ledger, 50_000);
        assert!(!tail.kept.is_full);
    }

    /// Whatever is committed, rolled up and read in whatever order.
    #[test]
    fn sums_are_exact_after_each_of_many_drawn_steps() {
        for seed in 0..200_u64 {
            let mut random = StdRng::seed_from_u64(seed);
            let (mut tail, mut ledger) = (Tail::default(), Ledger::default());
            let mut drawn: Vec<i64> = Vec::new();
            let mut next = 1;
            for _ in 0..300 {
                match random.random_range(0..10) {
                    0..=3 => {
                        for _ in 0..random.random_range(1..6) {
                            drawn.push(next);
                            next += 1;
                        }
                    }
                    4..=6 if !drawn.is_empty() => {
                        let id = drawn.swap_remove(random.random_range(0..drawn.len()));
                        // Some are never committed.
                        if random.random_bool(0.8) {
                            let value = if random.random() { 1 } else { -1 };
                            ledger.commit(id, random.random_range(0..5), value);
                        }
                    }
                    7 => {
                        // The safe id: all below the first that is undecided.
                        let safe = drawn.iter().min().map_or(next - 1, |first| first - 1);
                        ledger.decided = ledger.decided.max(random.random_range(0..=safe));
                        if random.random() {
                            ledger.watermark = ledger.watermark.max(random.random_range(0..=safe));
                        }
                    }
                    _ => assert_exact(&mut tail, &ledger, random.random_range(1..20)),
                }
            }
            assert_exact(&mut tail, &ledger, 7);
        }
    }
}
