-- Adds the votes with $1 < id <= $2 to their items' audited counts. Returns how many votes
-- there are.
with summed as materialized (
    select item_id, sum(value)::bigint as sum, count(*)::bigint as votes
    from vote
    where id > $1::bigint and id <= $2::bigint
    group by item_id
), written as (
    update item
    set audited_count = item.audited_count + given.sum
    from (
        select item_id, sum from summed
        -- In the order in which the flush locks them.
        order by item_id
    ) as given
    where item.id = given.item_id
)
select coalesce(sum(votes), 0)::bigint as "votes!" from summed
