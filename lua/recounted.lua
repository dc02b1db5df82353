-- recounted: note that an item's exact count has been written.
--
-- KEYS[1]  the item's hash, item:{<id>}
-- ARGV[1]  token: the recount token that was peeked before the ledger was read
-- ARGV[2]  lease_limit_ms: how long a lease beside the token may still stay
--
-- Replies
--   'RECOUNTED'  the token is cleared
--   'CHANGED'    another doubt came since, or someone else has recounted
local key = KEYS[1]
if redis.call('HGET', key, 'recount') ~= ARGV[1] then return 'CHANGED' end
redis.call('HDEL', key, 'recount')
-- While the token stood, a lease beside it could not be given a time to live.
if redis.call('HEXISTS', key, 'lease') == 1 then redis.call('PEXPIRE', key, ARGV[2]) end
return 'RECOUNTED'
