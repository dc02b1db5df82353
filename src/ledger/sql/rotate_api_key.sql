-- Creates an API key with the name and scopes of a valid one, and lets the old one expire; returns the new
-- one's id.
-- $1 the old one's id, $2 the new hash, $3 for how long the old one stays valid (µs), $4 the act to note.
with old as (
    update api_key
    set expires_at = least(expires_at, clock_timestamp() + $3::bigint / 1000000 * interval '1 second'
                                       + $3::bigint % 1000000 * interval '1 microsecond')
    where id = $1 and revoked_at is null and (expires_at is null or expires_at > clock_timestamp())
    returning id
), made as (
    insert into api_key (key_hash, name, scopes, expires_at)
    select $2, name, scopes, expires_at from api_key where id in (select id from old)
    returning id
)
-- The act's target is the old key; its `details` name the new one.
select id, note_act(jsonb_set($4::text::jsonb, '{details,new_id}', to_jsonb(id))::text, 'api_key:' || $1::bigint) as act_id
from made
