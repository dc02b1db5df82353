-- The votes that the voter $1 holds on the items $2 and in the polls $3, with the own keys of the items and the polls.
-- A voter's changes on an item are numbered; one with an odd number takes the vote back.
select held.item_id as "item_id!", held.id as "id!", held.value as "value!", held.number, held.poll_id,
       item.key as "key?", rule.key as "poll_key?"
from (
    select last.* from unnest($2::bigint[]) as item (id) cross join lateral (
        select vote.item_id, vote.id, vote.value, vote.number, vote.poll_id, vote.change_number
        from vote_of_voter as vote
        where vote.item_id = item.id and vote.voter_id = $1
        order by vote.item_id desc, vote.voter_id desc, vote.change_number desc
        limit 1
    ) as last
    -- `union` keeps one row of an item that is asked for both by itself and as a choice.
    union
    select * from (
        select distinct on (vote.item_id) vote.item_id, vote.id, vote.value, vote.number, vote.poll_id, vote.change_number
        from vote_of_voter as vote
        where vote.poll_id = any($3) and vote.voter_id = $1
        order by vote.item_id desc, vote.change_number desc
    ) as of_polls
) as held
left join item on item.id = held.item_id
left join rule on rule.id = held.poll_id
where held.change_number % 2 = 0
order by held.item_id
