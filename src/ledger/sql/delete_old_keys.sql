-- Deletes idempotency keys that are older than $1 (s), at most $2, under the lease with the number $3
-- of the worker $4. Returns how many, and whether the lease was still held. A key must be so old by
-- both clocks, that of Postgres and that of the worker ($5, in microseconds since 1970): a clock that is
-- set a day ahead by mistake deletes none.
with held as (
    -- Locked: no other worker takes the job over until this is committed.
    select from job where name = 'delete_keys' and fencing_number = $3 and holder = $4 for share
), deleted as (
    delete from idempotency_key
    where exists (select from held)
      and key_hash = any(array(
          select key_hash from idempotency_key
          where created_at < least(now(), to_timestamp($5::bigint / 1000000.0)) - $1::bigint * interval '1 second'
          order by created_at limit $2))
    returning key_hash
)
select (select count(*) from deleted) as "keys!", exists (select from held) as "is_held!"
