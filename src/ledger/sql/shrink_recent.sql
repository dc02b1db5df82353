-- Sums up by hours the recent changes that are older than an hour, and deletes those older than a day:
-- at most $3 rows of each, under the lease with the number $1 of the worker $2. Returns how many rows it took.
with held as (
    -- As in delete_old_keys.sql.
    select from job where name = 'roll_up' and fencing_number = $1 and holder = $2 for share
), old as (
    delete from recent_change
    where (item_id, starts_at, minutes) in (
        select item_id, starts_at, minutes from recent_change
        where minutes = 5 and exists (select from held)
          and starts_at < date_bin('1 hour', now() - interval '65 minutes', timestamptz 'epoch')
        order by starts_at limit $3)
    returning item_id, date_bin('1 hour', starts_at, timestamptz 'epoch') as starts_at, ups, downs
), added as (
    insert into recent_change (item_id, starts_at, minutes, ups, downs)
    select item_id, starts_at, 60, sum(ups), sum(downs) from old
    where starts_at >= now() - interval '25 hours'
    group by item_id, starts_at
    on conflict (item_id, starts_at, minutes) do update
    set ups = recent_change.ups + excluded.ups, downs = recent_change.downs + excluded.downs
), gone as (
    delete from recent_change
    where (item_id, starts_at, minutes) in (
        select item_id, starts_at, minutes from recent_change
        where minutes = 60 and starts_at < now() - interval '25 hours' and exists (select from held)
        order by starts_at limit $3)
    returning item_id
)
select (select count(*) from old) + (select count(*) from gone) as "rows!", exists (select from held) as "is_held!"
