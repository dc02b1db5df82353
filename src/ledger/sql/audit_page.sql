-- What the audit compares with the live counts, for the items $1 (each id once).
-- $2: votes with higher ids may be in flight. The saved count of a cold item may lack more: those that the
-- next roll-up saves.
-- A roll-up may have passed some of those since: the audited count has them, and they are still in flight.
with mark as materialized (
    select vote_id, least(saved_vote_id, $2::bigint) as saved_vote_id from watermark
), tail as materialized (
    -- One pass over the ledger's end, by its primary key.
    select vote.item_id,
           sum(vote.value) filter (where vote.id > mark.vote_id) as sum,
           sum(vote.value) filter (where vote.id > $2::bigint and vote.value > 0) as in_flight_up,
           -sum(vote.value) filter (where vote.id > $2::bigint and vote.value < 0) as in_flight_down,
           -- A row with an even change_number casts a vote; an odd one takes it back.
           count(*) filter (where vote.id > mark.vote_id
                              and vote.value < 0 and vote.change_number % 2 = 0) as downs_cast,
           count(*) filter (where vote.id > mark.vote_id
                              and vote.value > 0 and vote.change_number % 2 = 1) as downs_taken_back,
           count(*) filter (where vote.id > $2::bigint
                              and vote.value < 0 and vote.change_number % 2 = 0) as in_flight_downs_cast,
           count(*) filter (where vote.id > $2::bigint
                              and vote.value > 0 and vote.change_number % 2 = 1) as in_flight_downs_taken_back,
           -- Of all these votes.
           sum(vote.value) filter (where vote.value > 0) as unsaved_up,
           -sum(vote.value) filter (where vote.value < 0) as unsaved_down,
           count(*) filter (where vote.value < 0 and vote.change_number % 2 = 0) as unsaved_downs_cast,
           count(*) filter (where vote.value > 0 and vote.change_number % 2 = 1) as unsaved_downs_taken_back
    from vote, mark
    where vote.id > (select saved_vote_id from mark) and vote.item_id = any($1::bigint[])
    group by vote.item_id
)
select item.id            as "item_id!",
       item.vote_count    as "saved_count!",
       item.down_count    as "saved_downs!",
       (extract(epoch from item.counted_at) * 1000000)::bigint as "counted_at",
       (coalesce(audited.vote_count, 0) + coalesce(tail.sum, 0))::bigint as "exact_count!",
       coalesce(audited.down_count, 0)
           + coalesce(tail.downs_cast, 0) - coalesce(tail.downs_taken_back, 0) as "exact_downs!",
       coalesce(tail.in_flight_up, 0)::bigint                  as "in_flight_up!",
       coalesce(tail.in_flight_down, 0)::bigint                as "in_flight_down!",
       coalesce(tail.in_flight_downs_cast, 0)                  as "in_flight_downs_cast!",
       coalesce(tail.in_flight_downs_taken_back, 0)            as "in_flight_downs_taken_back!",
       coalesce(tail.unsaved_up, 0)::bigint                    as "unsaved_up!",
       coalesce(tail.unsaved_down, 0)::bigint                  as "unsaved_down!",
       coalesce(tail.unsaved_downs_cast, 0)                    as "unsaved_downs_cast!",
       coalesce(tail.unsaved_downs_taken_back, 0)              as "unsaved_downs_taken_back!"
from item
-- As in exact_counts.sql.
left join lateral (
    select audited_count.vote_count, audited_count.down_count
    from audited_count where audited_count.item_id = item.id offset 0
) as audited on true
left join tail on tail.item_id = item.id
where item.id = any($1::bigint[])
order by item.id
