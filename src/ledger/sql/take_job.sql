-- Takes the lease of a job if it is free, and notes that a run begins.
-- $1 the job, $2 the worker, $3 for how long (µs), $4 how many runs of the job are kept.
with free as (
    select name from job
    where name = $1
      -- A time further ahead than any lease lasts means that the clock was set back since.
      and (holder is null
           or lease_until not between clock_timestamp()
                              and clock_timestamp() + $3::bigint / 1000000 * interval '1 second'
                                  + $3::bigint % 1000000 * interval '1 microsecond')
    -- A locked job is not free: its holder writes, or another worker takes it.
    for no key update skip locked
), taken as (
    update job
    set fencing_number = job.fencing_number + 1, holder = $2, asked_at = null,
        lease_until = clock_timestamp() + $3::bigint / 1000000 * interval '1 second'
                      + $3::bigint % 1000000 * interval '1 microsecond'
    from free
    where job.name = free.name
    returning job.name, job.fencing_number
), begun as (
    insert into job_run (job, fencing_number, worker)
    select name, fencing_number, $2 from taken
), deleted as (
    delete from job_run using taken
    where job_run.job = taken.name and job_run.fencing_number <= taken.fencing_number - $4::bigint
)
-- Here `job` is still the row before the update.
select taken.fencing_number as "number?", job.holder,
       (extract(epoch from job.succeeded_at) * 1000000)::bigint as succeeded_at
from job left join taken on taken.name = job.name
where job.name = $1
