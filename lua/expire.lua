-- expire: drop live counts that are saved and idle (compare and delete).
--
-- KEYS[1]      <prefix>unsaved: the index, not changed here. A saved count's item is not in
--              it, and an item with a rebuild request stays in it.
-- KEYS[1 + k]  the items' hashes, <prefix>{<item id>}, each once
-- ARGV[1]      retention_us: how long a count stays after its last change, µs
-- ARGV[1 + k]  revision of KEYS[1 + k]: the one that the caller has read, µs
--
-- Reply: for each key, in order
--   'EXPIRED'  the count is gone
--   'KEPT'     it has changed since, is not saved, or has not been idle for long enough
local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

local replies = {}
for k = 1, #KEYS - 1 do
  local key, revision = KEYS[1 + k], ARGV[1 + k]
  local held = call('HMGET', key, 'rev', 'saved')
  if held[1] == revision and held[2] == revision and tonumber(revision) + tonumber(ARGV[1]) <= now then
    -- Field by field: a rebuild request beside the count stays.
    call('HDEL', key, 'count', 'downs', 'rev', 'saved', 'snap', 'seeded')
    replies[k] = 'EXPIRED'
  else
    replies[k] = 'KEPT'
  end
end
return replies
