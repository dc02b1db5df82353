-- What the audit compares live counts and saved counts with, for the items $1 (each id
-- once). $2: for how many seconds a vote may be in flight, from the begin of its batch.
select item.id            as "item_id!",
       item.vote_count    as "saved_count!",
       (extract(epoch from item.counted_at) * 1000000)::bigint as "counted_at",
       (item.audited_count + coalesce(tail.sum, 0))::bigint                  as "exact_count!",
       coalesce(tail.in_flight_up, 0)::bigint   as "in_flight_up!",
       coalesce(tail.in_flight_down, 0)::bigint as "in_flight_down!"
from item
cross join lateral (
    select sum(vote.value) as sum,
           sum(vote.value) filter (where in_flight and vote.value > 0) as in_flight_up,
           -sum(vote.value) filter (where in_flight and vote.value < 0) as in_flight_down
    from vote
    cross join lateral (
        select vote.created_at > statement_timestamp() - make_interval(secs => $2::float8) as in_flight
    ) as age
    -- One range of the index vote_of_item; see exact_counts.sql.
    where (vote.item_id, vote.id) > (item.id, (select vote_id from watermark))
      and (vote.item_id, vote.id) <= (item.id, 9223372036854775807)
) as tail
where item.id = any($1::bigint[])
order by item.id
