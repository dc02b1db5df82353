//! The JSON bodies of requests.

use serde_json::json;

use super::{is_edit, is_printable, is_proper};
use crate::domain::{CHOICES_LIMIT_ITEMS, ItemId, ItemKey, ItemName, NewItem, VoterEditKind, VoterId};
use crate::web::limits::REQUEST_LIMIT_VOTES;
use crate::web::parsing::{self, BALLOTS_LIMIT, GRACE_LIMIT_SECONDS};

/// The body of a vote.
pub fn vote_body(bytes: &[u8]) {
    let item = ItemId::new(1).expect("positive");
    let vote = match parsing::vote(item, bytes) {
        Ok(vote) => vote,
        Err(refusal) => return is_proper(&refusal),
    };
    assert!([1, -1].contains(&vote.value.get()));
    if let Some(voter) = &vote.voter_id {
        is_printable(voter.as_str(), voter.as_str().len(), VoterId::LIMIT_BYTES);
    }
    if !bytes.is_empty() {
        let object: serde_json::Value = serde_json::from_slice(bytes).expect("what is taken is JSON");
        assert!(object.is_object(), "{object}");
    }
    let again = json!({
        "voter_id": vote.voter_id.as_ref().map(VoterId::as_str),
        "value": vote.value.get(),
    });
    let again = parsing::vote(item, again.to_string().as_bytes()).expect("it was taken before");
    assert_eq!(again, vote);
}

/// The body of a batch of votes.
pub fn batch_body(bytes: &[u8]) {
    let votes = match parsing::batch(bytes) {
        Ok(votes) => votes,
        Err(refusal) => return is_proper(&refusal),
    };
    assert!((1..=REQUEST_LIMIT_VOTES).contains(&votes.len()));
    for vote in votes {
        match vote {
            Ok(entry) => {
                if let Some(voter) = &entry.vote.voter_id {
                    is_printable(voter.as_str(), voter.as_str().len(), VoterId::LIMIT_BYTES);
                }
            }
            Err(refusal) => is_proper(&refusal),
        }
    }
}

/// The body of a new poll.
pub fn poll_body(bytes: &[u8]) {
    let poll = match parsing::poll(bytes) {
        Ok(poll) => poll,
        Err(refusal) => return is_proper(&refusal),
    };
    assert!((1..=CHOICES_LIMIT_ITEMS).contains(&poll.choices.len()));
    for name in poll.choices.iter().chain([&poll.title]) {
        let length = name.as_str().chars().count();
        is_printable(name.as_str(), length, ItemName::LIMIT_CHARACTERS);
    }
    assert!(poll.shows_results || poll.closes_at.is_some());
    let is_in_order = |opens, closes| opens < closes;
    assert!(
        poll.opens_at
            .zip(poll.closes_at)
            .is_none_or(|(opens, closes)| is_in_order(opens, closes))
    );
}

/// The body of a selection.
pub fn selection_body(bytes: &[u8]) {
    let items = match parsing::selection(bytes) {
        Ok(items) => items,
        Err(refusal) => return is_proper(&refusal),
    };
    assert!(items.len() <= CHOICES_LIMIT_ITEMS);
    assert!(
        items.is_sorted_by(|one, other| one < other),
        "each once, in order"
    );
    let again = json!({ "items": items });
    let again = parsing::selection(again.to_string().as_bytes()).expect("it was taken before");
    assert_eq!(again, items);
}

/// The body of a new item.
pub fn item_body(bytes: &[u8]) {
    let item = match parsing::item(bytes) {
        Ok(item) => item,
        Err(refusal) => return is_proper(&refusal),
    };
    let NewItem { name, key, rules } = &item;
    is_printable(
        name.as_str(),
        name.as_str().chars().count(),
        ItemName::LIMIT_CHARACTERS,
    );
    if let Some(key) = key {
        is_printable(key.as_str(), key.as_str().len(), ItemKey::LIMIT_BYTES);
    }
    let again = json!({
        "name": name.as_str(),
        "key": key.as_ref().map(ItemKey::as_str),
        "by_ballot": rules.by_ballot,
        "down_votes": rules.takes_down_votes,
        "max_votes": rules.max_votes,
        "numbered": rules.is_numbered,
        "opens_at": rules.opens_at,
        "closes_at": rules.closes_at,
    });
    let again = parsing::item(again.to_string().as_bytes()).expect("it was taken before");
    assert_eq!(again, item);
}

/// The body of an item's edit.
pub fn item_edit_body(bytes: &[u8]) {
    is_edit(parsing::item_edit(bytes));
}

/// The body of a poll's edit.
pub fn poll_edit_body(bytes: &[u8]) {
    is_edit(parsing::poll_edit(bytes));
}

/// The body of a new choice of a poll.
pub fn choice_body(bytes: &[u8]) {
    let name = match parsing::choice(bytes) {
        Ok(name) => name,
        Err(refusal) => return is_proper(&refusal),
    };
    let length = name.as_str().chars().count();
    is_printable(name.as_str(), length, ItemName::LIMIT_CHARACTERS);
    let again = json!({ "name": name.as_str() });
    let again = parsing::choice(again.to_string().as_bytes()).expect("it was taken before");
    assert_eq!(again, name);
}

/// The body of a poll's copy.
pub fn poll_copy_body(bytes: &[u8]) {
    let copy = match parsing::poll_copy(bytes) {
        Ok(copy) => copy,
        Err(refusal) => return is_proper(&refusal),
    };
    let is_in_order = |opens, closes| opens < closes;
    assert!(
        copy.opens_at
            .zip(copy.closes_at)
            .is_none_or(|(opens, closes)| is_in_order(opens, closes))
    );
    let again = json!({
        "title": copy.title.as_ref().map(ItemName::as_str),
        "key": copy.key.as_ref().map(ItemKey::as_str),
        "opens_at": copy.opens_at,
        "closes_at": copy.closes_at,
    });
    let again = parsing::poll_copy(again.to_string().as_bytes()).expect("it was taken before");
    assert_eq!(again, copy);
}

/// The body of a request for ballots.
pub fn ballots_body(bytes: &[u8]) {
    match parsing::ballots(bytes) {
        Ok(ballots) => assert!((1..=BALLOTS_LIMIT).contains(&(ballots.len() as i64))),
        Err(refusal) => is_proper(&refusal),
    }
}

/// The body of `POST /v1/voidings`.
pub fn voiding_body(bytes: &[u8]) {
    match parsing::voiding(bytes) {
        Ok(wanted) => {
            let filter = &wanted.filter;
            let is_of_something = filter.voter_id.is_some()
                || wanted.item.is_some()
                || filter.cast_from.is_some()
                || filter.cast_until.is_some();
            assert!(is_of_something, "never all votes: {wanted:?}");
            assert!((1..=500).contains(&wanted.reason.chars().count()));
            assert!(!wanted.reason.contains('\0'), "Postgres takes no NUL");
            assert!(wanted.after == 0 || (wanted.dry_run && wanted.after > 0));
            if let (Some(from), Some(until)) = (filter.cast_from, filter.cast_until) {
                assert!(from < until);
            }
        }
        Err(refusal) => is_proper(&refusal),
    }
}

/// The body of `POST /v1/voter-edits`.
pub fn voter_edit_body(bytes: &[u8]) {
    match parsing::voter_edit(bytes) {
        Ok(wanted) => {
            assert_ne!(wanted.new.from, wanted.new.to);
            assert!(!wanted.new.from.is_erased(), "nobody's votes stay nobody's");
            let is_erased = wanted.new.kind == VoterEditKind::Erase;
            assert_eq!(wanted.new.to.is_erased(), is_erased);
            assert!(wanted.after == 0 || (wanted.dry_run && wanted.after > 0));
        }
        Err(refusal) => is_proper(&refusal),
    }
}

/// The bodies that create and rotate an API key.
pub fn api_key_body(bytes: &[u8]) {
    match parsing::api_key(bytes) {
        Ok(key) => {
            assert!((1..=100).contains(&key.name.chars().count()));
            assert!(!key.name.chars().any(char::is_control));
            assert!(!key.scopes.names().is_empty());
        }
        Err(refusal) => is_proper(&refusal),
    }
    match parsing::rotation(bytes) {
        Ok(grace) => assert!(grace.as_secs() <= GRACE_LIMIT_SECONDS.unsigned_abs()),
        Err(refusal) => is_proper(&refusal),
    }
}
