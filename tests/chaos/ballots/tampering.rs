//! Ways to break the results of ballots, each with a part of the finding that it must cause.

use std::time::Instant;

use sqlx::PgConnection;
use tally::domain::BallotHash;

use super::{Attempt, Ballot, BallotRecords, Outcome, Target};

/// Adds one more ballot for each target. Nobody spends it.
///
/// # Errors
/// When Postgres does not answer.
pub async fn add_ballots(records: &mut BallotRecords, owner: &mut PgConnection) -> anyhow::Result<()> {
    for (target, of) in records.targets.iter().enumerate() {
        let token = format!("nobody spends it, {target}");
        sqlx::query("select add_ballots($1, array[$2], null)")
            .bind(of.rule)
            .bind(BallotHash::of(&token).as_bytes())
            .execute(&mut *owner)
            .await?;
        records.ballots.push(Ballot { token, target });
    }
    Ok(())
}

/// Breaks the ledger.
pub const STATEMENTS: &[(&str, &str)] = &[
    (
        "delete from vote where id = (select min(vote_id) from ballot)",
        "which is not there",
    ),
    (
        "delete from vote where id = (select min(vote_id) from ballot)",
        "which is no vote on an item of it",
    ),
    (
        "insert into vote (item_id) select min(id) from item where name = 'by ballot'",
        "no ballot bought",
    ),
    (
        "insert into vote (item_id) select min(id) from item where name = 'by ballot'",
        "was bought by 0 ballots",
    ),
    (
        "update ballot set vote_id = null where vote_id = (select min(vote_id) from ballot)",
        "cannot be, since it bought None",
    ),
    (
        "with spent as (select rule_id, vote_id from ballot where vote_id is not null limit 1)
         update ballot set vote_id = spent.vote_id from spent
         where ballot.rule_id = spent.rule_id and ballot.vote_id > spent.vote_id",
        "was bought by",
    ),
    (
        "with two as (
             select rule_id, min(vote_id) as low, max(vote_id) as high from ballot group by rule_id
             having count(vote_id) > 1 limit 1)
         update ballot set vote_id = two.low from two where ballot.rule_id = two.rule_id and vote_id = two.high",
        "another one bought vote",
    ),
    (
        "delete from ballot where vote_id is not null",
        "it is gone",
    ),
    (
        "update vote set number = number + 1000
         where item_id = (select id from item where name = 'limited ballots') and number = 1",
        "cannot be, since it bought",
    ),
    (
        "update vote set voter_id = 'someone'
         where item_id = (select id from item where name = 'limited ballots') and number = 1",
        "a vote with a ballot has a voter",
    ),
    (
        "insert into vote (item_id) select id from item where name = 'limited ballots'",
        "votes are too many",
    ),
    (
        "delete from vote where item_id = (select id from item where name = 'limited ballots') and number = 1",
        "it was full, and",
    ),
    (
        "delete from vote
         where id = (select min(vote.id) from vote join item on item.id = item_id where name = 'secret')",
        "ballots are spent, and",
    ),
    (
        "insert into vote (item_id) select id from item cross join generate_series(1, 1000) where name = 'secret'",
        "secret votes on item",
    ),
    (
        "delete from ballot where vote_id is null and rule_id = (select id from rule where is_secret)",
        "it is spent, and whatever asked for that was refused",
    ),
    (
        "update ballot set vote_id = 1 where rule_id = (select id from rule where is_secret)",
        "its row names vote",
    ),
    (
        "update vote set number = 1
         where id = (select min(vote.id) from vote join item on item.id = item_id where name = 'secret')",
        "was bought by",
    ),
];

/// Breaks what the clients recorded.
pub fn records(right: &BallotRecords) -> Vec<(BallotRecords, &'static str)> {
    let mut broken = Vec::new();
    let now = Instant::now();
    let is = |target: &Target, is_secret: bool| target.is_secret == is_secret;
    for is_secret in [false, true] {
        let place = |has: fn(&Attempt) -> bool| {
            let attempts = right.attempts.iter().filter(|(ballot, attempts)| {
                is(&right.targets[right.ballots[**ballot].target], is_secret) && attempts.iter().any(has)
            });
            attempts.map(|(ballot, _)| *ballot).next()
        };
        let bought = place(|attempt| matches!(attempt.outcome, Outcome::Stored { .. })).expect("one");
        let with = |outcome: Outcome| {
            let mut records = right.clone();
            for attempt in records.attempts.get_mut(&bought).into_iter().flatten() {
                if attempt.outcome.may_buy() {
                    attempt.outcome = outcome;
                }
            }
            records
        };
        let refused = if is_secret {
            "whatever asked for that was refused"
        } else {
            "or it was refused"
        };
        broken.push((with(Outcome::NotValid), refused));
        let mut twice = right.clone();
        for attempt in twice.attempts.get_mut(&bought).into_iter().flatten() {
            attempt.outcome = Outcome::Stored {
                vote: None,
                number: None,
            };
        }
        let again = twice.attempts[&bought][0];
        twice.attempts.entry(bought).or_default().push(again);
        broken.push((twice, "it bought two votes"));
        // An attempt on a ballot that nobody spends.
        let target = right
            .targets
            .iter()
            .position(|target| is(target, is_secret) && target.max_votes.is_none())
            .expect("a target");
        let unspent = right.ballots.iter().rposition(|ballot| ballot.target == target);
        let unspent = unspent.expect("the one that was added");
        for (outcome, part) in [
            (
                Outcome::Stored {
                    vote: (!is_secret).then_some(1),
                    number: None,
                },
                "cannot be",
            ),
            (Outcome::NotValid, "cannot be"),
            (Outcome::Full, "it was full, and"),
        ] {
            let mut records = right.clone();
            records.attempts.entry(unspent).or_default().push(Attempt {
                item: right.targets[target].items[0],
                value: 1,
                outcome,
                called: now,
                returned: now,
            });
            broken.push((records, part));
        }
        if !is_secret {
            let mut other = right.clone();
            for attempt in other.attempts.get_mut(&bought).into_iter().flatten() {
                if let Outcome::Stored { vote, .. } = &mut attempt.outcome {
                    *vote = Some(1);
                }
            }
            broken.push((other, "cannot be, since it bought"));
        }
    }
    broken
}
