-- Notes that an event ($1) was sent without success, under the lease with the number $2 of the worker $3. It is sent
-- again $4 µs from now, or dead: if it was refused ($5) for the $6th time, or if its first try was $7 µs ago or
-- longer. $8 says why it was not delivered.
-- Returns whether it is dead, and whether the lease was still held.
with held as (
    -- Locked: no other worker takes the job over until this is committed.
    select from job where name = 'deliver_events' and fencing_number = $2 and holder = $3 for share
), tried as (
    update event
    set tries = tries + 1,
        refusals = refusals + case when $5::boolean then 1 else 0 end,
        first_tried_at = coalesce(first_tried_at, clock_timestamp()),
        next_try_at = clock_timestamp() + $4::bigint / 1000000 * interval '1 second'
                      + $4::bigint % 1000000 * interval '1 microsecond',
        dead_at = case
            when $5 and refusals + 1 >= $6::integer
              or first_tried_at <= clock_timestamp() - $7::bigint / 1000000 * interval '1 second'
            then clock_timestamp() end,
        last_problem = $8
    where id = $1 and delivered_at is null and exists (select from held)
    returning dead_at
)
select exists (select from tried where dead_at is not null) as "is_dead!", exists (select from held) as "is_held!"
