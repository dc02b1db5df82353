-- Jobs: what one worker at a time does, under a lease with a limited life and a fencing number. Who
-- has the newest number may write for the job. The lease's time only decides when another worker
-- may take the job over; that it was right about the time is nowhere relied on.
create table job (
    name           text primary key,
    -- Of the last lease. It only grows: each lease has a number of its own.
    fencing_number bigint not null default 0,
    -- Which worker has the lease: the name of its program and a part drawn at its start. Null: nobody,
    -- the job is free.
    holder         text,
    -- Until when, by Postgres' clock, unless the holder renews it.
    lease_until    timestamptz,
    -- When a run last ended well; null: none has.
    succeeded_at   timestamptz,
    constraint job_lease_has_holder check ((holder is null) = (lease_until is null))
);
insert into job (name) values ('roll_up'), ('audit'), ('delete_keys');

-- The last runs of each job.
create table job_run (
    job            text not null references job,
    -- Of the lease under which it ran.
    fencing_number bigint not null,
    worker         text not null,
    started_at     timestamptz not null default clock_timestamp(),
    -- Null: it is under way, or its worker was ended.
    ended_at       timestamptz,
    -- By the worker's own clock, which does not step.
    took_micros    bigint,
    -- done; failed; lost: another worker had taken the job over; stopped: the worker was asked to stop.
    outcome        text
                   constraint job_run_outcome check (outcome in ('done', 'failed', 'lost', 'stopped')),
    -- What it did, in numbers.
    details        jsonb,
    primary key (job, fencing_number),
    constraint job_run_ends_with_outcome check ((ended_at is null) = (outcome is null))
);
