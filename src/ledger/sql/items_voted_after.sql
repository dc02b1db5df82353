-- The items of the next $2 votes behind vote $1, and the last of these votes.
with next as materialized (
    select id, item_id from vote where id > $1 order by id limit $2
)
select max(next.id) as last, coalesce(array_agg(distinct next.item_id), '{}') as "items!" from next
