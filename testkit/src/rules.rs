//! What the ledger and the rules must say of each other, by SQL alone.

use sqlx::PgExecutor;

/// What of this is not so, in words:
/// - a voter's rows on an item have the change numbers 0, 1, 2 and so on, and each odd one takes
///   back the one before;
/// - an item's places that are taken are the votes that are held, and no more than it takes;
/// - its numbers are 1, 2, 3 and so on;
/// - nobody holds more choices of a poll than it allows, and its turnout is who holds one;
/// - a voided vote is taken back by its row, and cast again by another, if it is;
/// - each vote on an item that takes ballots was bought by one.
///
/// # Errors
/// When Postgres does not answer.
pub async fn broken(owner: impl PgExecutor<'_>) -> Result<Vec<String>, sqlx::Error> {
    broken_among(owner, None).await
}

/// The same of these items alone, and of the polls whose choices they are: give all of a poll's.
///
/// # Errors
/// When Postgres does not answer.
pub async fn broken_of(owner: impl PgExecutor<'_>, items: &[i64]) -> Result<Vec<String>, sqlx::Error> {
    broken_among(owner, Some(items)).await
}

async fn broken_among(owner: impl PgExecutor<'_>, items: Option<&[i64]>) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(
        "with given as (
             select id, rule_id from item where $1::bigint[] is null or id = any($1)
         ), entry as (
             select *,
                    row_number() over voters_rows - 1 as position,
                    lag(value) over voters_rows as before
             from vote where voter_id is not null and item_id in (select id from given)
             window voters_rows as (partition by item_id, voter_id order by change_number)
         ), held as (
             select poll_id, voter_id, sum(1 - 2 * (change_number % 2)) as choices
             from vote where poll_id in (select rule_id from given) group by poll_id, voter_id
         )
         select format('row %s of %s on item %s: change %s, value %s after %s', id, voter_id, item_id,
                       change_number, value, before)
         from entry
         where change_number <> position or change_number % 2 = 1 and value <> -before
         union all
         select format('item %s: places taken %s of %s, held %s; last number %s, numbers %s', place.item_id,
                       taken, max_votes, held, last_number, numbers)
         from place
         cross join lateral (
             select sum(1 - 2 * (change_number % 2)) as held,
                    array_agg(number order by number) filter (where number is not null) as numbers
             from vote where item_id = place.item_id
         ) as stored
         where place.item_id in (select id from given)
           and (taken <> coalesce(held, 0) or taken > max_votes
                or is_numbered and coalesce(numbers, '{}') <> array(select generate_series(1, last_number))
                or not is_numbered and numbers is not null)
         union all
         select format('%s holds %s choices of poll %s', voter_id, choices, poll_id)
         from held join rule on rule.id = poll_id
         where voter_id is not null and (choices > max_choices or choices < 0)
         union all
         -- Each vote with a ballot is someone's, though nobody's name.
         select format('poll %s: turnout %s, voters %s', rule.id, voter_count,
                       count(voter_id) + coalesce(sum(choices) filter (where voter_id is null), 0))
         from rule left join held on poll_id = rule.id and choices > 0
         where title is not null and rule.id in (select rule_id from given)
         group by rule.id
         having voter_count <> count(voter_id) + coalesce(sum(choices) filter (where voter_id is null), 0)
         union all
         select format('vote %s takes %s back, and has the value %s', back.id, voided.vote_id, back.value)
         from voided
         join vote on vote.id = voided.vote_id
         left join vote as back on back.id = voided.by_vote_id
         left join vote as again on again.id = voided.again_vote_id
         where back.value is distinct from -vote.value or back.item_id <> vote.item_id
            or voided.again_vote_id is not null and again.value is distinct from vote.value
         union all
         select format('rule %s: %s of %s ballots are left, and %s votes were cast', rule.id, unspent, ballot_count, cast_votes)
         from rule
         cross join lateral (
             select count(*) filter (where vote_id is null) as unspent from ballot where rule_id = rule.id
         ) as left_ballots
         cross join lateral (
             select count(*) filter (where change_number % 2 = 0) - count(again_vote_id) as cast_votes
             from item join vote on vote.item_id = item.id
             left join voided on voided.again_vote_id = vote.id
             where item.rule_id = rule.id
         ) as stored
         where by_ballot and ballot_count - unspent <> cast_votes",
    )
    .bind(items)
    .fetch_all(owner)
    .await
}
