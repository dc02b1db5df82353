//! An exhaustive search over all interleavings of a model of the protocol.
//!
//! The model has one item, batches of one vote, workers, invalidations, wipes with the entry into
//! another epoch, leases that time out, and a clock of Redis that steps at any point. The search
//! visits every state that can be reached. Without any one piece of the protocol, it must find the
//! violation that the piece prevents. (The invalidation of refused counts is no such piece: no
//! order of these steps needs it. It is there for a counter that nothing here explains.)
//!
//! Some searches have cold votes. Then any server may take the item for warm or for cold with each call, and a
//! roll-up passes any votes of batches that are done, at any time, and saves the item if it is cold. Another
//! worker may take the roll-up over at any step, and the first one goes on, but can no longer note votes
//! as saved. A roll-up may also pass a vote in flight, whose batch is late from then on.
//! These searches check all states, not only quiescent ones: where a reader takes the saved count for the
//! current one, it has the votes of all batches that are done, and never loses them again. The votes are of 1,
//! 2 and 4, so that a count tells its votes. (No order of these steps needs the epoch's number that a save
//! compares.)
//!
//! Some of these have quick saves: right after votes were passed, one statement writes the audited count over the
//! saved one, with no look at Redis. There the votes are drawn and passed in order, and may cancel. A roll-up
//! notes Redis' time and the votes that were drawn, and may pass nothing.
//!
//! Tally's own code here: `tally::votes::Counting`, which orders the steps of a batch, and
//! `tally::domain::Snapshot`. What the scripts and statements do, and the worker's order of steps,
//! are written a second time, because they are Lua, SQL or I/O. `drawn_orders/` has the real
//! scripts and statements.
//!
//! `rules/` is a model of its own: of statements that decide votes.
//!
//! The model has no watermark, since an exact count reads all votes, and no time limits. The token of cold votes
//! goes as soon as its votes are noted as saved. Redis' clock moves by one with each step that draws
//! a revision. A clock step moves it back or forth. A worker reads the epoch's number and the
//! counter in one step: with a number from before, more writes would be refused.

mod roll_up;
mod rules;
mod state;
mod steps;

use std::sync::Arc;

use state::{Entry, Left, NOTHING, Quick, RollUp, State, Votes, Worker};
use steps::Model;

use crate::proofs::every_state::visit;
use crate::proofs::one_vote_batch::Without;

/// Rounds of a batch: fewer than the server's, so that some batches give up.
const ROUNDS: usize = 2;
/// The most steps of a worker alone until all is quiescent.
const QUIESCENT_LIMIT: usize = 60;

impl Model {
    /// What is wrong with a state in which nobody is in the middle of anything.
    /// From there, a worker alone must reach a quiescent state, in which all counts are right.
    /// In any state, the saved count has the votes of a reader that may have been sent to it.
    fn violation(&self, state: &State) -> Option<String> {
        if !self.is_saved(state, state.promised) {
            return Some(format!("saved count {} without a done vote", state.saved_count));
        }
        let idle = state.batches.iter().all(|batch| batch.is_done())
            && state.workers.iter().all(|worker| *worker == Worker::Read)
            && state.roll_up == RollUp::Pass
            && state.stale_roll_up == RollUp::Pass
            && state.entry == Entry::Done;
        if !idle {
            return None;
        }
        let truth = self.sum(state.committed);
        let mut state = state.clone();
        (state.left.take_overs, state.left.stalls) = (0, 0);
        for _ in 0..QUIESCENT_LIMIT {
            if let Some(live) = state.live.filter(|live| live.count != truth) {
                return Some(format!("live count {}, truth {truth}", live.count));
            }
            let is_saved = state.live.is_none_or(|live| live.saved == live.revision);
            state = if state.workers[0] != Worker::Read || state.rebuild != 0 || !is_saved {
                self.work(&state, 0)?
            } else if let Some(next) = self.roll_up_steps(&state).pop() {
                // It passes all votes.
                next
            } else {
                return (state.saved_count != truth)
                    .then(|| format!("saved count {}, truth {truth}", state.saved_count));
            };
        }
        Some("never quiescent".to_owned())
    }

    /// Whether the saved count may be that of these votes, and of others that are committed.
    fn is_saved(&self, state: &State, votes: Votes) -> bool {
        (votes..=state.committed)
            .filter(|has| has & votes == votes && has & !state.committed == 0)
            .any(|has| self.sum(has) == state.saved_count)
    }

    /// Visits every state, or stops at the first violation.
    /// Returns how many states there are, and the first violation with the shortest way to it.
    fn search(&self) -> (usize, Option<String>) {
        let (states, found) = visit(self.first(), |state| match self.violation(state) {
            Some(what) => Err(what),
            None => Ok(self.next(state)),
        });
        let described = |(what, way): (String, Vec<Arc<State>>)| {
            let way: String = way.iter().map(|state| described(state)).collect();
            format!("{what}{way}")
        };
        (states, found.map(described))
    }
}

/// A state in words.
fn described(state: &State) -> String {
    let calls: Vec<_> = state.batches.iter().map(|batch| batch.call()).collect();
    let shared = format!(
        "\n  now {} live {:?} floor {} lease {} rebuild {} item ({}, {}) epoch {} {:?} workers {:?} batches {calls:?}",
        state.now,
        state.live,
        state.floor,
        state.lease,
        state.rebuild,
        state.saved_count,
        state.counted_at,
        state.epoch,
        state.entry,
        state.workers,
    );
    let rolled_up = format!(
        "\n    {:?} stale {:?} cold {:b} passed {:b} noted {:b} promised {:b} roll-ups {:?}",
        state.roll_up,
        state.stale_roll_up,
        state.cold,
        state.passed,
        state.noted,
        state.promised,
        state.roll_ups,
    );
    shared + &rolled_up
}

fn assert_exact(searches: &[(&[i8], usize, Left)]) {
    let mut total = 0;
    for (deltas, workers, left) in searches {
        let model = Model {
            deltas: deltas.to_vec(),
            workers: *workers,
            left: *left,
            rounds: ROUNDS,
            without: Without::Nothing,
        };
        let (states, violation) = model.search();
        println!("{deltas:?}, {workers} workers, {left:?}: {states} states");
        assert_eq!(violation, None, "{deltas:?}, {workers} workers, {left:?}");
        total += states;
    }
    println!("{total} states in all");
}

fn assert_found(searches: &[(Without, &[i8], usize, usize, Left)]) {
    let mut missed = Vec::new();
    for (without, deltas, workers, rounds, left) in searches {
        let model = Model {
            deltas: deltas.to_vec(),
            workers: *workers,
            left: *left,
            rounds: *rounds,
            without: *without,
        };
        let (states, violation) = model.search();
        let Some(violation) = violation else {
            missed.push(format!("without {without:?}, {states} states are all exact"));
            continue;
        };
        println!("without {without:?}, {left:?}: {violation} ({states} states)");
    }
    assert!(missed.is_empty(), "{missed:?}");
}

/// What may happen: invalidations, wipes, lease time-outs, steps of Redis' clock.
const fn left(invalidations: u8, wipes: u8, time_outs: u8, clock_steps: u8) -> Left {
    Left {
        invalidations,
        wipes,
        time_outs,
        clock_steps,
        ..NOTHING
    }
}

// The searches are several tests, so that they run at the same time.

#[test]
fn every_state_of_the_protocol_is_exact_when_quiescent() {
    assert_exact(&[
        (&[1, 1], 1, NOTHING),
        (&[1, 1], 2, NOTHING),
        (&[1, 1], 1, left(1, 1, 0, 0)),
        (&[1, -1], 1, left(2, 0, 0, 0)),
        (&[1, 1, -1], 1, NOTHING),
        (&[1, 1, -1], 1, left(1, 0, 0, 0)),
    ]);
}

#[test]
fn every_state_of_the_protocol_is_exact_when_the_clock_of_redis_steps() {
    assert_exact(&[
        (&[1, 1], 1, left(1, 0, 1, 1)),
        (&[1, 1], 1, left(0, 1, 0, 1)),
        (&[1, -1], 1, left(1, 0, 0, 2)),
        (&[1, 0], 1, left(1, 0, 0, 1)),
    ]);
}

#[test]
fn every_state_of_two_workers_is_exact_when_the_clock_of_redis_steps() {
    assert_exact(&[(&[1, -1], 2, left(1, 0, 0, 1))]);
}

#[test]
fn every_state_of_cold_votes_is_exact() {
    let cold = NOTHING.cold();
    let invalidation = left(1, 0, 0, 0).cold();
    assert_exact(&[
        (&[1, 2], 1, cold),
        (&[1, 2], 2, cold),
        (&[1, 2, 4], 1, cold),
        (&[1, 2], 1, cold.take_over()),
        (&[1, 2], 1, cold.stall()),
        (&[1, 2], 1, invalidation.take_over()),
        (&[1, 2], 1, invalidation.stall()),
    ]);
}

#[test]
fn every_state_of_cold_votes_is_exact_when_redis_is_wiped_or_its_clock_steps() {
    assert_exact(&[
        (&[1, 2], 1, left(0, 1, 0, 0).cold()),
        (&[1, 2], 1, left(1, 0, 0, 1).cold()),
        (&[1, 2], 1, left(0, 0, 1, 1).cold()),
        (&[1, 2], 1, left(0, 0, 0, 1).cold().take_over()),
        (&[1, 0], 1, left(1, 0, 0, 1).cold()),
    ]);
}

#[test]
fn every_state_of_quick_saves_is_exact() {
    let quick = NOTHING.quick(Quick::Unwritten);
    let two = &[1, -1];
    assert_exact(&[
        (&[1, 2], 1, quick),
        (&[1, 2], 1, quick.take_over()),
        (two, 1, quick.take_over()),
        (two, 1, quick.stall()),
        (two, 2, quick),
        (two, 1, left(1, 0, 0, 0).quick(Quick::Unwritten)),
        (two, 1, left(0, 0, 1, 0).quick(Quick::Unwritten)),
        // With a higher revision, more live counts are rebuilt.
        (two, 2, NOTHING.quick(Quick::RevisionNow)),
        // Of votes that do not cancel.
        (&[1, 2], 1, left(0, 0, 0, 1).quick(Quick::Unwritten)),
    ]);
}

#[test]
fn every_state_of_quick_saves_of_three_votes_is_exact() {
    assert_exact(&[(&[1, -1, 2], 1, NOTHING.quick(Quick::Unwritten))]);
}

#[test]
fn without_any_one_piece_of_quick_saves_the_search_finds_the_violation() {
    assert_found(&[
        (
            Without::Nothing,
            &[1, -1],
            1,
            ROUNDS,
            NOTHING.quick(Quick::AnyTime),
        ),
        (
            Without::Nothing,
            &[1, 2],
            1,
            ROUNDS,
            left(0, 0, 0, 1).quick(Quick::AnyCount),
        ),
    ]);
}

// The saved count may equal the audited one without being made of the same votes.
#[test]
fn a_quick_save_by_times_is_wrong_if_votes_cancel_and_the_clock_steps_or_redis_is_wiped() {
    let two = &[1, -1];
    assert_found(&[
        (
            Without::Nothing,
            two,
            1,
            ROUNDS,
            left(0, 0, 0, 1).quick(Quick::ByTime),
        ),
        (
            Without::Nothing,
            two,
            1,
            ROUNDS,
            left(0, 1, 0, 0).quick(Quick::ByTime),
        ),
    ]);
}

#[test]
fn every_state_of_quick_saves_over_what_nobody_has_written_since_is_exact() {
    let two = &[1, -1];
    assert_exact(&[
        (two, 1, left(0, 0, 0, 1).quick(Quick::Unwritten)),
        (two, 1, left(0, 1, 0, 0).quick(Quick::Unwritten)),
    ]);
}

#[test]
fn without_any_one_piece_of_cold_votes_the_search_finds_the_violation() {
    let (two, cold) = (&[1, 2], NOTHING.cold());
    assert_found(&[
        (Without::ColdSaves, two, 1, ROUNDS, cold),
        (Without::LeaseIsWarm, two, 1, ROUNDS, cold),
        (Without::RequestIsWarm, two, 1, ROUNDS, left(1, 0, 0, 0).cold()),
        (Without::ColdCompareAndSet, two, 1, ROUNDS, cold),
        (Without::ColdRebuild, two, 1, ROUNDS, cold.take_over()),
        (Without::LateSuspects, two, 1, ROUNDS, cold.stall()),
    ]);
}

#[test]
fn without_a_second_look_at_a_cold_item_the_search_finds_the_violation() {
    assert_found(&[(
        Without::ColdSecondRead,
        &[1, 0, 2],
        1,
        1,
        NOTHING.cold().take_over(),
    )]);
}

#[test]
fn without_any_one_piece_the_search_finds_the_violation() {
    assert_found(&[
        (Without::VisibilitySnapshot, &[1, 1], 1, ROUNDS, NOTHING),
        (Without::Lease, &[1, 1], 1, ROUNDS, NOTHING),
        (Without::CountedAtGuard, &[1, 1, -1], 2, ROUNDS, NOTHING),
        (Without::Revision, &[1, 1, -1], 2, ROUNDS, NOTHING),
        (Without::ExactCountAfterLease, &[1, 1], 1, ROUNDS, NOTHING),
        (Without::ExactCountOfItsRound, &[1, 1], 1, ROUNDS, NOTHING),
        (Without::Suspects, &[1, 1], 1, 1, NOTHING),
        (Without::CommitFirst, &[1], 1, ROUNDS, NOTHING),
    ]);
}

#[test]
fn without_any_one_piece_that_clocks_need_the_search_finds_the_violation() {
    let (two, step) = (&[1, 1], left(1, 0, 0, 1));
    assert_found(&[
        (Without::InvalidationFloor, two, 2, ROUNDS, step),
        (Without::SeedFloor, two, 2, ROUNDS, step),
        (Without::ClaimAboveFloor, two, 2, ROUNDS, step),
        (Without::CompareAndSet, two, 2, ROUNDS, step),
        (Without::EpochNumber, two, 2, ROUNDS, left(0, 1, 0, 1)),
    ]);
}

#[test]
fn without_the_floor_of_a_claim_the_search_finds_the_violation() {
    assert_found(&[(Without::ClaimFloor, &[1, 1], 2, ROUNDS, left(1, 0, 0, 1))]);
}

#[test]
fn without_the_floor_beside_a_lease_the_search_finds_the_violation() {
    assert_found(&[(Without::FloorBesideLease, &[1, 1], 2, ROUNDS, left(1, 0, 0, 1))]);
}
