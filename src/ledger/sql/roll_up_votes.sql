-- Adds the votes with $1 < id <= $2 to their items' audited counts. Returns how many votes
-- there are.
with summed as materialized (
    select item_id, sum(value)::bigint as sum, count(*)::bigint as votes,
           -- As in exact_counts.sql.
           count(*) filter (where value < 0 and change_number % 2 = 0)
           - count(*) filter (where value > 0 and change_number % 2 = 1) as downs
    from vote
    where id > $1::bigint and id <= $2::bigint
    group by item_id
), written as (
    update item
    set audited_count = item.audited_count + given.sum,
        audited_down_count = item.audited_down_count + given.downs
    from (
        select item_id, sum, downs from summed
        -- In the order in which the flush locks them.
        order by item_id
    ) as given
    where item.id = given.item_id
)
select coalesce(sum(votes), 0)::bigint as "votes!" from summed
