//! An exhaustive search over all interleavings of a model of the protocol.
//!
//! The model has one item, batches of one vote, workers, invalidations, wipes with the entry into
//! another epoch, leases that time out, and a clock of Redis that steps at any point. The search
//! visits every state that can be reached. Without any one piece of the protocol, it must find the
//! violation that the piece prevents. (The invalidation of refused counts is no such piece: no
//! order of these steps needs it. It is there for a counter that nothing here explains.)
//!
//! Tally's own code here: `tally::votes::Counting`, which orders the steps of a batch, and
//! `tally::domain::Snapshot`. What the scripts and statements do, and the worker's order of steps,
//! are written a second time, because they are Lua, SQL or I/O. `drawn_orders/` has the real
//! scripts and statements.
//!
//! `rules/` is a model of its own: of statements that decide votes.
//!
//! The model has no roll-up and no time limits. Redis' clock moves by one with each step that draws
//! a revision. A clock step moves it back or forth. A worker reads the epoch's number and the
//! counter in one step: with a number from before, more writes would be refused.

mod rules;
mod state;
mod steps;

use std::collections::HashSet;
use std::sync::Arc;

use state::{Entry, Left, NOTHING, State, Worker};
use steps::Model;

use crate::proofs::one_vote_batch::Without;

/// Rounds of a batch: fewer than the server's, so that some batches give up.
const ROUNDS: usize = 2;
/// The most steps of a worker alone until all is quiescent.
const QUIESCENT_LIMIT: usize = 40;

impl Model {
    /// What is wrong with a state in which nobody is in the middle of anything.
    /// From there, a worker alone must reach a quiescent state, in which all counts are right.
    fn violation(&self, state: &State) -> Option<String> {
        let idle = state.batches.iter().all(|batch| batch.is_done())
            && state.workers.iter().all(|worker| *worker == Worker::Read)
            && state.entry == Entry::Done;
        if !idle {
            return None;
        }
        let truth = self.sum(state.committed);
        let mut state = state.clone();
        for _ in 0..QUIESCENT_LIMIT {
            if let Some(live) = state.live.filter(|live| live.count != truth) {
                return Some(format!("live count {}, truth {truth}", live.count));
            }
            let is_saved = state.live.is_none_or(|live| live.saved == live.revision);
            if state.workers[0] == Worker::Read && state.rebuild == 0 && is_saved {
                return (state.saved_count != truth)
                    .then(|| format!("saved count {}, truth {truth}", state.saved_count));
            }
            state = self.work(&state, 0)?;
        }
        Some("never quiescent".to_owned())
    }

    /// Visits every state, or stops at the first violation.
    /// Returns how many states there are, and the first violation with the shortest way to it.
    fn search(&self, is_to_stop: bool) -> (usize, Option<String>) {
        let first = Arc::new(self.first());
        let mut seen = HashSet::from([Arc::clone(&first)]);
        // Each state, and the state from which it was reached first.
        let mut all = vec![(first, 0_usize)];
        let mut found = None;
        let mut number = 0;
        while number < all.len() && !(is_to_stop && found.is_some()) {
            let state = Arc::clone(&all[number].0);
            if found.is_none() {
                found = self
                    .violation(&state)
                    .map(|what| format!("{what}{}", way(&all, number)));
            }
            for next in self.next(&state) {
                let next = Arc::new(next);
                if seen.insert(Arc::clone(&next)) {
                    all.push((next, number));
                }
            }
            number += 1;
        }
        (all.len(), found)
    }
}

/// The states that lead to this one, in words.
fn way(all: &[(Arc<State>, usize)], number: usize) -> String {
    let mut at = number;
    let mut way = Vec::new();
    loop {
        let state = &all[at].0;
        let calls: Vec<_> = state.batches.iter().map(|batch| batch.call()).collect();
        way.push(format!(
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
        ));
        if at == 0 {
            break;
        }
        at = all[at].1;
    }
    way.into_iter().rev().collect()
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
        let (states, violation) = model.search(false);
        println!("{deltas:?}, {workers} workers, {left:?}: {states} states");
        assert_eq!(violation, None, "{deltas:?}, {workers} workers, {left:?}");
        total += states;
    }
    println!("{total} states in all");
}

fn assert_found(searches: &[(Without, &[i8], usize, usize, Left)]) {
    for (without, deltas, workers, rounds, left) in searches {
        let model = Model {
            deltas: deltas.to_vec(),
            workers: *workers,
            left: *left,
            rounds: *rounds,
            without: *without,
        };
        let (states, violation) = model.search(true);
        let violation =
            violation.unwrap_or_else(|| panic!("without {without:?}, {states} states are all exact"));
        println!("without {without:?}: {violation} ({states} states)");
    }
}

/// What may happen: invalidations, wipes, lease time-outs, steps of Redis' clock.
const fn left(invalidations: u8, wipes: u8, time_outs: u8, clock_steps: u8) -> Left {
    Left {
        invalidations,
        wipes,
        time_outs,
        clock_steps,
    }
}

// The searches are four tests, so that they run at the same time.

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
        (&[1, -1], 2, left(1, 0, 0, 1)),
        (&[1, 0], 1, left(1, 0, 0, 1)),
    ]);
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
        (Without::ClaimFloor, two, 2, ROUNDS, step),
        (Without::CompareAndSet, two, 2, ROUNDS, step),
        (Without::FloorBesideLease, two, 2, ROUNDS, step),
        (Without::EpochNumber, two, 2, ROUNDS, left(0, 1, 0, 1)),
    ]);
}
