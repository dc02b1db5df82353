-- The next events to deliver, at most $1, in the order in which they happened, under the lease with the number $2 of
-- the worker $3. An event waits until those before it about the same are delivered or dead.
-- $4: the longest wait for a next try (µs). A time further ahead means that the clock was set back since.
select event.id, message_id, kind, subject, (extract(epoch from happened_at) * 1000000)::bigint as "happened_at!",
       data::text as "data!", tries
from event
where exists (select from job where name = 'deliver_events' and fencing_number = $2 and holder = $3)
  and delivered_at is null and dead_at is null
  and next_try_at not between clock_timestamp()
                      and clock_timestamp() + $4::bigint / 1000000 * interval '1 second'
                          + $4::bigint % 1000000 * interval '1 microsecond'
  and not exists (
      select from event as earlier
      where earlier.subject = event.subject and earlier.id < event.id
        and earlier.delivered_at is null and earlier.dead_at is null)
order by event.id
limit $1
