select given.source, given.as_of, now() - given.as_of as age, last_audit.started_at as audit_started_at, last_audit.outcome as audit_outcome,
       last_audit.wrong_items
from (
    values ('ledger', now()),
           ('roll-up', (select reached_at from watermark)),
           ('saved counts', (select max(least(pass_ended_at - pass_took_micros * interval '1 microsecond', seen_at - oldest_unsaved_micros * interval '1 microsecond')) from worker where pass_outcome = 'done')),
           ('audit', (select succeeded_at from job where name = 'audit'))
) as given (source, as_of)
left join lateral (
    select started_at, coalesce(outcome, 'under way') as outcome, (details ->> 'wrong_items')::bigint as wrong_items
    from job_run where job = 'audit' and given.source = 'audit' order by started_at desc limit 1
) as last_audit on true
order by given.source
