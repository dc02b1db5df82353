-- Asks for an audit, unless someone has asked already; says when it was asked for (µs since 1970).
-- $1 the act to note.
with asked as (
    update job set asked_at = clock_timestamp() where name = 'audit' and asked_at is null
    returning name, asked_at
)
-- The row as it was before.
select (extract(epoch from coalesce(asked.asked_at, job.asked_at)) * 1000000)::bigint as "asked_at!",
       case when asked.name is not null then note_act($1, 'job:audit') end as act_id
from job left join asked on asked.name = job.name
where job.name = 'audit'
