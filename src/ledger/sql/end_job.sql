-- Notes how a run ended, and gives its lease back. Returns whether the lease was still held.
-- $1 the job, $2 the lease's number, $3 the worker, $4 the outcome, $5 how long it took (µs), $6 what it did.
with given_back as (
    update job
    set holder = null, lease_until = null,
        succeeded_at = case when $4::text = 'done' then clock_timestamp() else succeeded_at end
    where name = $1 and fencing_number = $2 and holder = $3
    returning name
), noted as (
    update job_run
    set ended_at = clock_timestamp(), took_micros = $5::bigint, details = $6::text::jsonb,
        outcome = case when exists (select from given_back) then $4::text else 'lost' end
    where job = $1 and fencing_number = $2 and worker = $3 and ended_at is null
)
select exists (select from given_back) as "is_held!"
