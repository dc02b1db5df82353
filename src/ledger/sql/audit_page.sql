-- What the audit compares with the live counts, for the items $1 (each id once).
-- $2: votes with higher ids may be in flight.
-- A roll-up may have passed some of those since: the audited count has them, and they are still in flight.
select item.id            as "item_id!",
       item.vote_count    as "saved_count!",
       item.down_count    as "saved_downs!",
       (extract(epoch from item.counted_at) * 1000000)::bigint as "counted_at",
       (coalesce(audited.vote_count, 0) + coalesce(tail.sum, 0))::bigint as "exact_count!",
       coalesce(audited.down_count, 0) + tail.downs_cast - tail.downs_taken_back as "exact_downs!",
       coalesce(tail.in_flight_up, 0)::bigint                  as "in_flight_up!",
       coalesce(tail.in_flight_down, 0)::bigint                as "in_flight_down!",
       tail.in_flight_downs_cast                               as "in_flight_downs_cast!",
       tail.in_flight_downs_taken_back                         as "in_flight_downs_taken_back!"
from item
cross join (select vote_id from watermark) as watermark
-- As in exact_counts.sql.
left join lateral (
    select audited_count.vote_count, audited_count.down_count
    from audited_count where audited_count.item_id = item.id offset 0
) as audited on true
cross join lateral (
    select sum(vote.value) filter (where vote.id > watermark.vote_id) as sum,
           sum(vote.value) filter (where vote.id > $2::bigint and vote.value > 0) as in_flight_up,
           -sum(vote.value) filter (where vote.id > $2::bigint and vote.value < 0) as in_flight_down,
           count(*) filter (where vote.id > watermark.vote_id
                              and vote.value < 0 and vote.change_number % 2 = 0) as downs_cast,
           count(*) filter (where vote.id > watermark.vote_id
                              and vote.value > 0 and vote.change_number % 2 = 1) as downs_taken_back,
           count(*) filter (where vote.id > $2::bigint
                              and vote.value < 0 and vote.change_number % 2 = 0) as in_flight_downs_cast,
           count(*) filter (where vote.id > $2::bigint
                              and vote.value > 0 and vote.change_number % 2 = 1) as in_flight_downs_taken_back
    from vote
    -- One range of the index vote_of_item; see exact_counts.sql.
    where (vote.item_id, vote.id) > (item.id, least($2::bigint, watermark.vote_id))
      and (vote.item_id, vote.id) <= (item.id, 9223372036854775807)
) as tail
where item.id = any($1::bigint[])
order by item.id
