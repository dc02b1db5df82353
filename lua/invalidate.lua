-- invalidate: throw a doubtful live count away and ask for a recount. Always safe.
--
-- KEYS[1]  the item's hash, item:{<id>}
-- ARGV[1]  token: a fresh recount token
--
-- Reply
--   'INVALIDATED'  there is no count and no lease, and the recount token is set
local key = KEYS[1]
-- The lease goes too: its snapshot may be older than the doubt. And whatever else
-- someone has put there, of whatever type.
redis.call('DEL', key)
redis.call('HSET', key, 'recount', ARGV[1])
return 'INVALIDATED'
