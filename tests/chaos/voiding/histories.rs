//! Checks that the clients' histories are linearizable. They include what was voided and cast again,
//! and what the ledger holds in the end, as the last read.

use std::collections::BTreeMap;
use std::time::Instant;

use testkit::linearizable::Operation;
use testkit::linearizable::items::{self, Answer, ItemOperation, Request, Vote, Wants};
use testkit::linearizable::polls::{self, Poll, PollOperation};
use testkit::linearizable::rows::{self, Row};

use super::judge::{HeldRow, VoidedRow};
use super::plan::{Plan, Work};
use super::{CLIENTS, MAX_VOTES, VOTERS, VoidingRecords, voter_id};

/// The most problems that are reported.
const SHOWN: usize = 5;

impl VoidingRecords {
    /// The histories that do not fit what the ledger says happened. `held` was looked up between
    /// `looked` and now.
    pub(super) fn without_order(
        mut self,
        stored: &[Row],
        voided: &[VoidedRow],
        held: &[HeldRow],
        looked: Instant,
    ) -> Vec<String> {
        for row in voided {
            let plan = self.plans.iter().find(|plan| plan.reason == row.reason);
            if let (Some(voter), Some(plan)) = (voter_of(row.voter_id.as_deref()), plan) {
                let (voiding, undoing) = (plan.voiding, plan.undoing);
                if self.targets.choices.contains(&row.item_id) {
                    let history = self.selected.entry(voter).or_default();
                    history.extend(poll_operations(row, voiding, undoing));
                } else {
                    let history = self.histories.entry(row.item_id).or_default();
                    add_item_operations(history, row, voter, voiding, undoing);
                }
            }
        }
        self.add_last_reads(held, looked);
        let targets = &self.targets;
        let limited = [(targets.numbered, true), (targets.limited, false)]
            .into_iter()
            .filter_map(|(item, is_numbered)| {
                let effects = rows::of_item(stored, item);
                let history = self.histories.get(&item)?;
                let why = items::check(Some(MAX_VOTES), is_numbered, &effects, history).err()?;
                Some(format!("item {item}, with voidings, is {why}"))
            });
        let plain = [targets.plain, targets.span].into_iter().flat_map(|item| {
            let mut of_voters: BTreeMap<u32, Vec<ItemOperation>> = BTreeMap::new();
            for operation in self.histories.get(&item).into_iter().flatten() {
                if let Some(voter) = operation.request.voter {
                    of_voters.entry(voter).or_default().push(operation.clone());
                }
            }
            of_voters.into_iter().filter_map(move |(voter, history)| {
                let effects = rows::of_voter(stored, item, voter);
                let why = items::check(None, false, &effects, &history).err()?;
                Some(format!("voter {voter} on item {item}, with voidings, is {why}"))
            })
        });
        let selected = self.selected.iter().filter_map(|(voter, history)| {
            let held = rows::of_poll(stored, &targets.choices, *voter);
            let why = polls::check(&Poll { max_choices: 1 }, &held, history).err()?;
            Some(format!("what voter {voter} chose, with voidings, is {why}"))
        });
        limited.chain(plain).chain(selected).take(SHOWN).collect()
    }

    /// Adds what each voter holds now as a read of each history.
    fn add_last_reads(&mut self, held: &[HeldRow], looked: Instant) {
        let returned = Instant::now();
        let targets = self.targets.clone();
        for voter in 0..CLIENTS * VOTERS {
            let on = |item: i64| {
                held.iter()
                    .find(|row| row.item_id == item && row.voter_id == voter_id(voter))
            };
            for item in [targets.plain, targets.span, targets.numbered, targets.limited] {
                let holds = on(item).map(|row| Answer::Holds(row.vote()));
                self.histories.entry(item).or_default().push(Operation {
                    request: Request {
                        voter: Some(voter),
                        wants: Wants::Read,
                    },
                    answer: Some(holds.unwrap_or(Answer::NothingHeld)),
                    called: looked,
                    returned,
                });
            }
            let choices = targets.choices.iter().copied();
            self.selected.entry(voter).or_default().push(Operation {
                request: polls::Request::Read,
                answer: Some(polls::Answer::Holds(
                    choices.filter(|choice| on(*choice).is_some()).collect(),
                )),
                called: looked,
                returned,
            });
        }
    }
}

fn voter_of(voter: Option<&str>) -> Option<u32> {
    voter?.strip_prefix("voided-")?.parse().ok()
}

/// What a voiding did to a voter's vote, as if the voter had asked for it meanwhile.
fn add_item_operations(
    history: &mut Vec<ItemOperation>,
    row: &VoidedRow,
    voter: u32,
    voiding: Option<Work>,
    undoing: Option<Work>,
) {
    let vote = Vote {
        id: row.vote_id,
        value: row.value,
        number: row.number,
    };
    let of_voiding = [
        // It was there to be voided.
        (Wants::Read, Answer::Holds(vote)),
        (Wants::TakeBack, Answer::TakenBack(row.by_vote_id)),
    ];
    let again = row.again_vote_id.map(|id| {
        let vote = Vote {
            id,
            number: None,
            ..vote
        };
        (Wants::Cast(row.value), Answer::New(vote))
    });
    let again = again.map(|step| (step, undoing));
    let steps = of_voiding.map(|step| (step, voiding)).into_iter().chain(again);
    history.extend(steps.filter_map(|((wants, answer), work)| {
        let work = work?;
        Some(Operation {
            request: Request {
                voter: Some(voter),
                wants,
            },
            answer: Some(answer),
            called: work.called,
            returned: work.returned?,
        })
    }));
}

/// What a voiding did to a voter's only choice.
fn poll_operations(row: &VoidedRow, voiding: Option<Work>, undoing: Option<Work>) -> Vec<PollOperation> {
    let choice = polls::Choices::from([row.item_id]);
    let of_voiding = [
        (polls::Request::Read, polls::Answer::Holds(choice.clone())),
        (polls::Request::Select([].into()), polls::Answer::Changed),
    ];
    let again = (polls::Request::Select(choice), polls::Answer::Changed);
    let again = row.again_vote_id.map(|_| (again, undoing));
    of_voiding
        .map(|step| (step, voiding))
        .into_iter()
        .chain(again)
        .filter_map(|((request, answer), work)| {
            let work = work?;
            Some(Operation {
                request,
                answer: Some(answer),
                called: work.called,
                returned: work.returned?,
            })
        })
        .collect()
}

impl Plan {
    /// Votes that certainly are before this voiding, and ones that certainly are not.
    pub(super) fn misses(&self, operation: &ItemOperation, until: i64) -> bool {
        let Some(id) = operation.answer.and_then(Answer::stored).map(|vote| vote.id) else {
            return false;
        };
        self.voiding.is_some_and(|work| {
            let is_before = operation.returned < work.called;
            let is_behind = work.returned.is_some_and(|returned| returned < operation.called);
            is_before && id > until || is_behind && id <= until
        })
    }
}
