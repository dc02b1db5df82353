-- Makes an API key like the one of this id, if that one allows something, and lets that one expire; returns
-- the new one's id.
-- $1 the id, $2 the new hash, $3 for how long the old one still allows something (µs).
with old as (
    update api_key
    set expires_at = least(expires_at, clock_timestamp() + $3::bigint / 1000000 * interval '1 second'
                                       + $3::bigint % 1000000 * interval '1 microsecond')
    where id = $1 and revoked_at is null and (expires_at is null or expires_at > clock_timestamp())
    returning id
)
insert into api_key (key_hash, name, scopes, expires_at)
select $2, name, scopes, expires_at from api_key where id in (select id from old)
returning id
