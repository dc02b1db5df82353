-- The first votes of the given voters on the given items; $1 item ids, $2 voter ids.
select given.position as "position!", vote.id as "id!", vote.value as "value!"
from unnest($1::bigint[], $2::text[]) with ordinality as given (item_id, voter_id, position)
join vote on vote.item_id = given.item_id
         and vote.voter_id = given.voter_id
         and vote.change_number = 0
