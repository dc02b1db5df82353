-- seed: create missing live counts from exact counts of the ledger.
--
-- KEYS[1]      <prefix>unsaved: the index, the keys of items with something to be written
-- KEYS[1 + k]  the items' hashes, <prefix>{<item id>}, each once
-- ARGV     five for each key, in order:
--   count       the item's exact count
--   downs       how many of its votes are down-votes
--   snapshot    the snapshot that the count was read under, xmin:xmax:running,running;
--               or one number, where xmin is xmax and nothing was running;
--               or low:xmax:running,running:xmin, see count.lua
--   lease       the lease that was taken before that snapshot
--   counted_at  the revision of the item's saved count, µs; 0 if it was never saved
--
-- Reply: for each key, in order
--   'SEEDED'  the live count is the given one
--   'RETRY'   there is a count already, or another lease: call count again
local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
-- In seconds, which take half the bytes of µs: only eviction by age needs it.
local seeded = clock[1]

local replies, unsaved = {}, {}
for k = 1, #KEYS - 1 do
  local key = KEYS[1 + k]
  local count, downs, snapshot, lease, counted_at = unpack(ARGV, 5 * k - 4, 5 * k)
  local held = call('HMGET', key, 'count', 'lease', 'rev')
  if held[1] or held[2] ~= lease then
    replies[k] = 'RETRY'
  else
    -- The new revision is above those of the saved count and of an invalidated count,
    -- whatever the clock says. So no two counts of an item ever share a revision, and this
    -- count can be saved at once.
    local floor = math.max(tonumber(counted_at), tonumber(held[3] or 0) or 0)
    local revision = string.format('%.0f', math.max(now, floor + 1))
    call('HSET', key, 'count', count, 'rev', revision, 'snap', snapshot, 'seeded', seeded)
    if downs ~= '0' then call('HSET', key, 'downs', downs) end
    call('HDEL', key, 'lease', 'saved')
    call('PERSIST', key)
    unsaved[#unsaved + 1] = key
    replies[k] = 'SEEDED'
  end
end
if #unsaved > 0 then call('SADD', KEYS[1], unpack(unsaved)) end
return replies
