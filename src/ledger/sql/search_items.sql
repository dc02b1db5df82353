-- The next $2 items above $1 that are not hidden and match $3: each word of $3 begins a word of the name.
-- $4: without the choices of polls. A text without a word finds nothing.
select item.id as "id!", name as "name!", key, is_hidden as "is_hidden!", vote_count as "vote_count!", down_count as "down_count!",
       rule_id is not null or not takes_down_votes as "has_rules!",
       (extract(epoch from counted_at) * 1000000)::bigint as counted_at
from found_items($3, $1, $2, $4) as found (id) join item on item.id = found.id
order by item.id
