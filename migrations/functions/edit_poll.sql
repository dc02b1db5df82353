-- Edits a poll.
--
-- p_poll: the poll. p_title, p_is_hidden: null leaves them as they are. The times: as in edit_times.
-- Returns what edit_times does; or unknown: there is no such poll; hidden_results: its results are
-- hidden until it closes, so it keeps a closing time.
-- Called by servers. Locks: the poll's rule.
create or replace function edit_poll(
    p_poll bigint, p_title text, p_is_hidden boolean,
    p_sets_opens_at boolean, p_opens_at timestamptz,
    p_sets_closes_at boolean, p_closes_at timestamptz
) returns text
security definer
language plpgsql as $$
declare
    shown boolean;
    outcome text;
begin
    select shows_results into shown from rule where id = p_poll and title is not null;
    if not found then return 'unknown'; end if;
    if p_sets_closes_at and p_closes_at is null and not shown then return 'hidden_results'; end if;
    outcome := edit_times(p_poll, p_sets_opens_at, p_opens_at, p_sets_closes_at, p_closes_at);
    if outcome = 'edited' then
        update rule set title = coalesce(p_title, title), is_hidden = coalesce(p_is_hidden, is_hidden)
        where id = p_poll and (p_title is not null or p_is_hidden is not null);
    end if;
    return outcome;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function edit_poll set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function edit_poll from public;
