-- Notes that a worker with a webhook wants events. The first one begins them, and so does one after a week without:
-- they are of what happens from now on.
--
-- p_thresholds: the counts of an item at which an event is made.
-- Called by workers. Locks: the row of `outbox`, if it changes.
create or replace function want_events(p_thresholds bigint[]) returns void
security definer
language plpgsql as $$
declare
    held outbox%rowtype;
begin
    select * into held from outbox;
    if events_are_made() and held.thresholds = p_thresholds
       and held.wanted_at between clock_timestamp() - interval '1 minute' and clock_timestamp() then
        return;
    end if;
    select * into held from outbox for no key update;
    if not events_are_made() then
        held.since := clock_timestamp();
        held.closed_until := held.since;
        -- What was noted before is old.
        delete from full_item;
    end if;
    update outbox set since = held.since, closed_until = held.closed_until,
                      wanted_at = clock_timestamp(), thresholds = p_thresholds;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function want_events set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function want_events from public;
