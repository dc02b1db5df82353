//! Recent answers to reads: their tags and the counts that they contain.

use std::time::Duration;

use actix_web::http::header::{EntityTag, IfNoneMatch};

use crate::cache::{Cache, Remembers};
use crate::domain::{Count, ItemId};
use crate::web::transport::tags::matches;

/// How long an answer is remembered. An answer of 304 may be this old in what does not change with votes,
/// such as a name or whether a poll is open.
pub(crate) const KNOWN_LIMIT_AGE: Duration = Duration::from_millis(500);
/// The most counts in the answers that one thread remembers: a few megabytes.
const KNOWN_LIMIT_COUNTS: usize = 50_000;

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    Json,
    Csv,
}

/// A part of an answer that may change with each vote: an item's live count, if it has one.
pub type KnownCount = (ItemId, Option<Count>);

/// An answer that a thread remembers, by its path, query and format.
pub struct KnownAnswer {
    pub tag: EntityTag,
    pub counts: Vec<KnownCount>,
}

/// An answer weighs one for itself, and one for each count in it.
impl Remembers for KnownAnswer {
    type Key = (String, Format);
    type Value = Self;
    const LIMIT: usize = KNOWN_LIMIT_COUNTS;
    const LIMIT_AGE: Option<Duration> = Some(KNOWN_LIMIT_AGE);

    fn weight(answer: &Self) -> u64 {
        answer.counts.len() as u64 + 1
    }
}

/// Returns the counts of an answer that has one of these tags.
pub fn find(
    answers: &Cache<KnownAnswer>,
    key: &(String, Format),
    tags: &IfNoneMatch,
) -> Option<(EntityTag, Vec<KnownCount>)> {
    let known = answers.look(key, |answer, _| {
        matches(tags, &answer.tag).then(|| (answer.tag.clone(), answer.counts.clone()))
    });
    known.flatten()
}

#[cfg(test)]
mod tests {
    use crate::web::transport::tags::tag_of;

    use super::*;

    #[test]
    fn an_answer_takes_a_place_for_each_of_its_counts_and_one_for_itself() {
        let answer = |counts| KnownAnswer {
            tag: tag_of(b"x"),
            counts: vec![(ItemId::FIRST, None); counts],
        };
        assert_eq!(KnownAnswer::weight(&answer(0)), 1);
        assert_eq!(KnownAnswer::weight(&answer(10)), 11);
    }
}
