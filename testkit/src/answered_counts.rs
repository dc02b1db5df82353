//! A history of votes and answers, and the check that every count was possible.
//!
//! A count is possible if it lies between two bounds: the votes that were acknowledged before its
//! request began, and the votes that were sent before its request ended. A vote of −1 that may be
//! stored lowers the lower bound. The upper bound has a vote of −1 only once it is acknowledged.

use std::collections::HashMap;
use std::time::Instant;

/// A vote, as its voter sees it.
#[derive(Clone, Copy, Debug)]
pub struct Vote {
    pub item: i64,
    pub value: i64,
    /// Just before it was first sent.
    pub sent: Instant,
    /// Just after it was first acknowledged. `None`: it may or may not be stored.
    pub acknowledged: Option<Instant>,
}

/// A count in the answer to a vote or a read.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub item: i64,
    pub count: i64,
    /// Just before the request was sent.
    pub began: Instant,
    /// Just after the answer arrived.
    pub ended: Instant,
    /// The value of the vote that is answered, which the count includes.
    /// 0 for a read, and for a repeated vote, which another server may still be counting.
    pub own: i64,
}

/// The lowest and the highest count that an answer may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub lowest: i64,
    pub highest: i64,
}

impl Bounds {
    pub fn hold(self, count: i64) -> bool {
        (self.lowest..=self.highest).contains(&count)
    }
}

/// All votes of a run. Every item starts with the count 0.
#[derive(Debug, Default)]
pub struct History {
    items: HashMap<i64, Changes>,
}

/// One item's votes.
#[derive(Debug, Default)]
struct Changes {
    sent_up: Steps,
    sent_down: Steps,
    acknowledged_up: Steps,
    acknowledged_down: Steps,
}

/// A sum that grows at certain moments.
#[derive(Debug, Default)]
struct Steps {
    moments: Vec<Instant>,
    /// The sum before each moment, and after the last: one more than there are moments.
    sums: Vec<i64>,
}

impl Steps {
    fn new(mut steps: Vec<(Instant, i64)>) -> Self {
        steps.sort_unstable();
        let mut sums = vec![0];
        let mut sum = 0;
        for (_, value) in &steps {
            sum += value;
            sums.push(sum);
        }
        Self {
            moments: steps.into_iter().map(|(moment, _)| moment).collect(),
            sums,
        }
    }

    /// The sum over the moments before this one.
    fn before(&self, moment: Instant) -> i64 {
        self.sum(self.moments.partition_point(|one| *one < moment))
    }

    /// The sum up to this moment, with it.
    fn up_to(&self, moment: Instant) -> i64 {
        self.sum(self.moments.partition_point(|one| *one <= moment))
    }

    fn sum(&self, steps: usize) -> i64 {
        self.sums.get(steps).copied().unwrap_or_default()
    }
}

impl History {
    pub fn new(votes: impl IntoIterator<Item = Vote>) -> Self {
        let mut by_item: HashMap<i64, Vec<Vote>> = HashMap::new();
        for vote in votes {
            by_item.entry(vote.item).or_default().push(vote);
        }
        let items = by_item.into_iter().map(|(item, votes)| {
            let steps = |is_up: bool, moment: fn(&Vote) -> Option<Instant>| {
                let some = votes.iter().filter(|vote| (vote.value > 0) == is_up);
                Steps::new(
                    some.filter_map(|vote| Some((moment(vote)?, vote.value)))
                        .collect(),
                )
            };
            let changes = Changes {
                sent_up: steps(true, |vote| Some(vote.sent)),
                sent_down: steps(false, |vote| Some(vote.sent)),
                acknowledged_up: steps(true, |vote| vote.acknowledged),
                acknowledged_down: steps(false, |vote| vote.acknowledged),
            };
            (item, changes)
        });
        Self {
            items: items.collect(),
        }
    }

    /// The bounds between which this answer's count must lie.
    pub fn bounds(&self, answer: &Answer) -> Bounds {
        let nothing = Changes::default();
        let votes = self.items.get(&answer.item).unwrap_or(&nothing);
        Bounds {
            lowest: votes.acknowledged_up.up_to(answer.began)
                + votes.sent_down.before(answer.ended)
                + answer.own.max(0),
            highest: votes.sent_up.before(answer.ended)
                + votes.acknowledged_down.up_to(answer.began)
                + answer.own.min(0),
        }
    }

    /// The answers with impossible counts, each with its bounds.
    pub fn outside<'a>(
        &'a self,
        answers: impl IntoIterator<Item = &'a Answer>,
    ) -> impl Iterator<Item = (&'a Answer, Bounds)> {
        let judged = answers.into_iter().map(|answer| (answer, self.bounds(answer)));
        judged.filter(|(answer, bounds)| !bounds.hold(answer.count))
    }
}
