//! The model: what must be stored.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

pub const VOTERS: [&str; 4] = ["ada", "bob", "cy", "dee"];

/// A time of an item or a poll: enough times for every order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Time {
    Past,
    /// The time of an edit that closed it, by the database's clock.
    Edited,
    Future,
    Later,
}

impl Time {
    /// The time as requests and answers have it; `None`: the model does not know it.
    pub fn text(self) -> Option<&'static str> {
        match self {
            Self::Past => Some("2001-01-01T00:00:00Z"),
            Self::Edited => None,
            Self::Future => Some("2100-01-01T00:00:00Z"),
            Self::Later => Some("2101-01-01T00:00:00Z"),
        }
    }

    pub fn has_passed(self) -> bool {
        self <= Self::Edited
    }
}

/// A place in [`Model::items`], [`Model::polls`] and [`Model::rows`].
pub type ItemAt = usize;
pub type PollAt = usize;
pub type RowAt = usize;

/// What an item, or a poll with its choices, requires of its votes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    pub opens_at: Option<Time>,
    pub closes_at: Option<Time>,
    pub by_ballot: bool,
    pub is_secret: bool,
    pub ballots_made: usize,
}

impl Rule {
    /// Why it takes no vote now.
    pub fn untimely(&self) -> Option<&'static str> {
        match (self.opens_at, self.closes_at) {
            (Some(opens), _) if !opens.has_passed() => Some("not-open-yet"),
            (_, Some(closes)) if closes.has_passed() => Some("closed"),
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Item {
    /// 0 until the ledger has given it.
    pub id: i64,
    pub name: String,
    pub key: Option<String>,
    pub is_hidden: bool,
    pub takes_down_votes: bool,
    pub max_votes: Option<usize>,
    pub is_numbered: bool,
    /// The rule of the poll that the item is a choice of.
    pub rule: Option<usize>,
    pub poll: Option<PollAt>,
    pub last_number: i64,
}

#[derive(Clone, Debug)]
pub struct Poll {
    /// 0 until the ledger has given it.
    pub id: i64,
    pub title: String,
    pub key: Option<String>,
    pub is_hidden: bool,
    /// `None`: any number.
    pub max_choices: Option<usize>,
    pub shows_results: bool,
    pub rule: usize,
    pub choices: Vec<ItemAt>,
}

/// A row of the ledger.
#[derive(Clone, Debug)]
pub struct Row {
    /// 0 until the ledger has given it. Then also the time when it was stored, in µs.
    pub id: i64,
    pub stored_at: i64,
    pub item: ItemAt,
    pub voter: Option<&'static str>,
    pub value: i64,
    pub change: i64,
    pub number: Option<i64>,
}

#[derive(Clone, Debug)]
pub struct Ballot {
    pub token: String,
    pub rule: usize,
    pub is_expired: bool,
    pub spent: Option<Spent>,
}

#[derive(Clone, Copy, Debug)]
pub enum Spent {
    On(RowAt),
    Secretly,
}

/// What an idempotency key is kept for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyOf {
    Vote(ItemAt, String),
    VoteOfBatch(String, usize),
}

/// Everything that a vote asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    pub item: ItemAt,
    pub voter: Option<&'static str>,
    /// 0: to hold nothing.
    pub value: i64,
    pub ballot: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Kept {
    pub asked: Asked,
    pub row: RowAt,
    pub is_repeat: bool,
}

/// What became of a vote.
#[derive(Clone, Copy, Debug)]
pub enum Cast {
    Accepted(RowAt),
    Changed(RowAt),
    TakenBack(RowAt),
    /// The voter holds it already, or it was stored with the key.
    Repeated(RowAt),
    Replayed(RowAt),
    /// There was nothing to take back.
    Nothing,
    Secret,
}

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub items: Vec<Item>,
    pub polls: Vec<Poll>,
    pub rules: Vec<Rule>,
    /// All rows of the ledger.
    pub rows: Vec<Row>,
    /// The rows of held votes.
    pub held: BTreeSet<RowAt>,
    pub ballots: Vec<Ballot>,
    pub keys: BTreeMap<KeyOf, Kept>,
    /// The keys of batches, with what each batch asks for.
    pub batches: BTreeMap<String, Value>,
    pub voidings: Vec<super::voidings::Voiding>,
}

impl Model {
    pub fn item_with_key(&self, key: &str) -> Option<ItemAt> {
        self.items
            .iter()
            .position(|item| item.key.as_deref() == Some(key))
    }

    pub fn rule(&self, item: ItemAt) -> Option<&Rule> {
        self.items[item].rule.map(|rule| &self.rules[rule])
    }

    pub fn hides_counts(&self, item: ItemAt) -> bool {
        self.items[item]
            .poll
            .is_some_and(|poll| !self.polls[poll].shows_results)
    }

    pub fn held_on(&self, item: ItemAt) -> impl Iterator<Item = RowAt> {
        let on_item = move |row: &RowAt| self.rows[*row].item == item;
        self.held.iter().copied().filter(on_item)
    }

    /// Net, up and down.
    pub fn counts(&self, item: ItemAt) -> [i64; 3] {
        let of = |sign| {
            self.held_on(item)
                .filter(|row| self.rows[*row].value == sign)
                .count() as i64
        };
        [of(1) - of(-1), of(1), of(-1)]
    }

    pub fn is_full(&self, item: ItemAt) -> bool {
        let most = self.items[item].max_votes;
        most.is_some_and(|most| self.held_on(item).count() >= most)
    }

    /// The vote that a voter holds on an item.
    pub fn held_by(&self, item: ItemAt, voter: &str) -> Option<RowAt> {
        self.held_on(item)
            .find(|row| self.rows[*row].voter == Some(voter))
    }

    /// The choices of a poll that a voter holds, in the order of items.
    pub fn selection(&self, poll: PollAt, voter: &str) -> Vec<ItemAt> {
        let choices = self.polls[poll].choices.iter().copied();
        choices
            .filter(|choice| self.held_by(*choice, voter).is_some())
            .collect()
    }

    /// How many voters hold a choice. Each vote with a ballot counts as a voter.
    pub fn turnout(&self, poll: PollAt) -> usize {
        let voters = VOTERS
            .iter()
            .filter(|voter| !self.selection(poll, voter).is_empty())
            .count();
        let choices = self.polls[poll].choices.iter();
        let without = choices
            .flat_map(|choice| self.held_on(*choice))
            .filter(|row| self.rows[*row].voter.is_none());
        voters + without.count()
    }

    pub fn unspent(&self, rule: usize) -> usize {
        let of_rule = self.ballots.iter().filter(|ballot| ballot.rule == rule);
        of_rule.filter(|ballot| ballot.spent.is_none()).count()
    }
}
