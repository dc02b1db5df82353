//! What clients record: votes, acknowledgements, and the counts that were answered.

use std::time::Instant;

use serde::Deserialize;
use testkit::answered_counts::{Answer, Vote};

use crate::stores::{AllLost, VoteRow};

/// A vote, how often it was sent, and the vote ids in its acknowledgements.
#[derive(Clone, Debug)]
pub struct Record {
    pub item: i64,
    pub voter: Option<String>,
    pub value: i16,
    pub requests: u64,
    pub acknowledged: Vec<Acknowledged>,
    /// Its place in [`Records::timed`], if it was sent and has a voter.
    pub timed: Option<usize>,
    /// It was acknowledged, and went with a primary of Postgres.
    pub is_lost: bool,
}

/// An acknowledgement of a vote.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledged {
    pub vote: i64,
    /// When its request was sent.
    pub began: Instant,
    /// Its place in [`Records::timed`].
    timed: usize,
}

/// What the clients have seen.
#[derive(Clone, Debug, Default)]
pub struct Records {
    pub votes: Vec<Record>,
    /// The same votes, for the check of the answers. An anonymous vote that was sent twice is
    /// two votes here.
    pub timed: Vec<Timed>,
    /// Every count that was answered as current.
    pub answers: Vec<Answer>,
    /// Votes that a throttle refused.
    pub throttled: u64,
    /// Votes whose tokens had run out, by the clock of the server.
    pub ran_out: u64,
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
    /// Refused because its token had run out: certainly not stored.
    RanOut,
    Wrong(String),
}

impl Records {
    /// Adds what another client has seen.
    pub fn add(&mut self, one: Self) {
        let before = self.timed.len();
        self.votes.extend(one.votes.into_iter().map(|mut record| {
            record.timed = record.timed.map(|at| at + before);
            for acknowledged in &mut record.acknowledged {
                acknowledged.timed += before;
            }
            record
        }));
        self.timed.extend(one.timed);
        self.answers.extend(one.answers);
        self.throttled += one.throttled;
        self.ran_out += one.ran_out;
        self.wrong_answers.extend(one.wrong_answers);
    }

    /// Takes out the acknowledgements that may be lost: their commits went with a primary of Postgres. Of a
    /// vote that was acknowledged, lost and stored again, no count needs to have the first one. Returns how many
    /// there are no rows of.
    pub fn take_out(&mut self, lost: &AllLost, is_there: impl Fn(&VoteRow) -> bool) -> u64 {
        let mut taken_out = 0;
        for record in &mut self.votes {
            let row = |id: i64| VoteRow {
                id,
                item_id: record.item,
                key: None,
                voter_id: record.voter.clone(),
                value: record.value,
            };
            let (gone, kept): (Vec<Acknowledged>, Vec<_>) = record
                .acknowledged
                .iter()
                .partition(|one| lost.excuses(&row(one.vote), one.began));
            for one in &gone {
                self.timed[one.timed].vote.acknowledged = None;
                self.timed[one.timed].uncounted = None;
            }
            // A voter may have the same id again. An anonymous vote that looks the same is another client's.
            let again = gone.into_iter().filter(|one| {
                record.voter.is_some()
                    && is_there(&row(one.vote))
                    && !kept.iter().any(|other| other.vote == one.vote)
            });
            let before = record.acknowledged.len();
            record.acknowledged = kept.iter().copied().chain(again).collect();
            let gone = before - record.acknowledged.len();
            record.is_lost = gone > 0;
            taken_out += gone as u64;
        }
        taken_out
    }

    /// Notes when a vote was sent and acknowledged, and each count that was answered.
    pub fn note(&mut self, at: usize, replies: &[Reply]) {
        let record = &mut self.votes[at];
        for reply in replies {
            if matches!(reply.answer, ReplyTo::Throttled | ReplyTo::RanOut) {
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
            record.acknowledged.push(Acknowledged {
                vote: answer.vote_id,
                began: reply.began,
                timed: place,
            });
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
