-- The first votes of the given voters on the given items; $1 item ids, $2 voter ids.
select given.position as "position!", first.id as "id!", first.value as "value!"
from unnest($1::bigint[], $2::text[]) with ordinality as given (item_id, voter_id, position)
cross join lateral (
    select vote.id, vote.value
    from vote
    where vote.item_id = given.item_id
      and vote.voter_id = given.voter_id
      and vote.change_number = 0
    -- One index lookup for each vote, whenever this was planned.
    limit 1
) as first
