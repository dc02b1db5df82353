-- Deletes events that were delivered $1 s ago or given up $2 s ago, at most $3 of each, under the lease with the
-- number $4 of the worker $5. Returns how many, and whether the lease was still held.
with held as (
    -- As in delete_old_keys.sql.
    select from job where name = 'deliver_events' and fencing_number = $4 and holder = $5 for share
), deleted as (
    delete from event
    where exists (select from held)
      and id = any(array(
          (select id from event where delivered_at < now() - $1::bigint * interval '1 second' order by delivered_at limit $3)
          union all
          (select id from event where dead_at < now() - $2::bigint * interval '1 second' order by dead_at limit $3)))
    returning id
)
select (select count(*) from deleted) as "events!", exists (select from held) as "is_held!"
