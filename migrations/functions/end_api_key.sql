-- Revokes an API key.
--
-- p_id: the key. Returns what became of it: revoked; already: it was revoked before; unknown: there is
-- no such key. So the trail gets one row for each revocation.
-- Called by servers and by `tally key`. Locks: the key's row.
create or replace function end_api_key(p_id bigint) returns text
security definer
language plpgsql as $$
begin
    update api_key set revoked_at = clock_timestamp() where id = p_id and revoked_at is null;
    if found then return 'revoked'; end if;
    return case when exists (select from api_key where id = p_id) then 'already' else 'unknown' end;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function end_api_key set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function end_api_key from public;
