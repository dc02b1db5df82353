-- claim_rebuild: draw the revision under which an item's exact count is written.
--
-- KEYS[1]  <prefix>unsaved: the index, the keys of items with something to be written
-- KEYS[1 + k]  the items' hashes, <prefix>{<item id>}, each once
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
local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

local replies, saved = {}, {}
for k = 1, #KEYS - 1 do
  local key = KEYS[1 + k]
  local request, counted_at = ARGV[2 * k - 1], tonumber(ARGV[2 * k])
  local held = call('HMGET', key, 'count', 'rev', 'saved', 'rebuild')
  if held[4] ~= request then
    replies[k] = 'CHANGED'
  elseif held[1] then
    if held[2] == held[3] then
      call('HDEL', key, 'rebuild')
      saved[#saved + 1] = key
    end
    replies[k] = 'LIVE'
  else
    local revision = math.max(now, counted_at + 1, (tonumber(held[2] or 0) or 0) + 1)
    local text = string.format('%.0f', revision)
    call('HSET', key, 'rev', text)
    replies[k] = {'CLAIMED', text}
  end
end
if #saved > 0 then call('SREM', KEYS[1], unpack(saved)) end
return replies
