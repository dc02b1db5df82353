-- Revokes an API key. One that is revoked stays as it is.
--
-- p_id: the key. Returns whether there is such a key.
-- Called by nobody: end_api_key says more. Locks: the key's row.
create or replace function revoke_api_key(p_id bigint) returns boolean
security definer
language plpgsql as $$
begin
    update api_key set revoked_at = clock_timestamp() where id = p_id and revoked_at is null;
    return found or exists (select from api_key where id = p_id);
end $$;

-- Its tables are those of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function revoke_api_key set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function revoke_api_key from public;
