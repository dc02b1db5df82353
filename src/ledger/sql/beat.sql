-- Stores a worker's heartbeat, and forgets workers that have been silent for long. Returns whether someone
-- asked for an audit.
-- $1 the worker, $2 for how long it has run, $3 how long ago its last pass ended and $4 how long that took (µs; null: none has
-- ended), $5 its outcome, $6 unsaved counts, $7 the age of the oldest (µs), $8 counts that were saved since its start,
-- $9 after how long a silent worker is forgotten (µs).
with quick as materialized (
    -- Nobody waits for the disk: if a crash of Postgres loses this heartbeat, the next one says the same.
    select set_config('synchronous_commit', 'off', true) as setting
), gone as (
    -- A time further ahead means that the clock was set back since.
    delete from worker
    where name <> $1
      and seen_at not between clock_timestamp() - $9::bigint / 1000 * interval '1 millisecond'
                      and clock_timestamp() + $9::bigint / 1000 * interval '1 millisecond'
), beaten as (
    insert into worker (name, started_at, seen_at, pass_ended_at, pass_took_micros, pass_outcome, unsaved_counts,
                        oldest_unsaved_micros, saved_counts)
    select $1, clock_timestamp() - $2::bigint / 1000 * interval '1 millisecond', clock_timestamp(),
           clock_timestamp() - $3::bigint / 1000 * interval '1 millisecond', $4::bigint, $5::text, $6::bigint, $7::bigint,
           $8::bigint
    from quick
    on conflict (name) do update
    set seen_at = excluded.seen_at, pass_ended_at = excluded.pass_ended_at,
        pass_took_micros = excluded.pass_took_micros, pass_outcome = excluded.pass_outcome,
        unsaved_counts = excluded.unsaved_counts, oldest_unsaved_micros = excluded.oldest_unsaved_micros,
        saved_counts = excluded.saved_counts
)
select asked_at is not null as "is_asked!" from job where name = 'audit'
