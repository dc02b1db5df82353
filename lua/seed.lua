-- seed: create missing live counts from exact counts of the ledger.
--
-- KEYS     the items' hashes, <prefix>{<item id>}, each once
-- ARGV     four for each key, in order:
--   count       the item's exact count
--   fence       the snapshot that the count was read under, xmin:xmax:running,running;
--               or one number, when it was xmin and xmax and nothing ran
--   lease       the lease that was taken before that snapshot
--   counted_at  the item's counted_at in µs, 0 if it was never counted
--
-- Reply: for each key, in order
--   'SEEDED'  the live count is now the given one
--   'RETRY'   there is a count already, or the lease is another: go back to count
local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
-- To the second: only the maximum age asks for it, and it takes half the bytes.
local seeded = clock[1]

local replies = {}
for k, key in ipairs(KEYS) do
  local count, fence, lease, counted_at = unpack(ARGV, 4 * k - 3, 4 * k)
  local held = call('HMGET', key, 'count', 'lease')
  if held[1] or held[2] ~= lease then
    replies[k] = 'RETRY'
  else
    -- Above counted_at even if this Redis' clock is behind the one that set it,
    -- or the item could not be saved until the clock has caught up.
    local revision = string.format('%.0f', math.max(now, tonumber(counted_at) + 1))
    call('HSET', key, 'count', count, 'rev', revision, 'snap', fence, 'seeded', seeded)
    call('HDEL', key, 'lease', 'saved')
    call('PERSIST', key)
    replies[k] = 'SEEDED'
  end
end
return replies
