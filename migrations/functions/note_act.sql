-- Notes an administrative act in the trail, in the caller's transaction.
--
-- p_act: null: nothing is noted. Otherwise a JSON object with `tool`, `what` and `outcome`, and perhaps
-- `who` (without it: the login), `address`, `problem`, `begun_id` and `details`. p_target: on what.
-- Returns the id of the trail's new row, or null.
-- Called by servers, workers and operators: no role may write to `act` itself. Locks nothing.
create or replace function note_act(p_act text, p_target text default null) returns bigint
security definer
language plpgsql as $$
#variable_conflict use_variable
declare
    act_id bigint;
    given jsonb := p_act;
begin
    if given is null then return null; end if;
    insert into act (who, tool, address, what, target, outcome, problem, begun_id, details)
    values (coalesce(given ->> 'who', 'login:' || session_user),
            given ->> 'tool',
            case when given ->> 'who' is null then inet_client_addr() else (given ->> 'address')::inet end,
            given ->> 'what', p_target, given ->> 'outcome', given ->> 'problem',
            (given ->> 'begun_id')::bigint, nullif(given -> 'details', 'null'))
    returning act.id into act_id;
    return act_id;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function note_act set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function note_act from public;
