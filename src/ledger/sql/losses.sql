-- All losses that servers have found, and the items with the most lost votes: at most $1.
-- The numbers of items are those of the lost Postgres, so they may be on the same item only within a loss.
with items as (
    select item_id, sum(vote_total)::bigint as votes
    from loss_item
    group by item_id
    order by votes desc, item_id
    limit $1
)
select coalesce(sum(vote_total), 0)::bigint as "votes!",
       coalesce(sum(item_total), 0)::bigint as "item_total!",
       coalesce(bool_and(is_whole), true) as "are_whole!",
       (extract(epoch from min(first_stored_at)) * 1000000)::bigint as first_stored_at,
       (extract(epoch from max(last_stored_at)) * 1000000)::bigint as last_stored_at,
       (extract(epoch from max(found_at)) * 1000000)::bigint as last_found_at,
       coalesce((select array_agg(item_id order by votes desc, item_id) from items), '{}') as "item_ids!",
       coalesce((select array_agg(votes order by votes desc, item_id) from items), '{}') as "item_votes!"
from loss
