-- seed: create a missing live count from an exact count of the ledger.
--
-- KEYS[1]  the item's hash, item:{<id>}
-- ARGV[1]  count: the item's exact count
-- ARGV[2]  fence: the snapshot that the count was read under, xmin:xmax:running,running
-- ARGV[3]  lease: the lease that was taken before that snapshot
-- ARGV[4]  counted_at: the item's counted_at in µs, 0 if it was never counted
--
-- Replies
--   'SEEDED'  the live count is now the given one
--   'RETRY'   there is a count already, or the lease is another: go back to count
local key = KEYS[1]
local held = redis.call('HMGET', key, 'count', 'lease')
if held[1] or held[2] ~= ARGV[3] then return 'RETRY' end

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
-- Above counted_at even if this Redis' clock is behind the one that set it,
-- or the item could not be saved until the clock has caught up.
local rev = string.format('%.0f', math.max(now, tonumber(ARGV[4]) + 1))
redis.call('HSET', key, 'count', ARGV[1], 'rev', rev, 'fence', ARGV[2], 'seeded', string.format('%.0f', now))
redis.call('HDEL', key, 'lease', 'saved')
redis.call('PERSIST', key)
return 'SEEDED'
