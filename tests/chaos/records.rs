//! What clients record: votes, acknowledgements, and the counts that were answered.

use std::time::Instant;

use serde::Deserialize;
use testkit::answered_counts::{Answer, Vote};

/// A vote, how often it was sent, and the vote ids in its acknowledgements.
#[derive(Clone, Debug)]
pub struct Record {
    pub item: i64,
    pub voter: Option<String>,
    pub value: i16,
    pub requests: u64,
    pub acknowledged: Vec<i64>,
    /// Its place in [`Records::timed`], if it was sent and has a voter.
    pub timed: Option<usize>,
}

/// What the clients have seen.
#[derive(Debug, Default)]
pub struct Records {
    pub votes: Vec<Record>,
    /// The same votes, for the check of the answers. An anonymous vote that was sent twice is
    /// two votes here.
    pub timed: Vec<Timed>,
    /// Every count that was answered as current.
    pub answers: Vec<Answer>,
    /// Votes that a throttle refused.
    pub throttled: u64,
    /// Answers that Tally must never give.
    pub wrong_answers: Vec<String>,
}

/// A vote with the moments of its first acknowledgements.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// Its acknowledgement is the first with 201 and a count: it is counted by then.
    pub vote: Vote,
    /// When it was acknowledged otherwise: with a null count, so it is counted later, or with
    /// 200 as a repeat, and another server may still be counting it.
    pub uncounted: Option<Instant>,
}

#[derive(Deserialize)]
pub struct VoteAnswer {
    pub vote_id: i64,
    pub item_id: i64,
    pub voter_id: Option<String>,
    pub value: i16,
    pub vote_count: Option<i64>,
    #[serde(default)]
    pub repeated: bool,
}

/// What came back, when the request was sent, and when the answer had come.
pub struct Reply {
    pub began: Instant,
    pub ended: Instant,
    pub answer: ReplyTo,
}

pub enum ReplyTo {
    Acknowledged(VoteAnswer),
    /// Refused, or not answered.
    Open,
    /// Refused by a throttle: certainly not stored.
    Throttled,
    Wrong(String),
}

impl Records {
    /// Notes when a vote was sent and acknowledged, and each count that was answered.
    pub fn note_times(&mut self, at: usize, replies: &[Reply]) {
        let record = &mut self.votes[at];
        for reply in replies {
            if matches!(reply.answer, ReplyTo::Throttled) {
                continue;
            }
            let known = record.timed.filter(|_| record.voter.is_some());
            let place = known.unwrap_or(self.timed.len());
            if known.is_none() {
                record.timed = Some(place);
                self.timed.push(Timed {
                    vote: Vote {
                        item: record.item,
                        value: i64::from(record.value),
                        sent: reply.began,
                        acknowledged: None,
                    },
                    uncounted: None,
                });
            }
            let timed = &mut self.timed[place];
            timed.vote.sent = timed.vote.sent.min(reply.began);
            let ReplyTo::Acknowledged(answer) = &reply.answer else {
                continue;
            };
            let first = if answer.repeated || answer.vote_count.is_none() {
                &mut timed.uncounted
            } else {
                &mut timed.vote.acknowledged
            };
            *first = Some(first.map_or(reply.ended, |first| first.min(reply.ended)));
            self.answers.extend(answer.vote_count.map(|count| Answer {
                item: record.item,
                count,
                began: reply.began,
                ended: reply.ended,
                own: if answer.repeated {
                    0
                } else {
                    i64::from(record.value)
                },
            }));
        }
    }
}
