-- count: add the votes of one committed batch to the live counts of its items.
--
-- KEYS[1]      <prefix>unsaved: the index, the keys of items with something to be written
-- KEYS[1 + k]  the items' hashes, <prefix>{<item id>}, each once
-- ARGV[1]      xid: the id of the batch's transaction, committed; decimal
-- ARGV[2]      nonce: makes a fresh lease unique; the token of a rebuild request
-- ARGV[3]      lease_limit_ms: a lease that is older is replaced
-- ARGV[3 + k]  delta of KEYS[1 + k]: the sum of the batch's rows on this item, a whole number;
--              or delta,downs, if its down-votes change too. A delta of 0 only reads a count,
--              but leases a missing one.
--
-- Reply: for each key, in order
--   an integer       the live count, with these votes in it; it has no down-votes
--   {count, downs}   the same with its down-votes: two integers
--   {'MISS', lease}  there is no live count, or none any more; the holder of this lease may
--                    seed one
local call, format = redis.call, string.format
local xid, nonce, lease_limit_ms = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])

-- Returns whether the visibility snapshot has seen this batch; nil if nobody can say. A
-- snapshot has one of three forms:
--   xmin:xmax:running,running      it has seen a committed xid below xmin, and one below xmax
--                                  that is not among the running
--   xmax                           short for xmax:xmax:
--   low:xmax:running,running:xmin  only the newest of the running, from low on: it cannot say
--                                  whether it has seen an xid from xmin to below low
local function visible(snapshot)
  local only = tonumber(snapshot)
  if only then return xid < only end
  local low, xmax, running, xmin = string.match(snapshot, '^(%d+):(%d+):([%d,]*):?(%d*)$')
  if xid >= tonumber(xmax) then return false end
  if xid < tonumber(low) then
    if xmin ~= '' and xid >= tonumber(xmin) then return nil end
    return true
  end
  return not string.find(',' .. running .. ',', ',' .. ARGV[1] .. ',', 1, true)
end

local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local now_text = format('%.0f', now)
-- A lease reads <µs when taken>:<nonce>.
local fresh_lease = now_text .. ':' .. nonce

local function miss(key)
  local lease = call('HGET', key, 'lease')
  if lease then
    local age = now - tonumber(string.match(lease, '^%d+'))
    if age >= 0 and age < lease_limit_ms * 1000 then return {'MISS', lease} end
  end
  call('HSET', key, 'lease', fresh_lease)
  -- The lease expires with its key. A key with a rebuild request must stay.
  if call('HEXISTS', key, 'rebuild') == 0 then call('PEXPIRE', key, lease_limit_ms) end
  return {'MISS', fresh_lease}
end

local replies, unsaved = {}, {}
for k = 1, #KEYS - 1 do
  local key = KEYS[1 + k]
  local held = call('HMGET', key, 'count', 'rev', 'snap', 'saved', 'downs')
  local delta, delta_downs = tonumber(ARGV[3 + k]), 0
  local changes = delta ~= 0
  if not delta then
    local both, downs = string.match(ARGV[3 + k], '^(-?%d+),(-?%d+)$')
    delta, delta_downs = tonumber(both), tonumber(downs)
  end
  -- A seed that has seen these votes has them in its count: do not add them twice.
  local seen = held[1] and (not changes or visible(held[3]))
  if held[1] and seen == nil then
    -- Nobody can say whether the count has these votes, so it is invalidated, as in
    -- invalidate.lua. The exact count that this batch reads next has them.
    call('DEL', key)
    call('HSET', key, 'rebuild', nonce, 'rev', held[2])
    unsaved[#unsaved + 1] = key
    held[1] = false
  end
  if held[1] then
    local count, downs = tonumber(held[1]), held[5] and tonumber(held[5])
    if not seen then
      count = count + delta
      local revision, revision_text = tonumber(held[2]), now_text
      if revision >= now then revision_text = format('%.0f', revision + 1) end
      call('HSET', key, 'count', format('%.0f', count), 'rev', revision_text)
      -- Most counters have no down-votes, and the field takes 16 bytes.
      if delta_downs ~= 0 then
        downs = (downs or 0) + delta_downs
        call('HSET', key, 'downs', format('%.0f', downs))
      end
      -- The first vote after a save. Before later ones, the item is in the index already.
      if held[4] == held[2] then unsaved[#unsaved + 1] = key end
    end
    replies[k] = downs and {count, downs} or count
  else
    replies[k] = miss(key)
  end
end
if #unsaved > 0 then call('SADD', KEYS[1], unpack(unsaved)) end
return replies
