-- Sums up by hours the recent changes that are older than an hour: at most $3 rows. Moves those of days that
-- ended 25 hours ago into the changes by day: at most $4 items. Under the lease with the number $1 of the
-- worker $2. Returns whether there may be more.
with held as (
    -- As in delete_old_keys.sql.
    select from job where name = 'roll_up' and fencing_number = $1 and holder = $2 for share
), first_recent as (
    -- As in roll_up.rs.
    select date_trunc('day', now() - interval '25 hours', 'UTC') as day
), old as (
    delete from recent_change
    where (item_id, starts_at, minutes) in (
        select item_id, starts_at, minutes from recent_change
        where minutes = 5 and exists (select from held)
          and starts_at < date_bin('1 hour', now() - interval '65 minutes', timestamptz 'epoch')
        order by starts_at limit $3)
    returning item_id, date_bin('1 hour', starts_at, timestamptz 'epoch') as starts_at,
              ups, downs, ups_taken_back, downs_taken_back
), added as (
    insert into recent_change (item_id, starts_at, minutes, ups, downs, ups_taken_back, downs_taken_back)
    select item_id, starts_at, 60, sum(ups), sum(downs), sum(ups_taken_back), sum(downs_taken_back) from old
    where starts_at >= (select day from first_recent)
    group by item_id, starts_at
    on conflict (item_id, starts_at, minutes) do update
    set ups = recent_change.ups + excluded.ups,
        downs = recent_change.downs + excluded.downs,
        ups_taken_back = recent_change.ups_taken_back + excluded.ups_taken_back,
        downs_taken_back = recent_change.downs_taken_back + excluded.downs_taken_back
), moved_items as (
    select item_id from recent_change
    where minutes = 60 and starts_at < (select day from first_recent) and exists (select from held)
    order by starts_at limit $4
), moved as (
    -- All hours of an item at once, so that its row of the day is written once.
    delete from recent_change
    where minutes = 60 and starts_at < (select day from first_recent)
      and item_id = any(array(select item_id from moved_items))
    returning item_id, starts_at, ups, downs, ups_taken_back, downs_taken_back
), days as (
    insert into day_change (item_id, day, ups, downs, ups_taken_back, downs_taken_back)
    select item_id, (starts_at at time zone 'UTC')::date as day,
           sum(ups), sum(downs), sum(ups_taken_back), sum(downs_taken_back)
    from (
        select * from moved
        union all
        -- While no worker ran, they were not summed by hours.
        select * from old where starts_at < (select day from first_recent)
    ) as past
    group by item_id, day
    on conflict (item_id, day) do update
    set ups = day_change.ups + excluded.ups,
        downs = day_change.downs + excluded.downs,
        ups_taken_back = day_change.ups_taken_back + excluded.ups_taken_back,
        downs_taken_back = day_change.downs_taken_back + excluded.downs_taken_back
)
select (select count(*) from old) >= $3 or (select count(*) from moved_items) >= $4 as "is_more!",
       exists (select from held) as "is_held!"
