-- Makes an event in the caller's transaction, if events are made and this one has not been made.
--
-- p_kind: as event.kind. p_subject: what it is about. p_once: of what makes it happen once; null: of nothing.
-- p_data: what the webhook is sent.
-- Returns the event's id; null: it is not made.
-- Called by workers, and by the functions that make events, which void_votes and undo_votes do for operators.
-- Locks nothing.
create or replace function note_event(p_kind text, p_subject text, p_once text, p_data jsonb) returns bigint
security definer
language sql as $$
    insert into event (kind, subject, once_key, data)
    select p_kind, p_subject, p_kind || ':' || coalesce(p_once, gen_random_uuid()::text), p_data
    where events_are_made()
    on conflict (once_key) do nothing
    returning id
$$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function note_event set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function note_event from public;
