//! Ways to break the results of voidings, each with a part of the finding that it must cause.

use std::time::Instant;

use testkit::linearizable::Operation;
use testkit::linearizable::items::{Answer, Request, Vote, Wants};

use super::VoidingRecords;
use super::plan::Scope;

/// Breaks the ledger.
pub const STATEMENTS: &[(&str, &str)] = &[
    (
        "delete from vote where id = (select min(by_vote_id) from voided)",
        "which are not its next rows",
    ),
    (
        "delete from vote where id = (select min(again_vote_id) from voided)",
        "which are not its next rows",
    ),
    (
        "update vote set value = -value where id = (select max(by_vote_id) from voided)",
        "which are not its next rows",
    ),
    (
        "update vote set voter_id = 'someone' where id = (select max(by_vote_id) from voided)",
        "which are not its next rows",
    ),
    (
        "insert into vote (item_id, value, change_number) select id, -1, 1 from item where name = 'voided plain'",
        "of nobody on item",
    ),
    (
        "insert into vote (item_id, value, change_number) select id, 1, 2 from item where name = 'voided plain'",
        "of nobody on item",
    ),
    (
        "with gone as (
             delete from voided where by_vote_id = (
                 select max(by_vote_id) from voided where again_vote_id is null and left_void is null)
             returning by_vote_id)
         delete from vote using gone where id = by_vote_id",
        "and is not voided",
    ),
    (
        "with gone as (select again_vote_id as id from voided where again_vote_id is not null limit 1),
              unmarked as (update voided set again_vote_id = null from gone where again_vote_id = id)
         delete from vote using gone where vote.id = gone.id",
        "is not all cast again or left void",
    ),
    (
        "update voided set again_vote_id = null, left_void = 'full' where again_vote_id is not null
         and vote_id in (select vote.id from vote join item on item.id = item_id where name = 'voided many')",
        "is left void without a reason",
    ),
    (
        "update voided set again_vote_id = null, left_void = 'changed' where again_vote_id is not null
         and vote_id in (select vote.id from vote join item on item.id = item_id where name = 'voided many')",
        "is left void without a reason",
    ),
    (
        "update place set max_votes = 1 where item_id = (select id from item where name = 'voided limited')",
        "votes are held, and it takes 1",
    ),
    (
        "update place set taken = taken - 1 where item_id = (select id from item where name = 'voided limited')",
        "places taken",
    ),
    (
        "update rule set voter_count = voter_count + 1 where title = 'voided poll'",
        "turnout",
    ),
    (
        "delete from vote where id in (
             select min(vote.id) from vote join item on item.id = item_id
             where name in ('voided plain', 'voided span') and voter_id is null and change_number = 0)",
        "its row is not there",
    ),
    (
        "insert into vote (item_id) select id from item cross join generate_series(1, 1000) where name = 'voided many'",
        "are nobody's, and",
    ),
    (
        "update voiding set until_vote_id = 0, done_vote_id = 0",
        "it does not end where it began",
    ),
    (
        "update voiding set done_vote_id = until_vote_id - 1",
        "it is not done",
    ),
    ("update voiding set reason = 'another'", "nobody wanted"),
    (
        "update voiding set item_id = 1, voter_id = null",
        "it is of other votes",
    ),
    (
        "delete from vote where id in (
             select max(id) from vote where voter_id like 'voided-%' group by item_id, voter_id)",
        "with voidings, is not linearizable",
    ),
];

/// Breaks what the clients and the operator recorded.
pub fn records(right: &VoidingRecords) -> Vec<(VoidingRecords, &'static str)> {
    let with = |change: &dyn Fn(&mut VoidingRecords)| {
        let mut records = right.clone();
        change(&mut records);
        records
    };
    let now = Instant::now();
    vec![
        (
            with(&|records| {
                for plan in &mut records.plans {
                    for report in &mut plan.reports {
                        report["voided_votes"] = 100_000.into();
                    }
                }
            }),
            "reported done with another number of votes",
        ),
        (
            with(&|records| {
                for plan in &mut records.plans {
                    plan.is_undone = !plan.is_undone;
                }
            }),
            "it is undone and should not be, or the other way",
        ),
        (with(&|records| records.plans.clear()), "nobody wanted"),
        (
            with(&|records| {
                for plan in &mut records.plans {
                    plan.scope = Scope::Voter(14);
                }
            }),
            "it is of other votes",
        ),
        (
            with(&|records| {
                for plan in &mut records.plans {
                    plan.voiding = None;
                }
            }),
            "never done, though all was repaired",
        ),
        // Without what was voided, the histories have no order.
        (
            with(&|records| {
                for plan in &mut records.plans {
                    plan.voiding = None;
                    plan.undoing = None;
                }
            }),
            "with voidings, is not linearizable",
        ),
        (
            with(&|records| {
                let history = records.histories.entry(records.targets.limited).or_default();
                history.push(Operation {
                    request: Request {
                        voter: Some(14),
                        wants: Wants::Cast(1),
                    },
                    answer: Some(Answer::New(Vote {
                        id: 1,
                        value: 1,
                        number: None,
                    })),
                    called: now,
                    returned: now,
                });
            }),
            "with voidings, is not linearizable",
        ),
    ]
}
