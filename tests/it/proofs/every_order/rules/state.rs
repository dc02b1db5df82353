//! A state of the model of rules: ledger, locks, Redis' counters, and two servers.

use std::sync::Arc;

use tally::domain::{Count, CountDelta, TransactionId};
use tally::live::Seed;
use tally::votes::Counting;

pub(super) const ITEMS: usize = 2;
pub(super) const SERVERS: usize = 2;
/// The most transactions of one server.
pub(super) const TRANSACTIONS: usize = 8;

/// Transactions as a set of bits: the first server's, then the second's.
pub(super) type Transactions = u16;
/// Items as a set of bits.
pub(super) type Items = u8;

/// A row of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Row {
    pub item: usize,
    pub voter: u8,
    pub value: i8,
    /// Even: the row casts a vote. Odd: the row takes back the vote before it.
    pub change: i8,
    /// 0: none.
    pub number: u8,
}

impl Row {
    pub fn is_cast(self) -> bool {
        self.change % 2 == 0
    }

    /// What the row adds to the number of held votes.
    pub fn taken(self) -> i8 {
        if self.is_cast() { 1 } else { -1 }
    }

    /// The row's entry of the index `vote_once`.
    pub fn entry(self) -> (usize, u8, i8) {
        (self.item, self.voter, self.change)
    }
}

/// The voter's last row on an item.
pub(super) fn last_row(rows: &[Row], item: usize, voter: u8) -> Option<Row> {
    let of_voter = rows.iter().filter(|row| row.item == item && row.voter == voter);
    of_voter.max_by_key(|row| row.change).copied()
}

/// What the voter holds on an item; 0: nothing.
pub(super) fn held(rows: &[Row], item: usize, voter: u8) -> i8 {
    last_row(rows, item, voter).map_or(0, |row| if row.is_cast() { row.value } else { 0 })
}

/// The table `place`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub taken: i8,
    pub last_number: u8,
}

/// What a voter asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Request {
    pub voter: u8,
    pub wants: Wants,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Wants {
    /// To cast a vote. A held vote stays.
    Cast { item: usize, value: i8 },
    /// To hold this value; 0: nothing.
    Set { item: usize, value: i8 },
    /// To hold these choices of the poll and no others.
    Select(Items),
}

/// What one statement gets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Batch {
    /// `cast_votes`
    Decide(Vec<Request>),
    /// `insert_plain_votes.sql`: first votes on items without a rule.
    Insert(Vec<Request>),
}

impl Batch {
    pub fn requests(&self) -> &[Request] {
        match self {
            Self::Decide(requests) | Self::Insert(requests) => requests,
        }
    }
}

/// What the look of a statement has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Look {
    /// How many rows it saw: the first of the ledger, all that were committed.
    pub rows: usize,
    pub places: [Place; ITEMS],
}

/// What became of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Outcome {
    Stored,
    Repeated,
    /// It must be sent again.
    Again,
    /// Refused. Has what earlier requests of the batch add to each item.
    Full([i8; ITEMS]),
    TooManyChoices,
}

/// What a statement has decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Decided {
    /// One for each request.
    pub outcomes: Vec<Outcome>,
    /// The rows to store, and the request of each.
    pub rows: Vec<(usize, Row)>,
    /// What it adds to the poll's turnout.
    pub turnout: i8,
}

/// What a server does next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Doing {
    /// It takes the next batch.
    Take,
    /// It locks the batch's rules, and has locked this many.
    /// Has a look, if that came first.
    Lock {
        batch: Batch,
        locked: usize,
        look: Option<Look>,
    },
    Look {
        batch: Batch,
    },
    Decide {
        batch: Batch,
        look: Look,
    },
    /// It writes the row with this number. `stored`: the stored rows, as a set of bits.
    Write {
        batch: Batch,
        decided: Decided,
        row: usize,
        stored: u16,
    },
    Commit {
        batch: Batch,
        decided: Decided,
        stored: u16,
    },
    /// It reads what the voters hold whose votes `insert_plain_votes.sql` did not store.
    Resolve {
        repeats: Vec<Request>,
        transaction: TransactionId,
        deltas: Vec<CountDelta>,
    },
    /// It calls `count`, or reads exact counts.
    Count(Counting),
    Seed(Counting, Vec<Seed>),
}

impl Doing {
    /// Whether a statement that stores votes is under way.
    pub fn is_storing(&self) -> bool {
        matches!(
            self,
            Self::Lock { .. }
                | Self::Look { .. }
                | Self::Decide { .. }
                | Self::Write { .. }
                | Self::Commit { .. }
        )
    }

    /// The rows that it has written and not committed.
    pub fn written(&self) -> impl Iterator<Item = Row> {
        let (rows, stored) = match self {
            Self::Write { decided, stored, .. } | Self::Commit { decided, stored, .. } => {
                (decided.rows.as_slice(), *stored)
            }
            _ => (&[][..], 0),
        };
        let is_stored = move |at: &usize| stored & (1 << at) != 0;
        (0..rows.len()).filter(is_stored).map(move |at| rows[at].1)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Server {
    /// It makes no further call. A call that it has sent may still be executed.
    pub is_dead: bool,
    /// The next of its batches in the program.
    pub next: usize,
    /// Requests to send again.
    pub again: Vec<Request>,
    /// How many transactions it has begun.
    pub begun: usize,
    /// Items that its repair task will invalidate.
    pub suspects: Items,
    /// Items that it left with votes that it never counts.
    pub left: Items,
    pub doing: Doing,
}

/// A counter in Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Counter {
    pub live: Option<Live>,
    /// 0: none.
    pub lease: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Live {
    pub count: Count,
    /// The transactions that the seed has seen.
    pub snapshot: Transactions,
}

/// What may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Faults {
    /// A server dies.
    pub deaths: u8,
    /// Redis loses everything.
    pub wipes: u8,
    /// A counter expires or is invalidated.
    pub drops: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// What is committed, in the order of commits.
    pub rows: Arc<Vec<Row>>,
    pub committed: Transactions,
    pub places: [Place; ITEMS],
    pub turnout: i8,
    /// Who holds the lock of each rule.
    pub locks: [Option<usize>; ITEMS],
    pub counters: [Counter; ITEMS],
    /// The last numbers in Redis, where only a mutant has them.
    pub redis_numbers: [u8; ITEMS],
    /// The last lease that was drawn.
    pub drawn: u8,
    pub servers: [Arc<Server>; SERVERS],
    /// Whether an answer of the last commit is untrue.
    pub is_answer_wrong: bool,
    pub faults: Faults,
}

impl State {
    /// The items of these rows.
    pub fn items_of(rows: impl Iterator<Item = Row>) -> Items {
        rows.fold(0, |items, row| items | 1 << row.item)
    }

    /// Invalidates the counters of these items.
    pub fn invalidate(&mut self, items: Items) {
        for (item, counter) in self.counters.iter_mut().enumerate() {
            if items & (1 << item) != 0 {
                *counter = Counter::default();
            }
        }
    }

    /// Frees what a server has locked.
    pub fn unlock(&mut self, server: usize) {
        for lock in &mut self.locks {
            if *lock == Some(server) {
                *lock = None;
            }
        }
    }
}
