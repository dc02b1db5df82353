-- seed: create missing live counts from exact counts of the ledger.
--
-- KEYS[1]      <prefix>unsaved: the index, the keys of items with something to be written
-- KEYS[1 + k]  the items' counters, <prefix>{<item id>}, each once
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
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local held = call('MGET', unpack(KEYS, 2))

local replies, changed, unsaved = {}, {}, {}
for k = 1, #held do
  local key = KEYS[1 + k]
  local count, downs, snapshot, lease, counted_at = unpack(ARGV, 5 * k - 4, 5 * k)
  local _, _, floor, _, _, seeded, leased, request = parts(held[k])
  if not floor or seeded > 0 or leased ~= lease then
    replies[k] = 'RETRY'
  else
    -- The new revision is above those of the saved count and of an invalidated count,
    -- whatever the clock says. So no two counts of an item ever share a revision, and this
    -- count can be saved at once.
    local revision = math.max(now, tonumber(counted_at) + 1, floor + 1)
    local xmax = tonumber(snapshot)
    if xmax then snapshot = '' end
    changed[#changed + 1] = key
    changed[#changed + 1] = packed(tonumber(count), tonumber(downs), revision, 0, xmax or 0, tonumber(clock[1]),
      '', request, snapshot)
    unsaved[#unsaved + 1] = key
    replies[k] = 'SEEDED'
  end
end
-- MSET takes a lease's time to live away.
if #changed > 0 then call('MSET', unpack(changed)) end
if #unsaved > 0 then call('SADD', KEYS[1], unpack(unsaved)) end
return replies
