//! The scripts and statements under test, perhaps without a piece, and the clock.

use rand::Rng;
use rand::rngs::StdRng;
use redis::Script;

use crate::proofs::one_vote_batch::Without;

/// A script, behind what reads and writes counters.
macro_rules! script {
    ($name:literal) => {
        concat!(
            include_str!("../../../../lua/counter.lua"),
            include_str!(concat!("../../../../lua/", $name, ".lua"))
        )
    };
}

/// The scripts and statements under test.
pub(super) struct Pieces {
    pub(super) count: Script,
    pub(super) seed: Script,
    pub(super) mark_saved: Script,
    pub(super) expire: Script,
    pub(super) invalidate: Script,
    pub(super) claim_rebuild: Script,
    pub(super) clear_rebuild: Script,
    pub(super) insert_anonymous_votes: &'static str,
    pub(super) exact_counts: &'static str,
    pub(super) save_counts: String,
    pub(super) save_rebuilt_counts: &'static str,
    pub(super) without: Without,
}

/// How Redis' clock moves in an interleaving. It may step before any step.
#[derive(Clone, Copy, Debug)]
pub(super) enum Clock {
    /// Goes on by 1 µs with each step.
    Steady,
    /// Steps back or forth by up to 20 s: longer than a lease lasts.
    Stepping,
    /// Steps back or forth by up to 3 µs: revisions come close to each other.
    Trembling,
    /// Stands still, but may step back once.
    Stopped,
}

impl Clock {
    pub(super) fn after(self, now: i64, random: &mut StdRng) -> i64 {
        match self {
            Self::Steady => now + 1,
            Self::Stepping if random.random_bool(0.2) => now + random.random_range(-20_000_000..=20_000_000),
            Self::Trembling if random.random_bool(0.4) => now + random.random_range(-3..=3),
            Self::Stopped if random.random_bool(0.05) => now - random.random_range(1..=3),
            _ => now,
        }
    }
}

/// A script that reads the time from the key of the item's clock.
pub(super) fn clocked(text: &str) -> Script {
    let text = text.replace("call('TIME')", "call('HMGET', KEYS[2] .. ':clock', 's', 'us')");
    assert!(!text.contains("'TIME'"), "the script reads the true time: {text}");
    Script::new(&text)
}

/// A text whose `part`, which must be there, is replaced.
pub(super) fn cut(text: &str, part: &str, instead: &str) -> String {
    assert!(text.contains(part), "{part:?} is gone: the mutant would be none");
    text.replace(part, instead)
}

/// The index of unsaved counters, shared by all items.
pub(super) const INDEX: &str = "tally:unsaved";
/// The token of cold votes. No vote here is one: all items are warm.
pub(super) const COLD: &str = "tally:cold";

impl Pieces {
    pub(super) fn without(piece: Without) -> Self {
        let mut count = script!("count").to_owned();
        let mut seed = script!("seed").to_owned();
        let mut mark_saved = script!("mark_saved").to_owned();
        let mut save_counts = include_str!("../../../../src/ledger/sql/save_counts.sql").to_owned();
        match piece {
            Without::Nothing
            | Without::ExactCountAfterLease
            | Without::ExactCountOfItsRound
            | Without::Suspects => {}
            Without::CommitFirst
            | Without::InvalidationFloor
            | Without::SeedFloor
            | Without::ClaimAboveFloor
            | Without::ClaimFloor
            | Without::CompareAndSet
            | Without::FloorBesideLease
            | Without::EpochNumber
            | Without::ColdSaves
            | Without::LeaseIsWarm
            | Without::RequestIsWarm
            | Without::ColdCompareAndSet
            | Without::ColdSecondRead
            | Without::ColdRebuild
            | Without::LateSuspects => panic!("only the model takes this away"),
            Without::VisibilitySnapshot => {
                let seen = "if snapshot == '' then seen = xid < xmax else seen = visible(snapshot) end";
                count = cut(&count, seen, "seen = false");
            }
            Without::Lease => seed = cut(&seed, "seeded > 0 or leased ~= lease", "seeded > 0"),
            Without::CountedAtGuard => {
                save_counts = cut(
                    &save_counts,
                    "and (item.counted_at is null or item.counted_at < given.counted_at
           or item.counted_at = given.counted_at
              and item.vote_count = given.vote_count and item.down_count = given.down_count)",
                    "",
                );
            }
            // Compares the written count, not its revision.
            Without::Revision => {
                mark_saved = cut(
                    &mark_saved,
                    "revision == tonumber(ARGV[k])",
                    "count == tonumber(ARGV[k])",
                );
            }
        }
        Self {
            count: clocked(&count),
            seed: clocked(&seed),
            mark_saved: clocked(&mark_saved),
            expire: clocked(script!("expire")),
            invalidate: clocked(script!("invalidate")),
            claim_rebuild: clocked(script!("claim_rebuild")),
            clear_rebuild: clocked(script!("clear_rebuild")),
            insert_anonymous_votes: include_str!("../../../../src/ledger/sql/insert_anonymous_votes.sql"),
            exact_counts: include_str!("../../../../src/ledger/sql/exact_counts.sql"),
            save_counts,
            save_rebuilt_counts: include_str!("../../../../src/ledger/sql/save_rebuilt_counts.sql"),
            without: piece,
        }
    }
}
