-- Workers: one row a sync-worker process that runs. It is for people who look: nothing is decided by it.
create table worker (
    -- As `job.holder` has it: the name of its program and a part drawn at its start.
    name                  text primary key,
    -- By Postgres' clock.
    started_at            timestamptz not null,
    -- The last heartbeat. A worker beats once a second beside its passes, so one that hangs in a pass
    -- still beats; one that was killed is removed by another one a minute later.
    seen_at               timestamptz not null,
    -- When its last pass over what has changed ended; null: none has yet.
    pass_ended_at         timestamptz,
    -- How long that pass took, by the worker's own clock, which does not step.
    pass_took_micros      bigint,
    -- done; failed: a store did not answer.
    pass_outcome          text
                          constraint worker_pass_outcome check (pass_outcome in ('done', 'failed')),
    -- Counts that the last pass left unsaved.
    unsaved_counts        bigint not null default 0,
    -- For how long the oldest unsaved count has been unsaved, as far as the worker knows.
    oldest_unsaved_micros bigint not null default 0,
    -- Counts that its passes have written to their items since its start: flushed or rebuilt.
    saved_counts          bigint not null default 0,
    constraint worker_pass_is_whole
        check (num_nonnulls(pass_ended_at, pass_took_micros, pass_outcome) in (0, 3))
)
-- Each heartbeat is a new version of the row beside the old one (HOT): no index has what changes.
with (fillfactor = 50);

-- When someone asked for a run beside the job's own times; null: nobody did. Whoever begins a run clears it.
alter table job add column asked_at timestamptz;
