-- Of the next $5 items above $3, up to $4, whose ids have one of the remainders $2 when divided by $1: the last one, and
-- those whose saved count is not the audited one. A saved count with votes that are not rolled up is among them.
with page as materialized (
    select id, vote_count, down_count from item
    where id > $3 and id <= $4 and id % $1::bigint = any($2::bigint[])
    order by id limit $5
)
select max(page.id) as last,
       coalesce(
           array_agg(page.id) filter (
               where page.vote_count <> coalesce(audited.vote_count, 0)
                  or page.down_count <> coalesce(audited.down_count, 0)
           ),
           '{}'
       ) as "items!"
from page
-- As in exact_counts.sql.
left join lateral (
    select audited_count.vote_count, audited_count.down_count
    from audited_count where audited_count.item_id = page.id offset 0
) as audited on true
