//! How a stored batch gets into the live counts: count → miss → exact count → seed. Votes on cold items only
//! read the exact count: no live count is made for them.
//!
//! This is the heart of Tally, and it does no I/O. [`Counting`] says which call comes next. Its
//! caller makes the call and hands in the reply. The server drives it over Redis and Postgres; the
//! searches in `tests/it` drive it through every order of steps.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::domain::{Count, CountDelta, ExactCount, ItemId, TransactionId};
use crate::live::{CountReply, Seed};

/// The most rounds of count, exact count and seed before a batch gives up. A further round is only
/// needed when someone else has seeded or invalidated the count meanwhile.
pub const SEED_LIMIT_ROUNDS: usize = 5;

/// A committed batch on its way into the live counts of its items. It can be hashed: a search in
/// `tests/it` keeps every state that it has seen.
///
/// The rules (a search in `tests/it` breaks each of them on purpose):
/// - An exact count is read only *after* the lease is taken. So a count that is saved and
///   expires meanwhile cannot come back.
/// - A seed is made only under the lease of its own round.
/// - The batch is committed before it is counted, so every exact count holds it.
/// - An item that is given up is suspect, unless the batch adds nothing to it, or the item is cold. Where
///   `count` found neither a live count nor a lease, every later seed reads an exact count that holds the
///   batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Counting {
    transaction: TransactionId,
    /// The items that have no count yet, in order.
    open: Vec<CountDelta>,
    /// The leases of the counts that are missing in this round.
    leases: BTreeMap<ItemId, String>,
    /// The items of this round that are cold.
    cold: BTreeSet<ItemId>,
    rounds_left: usize,
}

/// The call that comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Call `count` with these deltas, then [`Counting::counted`].
    Count(Vec<CountDelta>),
    /// Read the exact counts of these items, and seed those that are leased. First
    /// [`Counting::cold_counts`] and [`Counting::seeds`], then the call `seed`, then
    /// [`Counting::seeded`].
    Seed(Vec<ItemId>),
    /// Every item has its count.
    Done,
    /// The rounds are used up: see [`Counting::give_up`].
    GiveUp,
}

impl Counting {
    /// A batch that this committed transaction stored. Each item stands in `deltas` once. A delta
    /// of 0 without down-votes only reads the count.
    pub fn new(transaction: TransactionId, deltas: Vec<CountDelta>) -> Self {
        Self::with_rounds(transaction, deltas, SEED_LIMIT_ROUNDS)
    }

    /// The same with another limit of rounds, for the searches in `tests/it`.
    pub fn with_rounds(transaction: TransactionId, deltas: Vec<CountDelta>, rounds: usize) -> Self {
        Self {
            transaction,
            open: deltas,
            leases: BTreeMap::new(),
            cold: BTreeSet::new(),
            rounds_left: rounds,
        }
    }

    /// The transaction that stored the batch.
    pub fn transaction(&self) -> TransactionId {
        self.transaction
    }

    /// Which call comes next.
    pub fn step(&self) -> Step {
        if self.open.is_empty() {
            Step::Done
        } else if !self.leases.is_empty() || !self.cold.is_empty() {
            Step::Seed(self.open.iter().map(|one| one.item_id).collect())
        } else if self.rounds_left == 0 {
            Step::GiveUp
        } else {
            Step::Count(self.open.clone())
        }
    }

    /// Takes the replies of `count`, one for each delta of [`Step::Count`]. Returns the counts that
    /// are known now, with this batch in them.
    pub fn counted(&mut self, replies: Vec<CountReply>) -> Vec<(ItemId, Count)> {
        self.rounds_left = self.rounds_left.saturating_sub(1);
        let mut counts = Vec::with_capacity(replies.len());
        for (delta, reply) in self.open.iter().zip(replies) {
            match reply {
                CountReply::Count(count) => counts.push((delta.item_id, count)),
                CountReply::Miss { lease } => {
                    self.leases.insert(delta.item_id, lease);
                }
                CountReply::Cold => {
                    self.cold.insert(delta.item_id);
                }
                // It is suspect already, and has no count.
                CountReply::Unavailable => {}
            }
        }
        self.open
            .retain(|delta| self.leases.contains_key(&delta.item_id) || self.cold.contains(&delta.item_id));
        counts
    }

    /// Whether this item of [`Step::Seed`] is cold: only its count is needed.
    pub fn is_cold(&self, item: ItemId) -> bool {
        self.cold.contains(&item)
    }

    /// Takes the exact counts that were read for [`Step::Seed`]. Returns those of cold items: they are
    /// known now, and nothing is left to do for them.
    pub fn cold_counts(&mut self, exact: &[ExactCount]) -> Vec<(ItemId, Count)> {
        let cold = std::mem::take(&mut self.cold);
        self.open.retain(|delta| !cold.contains(&delta.item_id));
        exact
            .iter()
            .filter(|exact| cold.contains(&exact.item_id))
            .map(|exact| (exact.item_id, exact.count))
            .collect()
    }

    /// Takes the exact counts that were read for [`Step::Seed`]. Returns the seeds for `seed`.
    pub fn seeds(&mut self, exact: Vec<ExactCount>) -> Vec<Seed> {
        let mut leases = std::mem::take(&mut self.leases);
        exact
            .into_iter()
            .filter_map(|exact| leases.remove(&exact.item_id).map(|lease| Seed { exact, lease }))
            .collect()
    }

    /// Takes the replies of `seed`, one for each seed. Returns the counts that are known now. Where
    /// a seed came too late, the next round counts again.
    pub fn seeded(&mut self, seeds: &[Seed], replies: &[bool]) -> Vec<(ItemId, Count)> {
        let counts: Vec<(ItemId, Count)> = seeds
            .iter()
            .zip(replies)
            .filter(|(_, seeded)| **seeded)
            .map(|(seed, _)| (seed.exact.item_id, seed.exact.count))
            .collect();
        let known: HashSet<ItemId> = counts.iter().map(|(item, _)| *item).collect();
        self.open.retain(|delta| !known.contains(&delta.item_id));
        counts
    }

    /// Leaves these items without a count. Returns those whose live counts are suspect, like
    /// [`Counting::give_up`].
    pub fn leave(&mut self, items: &[ItemId]) -> Vec<ItemId> {
        let left: HashSet<ItemId> = items.iter().copied().collect();
        self.leases.retain(|item, _| !left.contains(item));
        let is_left = |one: &mut CountDelta| left.contains(&one.item_id);
        let suspects = suspects(self.open.extract_if(.., is_left), &self.cold).collect();
        self.cold.retain(|item| !left.contains(item));
        suspects
    }

    /// Ends the counting. Returns the items whose live counts are suspect: someone else may have
    /// seeded them with an exact count from before this batch's commit.
    pub fn give_up(self) -> Vec<ItemId> {
        suspects(self.open.into_iter(), &self.cold).collect()
    }
}

/// Of the items left without a count, those whose live counts are suspect.
fn suspects(left: impl Iterator<Item = CountDelta>, cold: &BTreeSet<ItemId>) -> impl Iterator<Item = ItemId> {
    left.filter(|one| one.delta != Count::ZERO && !cold.contains(&one.item_id))
        .map(|one| one.item_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Snapshot;

    fn item(id: i64) -> ItemId {
        ItemId::new(id).expect("positive")
    }

    fn batch(deltas: &[(i64, i64)]) -> Counting {
        let deltas = deltas.iter().map(|(id, delta)| CountDelta {
            item_id: item(*id),
            delta: (*delta).into(),
        });
        Counting::new(TransactionId(7), deltas.collect())
    }

    fn exact(id: i64, count: i64) -> ExactCount {
        ExactCount {
            item_id: item(id),
            count: count.into(),
            counted_at: None,
            snapshot: Snapshot::parse("8:8:").expect("a snapshot"),
        }
    }

    fn miss(lease: &str) -> CountReply {
        CountReply::Miss {
            lease: lease.to_owned(),
        }
    }

    #[test]
    fn a_batch_whose_counts_are_there_is_done_after_one_call() {
        let mut counting = batch(&[(1, 1), (2, -1)]);
        assert!(matches!(counting.step(), Step::Count(deltas) if deltas.len() == 2));
        let counts = counting.counted(vec![CountReply::Count(5.into()), CountReply::Count(3.into())]);
        assert_eq!(counts, [(item(1), 5.into()), (item(2), 3.into())]);
        assert_eq!(counting.step(), Step::Done);
    }

    #[test]
    fn only_what_is_missing_is_seeded_each_under_its_own_lease() {
        let mut counting = batch(&[(1, 1), (2, 1), (3, 1)]);
        counting.counted(vec![miss("a"), CountReply::Count(9.into()), miss("c")]);
        assert_eq!(counting.step(), Step::Seed(vec![item(1), item(3)]));
        let seeds = counting.seeds(vec![exact(3, 30), exact(1, 10)]);
        let leases: Vec<_> = seeds.iter().map(|seed| seed.lease.as_str()).collect();
        assert_eq!(leases, ["c", "a"]);
        assert_eq!(
            counting.seeded(&seeds, &[true, true]),
            [(item(3), 30.into()), (item(1), 10.into())]
        );
        assert_eq!(counting.step(), Step::Done);
    }

    #[test]
    fn a_seed_that_came_too_late_counts_again_with_no_lease_left_over() {
        let mut counting = batch(&[(1, 1)]);
        counting.counted(vec![miss("a")]);
        let seeds = counting.seeds(vec![exact(1, 10)]);
        assert!(counting.seeded(&seeds, &[false]).is_empty());
        assert!(matches!(counting.step(), Step::Count(_)));
        counting.counted(vec![miss("b")]);
        assert_eq!(counting.seeds(vec![exact(1, 11)])[0].lease, "b");
    }

    #[test]
    fn an_item_that_is_left_is_suspect_if_the_batch_adds_to_it_and_the_others_go_on() {
        let mut counting = batch(&[(1, 1), (2, 0), (3, 1)]);
        counting.counted(vec![miss("a"), miss("b"), miss("c")]);
        assert_eq!(counting.leave(&[item(1), item(2)]), [item(1)]);
        assert_eq!(counting.step(), Step::Seed(vec![item(3)]));
        assert_eq!(counting.leave(&[item(3)]), [item(3)]);
        assert_eq!(counting.step(), Step::Done);
        assert_eq!(counting.give_up(), []);
    }

    #[test]
    fn a_cold_item_gets_its_exact_count_and_no_seed() {
        let mut counting = batch(&[(1, 1), (2, 1), (3, 1)]);
        counting.counted(vec![CountReply::Cold, miss("b"), CountReply::Count(9.into())]);
        assert_eq!(counting.step(), Step::Seed(vec![item(1), item(2)]));
        let exact = vec![exact(1, 10), exact(2, 20)];
        assert_eq!(counting.cold_counts(&exact), [(item(1), 10.into())]);
        let seeds = counting.seeds(exact);
        assert_eq!(
            seeds.iter().map(|seed| seed.exact.item_id).collect::<Vec<_>>(),
            [item(2)]
        );
        counting.seeded(&seeds, &[true]);
        assert_eq!(counting.step(), Step::Done);
    }

    #[test]
    fn a_cold_item_that_is_left_or_given_up_is_not_suspect() {
        let mut counting = batch(&[(1, 1), (2, 1), (3, 1)]);
        counting.counted(vec![CountReply::Cold, miss("b"), CountReply::Cold]);
        assert_eq!(counting.leave(&[item(1), item(2)]), [item(2)]);
        assert_eq!(counting.step(), Step::Seed(vec![item(3)]));
        assert_eq!(counting.give_up(), []);
    }

    #[test]
    fn a_batch_gives_up_after_its_rounds_and_leaves_suspect_only_what_it_adds_to() {
        let mut counting = batch(&[(1, 1), (2, 0)]);
        for round in 0..SEED_LIMIT_ROUNDS {
            assert!(matches!(counting.step(), Step::Count(_)), "round {round}");
            counting.counted(vec![miss("a"), miss("b")]);
            let seeds = counting.seeds(vec![exact(1, 1), exact(2, 1)]);
            counting.seeded(&seeds, &[false, false]);
        }
        assert_eq!(counting.step(), Step::GiveUp);
        assert_eq!(counting.give_up(), [item(1)]);
    }
}
