-- The sums of the votes with $1 < id <= $2 by item and five minutes, and how many votes they are.
-- A span is a number of five minutes: how many there were between 1970 and its start.
-- Arrays, because most items have few votes among these: a row each would cost the worker more.
select coalesce(array_agg(item_id), '{}') as "items!: Vec<i64>",
       -- Exact: a whole number of seconds.
       coalesce(array_agg((date_part('epoch', starts_at) / 300)::bigint), '{}') as "spans!: Vec<i64>",
       coalesce(array_agg(net), '{}') as "nets!: Vec<i64>",
       coalesce(array_agg(downs), '{}') as "downs!: Vec<i64>",
       coalesce(sum(votes), 0)::bigint as "votes!"
from (
    select item_id,
           date_bin('5 minutes', created_at, timestamptz 'epoch') as starts_at,
           sum(value)::bigint as net,
           -- As in exact_counts.sql.
           count(*) filter (where value < 0 and change_number % 2 = 0)
           - count(*) filter (where value > 0 and change_number % 2 = 1) as downs,
           count(*) as votes
    from vote
    where id > $1::bigint and id <= $2::bigint
    group by item_id, starts_at
) as summed
