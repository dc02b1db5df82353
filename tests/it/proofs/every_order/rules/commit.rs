//! The commit of a statement that stores votes, and its server's next steps.

use std::sync::Arc;

use tally::domain::{Count, CountDelta, TransactionId, VoteId};
use tally::ledger::{self, Decision, VoteRow};
use tally::votes::Counting;

use super::deciding::shown;
use super::state::{
    Batch, Decided, Doing, ITEMS, Items, Outcome, Request, Row, State, TRANSACTIONS, last_row,
};
use super::statement::{item_id, transaction};
use super::{Kind, Model, Without};

impl Model {
    pub(super) fn commit(
        &self,
        state: &State,
        at: usize,
        batch: &Batch,
        decided: &Decided,
        stored: u16,
    ) -> State {
        let mut next = state.clone();
        let server = &state.servers[at];
        let bit = at * TRANSACTIONS + server.begun;
        assert!(
            server.begun < TRANSACTIONS,
            "more transactions than a set of them holds"
        );
        Arc::make_mut(&mut next.servers[at]).begun += 1;
        next.committed |= 1 << bit;
        let is_stored = |row: &usize| stored & (1 << row) != 0;
        let postponed = self.postponed(decided, stored);
        let rows = Arc::make_mut(&mut next.rows);
        for (row, (_, one)) in decided.rows.iter().enumerate() {
            if is_stored(&row) && postponed & (1 << row) == 0 {
                rows.push(*one);
            }
            // Also a row that another batch stored first. An item with a rule has no such row.
            let is_to_come = postponed & (1 << row) != 0;
            if self.program.kind != Kind::Plain && !is_to_come {
                self.program.take(&mut next.places[one.item], *one, self.without);
            }
        }
        if postponed != 0 {
            let (batch, decided) = (batch.clone(), decided.clone());
            let doing = Doing::Commit {
                batch,
                decided,
                stored: postponed,
            };
            return self.doing(next, at, doing);
        }
        next.turnout += decided.turnout;
        next.unlock(at);
        let before = state.rows.len();
        let ended = || batch.requests().iter().zip(&decided.outcomes);
        next.is_answer_wrong =
            !ended().all(|(request, outcome)| self.program.is_so(&next.rows, before, *request, *outcome));
        let stored_rows = decided.rows.iter().enumerate().filter(|(row, _)| is_stored(row));
        let items = State::items_of(stored_rows.map(|(_, (_, row))| *row));
        let again: Vec<Request> = ended()
            .filter(|(_, outcome)| **outcome == Outcome::Again)
            .map(|(request, _)| *request)
            .collect();
        let server = Arc::make_mut(&mut next.servers[at]);
        if server.is_dead {
            server.doing = Doing::Take;
            let is_found = !matches!(
                self.without,
                Without::CrashedWriterRecovery | Without::ClosedConnection
            );
            server.left |= if is_found { items } else { 0 };
            return next;
        }
        let mut deltas = self.deltas(decided, stored);
        for (request, outcome) in ended() {
            if matches!(outcome, Outcome::Stored | Outcome::Repeated) {
                add_reads(&mut deltas, shown(*request));
            }
        }
        let transaction = transaction(bit);
        if matches!(batch, Batch::Insert(_)) && !again.is_empty() {
            server.doing = Doing::Resolve {
                repeats: again,
                transaction,
                deltas,
            };
        } else {
            server.again = again;
            server.doing = self.count_next(transaction, deltas);
        }
        next
    }

    /// The rows that take back the old choice of a move, as a set.
    /// Without that piece, a second statement stores them.
    fn postponed(&self, decided: &Decided, stored: u16) -> u16 {
        let rows = &decided.rows;
        let is_second = |(request, row): &(usize, Row)| {
            let casts_other =
                |(one, other): &(usize, Row)| one == request && other.is_cast() && other.item != row.item;
            !row.is_cast() && rows.iter().any(casts_other)
        };
        let seconds = (0..rows.len()).filter(|at| is_second(&rows[*at]));
        let seconds = stored & seconds.fold(0, |set, at| set | 1 << at);
        if self.without != Without::MovesInOneStatement || seconds == stored {
            return 0;
        }
        seconds
    }

    /// What a stored batch adds to each item, by Tally's own sum.
    fn deltas(&self, decided: &Decided, stored: u16) -> Vec<CountDelta> {
        let is_counted = |row: &usize| stored & (1 << row) != 0 || self.without == Without::CountOfStoredRows;
        let rows_of = |request: usize| {
            let all = (0..decided.rows.len()).filter(is_counted);
            let of_request = all.filter(move |row| decided.rows[*row].0 == request);
            of_request.map(|row| self.vote_row(decided.rows[row].1)).collect()
        };
        let decisions = decided.outcomes.iter().enumerate();
        let decisions = decisions.map(|(request, outcome)| match outcome {
            Outcome::Again if self.without == Without::CountOfAskedAgain => Decision::Again(Vec::new()),
            Outcome::Again => Decision::Again(rows_of(request)),
            _ => Decision::Stored(rows_of(request)),
        });
        let decided = ledger::DecidedBatch {
            transaction: transaction(0),
            decisions: decisions.collect(),
            hidden: Vec::new(),
        };
        decided.deltas()
    }

    fn vote_row(&self, row: Row) -> VoteRow {
        VoteRow {
            id: VoteId::default(),
            item_id: item_id(row.item),
            value: row.value.into(),
            change_number: if self.without == Without::DownVotesTakenBack {
                0
            } else {
                row.change.into()
            },
            number: None,
        }
    }

    /// `last_votes.sql`: what the voters hold whose votes were not stored.
    /// A voter who holds nothing needs a decision.
    pub(super) fn resolve(
        &self,
        state: &State,
        at: usize,
        repeats: &[Request],
        transaction: TransactionId,
        deltas: &[CountDelta],
    ) -> State {
        let mut deltas = deltas.to_vec();
        let mut again = Vec::new();
        for request in repeats {
            let items = shown(*request);
            let item = items.trailing_zeros() as usize;
            match last_row(&state.rows, item, request.voter) {
                Some(row) if row.is_cast() => add_reads(&mut deltas, items),
                _ => again.push(*request),
            }
        }
        let mut next = state.clone();
        let server = Arc::make_mut(&mut next.servers[at]);
        server.again = again;
        server.doing = self.count_next(transaction, deltas);
        next
    }

    fn count_next(&self, transaction: TransactionId, deltas: Vec<CountDelta>) -> Doing {
        if deltas.is_empty() {
            return Doing::Take;
        }
        Doing::Count(Counting::with_rounds(transaction, deltas, self.program.rounds))
    }
}

/// Adds reads of the counts of these items.
fn add_reads(deltas: &mut Vec<CountDelta>, items: Items) {
    let named = (0..ITEMS).filter(|item| items & (1 << item) != 0);
    deltas.extend(named.map(|item| CountDelta {
        item_id: item_id(item),
        delta: Count::ZERO,
    }));
    CountDelta::merge(deltas);
}
