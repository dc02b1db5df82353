-- The next events to deliver, at most $1, under the lease with the number $2 of the worker $3: first those that were not
-- tried yet, in the order in which they happened; then the others, in that of their next tries. So many events that the
-- webhook refuses hold up no others. An event waits until those before it about the same are delivered or dead.
-- $4: the longest wait for a next try (µs). A time further ahead means that the clock was set back since.
with lease as materialized (
    select from job where name = 'deliver_events' and fencing_number = $2 and holder = $3
), due as not materialized (
    -- Not clock_timestamp(): with a volatile function, all that is due is read before the first of it.
    select event.id, message_id, kind, subject, happened_at, data, tries, next_try_at
    from event
    where exists (select from lease)
      and delivered_at is null and dead_at is null
      and next_try_at not between statement_timestamp()
                          and statement_timestamp() + $4::bigint / 1000000 * interval '1 second'
                              + $4::bigint % 1000000 * interval '1 microsecond'
      and not exists (
          select from event as earlier
          where earlier.subject = event.subject and earlier.id < event.id
            and earlier.delivered_at is null and earlier.dead_at is null)
), next as (
    (select * from due where tries = 0 order by id limit $1)
    union all
    -- Begun only if the first are fewer than $1.
    (select * from due where tries > 0 order by next_try_at, id limit $1)
    limit $1
)
select id as "id!", message_id as "message_id!", kind as "kind!", subject as "subject!",
       (extract(epoch from happened_at) * 1000000)::bigint as "happened_at!", data::text as "data!", tries as "tries!"
from next
