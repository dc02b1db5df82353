-- The exact counts of the items $1 (each id once), and their snapshot. One statement has one
-- snapshot, so the watermark, the audited counts and the votes beyond the watermark agree.
select item.id as "item_id!",
       (coalesce(audited.vote_count, 0) + coalesce(tail.sum, 0))::bigint as "count!",
       coalesce(audited.down_count, 0) + tail.downs         as "down_count!",
       (extract(epoch from counted_at) * 1000000)::bigint   as "counted_at",
       pg_current_snapshot()::text                          as "snapshot!"
from item
left join lateral (
    -- With the table's name: item has columns of the same names.
    select audited_count.vote_count, audited_count.down_count
    from audited_count where audited_count.item_id = item.id
    -- `offset 0` makes this one index lookup for each item. Without it, a plan from the time when the
    -- table was empty may read all of it.
    offset 0
) as audited on true
cross join lateral (
    select sum(vote.value) as sum,
           -- A row with an even change_number casts a vote; an odd one takes it back.
           count(*) filter (where vote.value < 0 and vote.change_number % 2 = 0)
           - count(*) filter (where vote.value > 0 and vote.change_number % 2 = 1) as downs
    from vote
    -- Comparing rows makes this one range of the index vote_of_item for each item. With
    -- plain comparisons, a plan from the time when the table was empty may read all votes
    -- beyond the watermark, for each item.
    where (vote.item_id, vote.id) > (item.id, (select vote_id from watermark))
      and (vote.item_id, vote.id) <= (item.id, 9223372036854775807)
) as tail
where item.id = any($1::bigint[])
