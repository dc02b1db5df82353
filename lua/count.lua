-- count: add one committed batch's votes to an item's live count.
--
-- KEYS[1]  the item's hash, item:{<id>}
-- ARGV[1]  delta: the sum of the batch's votes on this item, a whole number.
--          0 only reads: it changes nothing, yet leases a missing count.
-- ARGV[2]  xid: the batch's transaction id, committed; decimal
-- ARGV[3]  nonce: makes a fresh lease unique
-- ARGV[4]  lease_limit_ms: a lease that is older may be replaced
--
-- Replies
--   an integer         the live count, these votes in it
--   {'MISS', lease}    there is no count; who holds this lease may seed one
local key, delta, xid = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])

-- The fence is a snapshot, xmin:xmax:running,running. A committed xid is visible
-- in it when below xmin, or when below xmax and not among the running.
local function visible(fence)
  local xmin, xmax, running = string.match(fence, '^(%d+):(%d+):(.*)$')
  if xid < tonumber(xmin) then return true end
  if xid >= tonumber(xmax) then return false end
  return not string.find(',' .. running .. ',', ',' .. ARGV[2] .. ',', 1, true)
end

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local held = redis.call('HMGET', key, 'count', 'rev', 'fence')

if held[1] then
  -- The seed's snapshot saw these votes already: adding them would count them twice.
  if delta == 0 or visible(held[3]) then return tonumber(held[1]) end
  local count = tonumber(held[1]) + delta
  redis.call('HSET', key, 'count', string.format('%.0f', count),
    'rev', string.format('%.0f', math.max(tonumber(held[2]) + 1, now)))
  return count
end

-- A lease reads <µs when taken>:<nonce>.
local lease = redis.call('HGET', key, 'lease')
local limit_ms = tonumber(ARGV[4])
if lease then
  local age = now - tonumber(string.match(lease, '^%d+'))
  if age >= 0 and age < limit_ms * 1000 then return {'MISS', lease} end
end
lease = string.format('%.0f:%s', now, ARGV[3])
redis.call('HSET', key, 'lease', lease)
-- A lease goes away by itself; a recount token beside it must not.
if redis.call('HEXISTS', key, 'recount') == 0 then redis.call('PEXPIRE', key, limit_ms) end
return {'MISS', lease}
