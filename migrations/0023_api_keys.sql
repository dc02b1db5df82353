-- API keys: who may administrate, vote on behalf of voters, and read what is not for all.
create table api_key (
    id           bigint generated always as identity primary key,
    -- SHA-256 of the key's text. The text itself is shown once and kept nowhere.
    key_hash     bytea not null unique
                 constraint api_key_hash_length check (octet_length(key_hash) = 32),
    -- For its operator: whose it is, or where it is used.
    name         text not null
                 constraint api_key_name_length check (char_length(name) between 1 and 100),
    -- What it allows.
    scopes       text[] not null
                 constraint api_key_scopes
                 check (cardinality(scopes) > 0 and scopes <@ array['vote', 'admin', 'report']),
    created_at   timestamptz not null default now(),
    -- It allows nothing from then on. Null: no limit.
    expires_at   timestamptz,
    -- Set a minute late at the most; null: never used.
    last_used_at timestamptz,
    -- It allows nothing since then. Null: it is not revoked.
    revoked_at   timestamptz
);

-- The key with this hash, if it allows something now: its scopes, and for how many microseconds
-- more; null: no limit. Notes that it is used.
create function use_api_key(p_hash bytea, out scopes text[], out left_micros bigint)
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
    -- Who is first in a minute notes it; nobody waits for another who does.
    if held.last_used_at is null or held.last_used_at < clock_timestamp() - interval '1 minute' then
        perform from api_key where api_key.id = held.id for no key update skip locked;
        if found then
            update api_key set last_used_at = clock_timestamp() where api_key.id = held.id;
        end if;
    end if;
end $$;

-- Revokes a key; says whether there is one. One that is revoked stays as it is.
create function revoke_api_key(p_id bigint) returns boolean
security definer
language plpgsql as $$
begin
    update api_key set revoked_at = clock_timestamp() where id = p_id and revoked_at is null;
    return found or exists (select from api_key where id = p_id);
end $$;

-- As for cast_votes (0020).
do $$ begin
    execute format('alter function use_api_key set search_path = %I, pg_temp', current_schema());
    execute format('alter function revoke_api_key set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function use_api_key, revoke_api_key from public;
