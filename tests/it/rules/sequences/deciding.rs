//! How the model decides a vote and a selection.

use super::answers::{Refused, refused};
use super::model::{Asked, Cast, ItemAt, Kept, KeyOf, Model, PollAt, Row, RowAt, Spent};

impl Model {
    /// The change number of the voter's next row on the item.
    fn next_change(&self, item: ItemAt, voter: Option<&str>) -> i64 {
        if voter.is_none() {
            return 0;
        }
        let of_voter = self
            .rows
            .iter()
            .filter(|row| row.item == item && row.voter == voter);
        of_voter.count() as i64
    }

    /// Casts a vote: adds a row, with a number if the item has numbers.
    fn store(&mut self, item: ItemAt, voter: Option<&'static str>, value: i64) -> RowAt {
        let change = self.next_change(item, voter);
        let numbered = &mut self.items[item];
        let number = numbered.is_numbered.then(|| {
            numbered.last_number += 1;
            numbered.last_number
        });
        self.add_row(Row {
            id: 0,
            stored_at: 0,
            item,
            voter,
            value,
            change,
            number,
        })
    }

    /// Adds a row. A row that casts a vote is held.
    pub fn add_row(&mut self, row: Row) -> RowAt {
        let at = self.rows.len();
        if row.change % 2 == 0 {
            self.held.insert(at);
        }
        self.rows.push(row);
        at
    }

    /// Takes a vote back: adds a row.
    pub fn take_back(&mut self, cast: RowAt) -> RowAt {
        self.held.remove(&cast);
        let row = &self.rows[cast];
        let back = Row {
            id: 0,
            value: -row.value,
            change: row.change + 1,
            number: None,
            ..row.clone()
        };
        self.add_row(back)
    }

    /// Decides a vote. If it `keeps`, a held vote stays unchanged.
    pub fn decide(&mut self, asked: &Asked, keeps: bool, key: Option<KeyOf>) -> Result<Cast, Refused> {
        if let Some(kept) = key.as_ref().and_then(|key| self.keys.get(key)) {
            if kept.asked != *asked {
                return Err(refused("key-reused").on("Idempotency-Key"));
            }
            return Ok(if kept.is_repeat {
                Cast::Repeated(kept.row)
            } else {
                Cast::Replayed(kept.row)
            });
        }
        let cast = self.decide_anew(asked, keeps, key.is_some())?;
        if let Some(key) = key
            && let Cast::Accepted(row) | Cast::Repeated(row) = cast
        {
            let kept = Kept {
                asked: asked.clone(),
                row,
                is_repeat: matches!(cast, Cast::Repeated(_)),
            };
            self.keys.insert(key, kept);
        }
        Ok(cast)
    }

    fn decide_anew(&mut self, asked: &Asked, keeps: bool, has_key: bool) -> Result<Cast, Refused> {
        let Asked {
            item,
            voter,
            value,
            ref ballot,
        } = *asked;
        let of_item = self.items[item].clone();
        let rule = self.rule(item).cloned().unwrap_or_default();
        if rule.is_secret && has_key {
            return Err(refused("invalid-value").on("Idempotency-Key"));
        }
        match (rule.by_ballot, ballot) {
            (true, None) => return Err(refused("ballot-missing").on("ballot")),
            (true, Some(_)) if voter.is_some() => return Err(refused("invalid-value").on("voter_id")),
            (false, Some(_)) => return Err(refused("ballot-not-taken").on("ballot")),
            _ => {}
        }
        if of_item.poll.is_some() && voter.is_none() && !rule.by_ballot {
            return Err(refused("voter-missing").on("voter_id"));
        }
        let held = voter.and_then(|voter| self.held_by(item, voter));
        // A server may know that the item is full, and say so of a vote that has another fault,
        // too.
        let may_be_full = keeps && !has_key && ballot.is_none() && held.is_none() && self.is_full(item);
        let or_full = |problem: Refused| if may_be_full { problem.or("full") } else { problem };
        if value < 0 && !of_item.takes_down_votes {
            return Err(refused("value-not-taken").on("value"));
        }
        let mut buys = None;
        if let Some(token) = ballot {
            let at = self.ballots.iter().position(|ballot| ballot.token == *token);
            let valid = at.filter(|at| Some(self.ballots[*at].rule) == of_item.rule);
            let at = valid.ok_or(refused("ballot-not-valid"))?;
            let bought = |row: &Row| row.item == item && row.value == value;
            match self.ballots[at].spent {
                Some(Spent::On(row)) if bought(&self.rows[row]) => return Ok(Cast::Repeated(row)),
                None if !self.ballots[at].is_expired => {}
                _ => return Err(refused("ballot-not-valid")),
            }
            buys = Some(at);
        }
        match held {
            None if value == 0 => return Ok(Cast::Nothing),
            Some(row) if self.rows[row].value == value || value != 0 && keeps => {
                return Ok(Cast::Repeated(row));
            }
            _ => {}
        }
        if let Some(why) = rule.untimely() {
            return Err(or_full(refused(why)));
        }
        let mut moved = Vec::new();
        if let (Some(poll), Some(voter)) = (of_item.poll, voter)
            && held.is_none()
        {
            let selection = self.selection(poll, voter);
            match self.polls[poll].max_choices {
                Some(1) => moved = selection,
                Some(most) if selection.len() >= most => return Err(refused("too-many-choices")),
                _ => {}
            }
        }
        if held.is_none() && self.is_full(item) {
            return Err(refused("full"));
        }
        for choice in moved {
            if let Some(row) = voter.and_then(|voter| self.held_by(choice, voter)) {
                self.take_back(row);
            }
        }
        let back = held.map(|row| self.take_back(row));
        if value == 0 {
            return Ok(back.map_or(Cast::Nothing, Cast::TakenBack));
        }
        let row = self.store(item, voter, value);
        if let Some(at) = buys {
            self.ballots[at].spent = Some(if rule.is_secret {
                Spent::Secretly
            } else {
                Spent::On(row)
            });
        }
        Ok(match (rule.is_secret, back) {
            (true, _) => Cast::Secret,
            (_, Some(_)) => Cast::Changed(row),
            _ => Cast::Accepted(row),
        })
    }

    /// Sets a voter's whole selection. Returns whether anything was stored.
    pub fn select(
        &mut self,
        poll: PollAt,
        voter: &'static str,
        wanted: &[ItemAt],
        strays: bool,
    ) -> Result<bool, Refused> {
        let rule = self.rules[self.polls[poll].rule].clone();
        if strays {
            return Err(refused("not-in-poll").on("items"));
        }
        if rule.by_ballot {
            return Err(refused("ballot-missing").on("ballot"));
        }
        let before = self.selection(poll, voter);
        if before == wanted {
            return Ok(false);
        }
        if let Some(why) = rule.untimely() {
            return Err(refused(why));
        }
        if self.polls[poll]
            .max_choices
            .is_some_and(|most| wanted.len() > most)
        {
            return Err(refused("too-many-choices"));
        }
        for choice in self.polls[poll].choices.clone() {
            match (self.held_by(choice, voter), wanted.contains(&choice)) {
                (Some(row), false) => drop(self.take_back(row)),
                (None, true) => drop(self.store(choice, Some(voter), 1)),
                _ => {}
            }
        }
        Ok(true)
    }
}
