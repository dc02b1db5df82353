-- expire: drop a live count that is saved and idle (compare and delete).
--
-- KEYS[1]  the item's hash, item:{<id>}
-- ARGV[1]  rev: the rev that was peeked, µs
-- ARGV[2]  retention_us: how long a count stays after its last change, µs
--
-- Replies
--   'EXPIRED'  the count is gone
--   'KEPT'     it changed since, is not saved, or is not idle for long enough
local key = KEYS[1]
local held = redis.call('HMGET', key, 'rev', 'saved')
if held[1] ~= ARGV[1] or held[2] ~= ARGV[1] then return 'KEPT' end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
if tonumber(held[1]) + tonumber(ARGV[2]) > now then return 'KEPT' end
-- Field by field: a recount token beside the count stays.
redis.call('HDEL', key, 'count', 'rev', 'saved', 'fence', 'seeded')
return 'EXPIRED'
