//! Truth: what must hold in every state, and for live counts in every quiet state.
//! A state is quiet if nobody is in the middle of anything.

use tally::domain::Count;

use super::state::{ITEMS, Row, SERVERS, State, held};
use super::{Kind, Model};

/// What is wrong with a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Violation {
    /// More votes are held on an item than its limit.
    LimitExceeded,
    /// The number of taken places is not the number of held votes.
    PlacesWrong,
    /// Numbers are not 1, 2, 3 and so on, in the order of commits.
    NumbersWrong,
    /// A voter's change numbers on an item are not 0, 1, 2 and so on.
    /// Or an odd one does not take back the vote before it.
    ChangesWrong,
    /// A voter holds more choices of the poll than the poll allows.
    TooManyChoices,
    /// The turnout is not the number of voters who hold a choice.
    TurnoutWrong,
    /// A voter got an answer that is untrue.
    AnswerWrong,
    /// A live count differs from the ledger in a quiet state.
    LiveCountWrong,
    /// Nobody can take a step.
    Deadlock,
}

impl Model {
    /// What is wrong with this state. `is_stuck`: no step leads on from it.
    pub(super) fn violation(&self, state: &State, is_stuck: bool) -> Option<Violation> {
        let rows = &state.rows;
        for item in 0..ITEMS {
            let of_item: Vec<Row> = rows.iter().filter(|row| row.item == item).copied().collect();
            let wrong = self.wrong_with(state, item, &of_item);
            if wrong.is_some() {
                return wrong;
            }
        }
        if let Kind::Poll { max_choices } = self.program.kind {
            let choices = |voter| (0..ITEMS).filter(|item| held(rows, *item, voter) != 0).count();
            let of_voters: Vec<usize> = voters(rows).into_iter().map(choices).collect();
            if of_voters
                .iter()
                .any(|choices| *choices > usize::from(max_choices.unsigned_abs()))
            {
                return Some(Violation::TooManyChoices);
            }
            let turnout = of_voters.iter().filter(|choices| **choices > 0).count();
            if turnout != usize::from(state.turnout.unsigned_abs()) || state.turnout < 0 {
                return Some(Violation::TurnoutWrong);
            }
        }
        if state.is_answer_wrong {
            return Some(Violation::AnswerWrong);
        }
        let is_quiescent = state.servers.iter().all(|server| server.is_quiescent());
        let is_wrong = |item: usize| {
            let live = state.counters[item].live;
            live.is_some_and(|live| live.count != votes_held(rows, item))
        };
        if is_quiescent && (0..ITEMS).any(is_wrong) {
            return Some(Violation::LiveCountWrong);
        }
        let is_done = (0..SERVERS).all(|at| self.is_done(state, at));
        (is_stuck && !is_done).then_some(Violation::Deadlock)
    }

    /// Whether a server has nothing left to do.
    fn is_done(&self, state: &State, at: usize) -> bool {
        let server = &state.servers[at];
        let has_no_batch = server.again.is_empty() && server.next == self.program.batches[at].len();
        server.is_quiescent() && (server.is_dead || has_no_batch)
    }

    /// What is wrong with an item's rows, in the order of commits.
    fn wrong_with(&self, state: &State, item: usize, rows: &[Row]) -> Option<Violation> {
        for voter in voters(rows) {
            let mut of_voter: Vec<Row> = rows.iter().filter(|row| row.voter == voter).copied().collect();
            of_voter.sort_by_key(|row| row.change);
            for (at, row) in of_voter.iter().enumerate() {
                let is_next = usize::from(row.change.unsigned_abs()) == at;
                if !is_next || (!row.is_cast() && of_voter[at - 1].value != -row.value) {
                    return Some(Violation::ChangesWrong);
                }
            }
        }
        if self.program.kind == Kind::Plain {
            return None;
        }
        let held: i8 = rows.iter().map(|row| row.taken()).sum();
        if held > self.program.max_votes {
            return Some(Violation::LimitExceeded);
        }
        if held != state.places[item].taken {
            return Some(Violation::PlacesWrong);
        }
        let numbers: Vec<u8> = rows
            .iter()
            .filter(|row| row.is_cast())
            .map(|row| row.number)
            .collect();
        let is_counted = numbers.iter().copied().eq(1..=state.places[item].last_number);
        (!is_counted).then_some(Violation::NumbersWrong)
    }
}

fn voters(rows: &[Row]) -> Vec<u8> {
    let mut voters: Vec<u8> = rows.iter().map(|row| row.voter).collect();
    voters.sort_unstable();
    voters.dedup();
    voters
}

/// An item's count by what its voters hold.
fn votes_held(rows: &[Row], item: usize) -> Count {
    let held = voters(rows).into_iter().map(|voter| held(rows, item, voter));
    held.fold(Count::ZERO, |sum, value| {
        sum + Count {
            net: value.into(),
            downs: i64::from(value < 0),
        }
    })
}
