//! The loop of `decide_votes` in migrations/functions, written a second time.

use super::state::{Decided, ITEMS, Items, Look, Outcome, Place, Request, Row, Wants, held, last_row};
use super::{Kind, Program, Without};

impl Program {
    /// The rule of an item. A rule has the number of its first item.
    pub(super) fn rule(&self, item: usize) -> Option<usize> {
        match self.kind {
            Kind::Plain => None,
            Kind::Limited => Some(item),
            Kind::Poll { .. } => Some(0),
        }
    }

    /// The first item that a request names, which has the request's rule.
    fn first_item(request: Request) -> usize {
        match request.wants {
            Wants::Cast { item, .. } | Wants::Set { item, .. } => item,
            Wants::Select(_) => 0,
        }
    }

    /// The rules of these requests, in the order of their locks.
    pub(super) fn rules(&self, requests: &[Request], without: Without) -> Vec<usize> {
        let of = |request: &Request| self.rule(Self::first_item(*request));
        let mut rules: Vec<usize> = requests.iter().filter_map(of).collect();
        if without == Without::OrderOfRules {
            let mut seen = 0_u8;
            rules.retain(|rule| {
                let is_new = seen & (1 << rule) == 0;
                seen |= 1 << rule;
                is_new
            });
        } else {
            rules.sort_unstable();
            rules.dedup();
        }
        rules
    }

    /// Whether the same voter has an earlier request in the batch, under the same rule.
    /// Without a rule: on the same item.
    fn is_later(&self, requests: &[Request], at: usize) -> bool {
        let scope = |request: Request| {
            let item = Self::first_item(request);
            (
                request.voter,
                self.rule(item),
                self.rule(item).is_none().then_some(item),
            )
        };
        requests[..at]
            .iter()
            .any(|before| scope(*before) == scope(requests[at]))
    }

    /// The order of decisions. Without a rule, also of the entries of `vote_once`.
    pub(super) fn order(&self, requests: &[Request], without: Without) -> Vec<usize> {
        let mut order: Vec<usize> = (0..requests.len()).collect();
        if without != Without::OrderOfEntries {
            order.sort_by_key(|at| {
                let item = Self::first_item(requests[*at]);
                let rule = self.rule(item);
                let entry = rule.is_none().then_some((item, requests[*at].voter));
                (rule, entry)
            });
        }
        order
    }

    /// What a request wants to hold, and whether it wants nothing else in the poll.
    fn wanted(&self, request: Request) -> (Vec<(usize, i8)>, bool) {
        match request.wants {
            Wants::Cast { item, value } | Wants::Set { item, value } => {
                let moves = self.kind == Kind::Poll { max_choices: 1 } && value != 0;
                (vec![(item, value)], moves)
            }
            Wants::Select(items) => {
                let is_in = |item: &usize| items & (1 << item) != 0;
                ((0..ITEMS).filter(is_in).map(|item| (item, 1)).collect(), true)
            }
        }
    }

    /// Decides requests one after the other, by what the look has seen.
    pub(super) fn decide(
        &self,
        rows: &[Row],
        look: Look,
        last_numbers: &mut [u8; ITEMS],
        requests: &[Request],
        without: Without,
    ) -> Decided {
        let mut decided = Decided {
            outcomes: vec![Outcome::Again; requests.len()],
            ..Decided::default()
        };
        let mut places = look.places;
        let mut added = [0; ITEMS];
        for at in self.order(requests, without) {
            if self.is_later(requests, at) && without != Without::TurnsOfAVoter {
                continue;
            }
            let request = requests[at];
            let (mut new, had) = self.rows_of(&rows[..look.rows], request);
            decided.outcomes[at] = self.outcome(&places, &new, had, added, without);
            match decided.outcomes[at] {
                Outcome::Stored => {}
                Outcome::Full(_) if without == Without::WholeSelections => {
                    new.retain(|row| self.has_place(&places, *row));
                }
                _ => continue,
            }
            let choices = had + taken_by(&new);
            for row in new {
                added[row.item] += row.taken();
                self.take(&mut places[row.item], row, without);
                let number = if row.is_cast() && self.kind != Kind::Plain {
                    last_numbers[row.item] += 1;
                    last_numbers[row.item]
                } else {
                    0
                };
                decided.rows.push((at, Row { number, ..row }));
            }
            if matches!(self.kind, Kind::Poll { .. }) {
                decided.turnout += if without == Without::TurnoutOfVoters {
                    choices - had
                } else {
                    choices.signum() - had.signum()
                };
            }
        }
        decided
    }

    /// Changes a place by this row.
    pub(super) fn take(&self, place: &mut Place, row: Row, without: Without) {
        if row.is_cast() || without != Without::PlaceGivenBack {
            place.taken += row.taken();
        }
        place.last_number += u8::from(row.number != 0);
    }

    /// The rows that give a voter what a request wants.
    /// Also how many choices of the poll the voter holds before them.
    fn rows_of(&self, seen: &[Row], request: Request) -> (Vec<Row>, i8) {
        let voter = request.voter;
        let (wanted, is_whole) = self.wanted(request);
        let keeps = !matches!(request.wants, Wants::Set { .. });
        let mut new: Vec<Row> = Vec::new();
        let mut add = |item, value, change| {
            new.push(Row {
                item,
                voter,
                value,
                change,
                number: 0,
            });
        };
        for (item, value) in &wanted {
            let mut change = last_row(seen, *item, voter).map_or(-1, |row| row.change);
            let held = held(seen, *item, voter);
            if *value == held || *value != 0 && held != 0 && keeps {
                continue;
            }
            if held != 0 {
                change += 1;
                add(*item, -held, change);
            }
            if *value != 0 {
                change += 1;
                add(*item, *value, change);
            }
        }
        let mut had = 0;
        if matches!(self.kind, Kind::Poll { .. }) {
            for item in 0..ITEMS {
                let Some(last) = last_row(seen, item, voter).filter(|row| row.is_cast()) else {
                    continue;
                };
                had += 1;
                if is_whole && wanted.iter().all(|(one, _)| *one != item) {
                    add(item, -last.value, last.change + 1);
                }
            }
        }
        (new, had)
    }

    fn has_place(&self, places: &[Place; ITEMS], row: Row) -> bool {
        self.kind == Kind::Plain || !row.is_cast() || places[row.item].taken < self.max_votes
    }

    /// Whether these rows are stored, and why not.
    fn outcome(
        &self,
        places: &[Place; ITEMS],
        new: &[Row],
        had: i8,
        added: [i8; ITEMS],
        without: Without,
    ) -> Outcome {
        if new.is_empty() {
            return Outcome::Repeated;
        }
        let is_too_many =
            matches!(self.kind, Kind::Poll { max_choices } if had + taken_by(new) > max_choices);
        if is_too_many && without != Without::LimitOfChoices {
            return Outcome::TooManyChoices;
        }
        let is_full = (0..new.len()).any(|at| {
            // A change gives its place back and takes it again.
            let is_change = at > 0 && new[at - 1].item == new[at].item && without != Without::PlaceOfAChange;
            !is_change && !self.has_place(places, new[at])
        });
        if is_full && without != Without::LimitOfVotes {
            return Outcome::Full(added);
        }
        Outcome::Stored
    }

    /// Whether a voter's answer is true, by the rows that are committed right after it.
    /// `before`: how many rows there were before the answer's own.
    pub(super) fn is_so(&self, rows: &[Row], before: usize, request: Request, outcome: Outcome) -> bool {
        let voter = request.voter;
        let (wanted, is_whole) = self.wanted(request);
        let is_wanted = |item: usize| wanted.iter().any(|(one, _)| *one == item);
        let holds_wanted = || {
            wanted
                .iter()
                .all(|(item, value)| held(rows, *item, voter) == *value)
                && (0..ITEMS).all(|item| !is_whole || is_wanted(item) || held(rows, item, voter) == 0)
        };
        let has_changed =
            || (0..ITEMS).any(|item| held(&rows[..before], item, voter) != held(rows, item, voter));
        match (outcome, request.wants) {
            (Outcome::Again, _) => true,
            (Outcome::Stored, _) => holds_wanted(),
            // The look of such a request sees what is true then, and nothing keeps it true.
            (Outcome::Repeated, _) if self.kind == Kind::Plain => true,
            (Outcome::Repeated, Wants::Cast { item, .. }) => held(rows, item, voter) != 0,
            (Outcome::Repeated, _) => holds_wanted(),
            (Outcome::TooManyChoices, _) => !has_changed(),
            (Outcome::Full(added), _) => {
                let taken = |item: usize| {
                    let of_item: Vec<Row> = rows[..before]
                        .iter()
                        .filter(|row| row.item == item)
                        .copied()
                        .collect();
                    taken_by(&of_item) + added[item]
                };
                let is_full = |(item, value): &(usize, i8)| {
                    *value != 0 && held(&rows[..before], *item, voter) == 0 && taken(*item) >= self.max_votes
                };
                !has_changed() && wanted.iter().any(is_full)
            }
        }
    }
}

/// What these rows add to the votes that are held.
fn taken_by(rows: &[Row]) -> i8 {
    rows.iter().map(|row| row.taken()).sum()
}

/// What the voters of `insert_plain_votes.sql` get: a first vote on each item.
pub(super) fn first_votes(requests: &[Request], order: Vec<usize>) -> Decided {
    let rows = order.into_iter().filter_map(|at| {
        let Request { voter, wants } = requests[at];
        let Wants::Cast { item, value } = wants else {
            return None;
        };
        let row = Row {
            item,
            voter,
            value,
            change: 0,
            number: 0,
        };
        Some((at, row))
    });
    Decided {
        outcomes: vec![Outcome::Stored; requests.len()],
        rows: rows.collect(),
        turnout: 0,
    }
}

/// The items that a request names. Its answer has their counts.
pub(super) fn shown(request: Request) -> Items {
    match request.wants {
        Wants::Cast { item, .. } | Wants::Set { item, .. } => 1 << item,
        Wants::Select(_) => 0,
    }
}
