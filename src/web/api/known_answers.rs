//! What was answered lately to reads: their tags, and the counts that are in them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use actix_web::http::header::{EntityTag, IfNoneMatch};

use crate::domain::{Count, ItemId};
use crate::web::transport::tags::matches;

/// How long an answer is remembered. What does not change with votes (a name, whether a poll is open)
/// may be as old in an answer of 304.
const KNOWN_LIMIT_AGE: Duration = Duration::from_millis(500);
/// Counts in the answers that one thread remembers, at the most: a few megabytes.
const KNOWN_LIMIT_COUNTS: usize = 50_000;

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    Json,
    Csv,
}

/// A part of an answer that may change with each vote: an item's live count, as far as it has one.
pub type KnownCount = (ItemId, Option<Count>);

/// The answers that a thread remembers.
#[derive(Default)]
pub struct KnownAnswers(Mutex<Known>);

#[derive(Default)]
struct Known {
    answers: HashMap<(String, Format), KnownAnswer>,
    /// In all of them.
    counts: usize,
}

struct KnownAnswer {
    tag: EntityTag,
    counts: Vec<KnownCount>,
    since: Instant,
}

impl KnownAnswers {
    /// The counts of an answer that one of these tags is of.
    pub fn find(&self, key: &(String, Format), tags: &IfNoneMatch) -> Option<(EntityTag, Vec<KnownCount>)> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = known.answers.get(key)?;
        let is_it = answer.since.elapsed() < KNOWN_LIMIT_AGE && matches(tags, &answer.tag);
        is_it.then(|| (answer.tag.clone(), answer.counts.clone()))
    }

    pub fn add(&self, key: (String, Format), tag: EntityTag, counts: Vec<KnownCount>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.counts + counts.len() + known.answers.len() > KNOWN_LIMIT_COUNTS {
            // What is asked for often is soon back.
            *known = Known::default();
        }
        known.counts += counts.len();
        let answer = KnownAnswer {
            tag,
            counts,
            since: Instant::now(),
        };
        if let Some(before) = known.answers.insert(key, answer) {
            known.counts -= before.counts.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::web::transport::tags::tag_of;

    use super::*;

    #[test]
    fn what_is_remembered_is_bounded() {
        let known = KnownAnswers::default();
        let item = ItemId::FIRST;
        for at in 0..3 * KNOWN_LIMIT_COUNTS {
            let key = (at.to_string(), Format::Json);
            known.add(key, tag_of(b"x"), vec![(item, None); 10]);
        }
        let known = known.0.lock().expect("not poisoned");
        let counts: usize = known.answers.values().map(|one| one.counts.len()).sum();
        assert_eq!(known.counts, counts);
        assert!(counts + known.answers.len() <= KNOWN_LIMIT_COUNTS, "{counts}");
    }
}
