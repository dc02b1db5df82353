-- Gives the leases of a worker back that stops. Returns how many it still has: those under which it is writing.
-- $1 the worker.
with given_back as (
    update job set holder = null, lease_until = null
    -- One that is being written under is left: its run gives it back, or it runs out.
    where name = any(array(select name from job where holder = $1 for no key update skip locked))
    returning name, fencing_number
), noted as (
    update job_run set ended_at = clock_timestamp(), outcome = 'stopped'
    from given_back
    where job_run.job = given_back.name and job_run.fencing_number = given_back.fencing_number
      and job_run.ended_at is null
)
-- Here `job` is still as before the update.
select (select count(*) from job where holder = $1) - (select count(*) from given_back) as "left!"
