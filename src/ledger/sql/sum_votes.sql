-- The sums of the votes with $1 < id <= $2 by item, how many votes they are, and the spans of the first and the
-- last of them by time: if these are the same, the sums are of that span.
-- A span is a number of five minutes: how many there were between 1970 and its start.
-- Arrays, because most items have few votes among these: a row each would cost the worker more.
select coalesce(array_agg(item_id), '{}') as "items!: Vec<i64>",
       coalesce(array_agg(net), '{}') as "nets!: Vec<i64>",
       coalesce(array_agg(downs_cast), '{}') as "downs_cast!: Vec<i64>",
       coalesce(array_agg(ups_taken_back), '{}') as "ups_taken_back!: Vec<i64>",
       coalesce(array_agg(downs_taken_back), '{}') as "downs_taken_back!: Vec<i64>",
       coalesce(sum(votes), 0)::bigint as "votes!",
       -- Exact: a whole number of seconds.
       (date_part('epoch', date_bin('5 minutes', min(first_at), timestamptz 'epoch')) / 300)::bigint as first_span,
       (date_part('epoch', date_bin('5 minutes', max(last_at), timestamptz 'epoch')) / 300)::bigint as last_span
from (
    select item_id,
           sum(value)::bigint as net,
           -- As in exact_counts.sql: what was cast less what was taken back.
           count(*) filter (where value < 0 and change_number % 2 = 0) as downs_cast,
           count(*) filter (where value < 0 and change_number % 2 = 1) as ups_taken_back,
           count(*) filter (where value > 0 and change_number % 2 = 1) as downs_taken_back,
           count(*) as votes,
           min(created_at) as first_at,
           max(created_at) as last_at
    from vote
    where id > $1::bigint and id <= $2::bigint
    group by item_id
) as summed
