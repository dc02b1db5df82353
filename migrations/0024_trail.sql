-- The trail: a row for each administrative act, which nobody changes or deletes.
create table act (
    id         bigint generated always as identity primary key,
    acted_at   timestamptz not null default clock_timestamp(),
    -- Who: `api_key:3`; `login:tally_op`, which login in Postgres, of an act from the command line;
    -- or `anyone`, where TALLY_OPEN opens administration.
    who        text not null
               constraint act_who_length check (char_length(who) between 1 and 100),
    -- The login that wrote this row. A server writes for others, so `who` is what that server said.
    login      text not null default session_user,
    -- With what: `http`, or a program of the command line, like `tally key`.
    tool       text not null
               constraint act_tool_length check (char_length(tool) between 1 and 100),
    -- From where: over HTTP the client's address. From the command line the program's, as Postgres
    -- sees it; null over a socket of the same machine.
    address    inet,
    -- What was done: `item.create`.
    what       text not null
               constraint act_what_length check (char_length(what) between 1 and 100),
    -- On what: `item:5`. Null: it is not known, or there is none.
    target     text
               constraint act_target_length check (char_length(target) between 1 and 100),
    -- begun: its outcome is another row, unless the program was ended. refused: it was not allowed, or
    -- not possible. failed: Tally could not do it, or does not know whether it was done.
    outcome    text not null
               constraint act_outcome check (outcome in ('begun', 'done', 'refused', 'failed')),
    -- Why it was refused or failed: a problem type, like `not-allowed`.
    problem    text
               constraint act_problem_length check (char_length(problem) between 1 and 100),
    -- Of an outcome whose beginning is a row of its own: that row.
    begun_id   bigint references act,
    -- What else says what was done. Never a key, a ballot, a password or a voter.
    details    jsonb
               constraint act_details_length check (octet_length(details::text) <= 16384)
);
-- Pages of the trail since a time, and of who did it. The primary key lists the newest first.
create index act_acted_at on act (acted_at);
create index act_who on act (who, id);
-- The outcome of what was begun; and for the foreign key, when old rows are removed.
create index act_begun_id on act (begun_id) where begun_id is not null;

-- Whoever may write otherwise may not change what was noted. How old rows go: docs/OPERATING.md.
create function refuse_change_of_trail() returns trigger
language plpgsql as $$
begin
    raise exception 'the trail is never changed: % of act', lower(tg_op)
        using errcode = 'restrict_violation';
end $$;
create trigger act_is_only_added_to before update or delete or truncate on act
    for each statement execute function refuse_change_of_trail();
-- Also where replication writes.
alter table act enable always trigger act_is_only_added_to;

-- Notes an act, in the caller's transaction; returns its id. p_act: null notes nothing; otherwise an
-- object with `tool`, `what`, `outcome`, and perhaps `who` (without it: the login), `address`,
-- `problem`, `begun_id`, `details`.
create function note_act(p_act text, p_target text default null) returns bigint
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

-- Now it also says which key it is, for the trail. What it returned before stays as it was, so a
-- server of the version before goes on calling it.
drop function use_api_key(bytea);
create function use_api_key(p_hash bytea, out scopes text[], out left_micros bigint, out id bigint)
security definer
language plpgsql as $$
#variable_conflict use_variable
declare
    held api_key%rowtype;
begin
    select * into held from api_key
    where api_key.key_hash = p_hash and api_key.revoked_at is null
      and (api_key.expires_at is null or api_key.expires_at > clock_timestamp());
    if not found then return; end if;
    scopes := held.scopes;
    left_micros := extract(epoch from held.expires_at - clock_timestamp()) * 1000000;
    id := held.id;
    -- Who is first in a minute notes it; nobody waits for another who does.
    if held.last_used_at is null or held.last_used_at < clock_timestamp() - interval '1 minute' then
        perform from api_key where api_key.id = held.id for no key update skip locked;
        if found then
            update api_key set last_used_at = clock_timestamp() where api_key.id = held.id;
        end if;
    end if;
end $$;

-- As for cast_votes (0020).
do $$ begin
    execute format('alter function note_act set search_path = %I, pg_temp', current_schema());
    execute format('alter function use_api_key set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function note_act, use_api_key from public;
-- Servers that run meanwhile go on using it: `tally migrate` grants the roles a moment later.
do $$ begin
    if exists (select from pg_roles where rolname = 'tally_server') then
        grant execute on function use_api_key to tally_server;
    end if;
end $$;
