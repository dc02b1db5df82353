-- The exact counts of the items $1 (each id once), and the snapshot they were
-- read under. One statement, so one snapshot: the watermark, the audited counts
-- and the votes beyond the watermark agree.
select item.id as "item_id!",
       item.audited_count + coalesce((
           -- A subquery, so that it is one range of the index vote_of_item an item,
           -- whenever it was planned.
           select sum(vote.value)
           from vote
           where vote.item_id = item.id
             and vote.id > (select vote_id from watermark)
       ), 0)::bigint as "count!",
       coalesce((extract(epoch from counted_at) * 1000000)::bigint, 0) as "counted_at!",
       pg_current_snapshot()::text as "snapshot!"
from item
where item.id = any($1::bigint[])
