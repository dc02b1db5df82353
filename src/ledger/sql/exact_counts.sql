-- The exact counts of the items $1 (each id once), and the snapshot they were
-- read under. One statement, so one snapshot: the watermark, the audited counts
-- and the votes beyond the watermark agree.
select part.item_id                as "item_id!",
       sum(part.value)::bigint     as "count!",
       max(part.counted_at)        as "counted_at!",
       pg_current_snapshot()::text as "snapshot!"
from (
    select id as item_id, audited_count as value,
           coalesce((extract(epoch from counted_at) * 1000000)::bigint, 0) as counted_at
    from item
    where id = any($1::bigint[])
    union all
    select vote.item_id, vote.value, 0
    from unnest($1::bigint[]) as given (id)
    join vote on vote.item_id = given.id
    where vote.id > (select vote_id from watermark)
) as part
group by part.item_id
