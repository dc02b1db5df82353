-- Asks for an audit, unless someone has asked already. Returns when someone asked (µs since 1970).
-- $1 the act to note.
with asked as (
    update job set asked_at = clock_timestamp() where name = 'audit' and asked_at is null
    returning name, asked_at
)
-- Here `job` is still the row before the update.
select (extract(epoch from coalesce(asked.asked_at, job.asked_at)) * 1000000)::bigint as "asked_at!",
       case when asked.name is not null then note_act($1, 'job:audit') end as act_id
from job left join asked on asked.name = job.name
where job.name = 'audit'
