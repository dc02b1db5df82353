//! Where in the ledger's order an answer that stored nothing is right.
//! A *place* is the number of effects before it.

use std::collections::HashMap;

use super::requests::{Answer, Effect, Request, Stored, Vote, Wants};
use crate::linearizable::Violation;

/// What is held at each place.
pub(super) struct Places {
    /// For each voter: from which places on what is held. The first place is 0.
    voters: HashMap<u32, Vec<(usize, Option<Vote>)>>,
    /// For each vote id: the voter, and which of the voter's spans it is.
    spans: HashMap<i64, (u32, usize)>,
    /// For each place: the next one at which the item is full, or itself.
    full: Vec<Option<usize>>,
}

impl Places {
    /// # Errors
    /// When the item's rules do not allow these effects in this order.
    pub fn of(max_votes: Option<usize>, is_numbered: bool, effects: &[Effect]) -> Result<Self, Violation> {
        let mut voters: HashMap<u32, Vec<(usize, Option<Vote>)>> = HashMap::new();
        let mut spans = HashMap::new();
        let mut taken: usize = 0;
        let mut last_number = 0;
        let is_full = |taken: usize| max_votes.is_some_and(|most| taken >= most);
        let mut full_places = vec![is_full(0)];
        for (at, effect) in effects.iter().enumerate() {
            let wrong = |why: &str| Err(Violation(format!("{why}: {effect:?} as effect {at}")));
            let own = effect
                .voter
                .map(|voter| voters.entry(voter).or_insert_with(|| vec![(0, None)]));
            let held = own.as_ref().and_then(|own| own.last()?.1);
            match (effect.stored, held) {
                (Stored::New(_), None) if is_full(taken) => return wrong("the item was full"),
                (Stored::New(_), None) => taken += 1,
                (Stored::Changed(vote), Some(held)) if held.value != vote.value => {}
                (Stored::TakenBack(_), Some(_)) => taken -= 1,
                _ => return wrong(&format!("its voter held {held:?}")),
            }
            let vote = effect.stored.vote();
            if let Some(vote) = vote {
                last_number += i64::from(is_numbered);
                if vote.number != is_numbered.then_some(last_number) {
                    return wrong(&format!("the next number was {last_number}"));
                }
            }
            if let Some((voter, own)) = effect.voter.zip(own) {
                own.push((at + 1, vote));
                spans.extend(vote.map(|vote| (vote.id, (voter, own.len() - 1))));
            }
            full_places.push(is_full(taken));
        }
        let mut full = vec![None; full_places.len()];
        let mut next = None;
        for place in (0..full_places.len()).rev() {
            next = if full_places[place] { Some(place) } else { next };
            full[place] = next;
        }
        Ok(Self { voters, spans, full })
    }

    /// The first place from `least` on where a request gets this answer.
    /// It stores nothing there.
    pub fn first_for(&self, request: &Request, answer: &Answer, least: usize) -> Option<usize> {
        match (request.wants, answer) {
            (Wants::Read, Answer::Holds(vote)) | (Wants::Cast(_), Answer::Repeated(vote)) => {
                self.first_with(request.voter?, *vote, least)
            }
            (Wants::Set(value), Answer::Repeated(vote)) if vote.value == value => {
                self.first_with(request.voter?, *vote, least)
            }
            (Wants::Read | Wants::TakeBack, Answer::NothingHeld) => {
                self.first_without(request.voter, least, Some)
            }
            (Wants::Cast(_) | Wants::Set(_), Answer::Full) => {
                self.first_without(request.voter, least, |from| self.full[from])
            }
            _ => None,
        }
    }

    /// The first place from `least` on at which a voter holds this vote.
    fn first_with(&self, voter: u32, vote: Vote, least: usize) -> Option<usize> {
        let (owner, span) = *self.spans.get(&vote.id)?;
        let spans = self.voters.get(&owner).filter(|_| owner == voter)?;
        let (from, held) = spans.get(span)?;
        let place = least.max(*from);
        let is_before_next = spans.get(span + 1).is_none_or(|(next, _)| place < *next);
        (*held == Some(vote) && is_before_next).then_some(place)
    }

    /// The first place that `next` finds, from a place on, without a held vote.
    fn first_without(
        &self,
        voter: Option<u32>,
        least: usize,
        next: impl Fn(usize) -> Option<usize>,
    ) -> Option<usize> {
        let nothing = [(0, None)];
        let spans = voter.and_then(|voter| self.voters.get(&voter));
        let spans = spans.map_or(&nothing[..], Vec::as_slice);
        let last = spans.partition_point(|(from, _)| *from <= least) - 1;
        (last..spans.len())
            .filter(|at| spans[*at].1.is_none())
            .find_map(|at| {
                let place = next(least.max(spans[at].0))?;
                spans
                    .get(at + 1)
                    .is_none_or(|(next, _)| place < *next)
                    .then_some(place)
            })
    }
}
