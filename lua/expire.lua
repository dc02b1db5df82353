-- expire: drop live counts that are saved and idle (compare and delete).
--
-- KEYS     the items' hashes, item:{<id>}, each once
-- ARGV[1]  retention_us: how long a count stays after its last change, µs
-- ARGV[1 + k]  rev of KEYS[k]: the one that was peeked, µs
--
-- Reply: for each key, in order
--   'EXPIRED'  the count is gone
--   'KEPT'     it changed since, is not saved, or is not idle for long enough
local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

local replies = {}
for k, key in ipairs(KEYS) do
  local rev = ARGV[1 + k]
  local held = call('HMGET', key, 'rev', 'saved')
  if held[1] == rev and held[2] == rev and tonumber(rev) + tonumber(ARGV[1]) <= now then
    -- Field by field: a recount token beside the count stays.
    call('HDEL', key, 'count', 'rev', 'saved', 'fence', 'seeded')
    replies[k] = 'EXPIRED'
  else
    replies[k] = 'KEPT'
  end
end
return replies
