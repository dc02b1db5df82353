-- Whether events are made: a worker with a webhook wanted them within the last week. So events of a time without
-- a worker are not lost, and do not pile up for ever after the webhook is gone.
--
-- Called by workers, and by the functions that make events. Locks nothing.
create or replace function events_are_made() returns boolean
security definer
language sql stable as $$
    select coalesce(wanted_at > clock_timestamp() - interval '7 days', false) from outbox
$$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function events_are_made set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function events_are_made from public;
