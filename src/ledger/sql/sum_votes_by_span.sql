-- As sum_votes.sql, by item and span.
select coalesce(array_agg(item_id), '{}') as "items!: Vec<i64>",
       coalesce(array_agg((date_part('epoch', starts_at) / 300)::bigint), '{}') as "spans!: Vec<i64>",
       coalesce(array_agg(net), '{}') as "nets!: Vec<i64>",
       coalesce(array_agg(downs_cast), '{}') as "downs_cast!: Vec<i64>",
       coalesce(array_agg(ups_taken_back), '{}') as "ups_taken_back!: Vec<i64>",
       coalesce(array_agg(downs_taken_back), '{}') as "downs_taken_back!: Vec<i64>"
from (
    select item_id,
           date_bin('5 minutes', created_at, timestamptz 'epoch') as starts_at,
           sum(value)::bigint as net,
           count(*) filter (where value < 0 and change_number % 2 = 0) as downs_cast,
           count(*) filter (where value < 0 and change_number % 2 = 1) as ups_taken_back,
           count(*) filter (where value > 0 and change_number % 2 = 1) as downs_taken_back
    from vote
    where id > $1::bigint and id <= $2::bigint
    group by item_id, starts_at
) as summed
