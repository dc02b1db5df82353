-- The votes with $3 < id <= $4 on the item $1 or in the poll $2 (null: of any), in the order of their ids, up to $5.
select id, item_id, (extract(epoch from created_at) * 1000000)::bigint as "created_at!", voter_id, value,
       change_number, number
from vote
where id > $3 and id <= $4 and ($1::bigint is null or item_id = $1) and ($2::bigint is null or poll_id = $2)
order by id
limit $5
