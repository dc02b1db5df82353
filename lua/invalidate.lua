-- invalidate: throw doubtful live counts away and ask for recounts. Always safe.
--
-- KEYS     the items' hashes, item:{<id>}, each once
-- ARGV[k]  token of KEYS[k]: a fresh recount token
--
-- Reply: for each key, in order
--   'INVALIDATED'  there is no count and no lease, and the recount token is set
local replies = {}
for k, key in ipairs(KEYS) do
  -- The lease goes too: its snapshot may be older than the doubt. And whatever else
  -- someone has put there, of whatever type.
  redis.call('DEL', key)
  redis.call('HSET', key, 'recount', ARGV[k])
  replies[k] = 'INVALIDATED'
end
return replies
