-- Adds the votes with $1 < id <= $2 to the recent changes, under the lease with the number $3 of the worker
-- $4. `moved`: whether $1 was still the last vote in it, and the lease was held.
with held as (
    -- As in delete_old_keys.sql.
    select from job where name = 'sum_recent' and fencing_number = $3 and holder = $4 for share
), moved as (
    update recent_progress
    set vote_id = $2, at = case when $2 >= (select vote_id from watermark) then now() else at end
    where exists (select from held) and vote_id = $1
    returning vote_id
), summed as materialized (
    select item_id,
           date_bin('5 minutes', created_at, timestamptz 'epoch') as starts_at,
           -- An odd change takes the vote before it back, with the opposite value.
           count(*) filter (where value > 0 and change_number % 2 = 0)
           - count(*) filter (where value < 0 and change_number % 2 = 1) as ups,
           count(*) filter (where value < 0 and change_number % 2 = 0)
           - count(*) filter (where value > 0 and change_number % 2 = 1) as downs
    from vote
    where id > $1::bigint and id <= $2::bigint
      and created_at >= now() - interval '25 hours'
      and exists (select from moved)
    group by item_id, starts_at
), added as (
    insert into recent_change (item_id, starts_at, minutes, ups, downs)
    select item_id, starts_at, 5, ups, downs from summed
    order by item_id, starts_at
    on conflict (item_id, starts_at, minutes) do update
    set ups = recent_change.ups + excluded.ups, downs = recent_change.downs + excluded.downs
)
select exists (select from moved) as "moved!", exists (select from held) as "is_held!"
