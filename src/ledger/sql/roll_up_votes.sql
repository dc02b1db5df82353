-- Adds the votes with $1 < id <= $2 to their items' audited counts. If one of them is newer
-- than $3 seconds, it may be in flight: then none is added.
-- Returns how many votes these are, and whether one of them may be in flight.
with summed as materialized (
    select item_id, sum(value)::bigint as sum, count(*)::bigint as votes, max(created_at) as newest
    from vote
    where id > $1::bigint and id <= $2::bigint
    group by item_id
), chunk as materialized (
    select coalesce(sum(votes), 0)::bigint as votes,
           -- In the pass that sums: to look for votes in flight first took a third longer.
           coalesce(max(newest) > statement_timestamp() - make_interval(secs => $3::float8), false)
               as has_in_flight
    from summed
), written as (
    update item
    set audited_count = item.audited_count + given.sum
    from (
        select item_id, sum from summed
        where not (select has_in_flight from chunk)
        -- In the order in which the flush locks them.
        order by item_id
    ) as given
    where item.id = given.item_id
)
select votes as "votes!", has_in_flight as "has_in_flight!" from chunk
