-- What voters without a credential may do on one item or in one poll, where their server is closed.
create table open_item (
    item_id      bigint primary key references item,
    -- Whether anyone may vote on it without a voter.
    to_anonymous boolean not null,
    -- Whether anyone may vote on it as any voter.
    to_voters    boolean not null
);

-- The same of a poll, and so of all of its choices: a poll takes votes of voters only.
create table open_poll (
    poll_id   bigint primary key references rule,
    to_voters boolean not null
);

-- Revokes an API key, and says what became of it: revoked; already, since it was; unknown. So the
-- trail has one row for each revocation. (revoke_api_key, 0023, stays for older servers.)
create function end_api_key(p_id bigint) returns text
security definer
language plpgsql as $$
begin
    update api_key set revoked_at = clock_timestamp() where id = p_id and revoked_at is null;
    if found then return 'revoked'; end if;
    return case when exists (select from api_key where id = p_id) then 'already' else 'unknown' end;
end $$;

-- As for cast_votes (0020).
do $$ begin
    execute format('alter function end_api_key set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function end_api_key from public;
