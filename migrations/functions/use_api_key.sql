-- Finds the API key with this hash, if it is valid now, and notes that it was used.
--
-- p_hash: SHA-256 of the key's text.
-- Returns its scopes, for how many microseconds more it is good (null: no limit), and its id; nulls:
-- there is no such key.
-- Called by servers, which may not read hashes. Locks: the key's row, once a minute, and only if
-- nobody else has it.
create or replace function use_api_key(p_hash bytea, out scopes text[], out left_micros bigint, out id bigint)
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

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function use_api_key set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function use_api_key from public;
