-- claim_rebuild: draw the revision under which an item's exact count is written.
--
-- KEYS[1]  <prefix>unsaved: the index, the keys of items with something to be written
-- KEYS[1 + k]  the items' counters, <prefix>{<item id>}, each once
-- ARGV     two for each key, in order:
--   request     the rebuild request, read before the exact count was read
--   counted_at  the revision of the item's saved count, read with the exact count, µs;
--               0 if it was never saved
--
-- Reply: for each key, in order
--   {'CLAIMED', revision}  no count had this revision, and none will have it
--   'LIVE'                 there is a live count by now: saving it does the same. If it
--                          is saved already, the request is cleared.
--   'CHANGED'              there is another request, or none: nothing is done
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local held = call('MGET', unpack(KEYS, 2))

local replies, changed, changed_keys, saved_keys = {}, {}, {}, {}
for k = 1, #held do
  local key = KEYS[1 + k]
  local wanted, counted_at = ARGV[2 * k - 1], tonumber(ARGV[2 * k])
  local count, downs, revision, saved, xmax, seeded, lease, request, snapshot = parts(held[k])
  if request ~= wanted then
    replies[k] = 'CHANGED'
  elseif seeded > 0 then
    if saved == revision then
      changed_keys[#changed_keys + 1] = key
      changed[#changed + 1] = key
      changed[#changed + 1] = packed(count, downs, revision, saved, xmax, seeded, lease, '', snapshot)
      saved_keys[#saved_keys + 1] = key
    end
    replies[k] = 'LIVE'
  else
    revision = math.max(now, counted_at + 1, revision + 1)
    changed_keys[#changed_keys + 1] = key
    changed[#changed + 1] = key
    changed[#changed + 1] = packed(0, 0, revision, 0, 0, 0, lease, request, '')
    replies[k] = {'CLAIMED', string.format('%.0f', revision)}
  end
end
if #changed > 0 then
  -- First, as in invalidate.lua.
  call('DEL', unpack(changed_keys))
  call('MSET', unpack(changed))
end
if #saved_keys > 0 then call('SREM', KEYS[1], unpack(saved_keys)) end
return replies
