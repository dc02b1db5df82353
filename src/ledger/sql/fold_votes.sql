-- Adds the votes with $1 < id <= $2 to their items' audited counts.
-- Returns how many votes that were.
with summed as materialized (
    select item_id, sum(value)::bigint as sum, count(*)::bigint as votes
    from vote
    where id > $1::bigint and id <= $2::bigint
    group by item_id
), held as materialized (
    -- In the order in which the flush locks them.
    select item.id, summed.sum
    from summed
    join item on item.id = summed.item_id
    order by item.id
    for no key update of item
), written as (
    update item
    set audited_count = item.audited_count + held.sum
    from held
    where item.id = held.id
)
select coalesce(sum(votes), 0)::bigint as "votes!" from summed
