-- invalidate: drop live counts and request rebuilds. Always safe.
--
-- KEYS     the items' hashes, <prefix>{<item id>}, each once
-- ARGV[k]  request for KEYS[k]: a fresh token
--
-- Reply: for each key, in order
--   'INVALIDATED'  there is no count and no lease, and the rebuild request is set
local replies = {}
for k, key in ipairs(KEYS) do
  -- The lease goes too: the snapshot read under it may be older than the reason to
  -- invalidate. So does a value of any other type that someone has put there.
  redis.call('DEL', key)
  redis.call('HSET', key, 'rebuild', ARGV[k])
  replies[k] = 'INVALIDATED'
end
return replies
