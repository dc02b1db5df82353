//! Voidings between requests, by the code of `tally void`, and the model's.

use rand::Rng;
use tally::domain::{ItemId, Moment, VoidingId, VoteFilter, VoterId};
use tally::ledger::{OperatorLedger, Role};
use tally::votes::{ChunkWriter, Direction};

use super::draw::Draw;
use super::model::{ItemAt, Model, Row, RowAt};
use crate::helpers::tally::{Tally, connected, live_counts};

/// Selects the votes that match all of these.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub voter: Option<&'static str>,
    pub item: Option<ItemAt>,
    /// In µs since 1970.
    pub from: Option<i64>,
    pub until: Option<i64>,
}

#[derive(Clone, Debug, Default)]
pub struct Voiding {
    /// Each voided vote, and the row that takes it back.
    pub votes: Vec<(RowAt, RowAt)>,
    /// How many votes were cast again, and how many not; `None`: it is not undone.
    pub undone: Option<[usize; 2]>,
}

impl Model {
    /// Voids all held votes of a filter. Returns how many, and their sum.
    pub fn void(&mut self, filter: &Filter) -> [i64; 2] {
        let applies = |row: &Row| {
            filter.voter.is_none_or(|voter| row.voter == Some(voter))
                && filter.item.is_none_or(|item| row.item == item)
                && filter.from.is_none_or(|from| row.stored_at >= from)
                && filter.until.is_none_or(|until| row.stored_at < until)
        };
        let found: Vec<RowAt> = self
            .held
            .iter()
            .copied()
            .filter(|row| applies(&self.rows[*row]))
            .collect();
        let sum = found.iter().map(|row| self.rows[*row].value).sum();
        let votes: Vec<(RowAt, RowAt)> = found.iter().map(|row| (*row, self.take_back(*row))).collect();
        self.voidings.push(Voiding { votes, undone: None });
        [found.len() as i64, sum]
    }

    /// Casts a voiding's votes again, as far as rules allow, without their numbers.
    pub fn undo(&mut self, at: usize) {
        if self.voidings[at].undone.is_some() {
            return;
        }
        let mut votes = self.voidings[at].votes.clone();
        // Votes without a voter come last.
        votes.sort_by_key(|(vote, _)| {
            let row = &self.rows[*vote];
            (row.item, row.voter.is_none(), row.voter, *vote)
        });
        let [mut restored, mut left] = [0, 0];
        for (vote, back) in votes {
            let Row { item, voter, .. } = self.rows[vote];
            let has_changed = voter.is_some()
                && self.rows[back + 1..]
                    .iter()
                    .any(|row| row.item == item && row.voter == voter);
            let has_choices = self.items[item].poll.zip(voter).is_some_and(|(poll, voter)| {
                let most = self.polls[poll].max_choices;
                most.is_some_and(|most| self.selection(poll, voter).len() >= most)
            });
            if has_changed || has_choices || self.is_full(item) {
                left += 1;
                continue;
            }
            restored += 1;
            let change = self.rows[back].change + 1;
            self.add_row(Row {
                id: 0,
                change,
                number: None,
                ..self.rows[vote].clone()
            });
        }
        self.voidings[at].undone = Some([restored, left]);
    }
}

/// An operator, who voids and undoes.
pub struct Operator {
    ledger: OperatorLedger,
    voider: ChunkWriter,
}

impl Operator {
    pub async fn of(tally: &Tally) -> Self {
        let ledger = OperatorLedger::new(tally.stores.login_url(Role::Operator), "test").expect("a URL");
        let live = connected(live_counts(tally)).await;
        let voider = ChunkWriter::new(ledger.as_server().writer(), live);
        Self { ledger, voider }
    }

    /// Looks at what would be voided, voids it, and compares both with the model.
    pub async fn void(&mut self, model: &mut Model, filter: &Filter) -> Result<(), String> {
        let wanted = VoteFilter {
            voter_id: filter
                .voter
                .map(|voter| VoterId::parse(voter.to_owned()).expect("a voter")),
            item_id: filter.item.and_then(|item| ItemId::new(model.items[item].id)),
            cast_from: filter.from.map(Moment::from_micros),
            cast_until: filter.until.map(Moment::from_micros),
            addresses: None,
            api_key: None,
        };
        let until = self.ledger.last_vote().await.expect("Postgres answers");
        let (mut after, mut found) = (0, [0, 0]);
        while after < until.get() {
            let next = self
                .ledger
                .votes_to_void(&wanted, after, until)
                .await
                .expect("Postgres answers");
            after = next.up_to;
            found = [found[0] + next.votes, found[1] + next.net];
        }
        let expected = model.void(filter);
        if found != expected {
            return Err(format!(
                "votes to void and their sum are {found:?}, not {expected:?}"
            ));
        }
        let id = self
            .ledger
            .create_voiding(&wanted, "x", until)
            .await
            .expect("Postgres answers");
        self.run_to_end(id, Direction::Void).await?;
        self.compare(model, model.voidings.len() - 1).await
    }

    /// Undoes the voiding with this index in the model.
    pub async fn undo(&mut self, model: &mut Model, at: usize) -> Result<(), String> {
        model.undo(at);
        self.run_to_end(Self::id(at), Direction::Undo).await?;
        self.compare(model, at).await
    }

    /// The ledger counts voidings from 1.
    fn id(at: usize) -> VoidingId {
        VoidingId(at as i64 + 1)
    }

    async fn run_to_end(&mut self, id: VoidingId, direction: Direction) -> Result<(), String> {
        loop {
            let voiding = self.ledger.voiding(id).await.expect("Postgres answers");
            let voiding = voiding.expect("the voiding");
            let is_whole = match direction {
                Direction::Void => voiding.is_done(),
                Direction::Undo => voiding.is_undone(),
            };
            if is_whole {
                return Ok(());
            }
            let stored = self.voider.voiding_chunk(id, direction).await;
            stored.map_err(|error| format!("no chunk is stored: {error:?}"))?;
        }
    }

    async fn compare(&self, model: &Model, at: usize) -> Result<(), String> {
        let stored = self.ledger.voiding(Self::id(at)).await;
        let stored = stored.expect("Postgres answers").expect("the voiding");
        let of_model = &model.voidings[at];
        let undone = stored
            .undone_vote_id
            .map(|_| [stored.restored_votes as usize, stored.left_votes as usize]);
        if (stored.voided_votes as usize, undone) != (of_model.votes.len(), of_model.undone) {
            return Err(format!(
                "voiding {} has {} votes and undone {undone:?}, not {} and {:?}",
                stored.id.0,
                stored.voided_votes,
                of_model.votes.len(),
                of_model.undone
            ));
        }
        Ok(())
    }
}

impl Draw {
    /// A filter by voter, item or span, or by two of these.
    pub fn filter(&mut self) -> Filter {
        let mut filter = Filter::default();
        let kind = self.random.random_range(0..8);
        if matches!(kind, 0 | 1 | 6) {
            filter.voter = Some(self.voter());
        }
        if matches!(kind, 2 | 3 | 6 | 7) {
            filter.item = Some(self.known_item());
        }
        if matches!(kind, 4 | 5 | 7) {
            let held = self.model.held.iter();
            let times: Vec<i64> = held
                .map(|row| self.model.rows[*row].stored_at)
                .chain([0])
                .collect();
            let (one, other) = (self.any(&times), self.any(&times));
            filter.from = Some(one.min(other));
            filter.until = (!self.one_in(4)).then_some(one.max(other));
        }
        filter
    }
}
