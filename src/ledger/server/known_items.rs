//! What a server knows of items: how the votes on each are stored. Its writers share it.
//!
//! Item ids are close together, so items are kept in blocks of ids, with two bits for each. A block in which many
//! items were looked up is then read as a whole, by one writer at a time: one read of a block costs Postgres as much
//! as some eighty looks at single items. So the votes on a million items soon need no look.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::item_kind::ItemKind;
use super::item_reader::ITEM_CACHE_LIMIT;
use crate::cache::{Asked, Cache, Ends, Forgets, Remembers};
use crate::domain::PostgresRun;

/// The item ids in one block.
const BLOCK_ITEMS: usize = 1024;
/// The most blocks that a server knows: by calculation 5 MB, for 16.8 million items.
pub(crate) const KNOWN_LIMIT_BLOCKS: usize = 16_384;
/// After so many looks at single items of a block, all of it is read. A read of the block takes 0.32 ms of
/// Postgres and a look 3.9 µs (2026-11-30), so this costs at most some three and a half times what looks alone would.
const READ_AFTER_LOOKS: u32 = 32;

const BITS: usize = 2;
const ITEMS_IN_WORD: usize = u64::BITS as usize / BITS;

/// The items of one block that are known.
pub(super) struct ItemBlock {
    kinds: [AtomicU64; BLOCK_ITEMS / ITEMS_IN_WORD],
    looks: AtomicU32,
    /// Someone reads all of it, or has, or has tried to.
    is_asked: AtomicBool,
}

/// By the run of Postgres that it was read in, and the block's number. Items are never deleted, and a kind never
/// changes (migrations/0001_items.sql), so it is so for as long as this is the same database. Each new connection
/// of a writer ends all entries: after a failover or a restart of Postgres, another database may answer.
impl Remembers for ItemBlock {
    type Key = (PostgresRun, i64);
    type Value = Arc<Self>;
    const LIMIT: usize = KNOWN_LIMIT_BLOCKS;
    const LIMIT_AGE: Option<Duration> = Some(ITEM_CACHE_LIMIT);
}

impl Forgets for ItemBlock {}

impl Default for ItemBlock {
    fn default() -> Self {
        Self {
            kinds: [const { AtomicU64::new(0) }; _],
            looks: AtomicU32::new(0),
            is_asked: AtomicBool::new(false),
        }
    }
}

impl ItemBlock {
    fn kind(&self, place: usize) -> Option<ItemKind> {
        let word = self.kinds[place / ITEMS_IN_WORD].load(Ordering::Relaxed);
        match word >> (BITS * (place % ITEMS_IN_WORD)) & 0b11 {
            0 => None,
            1 => Some(ItemKind::Plain),
            2 => Some(ItemKind::UpOnly),
            _ => Some(ItemKind::Ruled),
        }
    }

    /// If someone changed an item's kind by hand, the old one and the new one together say that it has a rule: then
    /// its votes are decided over a read of its row.
    fn note(&self, place: usize, kind: ItemKind) {
        let bits: u64 = match kind {
            ItemKind::Plain => 1,
            ItemKind::UpOnly => 2,
            ItemKind::Ruled => 3,
        };
        self.kinds[place / ITEMS_IN_WORD]
            .fetch_or(bits << (BITS * (place % ITEMS_IN_WORD)), Ordering::Relaxed);
    }
}

/// The number of an item's block, and the item's place in it.
fn block_and_place(item: i64) -> (i64, usize) {
    let block = item.div_euclid(BLOCK_ITEMS as i64);
    (block, item.rem_euclid(BLOCK_ITEMS as i64) as usize)
}

/// What a server's writers know of items. Cheap to clone.
#[derive(Clone)]
pub(super) struct KnownItems {
    blocks: Arc<Cache<ItemBlock>>,
    /// Held by the writer that reads a block.
    reads: Arc<tokio::sync::Mutex<BlockReads>>,
}

/// The reads of whole blocks, one at a time.
#[derive(Default)]
pub(super) struct BlockReads {
    /// None is begun before this.
    pub rest_until: Option<Instant>,
}

impl std::fmt::Debug for KnownItems {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("KnownItems").finish_non_exhaustive()
    }
}

impl KnownItems {
    /// Knows nothing yet. All that it knows ends when `ends` says so.
    pub fn new(ends: Ends) -> Self {
        Self {
            blocks: Arc::new(Cache::ended_by(ends)),
            reads: Arc::default(),
        }
    }

    /// Forgets all items, and those that are being looked up.
    pub fn forget(&self) {
        self.blocks.forget();
    }

    /// Leave to read a block now; `None`: another writer reads one, or reads rest after a failure.
    pub fn may_read(&self, now: Instant) -> Option<OwnedMutexGuard<BlockReads>> {
        let reads = Arc::clone(&self.reads).try_lock_owned().ok()?;
        let rests = reads.rest_until.is_some_and(|until| now < until);
        (!rests).then_some(reads)
    }

    /// The kinds of these items in this run of Postgres, in their order; `None`: an item is not known.
    pub fn kinds(&self, run: PostgresRun, items: impl Iterator<Item = i64>) -> Vec<Option<ItemKind>> {
        self.blocks.reading(|blocks| {
            // Mostly the votes of a batch are on few blocks.
            let mut last = None;
            items
                .map(|item| {
                    let (number, place) = block_and_place(item);
                    let block = match last {
                        Some((of, block)) if of == number => block,
                        _ => blocks.get(&(run, number)),
                    };
                    last = Some((number, block));
                    block.and_then(|block: &Arc<ItemBlock>| block.kind(place))
                })
                .collect()
        })
    }

    /// Call this before looking up what is not known.
    pub fn asking(&self) -> Asked {
        self.blocks.asking()
    }

    /// Adds items that were looked up one by one. Returns the block that the caller is to read as a whole: the one
    /// that it was to read before, or one of these.
    pub fn add(
        &self,
        run: PostgresRun,
        asked: Asked,
        looked_up: impl Iterator<Item = (i64, ItemKind)>,
        mut to_read: Option<i64>,
    ) -> Option<i64> {
        for (item, kind) in looked_up {
            let (number, place) = block_and_place(item);
            self.note(run, number, asked, |block| {
                block.note(place, kind);
                let looks = block.looks.fetch_add(1, Ordering::Relaxed) + 1;
                let is_worth_it = looks >= READ_AFTER_LOOKS && to_read.is_none();
                if is_worth_it && !block.is_asked.swap(true, Ordering::Relaxed) {
                    to_read = Some(number);
                }
            });
        }
        to_read
    }

    /// The ids of this block.
    pub fn ids_of_block(number: i64) -> RangeInclusive<i64> {
        let items = BLOCK_ITEMS as i64;
        let first = number * items;
        first..=first + (items - 1)
    }

    /// Adds what was read of a whole block.
    pub fn add_block(
        &self,
        run: PostgresRun,
        number: i64,
        asked: Asked,
        items: impl Iterator<Item = (i64, ItemKind)>,
    ) {
        self.note(run, number, asked, |block| {
            block.is_asked.store(true, Ordering::Relaxed);
            for (item, kind) in items {
                block.note(block_and_place(item).1, kind);
            }
        });
    }

    /// Notes something in this block, or in a new one; nothing, if all was forgotten since the question. What is
    /// noted gets as old as its block, or older by as long as a statement takes.
    fn note(&self, run: PostgresRun, number: i64, asked: Asked, note: impl FnOnce(&ItemBlock)) {
        let key = (run, number);
        // Nothing is forgotten during a look.
        let left = self.blocks.reading(|blocks| match blocks.get(&key) {
            Some(block) if blocks.is_since(asked) => {
                note(block);
                None
            }
            Some(_) => None,
            None => Some(note),
        });
        if let Some(note) = left {
            let block = ItemBlock::default();
            note(&block);
            self.blocks.add(key, Arc::new(block), asked);
        }
    }
}

/// Items by their kinds, as a statement returns them. A kind without items comes as null.
pub(super) fn by_kind(
    plain: Option<Vec<i64>>,
    up_only: Option<Vec<i64>>,
    ruled: Option<Vec<i64>>,
) -> impl Iterator<Item = (i64, ItemKind)> {
    let of = |ids: Option<Vec<i64>>, kind| ids.unwrap_or_default().into_iter().map(move |id| (id, kind));
    of(plain, ItemKind::Plain)
        .chain(of(up_only, ItemKind::UpOnly))
        .chain(of(ruled, ItemKind::Ruled))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: i64 = 7;

    fn kinds(known: &KnownItems, run: i64, items: &[i64]) -> Vec<Option<ItemKind>> {
        known.kinds(PostgresRun::new(run), items.iter().copied())
    }

    fn add(known: &KnownItems, items: &[(i64, ItemKind)]) -> Option<i64> {
        known.add(PostgresRun::new(RUN), known.asking(), items.iter().copied(), None)
    }

    #[test]
    fn an_item_is_known_once_it_was_looked_up_and_its_neighbours_are_not() {
        let known = KnownItems::new(Ends::default());
        let items = [
            (1, ItemKind::Plain),
            (31, ItemKind::UpOnly),
            (33, ItemKind::Ruled),
            (1022, ItemKind::Plain),
            (1024, ItemKind::UpOnly),
            (i64::MAX, ItemKind::Ruled),
        ];
        assert_eq!(kinds(&known, RUN, &[1, 31]), [None, None]);
        assert_eq!(add(&known, &items), None);
        for (item, kind) in items {
            assert_eq!(
                kinds(&known, RUN, &[item, item - 1, item]),
                [Some(kind), None, Some(kind)]
            );
        }
        assert_eq!(kinds(&known, RUN, &[32, 1025, 2048]), [None; 3]);
    }

    #[test]
    fn what_was_read_in_one_run_of_postgres_is_not_known_in_another_one() {
        let known = KnownItems::new(Ends::default());
        add(&known, &[(1, ItemKind::Plain)]);
        assert_eq!(kinds(&known, RUN + 1, &[1]), [None]);
    }

    #[test]
    fn all_is_forgotten_with_an_end_and_when_asked_and_so_is_what_was_being_looked_up() {
        let ends = Ends::default();
        let known = KnownItems::new(ends.clone());
        for end in [&(|| ends.end_all()) as &dyn Fn(), &|| known.forget()] {
            add(&known, &[(1, ItemKind::Plain)]);
            assert_eq!(kinds(&known, RUN, &[1]), [Some(ItemKind::Plain)]);
            let asked = known.asking();
            end();
            assert_eq!(kinds(&known, RUN, &[1]), [None]);
            known.add(
                PostgresRun::new(RUN),
                asked,
                [(1, ItemKind::Plain)].into_iter(),
                None,
            );
            assert_eq!(kinds(&known, RUN, &[1]), [None]);
            // Not even beside what was looked up since.
            add(&known, &[(2, ItemKind::Plain)]);
            known.add(
                PostgresRun::new(RUN),
                asked,
                [(1, ItemKind::Plain)].into_iter(),
                None,
            );
            assert_eq!(kinds(&known, RUN, &[1, 2]), [None, Some(ItemKind::Plain)]);
        }
    }

    #[test]
    fn one_writer_reads_a_block_after_so_many_looks_at_its_items() {
        let known = KnownItems::new(Ends::default());
        let block = 5;
        let first = block * BLOCK_ITEMS as i64;
        let look = |place: u32| add(&known, &[(first + i64::from(place), ItemKind::Plain)]);
        for place in 1..READ_AFTER_LOOKS {
            assert_eq!(look(place), None, "{place}");
        }
        assert_eq!(look(READ_AFTER_LOOKS), Some(block));
        assert_eq!(look(READ_AFTER_LOOKS + 1), None);
    }

    #[test]
    fn of_two_blocks_that_should_be_read_one_is_left_for_the_next_batch() {
        let known = KnownItems::new(Ends::default());
        let items: Vec<(i64, ItemKind)> = (0..2 * i64::from(READ_AFTER_LOOKS))
            .map(|at| (at % 2 * BLOCK_ITEMS as i64 + at / 2, ItemKind::Plain))
            .collect();
        let first = add(&known, &items).expect("a block");
        let other = 1 - first;
        assert_eq!(
            add(&known, &[(first * BLOCK_ITEMS as i64, ItemKind::Plain)]),
            None
        );
        assert_eq!(
            add(&known, &[(other * BLOCK_ITEMS as i64, ItemKind::Plain)]),
            Some(other)
        );
    }

    #[test]
    fn all_items_of_a_block_that_was_read_are_known_and_ids_without_an_item_are_not() {
        let known = KnownItems::new(Ends::default());
        let run = PostgresRun::new(RUN);
        known.add_block(
            run,
            0,
            known.asking(),
            (1..1024).step_by(2).map(|id| (id, ItemKind::Plain)),
        );
        assert_eq!(
            kinds(&known, RUN, &[1, 2, 1023]),
            [Some(ItemKind::Plain), None, Some(ItemKind::Plain)]
        );
    }

    #[test]
    fn one_block_is_read_at_a_time_and_none_while_reads_rest() {
        let known = KnownItems::new(Ends::default());
        let now = Instant::now();
        let mut reads = known.may_read(now).expect("nobody reads");
        assert!(known.clone().may_read(now).is_none());
        reads.rest_until = Some(now + Duration::from_secs(1));
        drop(reads);
        assert!(known.may_read(now).is_none());
        assert!(known.may_read(now + Duration::from_secs(1)).is_some());
    }

    #[test]
    fn the_ids_of_blocks_follow_each_other_up_to_the_last_id() {
        let (last, place) = block_and_place(i64::MAX);
        assert_eq!(KnownItems::ids_of_block(last).end(), &i64::MAX);
        assert_eq!(place, BLOCK_ITEMS - 1);
        assert_eq!(KnownItems::ids_of_block(0), 0..=1023);
        assert_eq!(KnownItems::ids_of_block(1), 1024..=2047);
    }

    #[test]
    fn a_block_that_is_still_to_be_read_stays_so() {
        let known = KnownItems::new(Ends::default());
        let items = (0..64).map(|id| (id, ItemKind::Plain));
        assert_eq!(
            known.add(PostgresRun::new(RUN), known.asking(), items.clone(), Some(7)),
            Some(7)
        );
        assert_eq!(
            known.add(PostgresRun::new(RUN), known.asking(), items, None),
            Some(0)
        );
    }

    #[test]
    fn an_item_whose_kind_was_changed_by_hand_is_decided_by_its_row() {
        let known = KnownItems::new(Ends::default());
        add(&known, &[(1, ItemKind::Plain)]);
        add(&known, &[(1, ItemKind::UpOnly)]);
        assert_eq!(kinds(&known, RUN, &[1]), [Some(ItemKind::Ruled)]);
    }
}
