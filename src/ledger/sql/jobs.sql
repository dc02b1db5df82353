-- The jobs, each with its last run that has ended; times in µs since 1970.
select job.name as "name!", job.holder, (extract(epoch from job.succeeded_at) * 1000000)::bigint as succeeded_at,
       (extract(epoch from job.asked_at) * 1000000)::bigint as asked_at,
       run.worker as "worker?", (extract(epoch from run.ended_at) * 1000000)::bigint as ended_at,
       run.took_micros as "took_micros?", run.outcome as "outcome?", run.details::text as details
from job
left join lateral (
    select * from job_run
    where job_run.job = job.name and job_run.ended_at is not null
    order by job_run.fencing_number desc limit 1
) as run on true
order by job.name
