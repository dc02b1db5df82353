//! What the ledger and the rules must say of each other, by SQL alone.

use sqlx::PgExecutor;

/// What of this is not so, in words:
/// - a voter's rows on an item have the change numbers 0, 1, 2 and so on, and each odd one takes
///   back the one before;
/// - an item's places that are taken are the votes that are held, and no more than it takes;
/// - its numbers are 1, 2, 3 and so on;
/// - nobody holds more choices of a poll than it allows, and its turnout is who holds one.
///
/// # Errors
/// When Postgres does not answer.
pub async fn broken(owner: impl PgExecutor<'_>) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(
        "with entry as (
             select *,
                    row_number() over voters_rows - 1 as position,
                    lag(value) over voters_rows as before
             from vote where voter_id is not null
             window voters_rows as (partition by item_id, voter_id order by change_number)
         ), held as (
             select poll_id, voter_id, sum(1 - 2 * (change_number % 2)) as choices
             from vote where poll_id is not null group by poll_id, voter_id
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
         where taken <> coalesce(held, 0) or taken > max_votes
            or is_numbered and coalesce(numbers, '{}') <> array(select generate_series(1, last_number))
            or not is_numbered and numbers is not null
         union all
         select format('%s holds %s choices of poll %s', voter_id, choices, poll_id)
         from held join rule on rule.id = poll_id
         where choices > max_choices or choices < 0
         union all
         select format('poll %s: turnout %s, voters %s', rule.id, voter_count, count(choices))
         from rule left join held on poll_id = rule.id and choices > 0
         where title is not null
         group by rule.id having voter_count <> count(choices)",
    )
    .fetch_all(owner)
    .await
}
