//! What the ledger and the rules must say about each other, checked by SQL alone.

use sqlx::PgExecutor;

/// The violations of these rules, in words.
///
/// - A voter's rows on an item have the change numbers 0, 1, 2 and so on. Each odd one takes back
///   the vote before it.
/// - The number of an item's taken places is the number of its held votes, and never above its
///   limit, also after each single row.
/// - An item's numbers are 1, 2, 3 and so on.
/// - Nobody holds more choices of a poll than it allows. Its turnout is the number of voters who
///   hold one.
/// - The next row of its voter takes a voided vote back. If the vote is cast again, the row after
///   that casts it. A vote that was left void has a reason.
/// - No other row takes back, or casts again, a vote without a voter.
/// - Each vote that a voiding is about is voided or was taken back before, as far as the voiding is
///   done.
/// - A ballot bought each vote on an item that takes ballots. Each spent ballot bought one vote, on
///   an item that it is for. No row says which ballot bought a secret vote.
///
/// # Errors
/// When Postgres does not answer.
pub async fn broken(owner: impl PgExecutor<'_>) -> Result<Vec<String>, sqlx::Error> {
    broken_among(owner, None).await
}

/// The violations on these items only, and in the polls that have them as choices.
/// Give all choices of a poll.
///
/// # Errors
/// When Postgres does not answer.
pub async fn broken_of(owner: impl PgExecutor<'_>, items: &[i64]) -> Result<Vec<String>, sqlx::Error> {
    broken_among(owner, Some(items)).await
}

/// Votes that are noted as cast with an API key and are not there, take a vote back, stand in another
/// block, or have two keys.
///
/// # Errors
/// When Postgres does not answer.
pub async fn broken_keys(owner: impl PgExecutor<'_>) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(
        "with noted as materialized (
             select api_key_id, block, generate_series(lower(part), upper(part) - 1) as id
             from vote_api_key, unnest(vote_ids) as part
         )
         select format('API key %s has vote %s in block %s, which is not there, takes one back or is in another block',
                       api_key_id, noted.id, block)
         from noted left join vote on vote.id = noted.id
         where vote.id is null or vote.change_number % 2 = 1 or noted.id / 4096 <> block
         union all
         select format('vote %s was cast with %s API keys', id, count(*)) from noted group by id having count(*) > 1",
    )
    .fetch_all(owner)
    .await
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
         select format('row %s of item %s: %s votes are held, and it takes %s', id, item_id, held, max_votes)
         from (
             -- Rows on an item with a rule are decided in the order of their ids.
             select vote.id, item_id, max_votes,
                    sum(1 - 2 * (change_number % 2)) over (partition by item_id order by vote.id) as held
             from place join vote using (item_id)
             where max_votes is not null and item_id in (select id from given)
         ) as after_row
         where held > max_votes
         union all
         select format('vote %s is taken back by %s and cast again by %s, which are not its next rows',
                       voided.vote_id, by_vote_id, again_vote_id)
         from voided
         join vote on vote.id = voided.vote_id
         left join vote as back on back.id = voided.by_vote_id
         left join vote as again on again.id = voided.again_vote_id
         where (back.item_id, back.voter_id, back.poll_id, back.value, back.change_number, back.number)
               is distinct from (vote.item_id, vote.voter_id, vote.poll_id, -vote.value, vote.change_number + 1, null)
            or voided.again_vote_id is not null
               and (again.item_id, again.voter_id, again.poll_id, again.value, again.change_number, again.number)
                   is distinct from (vote.item_id, vote.voter_id, vote.poll_id, vote.value, vote.change_number + 2, null)
         union all
         select format('vote %s is left void without a reason: %s', voided.vote_id, left_void)
         from voided
         join vote on vote.id = voided.vote_id
         where voided.again_vote_id is not null and left_void is not null
            or left_void = 'changed' and not exists (
                   select from vote as next
                   where next.item_id = vote.item_id and next.voter_id = vote.voter_id
                     and next.change_number = vote.change_number + 2)
            or left_void = 'full' and not exists (
                   select from place where place.item_id = vote.item_id and max_votes is not null)
            or left_void = 'choices' and (vote.poll_id is null or vote.voter_id is null)
         union all
         select format('row %s of nobody on item %s, change %s: it takes back %s and casts again %s', vote.id, item_id,
                       change_number, back.vote_id, again.vote_id)
         from vote
         left join voided as back on back.by_vote_id = vote.id
         left join voided as again on again.again_vote_id = vote.id
         where vote.voter_id is null and item_id in (select id from given)
           and (change_number % 2 = 1, change_number > 0 and change_number % 2 = 0)
               <> (back.vote_id is not null, again.vote_id is not null)
         union all
         select format('vote %s on item %s is one that voiding %s is about, and is not voided', vote.id, vote.item_id,
                       voiding.id)
         from voiding
         join vote on vote.id <= done_vote_id and change_number % 2 = 0
              and (voiding.item_id is null or voiding.item_id = vote.item_id)
              and (voiding.voter_id is null or voiding.voter_id = vote.voter_id)
              -- Its votes may have been another voter's then.
              and not exists (
                  select from voter_edit
                  where voter_edit.kind = 'merge' and voter_edit.to_voter_id = voiding.voter_id)
              and (cast_from is null or vote.created_at >= cast_from)
              and (cast_until is null or vote.created_at < cast_until)
              and (voiding.address_hashes is null or exists (
                  select from vote_address
                  where vote_address.vote_id = vote.id and address_hash = any(voiding.address_hashes)))
              and (voiding.api_key_id is null or exists (
                  select from vote_api_key
                  where vote_api_key.block = vote.id / 4096 and vote_api_key.api_key_id = voiding.api_key_id
                    and vote_ids @> vote.id))
         where vote.item_id in (select id from given)
           and not exists (select from voided where voided.vote_id = vote.id)
           and not exists (
               select from vote as next
               where next.item_id = vote.item_id and next.voter_id = vote.voter_id
                 and next.change_number = vote.change_number + 1)
         union all
         select format('an address is kept of vote %s, which is not there or takes one back', vote_address.vote_id)
         from vote_address left join vote on vote.id = vote_address.vote_id
         where vote.id is null or vote.change_number % 2 = 1
         union all
         select format('vote %s of %s on item %s was bought by %s ballots', vote.id, voter_id, item_id,
                       coalesce(bought, 0))
         from given
         join rule on rule.id = given.rule_id
         join vote on vote.item_id = given.id
         left join (
             select vote_id, count(*) as bought from ballot where vote_id is not null group by vote_id
         ) as spent on spent.vote_id = vote.id
         where by_ballot
           and (voter_id is not null or is_secret and number is not null
                or coalesce(bought, 0) <> case when is_secret or change_number > 0 then 0 else 1 end)
         union all
         select format('a ballot for rule %s bought %s, which is no vote on an item of it', ballot.rule_id, vote_id)
         from ballot
         where vote_id is not null and ballot.rule_id in (select rule_id from given)
           and not exists (
               select from vote join item on item.id = vote.item_id
               where vote.id = ballot.vote_id and item.rule_id = ballot.rule_id)
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
