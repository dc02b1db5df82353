-- API keys, the newest first; times in µs since 1970.
-- $1 how many.
select id, name, scopes,
       (extract(epoch from created_at) * 1000000)::bigint as "created_at!",
       (extract(epoch from expires_at) * 1000000)::bigint as expires_at,
       (extract(epoch from last_used_at) * 1000000)::bigint as last_used_at,
       (extract(epoch from revoked_at) * 1000000)::bigint as revoked_at,
       revoked_at is null and (expires_at is null or expires_at > clock_timestamp()) as "is_valid!"
from api_key order by id desc limit $1
