-- The ledger.

create or replace view votes as
select vote.id         as vote_id,
       vote.created_at,
       case when vote.change_number % 2 = 0 then 'cast' else 'taken back' end as action,
       -- A subquery is run only where a query asks for the column.
       case when vote.change_number % 2 = 0 then
           case when exists (select from voided where voided.again_vote_id = vote.id) then 'undo'
                when vote.change_number > 0 and exists (
                    select from vote_of_voter as one
                    where one.item_id = vote.item_id and one.voter_id = vote.voter_id
                      and one.change_number = vote.change_number - 1 and one.created_at = vote.created_at) then 'change'
                when vote.poll_id is not null and exists (
                    select from vote_of_voter as one
                    where one.poll_id = vote.poll_id and one.voter_id = vote.voter_id and one.item_id <> vote.item_id
                      and one.change_number % 2 = 1 and one.created_at = vote.created_at) then 'move'
                else 'vote' end
       else
           case when exists (select from voided where voided.by_vote_id = vote.id) then 'voiding'
                when exists (
                    select from vote_of_voter as one
                    where one.item_id = vote.item_id and one.voter_id = vote.voter_id
                      and one.change_number = vote.change_number + 1 and one.created_at = vote.created_at) then 'change'
                when vote.poll_id is not null and exists (
                    select from vote_of_voter as one
                    where one.poll_id = vote.poll_id and one.voter_id = vote.voter_id and one.item_id <> vote.item_id
                      and one.change_number % 2 = 0 and one.created_at = vote.created_at) then 'move'
                else 'retraction' end
       end             as part_of,
       case when (vote.value > 0) = (vote.change_number % 2 = 0) then 'up' else 'down' end as direction,
       vote.item_id,
       item.name       as item_name,
       vote.poll_id,
       vote.voter_id,
       vote.number,
       vote.change_number,
       (1 - 2 * (vote.change_number % 2) + vote.value) / 2 as up_votes,
       (1 - 2 * (vote.change_number % 2) - vote.value) / 2 as down_votes,
       1 - 2 * (vote.change_number % 2) as votes,
       vote.value::int as score
from vote
left join item on item.id = vote.item_id;
comment on view votes is 'The ledger: one row each time that a vote was cast or taken back. Rows never change. A change or a move is two rows of one time. Without votes that were archived. For the votes of some time use votes_between, which does not read the whole ledger.';
comment on column votes.vote_id is 'The row''s id. It grows, not in the order of created_at, and has gaps.';
comment on column votes.created_at is 'When it was cast or taken back, by Postgres'' clock.';
comment on column votes.action is 'cast, or taken back.';
comment on column votes.part_of is 'cast: vote, change, move or undo (of a voiding). taken back: change (to the other direction), move (to another choice of the poll), retraction or voiding. Costs two look-ups a row.';
comment on column votes.direction is 'up or down: of the vote that was cast or taken back.';
comment on column votes.item_id is 'The item.';
comment on column votes.item_name is 'Its name.';
comment on column votes.poll_id is 'The poll, if the item is a choice.';
comment on column votes.voter_id is 'Who voted. Null: anonymous, or with a ballot.';
comment on column votes.number is 'The vote''s number, on an item that numbers its votes.';
comment on column votes.change_number is 'Which of the voter''s rows on this item: 0, 1, 2 … Even ones cast, odd ones take back.';
comment on column votes.up_votes is 'What the row adds to the up-votes: 1, 0 or -1. The sum is what is held.';
comment on column votes.down_votes is 'What it adds to the down-votes.';
comment on column votes.votes is 'What it adds to the votes: 1 or -1.';
comment on column votes.score is 'What it adds to the score: 1 or -1.';

-- Each range of ids that may have votes of the time is looked up by itself: the offset keeps Postgres from joining all
-- ranges with the whole ledger at once, which it takes for cheaper than it is. What a caller does not select, it does
-- not read either.
create or replace function votes_between(since timestamptz, until timestamptz)
returns setof votes
language sql stable
begin atomic
    select one.*
    from (
        select vote_time.first_vote_id, vote_time.last_vote_id from vote_time
        where vote_time.last_at > since and vote_time.first_at < until
        union all
        -- What is not rolled up yet.
        select coalesce(max(vote_time.last_vote_id), 0) + 1, 9223372036854775807 from vote_time
    ) as part
    cross join lateral (
        select votes.* from votes
        where votes.vote_id between part.first_vote_id and part.last_vote_id
          and votes.created_at >= since and votes.created_at < until
        offset 0
    ) as one;
end;
comment on function votes_between is 'The rows of votes from one time on and before another one. It reads the votes of about that time alone. Example: select voter_id, count(*) from report.votes_between(now() - interval ''1 day'', now()) group by voter_id';

create or replace view votes_by_api_key as
select vote_api_key.api_key_id,
       api_key.name     as api_key_name,
       vote_api_key.created_at,
       (select sum(upper(part.ids) - lower(part.ids)) from unnest(vote_api_key.vote_ids) as part (ids))::bigint as votes_cast,
       lower(vote_api_key.vote_ids) as first_vote_id
from vote_api_key
left join api_key on api_key.id = vote_api_key.api_key_id;
comment on view votes_by_api_key is 'One row per batch of votes and API key that cast some of them: sum votes_cast. Without votes of secret polls, retractions, and votes cast without a key. A vote that was cast again after a voiding counts twice.';
comment on column votes_by_api_key.api_key_id is 'The API key.';
comment on column votes_by_api_key.api_key_name is 'Whose it is, or where it is used.';
comment on column votes_by_api_key.created_at is 'When the votes were cast.';
comment on column votes_by_api_key.votes_cast is 'How many votes.';
comment on column votes_by_api_key.first_vote_id is 'The first of them, to find it in report.votes.';
