//! A history of an item, as one that is easier to search.
//!
//! Votes that no other answer names need no id. And if the history is that of one voter, each vote
//! and all that found it become one operation. For while that vote is held nothing else is, so
//! nothing else comes in between: all of it comes behind what had returned before the last of its
//! calls, and before what was called after the first of its returns. The merged operation is
//! called then and returns then, which may be earlier.
//!
//! One that returns before it is called was held all that time. Nothing else can lie within it:
//! most of what goes wrong with one voter's votes is seen by that alone.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::specification::{Answer, Item, ItemOperation};
use crate::linearizable::NoOrder;

/// # Errors
/// When what was found cannot have been there.
pub(super) fn prepared(history: &[ItemOperation]) -> Result<Vec<ItemOperation>, NoOrder> {
    let of_one_voter = history
        .windows(2)
        .all(|two| two[0].request.voter.is_some() && two[0].request.voter == two[1].request.voter);
    let stored = stored(history)?;
    let mut prepared = history.to_vec();
    let mut is_merged = vec![false; history.len()];
    let mut named = HashSet::new();
    for (at, operation) in history.iter().enumerate() {
        let Some(by) = stored_by(operation, &stored, history)? else {
            continue;
        };
        if of_one_voter {
            is_merged[at] = true;
            prepared[by].called = prepared[by].called.max(operation.called);
            prepared[by].returned = prepared[by].returned.min(operation.returned);
        } else {
            named.insert(by);
        }
    }
    let mut is_merged = is_merged.into_iter();
    for by in stored.into_values().filter(|by| !named.contains(by)) {
        if let Some(Answer::New(vote) | Answer::Changed(vote)) = &mut prepared[by].answer {
            vote.id = None;
        }
    }
    prepared.retain(|_| is_merged.next() != Some(true));
    if of_one_voter {
        nothing_lies_within(&prepared)?;
    }
    Ok(prepared)
}

/// By its id, which operation stored a vote.
fn stored(history: &[ItemOperation]) -> Result<HashMap<i64, usize>, NoOrder> {
    let mut stored = HashMap::new();
    for (at, operation) in history.iter().enumerate() {
        let vote = operation.answer.and_then(Answer::stored);
        let Some(id) = vote.and_then(|vote| vote.id) else {
            continue;
        };
        match stored.entry(id) {
            Entry::Vacant(entry) => entry.insert(at),
            Entry::Occupied(_) => {
                return Err(NoOrder::Impossible(format!("vote {id} was stored twice")));
            }
        };
    }
    Ok(stored)
}

/// Which operation stored the vote that this one found, if it found one and that was answered.
fn stored_by(
    operation: &ItemOperation,
    stored: &HashMap<i64, usize>,
    history: &[ItemOperation],
) -> Result<Option<usize>, NoOrder> {
    let (request, answer) = (operation.request, operation.answer);
    let Some((answer, found)) = answer.and_then(|answer| Some((answer, answer.found()?))) else {
        return Ok(None);
    };
    let impossible = |why: String| Err(NoOrder::Impossible(format!("{request:?}: {answer:?}, {why}")));
    let Some(by) = found.id.and_then(|id| stored.get(&id)).copied() else {
        return if history.iter().all(|operation| operation.answer.is_some()) {
            impossible("which no request has stored".to_owned())
        } else {
            Ok(None)
        };
    };
    let is_so = history[by].answer.and_then(Answer::stored) == Some(found);
    let is_early = operation.returned < history[by].called;
    if !is_so
        || is_early
        || history[by].request.voter != request.voter
        || !Item::finds(request, answer, found)
    {
        return impossible(format!(
            "where {:?}: {:?}",
            history[by].request, history[by].answer
        ));
    }
    Ok(Some(by))
}

fn nothing_lies_within(merged: &[ItemOperation]) -> Result<(), NoOrder> {
    let answered = merged.iter().filter(|operation| operation.answer.is_some());
    let (mut spans, others): (Vec<_>, Vec<_>) =
        answered.partition(|operation| operation.returned < operation.called);
    spans.sort_by_key(|span| span.returned);
    let overlap = spans.windows(2).find(|two| two[1].returned < two[0].called);
    let overlap = overlap.map(|two| (two[0], two[1]));
    let within = || {
        others.iter().find_map(|one| {
            let behind = spans.partition_point(|span| span.returned < one.called);
            let span = spans[..behind].last()?;
            (one.returned < span.called).then_some((*span, *one))
        })
    };
    match overlap.or_else(within) {
        Some((span, one)) => Err(NoOrder::Impossible(format!(
            "what {:?} was answered, {:?}, was found before and after {:?}: {:?}",
            span.request, span.answer, one.request, one.answer
        ))),
        None => Ok(()),
    }
}
