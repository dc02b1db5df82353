-- invalidate: throw suspect live counts away and ask for rebuilds. Always safe.
--
-- KEYS     the items' hashes, <prefix>{<item id>}, each once
-- ARGV[k]  token of KEYS[k]: a fresh rebuild request
--
-- Reply: for each key, in order
--   'INVALIDATED'  there is no count and no lease, and the rebuild request is set
local replies = {}
for k, key in ipairs(KEYS) do
  -- The lease goes too: its snapshot may be older than the suspect. And whatever else
  -- someone has put there, of whatever type.
  redis.call('DEL', key)
  redis.call('HSET', key, 'rebuild', ARGV[k])
  replies[k] = 'INVALIDATED'
end
return replies
