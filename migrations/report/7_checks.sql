-- As of when, and whether it is right.

create or replace view freshness as
select source.name as source, source.views, source.as_of, now() - source.as_of as age
from (
    select 'ledger', 'votes, votes_by_api_key, voidings, voided_votes, voters_by_day_in, changes_by_day_in',
           case when pg_is_in_recovery() then pg_last_xact_replay_timestamp() else now() end
    union all
    select 'roll-up', 'votes_by_quarter_hour, votes_by_hour, votes_by_day, item_votes_by_day, poll_votes_by_day, recent_item_votes, votes_by_day_in, votes_by_hour_in, top_movers',
           (select watermark.reached_at from watermark)
    union all
    select 'saved counts', 'items, polls, poll_results',
           (select max(least(worker.pass_ended_at - worker.pass_took_micros * interval '1 microsecond',
                             worker.seen_at - worker.oldest_unsaved_micros * interval '1 microsecond'))
            from worker where worker.pass_outcome = 'done')
    union all
    select 'audit', 'all counts, compared with the ledger', (select job.succeeded_at from job where job.name = 'audit')
) as source (name, views, as_of);
comment on view freshness is 'As of when the other views are. Votes that were stored before as_of are in them, except for votes that were in flight.';
comment on column freshness.source is 'ledger: each committed vote. roll-up: sums of the ledger, some seconds old. saved counts: as workers wrote them. audit: the last that ended well.';
comment on column freshness.views is 'What reads it.';
comment on column freshness.as_of is 'As of when. On a standby the ledger is as of the last transaction that arrived. Null: never yet; for saved counts, no worker runs.';
comment on column freshness.age is 'now less as_of.';

create or replace view audits as
select job_run.started_at,
       job_run.ended_at,
       case when job_run.outcome is null then 'under way' else job_run.outcome end as outcome,
       job_run.took_micros * interval '1 microsecond' as took,
       (job_run.details ->> 'items')::bigint          as items,
       (job_run.details ->> 'votes')::bigint          as votes,
       (job_run.details ->> 'wrong_items')::bigint    as wrong_items,
       (job_run.details ->> 'wrong_votes')::bigint    as wrong_votes,
       (job_run.details ->> 'repaired_items')::bigint as repaired_items
from job_run
where job_run.job = 'audit';
comment on view audits is 'The last 100 audits: whether all counts were what the ledger says.';
comment on column audits.started_at is 'When it began.';
comment on column audits.ended_at is 'When it ended. Null: under way, or its worker was killed.';
comment on column audits.outcome is 'done, failed, lost (another worker took over), stopped, or under way.';
comment on column audits.took is 'How long it took.';
comment on column audits.items is 'Items that were compared. Null: it did not end well.';
comment on column audits.votes is 'Rows of the ledger that were compared.';
comment on column audits.wrong_items is 'Items with a wrong count.';
comment on column audits.wrong_votes is 'By how many votes they were wrong.';
comment on column audits.repaired_items is 'Items whose count was rebuilt.';

create or replace view jobs as
select job.name as job,
       job.succeeded_at,
       coalesce(job.lease_until > now(), false) as is_running,
       job.holder as worker,
       last_run.started_at as last_started_at,
       last_run.ended_at as last_ended_at,
       case when last_run.started_at is not null and last_run.outcome is null then 'under way' else last_run.outcome end as last_outcome,
       last_run.took_micros * interval '1 microsecond' as last_took
from job
left join lateral (
    select * from job_run where job_run.job = job.name order by job_run.fencing_number desc limit 1
) as last_run on true;
comment on view jobs is 'One row per job of the workers: roll_up (feeds the views by time), audit, deliver_events (to a webhook), and those that delete what is old.';
comment on column jobs.job is 'Its name.';
comment on column jobs.succeeded_at is 'When a run last ended well. Null: never yet.';
comment on column jobs.is_running is 'Whether a worker is doing it now.';
comment on column jobs.worker is 'Which worker is doing it. Null: nobody.';
comment on column jobs.last_started_at is 'When its last run began.';
comment on column jobs.last_ended_at is 'When that ended. Null: under way, or its worker was killed.';
comment on column jobs.last_outcome is 'done, failed, lost (another worker took over), stopped, or under way.';
comment on column jobs.last_took is 'How long it took.';

create or replace view losses as
select loss.id as loss_id,
       loss.found_at,
       loss.vote_total as lost_rows,
       loss.item_total as items,
       loss.first_stored_at,
       loss.last_stored_at,
       loss.is_whole
from loss;
comment on view losses is 'Acknowledged votes that are gone, after a failover or a restore: one row for what one server found missing at once. No row: none was found.';
comment on column losses.loss_id is 'The loss.';
comment on column losses.found_at is 'When a server found it.';
comment on column losses.lost_rows is 'Rows of the ledger that are gone: votes, changes, retractions.';
comment on column losses.items is 'How many items they were on.';
comment on column losses.first_stored_at is 'When the first of them had been stored, by the lost Postgres'' clock.';
comment on column losses.last_stored_at is 'When the last of them had been stored.';
comment on column losses.is_whole is 'Whether that server knows of all that it lost. false: it may have lost earlier ones, too.';
