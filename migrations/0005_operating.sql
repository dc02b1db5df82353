-- Which Tally this is, which workers run, and which jobs they do.

-- Which Tally this is. The owner's mark in Redis has the id, so that two Tallys do not use the same
-- keys. It never changes, and a restored dump has it too. One row.
create table identity (
    -- Always true: there is one row.
    one boolean primary key default true constraint identity_is_one check (one),
    id  text not null default gen_random_uuid()::text,
    -- Which cell this is: its ids lie from cell · 2⁴⁰ + 1 to (cell + 1) · 2⁴⁰ − 1, so that all cells' ids fit
    -- JavaScript's numbers. The first `tally migrate` sets it, together with the sequences (`set_cell`), and it never
    -- changes. Null: that has not ended yet.
    cell integer constraint identity_cell check (cell between 0 and 8191)
);
insert into identity default values;

-- One row per `sync-worker` that runs, for people who look. Nothing depends on it.
create table worker (
    -- Its program's name and a part that it drew at its start, as `job.holder` has it.
    name                  text collate "C" primary key,
    -- By Postgres' clock.
    started_at            timestamptz not null,
    -- The last heartbeat, by Postgres' clock. A worker beats once a second beside its passes, so a
    -- worker that hangs in a pass still beats. A minute after its last heartbeat, another worker deletes
    -- the row.
    seen_at               timestamptz not null,
    -- When its last pass ended; null: none has yet.
    pass_ended_at         timestamptz,
    -- How long that pass took, by the worker's own clock, which does not step.
    pass_took_micros      bigint,
    -- done; or failed: a store did not answer.
    pass_outcome          text
                          constraint worker_pass_outcome check (pass_outcome in ('done', 'failed')),
    -- How many counts the last pass left unsaved.
    unsaved_counts        bigint not null default 0,
    -- For how long the oldest of them has been unsaved, as far as the worker knows.
    oldest_unsaved_micros bigint not null default 0,
    -- How many counts its passes wrote to their items since its start, flushed or rebuilt.
    saved_counts          bigint not null default 0,
    constraint worker_pass_is_whole
        check (num_nonnulls(pass_ended_at, pass_took_micros, pass_outcome) in (0, 3))
)
-- No index has what a heartbeat changes. Free space in each page keeps the new versions of a row in
-- the same page (HOT).
with (fillfactor = 50);

-- Acknowledged votes that the ledger no longer has: a standby that lagged was promoted, or the database went
-- back to an earlier time. A row for what one server found at once. A server remembers its own votes of the last
-- minutes; of those of a server that died, nobody knows.
create table loss (
    id              bigint generated always as identity primary key,
    -- Drawn by the server, so that a repeat of its statement stores nothing.
    token           text collate "C" not null unique
                    constraint loss_token_length check (char_length(token) between 1 and 100),
    found_at        timestamptz not null default clock_timestamp(),
    -- How many rows of the ledger: votes, changes and retractions.
    vote_total      bigint not null
                    constraint loss_vote_total check (vote_total > 0),
    -- When the first and the last of them had been stored, by the clock of the Postgres that stored them.
    first_stored_at timestamptz not null,
    last_stored_at  timestamptz not null,
    -- The lowest and the highest of their ids. Other votes may have these ids by now.
    first_vote_id   bigint not null,
    last_vote_id    bigint not null,
    -- How many items they were on.
    item_total      bigint not null,
    -- Whether that server remembered an earlier vote that is still there. If not, it may have lost more.
    is_whole        boolean not null
);

-- The items of a loss, those with the most lost votes first, up to 10,000.
create table loss_item (
    loss_id    bigint not null references loss,
    -- No foreign key: the item may be lost, too, and another one may have its id by now.
    item_id    bigint not null,
    vote_total bigint not null,
    primary key (loss_id, item_id)
);

-- Jobs: what one worker at a time does, under a lease with a limited life and a fencing token.
-- Postgres only takes writes under the newest number. The lease's time only decides when another
-- worker may take the job over.
create table job (
    -- roll_up moves the watermark, and merges and deletes old recent changes; audit compares all counts
    -- and has wrong ones rebuilt; delete_keys deletes old idempotency keys, and delete_addresses old
    -- hashes of addresses; deliver_events sends events to the webhook, and makes those of polls that close.
    name           text collate "C" primary key,
    -- The number of the last lease. It only grows: each lease has a number of its own.
    fencing_number bigint not null default 0,
    -- Which worker has the lease: its program's name and a part that it drew at its start. Null: the
    -- job is free.
    holder         text,
    -- Until when, by Postgres' clock, unless the holder renews it.
    lease_until    timestamptz,
    -- When a run last ended well; null: none has.
    succeeded_at   timestamptz,
    -- When someone asked for a run outside the schedule; null: nobody did. The worker that begins a
    -- run clears it.
    asked_at       timestamptz,
    constraint job_lease_has_holder check ((holder is null) = (lease_until is null))
);
insert into job (name) values ('roll_up'), ('audit'), ('delete_keys'), ('delete_addresses'), ('deliver_events');

-- The last runs of each job.
create table job_run (
    job            text collate "C" not null references job,
    -- The number of the lease under which it ran.
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
