//! An exhaustive search over all interleavings of a model of the rules.
//!
//! There are two servers, two items under rules, and voters who cast votes, change them, move them
//! and take them back. Servers die at any step, Redis is wiped, counters are dropped. The search
//! visits every state that can be reached. Without any one piece of the rules, it must find the
//! violation that the piece prevents.
//!
//! A statement that stores votes takes five steps. It locks its rules (a step each), looks (under a
//! snapshot from after that), decides, writes (a step for each row, since it may wait for another
//! statement's entry of the index `vote_once`), and commits. Then its batch is counted in Redis. If
//! its server dies, Postgres rolls the statement back, or executes it and nobody counts.
//!
//! Tally's own code here: `tally::votes::Counting`, `tally::domain::{Count, Snapshot}`, and
//! `tally::ledger::DecidedBatch::deltas`, what a batch of decisions adds to each item.
//! `cast_votes`, `insert_plain_votes.sql` and the scripts are written a second time, because they are
//! SQL, Lua or I/O. `drawn_orders/decisions` has the real ones.
//!
//! The model has no saved counts (the model of the protocol has them), no times, and not the
//! database's own checks of places and numbers: the lock must be enough without them.

mod commit;
mod counting;
mod deciding;
mod programs;
mod state;
mod statement;
mod truth;

use std::sync::Arc;

use self::programs::{
    Kind, Program, both_ways, first_votes, freed, moves, plain, same_voter, selections, two_rules, wide,
};
use self::state::{Counter, Doing, Faults, ITEMS, Place, SERVERS, Server, State};
use self::truth::Violation::{self, *};
use crate::proofs::every_state::visit;

/// A piece of the rules that can be taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// A statement locks no rule.
    RuleLock,
    /// A statement looks before it has the lock, under an old snapshot.
    LookBehindTheLock,
    /// The lock is free before the commit.
    LockUntilTheCommit,
    /// Rules are locked in the order of the requests.
    OrderOfRules,
    /// A voter's second request in a batch is decided by the same look as the first.
    TurnsOfAVoter,
    /// One statement casts a move's new choice, and another takes back the old one.
    MovesInOneStatement,
    /// A statement ignores how many choices a voter would hold.
    LimitOfChoices,
    /// A statement stores a vote without a free place.
    LimitOfVotes,
    /// The turnout counts choices, not voters.
    TurnoutOfVoters,
    /// A selection that is refused leaves the choices that had a place.
    WholeSelections,
    /// Numbers come from Redis.
    NumbersInPostgres,
    /// A vote that is taken back keeps its place.
    PlaceGivenBack,
    /// A change needs a further place.
    PlaceOfAChange,
    /// The index accepts a voter's change twice.
    VoteOnce,
    /// Rows are written in the order of the requests.
    OrderOfEntries,
    /// A request that lost a row to another batch is answered as stored.
    AskingAgain,
    /// Rows that another batch stored first are counted: a retraction counts twice.
    CountOfStoredRows,
    /// A request to send again is not counted, though some of its rows are stored.
    CountOfAskedAgain,
    /// A down-vote that is taken back stays among the down-votes.
    DownVotesTakenBack,
    /// A batch whose sum is 0 changes no down-votes.
    DownVotesOfADelta,
    /// Every batch is added to the live count, also a batch that the seed has seen.
    VisibilitySnapshot,
    /// A seed needs no lease.
    Lease,
    /// A batch that gives up leaves no suspects.
    Suspects,
    /// What a dead server left is never counted.
    CrashedWriterRecovery,
    /// Recovery counts it while the dead server's statement still runs.
    ClosedConnection,
}

/// The rules for a program, perhaps without a piece.
struct Model {
    program: Program,
    without: Without,
    faults: Faults,
}

impl Model {
    fn first(&self) -> State {
        let server = Arc::new(Server {
            is_dead: false,
            next: 0,
            again: Vec::new(),
            begun: 0,
            suspects: 0,
            left: 0,
            doing: Doing::Take,
        });
        State {
            rows: Arc::new(Vec::new()),
            committed: 0,
            places: [Place::default(); ITEMS],
            turnout: 0,
            locks: [None; ITEMS],
            counters: [Counter::default(); ITEMS],
            redis_numbers: [0; ITEMS],
            drawn: 0,
            servers: [Arc::clone(&server), server],
            is_answer_wrong: false,
            faults: self.faults,
        }
    }

    /// All states that one step leads to, without faults.
    fn steps(&self, state: &State) -> Vec<State> {
        let mut all = Vec::new();
        for at in 0..SERVERS {
            if state.servers[at].doing == Doing::Take {
                all.extend(self.begin(state, at));
            }
            all.extend(self.statement_step(state, at));
            all.extend(self.count_step(state, at));
            all.extend(self.repair(state, at));
        }
        all
    }

    /// Visits every state, or stops at the first violation.
    /// Returns how many states there are, and the violation with the shortest way to it.
    fn search(&self) -> (usize, Option<(Violation, String)>) {
        let (states, found) = visit(self.first(), |state| {
            let mut steps = self.steps(state);
            match self.violation(state, steps.is_empty()) {
                Some(violation) => Err(violation),
                None => {
                    steps.extend(self.faults(state));
                    Ok(steps)
                }
            }
        });
        let described = |(violation, way): (Violation, Vec<Arc<State>>)| {
            (violation, way.iter().map(|state| described(state)).collect())
        };
        (states, found.map(described))
    }
}

/// A state in words.
fn described(state: &State) -> String {
    let servers: Vec<_> = state
        .servers
        .iter()
        .map(|server| (server.is_dead, server.suspects, server.left, &server.doing))
        .collect();
    format!(
        "\n  rows {:?} places {:?} locks {:?} counters {:?} servers {servers:?}",
        state.rows, state.places, state.locks, state.counters,
    )
}

/// Visits every state of these programs, and at least this many.
/// A search that visits fewer has become blind.
fn assert_exact(searches: &[(Program, Faults)], least_states: usize) {
    let mut total = 0;
    for (program, faults) in searches {
        let model = Model {
            program: program.clone(),
            without: Without::Nothing,
            faults: *faults,
        };
        let (states, found) = model.search();
        println!("{program}, {faults:?}: {states} states");
        if let Some((violation, way)) = found {
            panic!("{program}, {faults:?}: {violation:?}{way}");
        }
        total += states;
    }
    println!("{total} states in all");
    assert!(
        total >= least_states,
        "only {total} states: {least_states} were seen"
    );
}

fn assert_found(searches: &[(Without, Program, Faults, Violation)]) {
    for (without, program, faults, expected) in searches {
        let model = Model {
            program: program.clone(),
            without: *without,
            faults: *faults,
        };
        let (states, found) = model.search();
        let (violation, way) =
            found.unwrap_or_else(|| panic!("without {without:?}, {states} states are all exact"));
        println!("without {without:?}: {violation:?} ({states} states){way}");
        assert_eq!(violation, *expected, "without {without:?}");
    }
}

/// What may happen: deaths, wipes, drops.
const fn faults(deaths: u8, wipes: u8, drops: u8) -> Faults {
    Faults { deaths, wipes, drops }
}

const NOTHING: Faults = faults(0, 0, 0);

// The searches are several tests, so that they run at the same time.

#[test]
fn every_state_of_a_poll_with_limits_keeps_its_rules() {
    assert_exact(
        &[
            (moves(), faults(2, 1, 1)),
            (freed(), faults(2, 1, 1)),
            (same_voter(), faults(2, 1, 0)),
            (wide(), faults(1, 1, 0)),
        ],
        258_000,
    );
}

#[test]
fn every_state_of_a_poll_with_more_places_keeps_its_rules() {
    assert_exact(
        &[
            (wide().limited_to(2), faults(1, 1, 0)),
            (selections(), faults(1, 1, 1)),
        ],
        182_000,
    );
}

#[test]
fn every_state_of_limited_items_and_of_items_without_a_rule_keeps_their_rules() {
    assert_exact(
        &[
            (two_rules(), faults(1, 1, 1)),
            (plain(), faults(1, 1, 0)),
            (plain().with_one_round(), faults(1, 0, 0)),
            (first_votes(), faults(2, 1, 0)),
            (both_ways(), faults(1, 1, 1)),
        ],
        302_000,
    );
}

#[test]
fn without_any_one_piece_of_the_rules_the_search_finds_the_violation() {
    assert_found(&[
        (Without::RuleLock, moves(), NOTHING, LimitExceeded),
        (Without::LookBehindTheLock, moves(), NOTHING, LimitExceeded),
        (Without::LockUntilTheCommit, moves(), NOTHING, LimitExceeded),
        (Without::OrderOfRules, two_rules(), NOTHING, Deadlock),
        (Without::TurnsOfAVoter, same_voter(), NOTHING, TooManyChoices),
        (Without::MovesInOneStatement, moves(), NOTHING, TooManyChoices),
        (Without::LimitOfChoices, moves(), NOTHING, TooManyChoices),
        (Without::LimitOfVotes, moves(), NOTHING, LimitExceeded),
        (Without::TurnoutOfVoters, selections(), NOTHING, TurnoutWrong),
        (Without::WholeSelections, selections(), NOTHING, AnswerWrong),
        (Without::NumbersInPostgres, freed(), faults(0, 1, 0), NumbersWrong),
        (Without::PlaceGivenBack, freed(), NOTHING, PlacesWrong),
        (Without::PlaceOfAChange, two_rules(), NOTHING, AnswerWrong),
        (Without::VoteOnce, plain(), NOTHING, ChangesWrong),
        (Without::OrderOfEntries, first_votes(), NOTHING, Deadlock),
        (Without::AskingAgain, plain(), NOTHING, AnswerWrong),
    ]);
}

#[test]
fn without_any_one_piece_of_counting_decisions_the_search_finds_the_violation() {
    let (death, wipe) = (faults(1, 0, 0), faults(0, 1, 0));
    assert_found(&[
        (Without::CountOfStoredRows, plain(), NOTHING, LiveCountWrong),
        (Without::CountOfAskedAgain, plain(), NOTHING, LiveCountWrong),
        (Without::DownVotesTakenBack, plain(), NOTHING, LiveCountWrong),
        (Without::DownVotesOfADelta, both_ways(), NOTHING, LiveCountWrong),
        (Without::VisibilitySnapshot, freed(), NOTHING, LiveCountWrong),
        (Without::Lease, freed(), wipe, LiveCountWrong),
        (
            Without::Suspects,
            plain().with_one_round(),
            NOTHING,
            LiveCountWrong,
        ),
        (Without::CrashedWriterRecovery, freed(), death, LiveCountWrong),
        (Without::ClosedConnection, freed(), death, LiveCountWrong),
    ]);
}
