//! Turns: of one voter, ballot or idempotency key, one request is decided at a time. Those behind it wait here, and
//! take no place in a batch that others need.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use super::cast::QueuedRequest;
use crate::domain::{BallotHash, Digest, VoteRequest, VoterId};

/// How long a request waits while other requests of its voter come first.
pub const AGAIN_LIMIT: Duration = Duration::from_secs(4);
/// The most requests that may wait for others to be decided first. Whoever comes then is answered that the voter is busy.
const WAITING_LIMIT_REQUESTS: usize = 1024;

/// The requests that wait for their turn, in their order.
#[derive(Default)]
pub(super) struct Turns {
    waiting: Vec<QueuedRequest>,
    /// Whose requests wait, or were taken out last.
    askers: HashSet<Asker>,
}

/// Whose requests take turns.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Asker {
    Voter(VoterId),
    Ballot(BallotHash),
    Key(Digest),
}

impl Turns {
    /// Takes out the first request of each asker, at most `limit`, and those right behind it that are equal: all of
    /// these are decided at once.
    pub fn take_first(&mut self, limit: usize) -> Vec<QueuedRequest> {
        let mut first: Vec<QueuedRequest> = Vec::new();
        // Of each asker, the place of its request in `first`; `None`: another one waits behind it.
        let mut places: HashMap<Asker, Option<usize>> = HashMap::new();
        for one in std::mem::take(&mut self.waiting) {
            let askers = askers(&one.request);
            let may_go = |asker: &Asker| match places.get(asker) {
                None => true,
                Some(Some(place)) => is_equal(&first[*place].request, &one.request),
                Some(None) => false,
            };
            if first.len() < limit && askers.iter().all(may_go) {
                for asker in askers {
                    places.entry(asker).or_insert(Some(first.len()));
                }
                first.push(one);
            } else {
                places.extend(askers.into_iter().map(|asker| (asker, None)));
                self.waiting.push(one);
            }
        }
        self.askers = places.into_keys().collect();
        first
    }

    /// Lets in new requests, except behind earlier ones of their askers: these wait.
    pub fn let_in(&mut self, new: impl Iterator<Item = QueuedRequest>) -> Vec<QueuedRequest> {
        let mut let_in = Vec::new();
        for one in new {
            // Mostly nobody waits.
            if self.askers.is_empty() {
                let_in.push(one);
                continue;
            }
            let askers = askers(&one.request);
            if askers.iter().any(|asker| self.askers.contains(asker)) {
                self.askers.extend(askers);
                self.waiting.push(one);
            } else {
                let_in.push(one);
            }
        }
        let_in
    }

    /// Takes back requests that were taken out or let in, and are not decided. They stand before all that wait.
    pub fn ask_again(&mut self, again: Vec<QueuedRequest>) {
        self.waiting.splice(..0, again);
    }

    /// Gives up the requests that have waited for too long, and the newest beyond [`WAITING_LIMIT_REQUESTS`].
    pub fn give_up(&mut self, now: Instant) -> Vec<QueuedRequest> {
        let beyond = self.waiting.len().min(WAITING_LIMIT_REQUESTS);
        let mut given_up = self.waiting.split_off(beyond);
        let is_late = |one: &mut QueuedRequest| now.duration_since(one.queued_at) >= AGAIN_LIMIT;
        given_up.extend(self.waiting.extract_if(.., is_late));
        given_up
    }
}

/// Whose requests this one takes turns with. Nobody's, if it is anonymous and may be stored many times.
fn askers(request: &VoteRequest) -> Vec<Asker> {
    let voter = request.voter().cloned().map(Asker::Voter);
    let (ballot, key) = match request {
        VoteRequest::CastOnce { ballot, key, .. } => {
            (ballot.map(Asker::Ballot), key.map(|key| Asker::Key(key.key)))
        }
        _ => (None, None),
    };
    voter.into_iter().chain(ballot).chain(key).collect()
}

/// Whether two requests that follow each other are decided as one. A ballot or a key itself says which are the same.
pub(super) fn is_equal(first: &VoteRequest, second: &VoteRequest) -> bool {
    first == second && !matches!(first, VoteRequest::CastOnce { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{ItemId, Value, VoteSource};

    /// A request of this voter to hold this value on the first item.
    fn set(voter: &str, value: i16) -> QueuedRequest {
        QueuedRequest {
            request: VoteRequest::Set {
                item_id: ItemId::FIRST,
                voter_id: VoterId::parse(voter.to_owned()).expect("a voter"),
                value: Value::parse(value.into()).ok(),
            },
            run: None,
            source: VoteSource::default(),
            queued_at: Instant::now(),
            is_partly_stored: false,
            answer: tokio::sync::oneshot::channel().0,
        }
    }

    fn said(requests: &[QueuedRequest]) -> Vec<(String, i16)> {
        let said = requests.iter().map(|one| match &one.request {
            VoteRequest::Set { voter_id, value, .. } => {
                (voter_id.as_str().to_owned(), value.map_or(0, Value::get))
            }
            other => panic!("{other:?}"),
        });
        said.collect()
    }

    fn of(expected: &[(&str, i16)]) -> Vec<(String, i16)> {
        let owned = expected
            .iter()
            .map(|(voter, value)| ((*voter).to_owned(), *value));
        owned.collect()
    }

    #[test]
    fn one_request_of_a_voter_is_taken_at_a_time_with_equal_ones_right_behind_it() {
        let mut turns = Turns::default();
        turns.ask_again(vec![
            set("ada", 1),
            set("ada", 1),
            set("bob", 1),
            set("ada", -1),
            set("ada", 1),
            set("bob", 1),
        ]);
        let first = turns.take_first(10);
        assert_eq!(
            said(&first),
            of(&[("ada", 1), ("ada", 1), ("bob", 1), ("bob", 1)])
        );
        assert_eq!(said(&turns.take_first(10)), of(&[("ada", -1)]));
        assert_eq!(said(&turns.take_first(10)), of(&[("ada", 1)]));
        assert!(turns.take_first(10).is_empty());
    }

    #[test]
    fn whoever_has_a_request_waiting_or_under_way_waits_with_the_next_and_nobody_else_does() {
        let mut turns = Turns::default();
        turns.ask_again(vec![set("ada", 1), set("ada", -1)]);
        assert_eq!(said(&turns.take_first(10)), of(&[("ada", 1)]));
        let new = vec![set("bob", 1), set("ada", 1), set("bob", -1)];
        assert_eq!(
            said(&turns.let_in(new.into_iter())),
            of(&[("bob", 1), ("bob", -1)])
        );
        // The one under way comes back.
        turns.ask_again(vec![set("ada", 1)]);
        let waiting: Vec<_> = (0..3).map(|_| said(&turns.take_first(10))).collect();
        assert_eq!(waiting, [1, -1, 1].map(|value| of(&[("ada", value)])));
        assert!(turns.take_first(10).is_empty());
        assert_eq!(
            said(&turns.let_in([set("ada", 1)].into_iter())),
            of(&[("ada", 1)])
        );
    }

    #[test]
    fn no_more_are_taken_than_the_limit_and_those_left_keep_their_order() {
        let mut turns = Turns::default();
        turns.ask_again(vec![set("ada", 1), set("bob", 1), set("cy", 1), set("bob", -1)]);
        assert_eq!(said(&turns.take_first(1)), of(&[("ada", 1)]));
        assert_eq!(said(&turns.take_first(9)), of(&[("bob", 1), ("cy", 1)]));
        assert_eq!(said(&turns.take_first(9)), of(&[("bob", -1)]));
    }

    #[test]
    fn what_has_waited_for_too_long_is_given_up_and_so_is_what_comes_when_too_many_wait() {
        let mut turns = Turns::default();
        let mut late = set("ada", 1);
        late.queued_at -= AGAIN_LIMIT;
        turns.ask_again(vec![late, set("ada", -1)]);
        assert_eq!(said(&turns.give_up(Instant::now())), of(&[("ada", 1)]));
        assert!(turns.give_up(Instant::now()).is_empty());
        turns.ask_again((0..WAITING_LIMIT_REQUESTS).map(|_| set("bob", 1)).collect());
        assert_eq!(said(&turns.give_up(Instant::now())), of(&[("ada", -1)]));
        let now = Instant::now() + AGAIN_LIMIT + Duration::from_secs(1);
        assert_eq!(turns.give_up(now).len(), WAITING_LIMIT_REQUESTS);
    }

    #[test]
    fn requests_take_turns_by_voter_ballot_and_key() {
        let vote = crate::domain::NewVote {
            item_id: ItemId::FIRST,
            voter_id: VoterId::parse("ada".to_owned()).ok(),
            value: Value::UP,
        };
        let cast = VoteRequest::Cast(vote.clone());
        assert_eq!(askers(&cast).len(), 1);
        let anonymous = VoteRequest::Cast(crate::domain::NewVote {
            voter_id: None,
            ..vote.clone()
        });
        assert!(askers(&anonymous).is_empty());
        let once = VoteRequest::CastOnce {
            vote,
            ballot: None,
            key: None,
        };
        assert!(is_equal(&cast, &cast) && !is_equal(&once, &once));
    }
}
