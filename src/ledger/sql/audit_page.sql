-- What the audit compares with the live counts, for the items $1 (each id once).
-- $2: votes with higher ids may be in flight.
select item.id            as "item_id!",
       item.vote_count    as "saved_count!",
       (extract(epoch from item.counted_at) * 1000000)::bigint as "counted_at",
       (item.audited_count + coalesce(tail.sum, 0))::bigint    as "exact_count!",
       coalesce(tail.in_flight_up, 0)::bigint                  as "in_flight_up!",
       coalesce(tail.in_flight_down, 0)::bigint                as "in_flight_down!"
from item
cross join lateral (
    select sum(vote.value) as sum,
           sum(vote.value) filter (where vote.id > $2::bigint and vote.value > 0) as in_flight_up,
           -sum(vote.value) filter (where vote.id > $2::bigint and vote.value < 0) as in_flight_down
    from vote
    -- One range of the index vote_of_item; see exact_counts.sql.
    where (vote.item_id, vote.id) > (item.id, (select vote_id from watermark))
      and (vote.item_id, vote.id) <= (item.id, 9223372036854775807)
) as tail
where item.id = any($1::bigint[])
order by item.id
