-- mark_saved: mark live counts as saved, after they were written to their items. A
-- request to rebuild such an item is cleared: its count was seeded after the request.
--
-- KEYS[1]  <prefix>unsaved: the index, the keys of items with something to be written
-- KEYS[1 + k]  the items' hashes, <prefix>{<item id>}, each once
-- ARGV[k]  revision of KEYS[1 + k]: the one that was read before the write, µs
--
-- Reply: for each key, in order
--   'SAVED'    the count has not changed since it was read, and is marked
--   'CHANGED'  the count has changed or is gone: nothing is marked
local call = redis.call
local replies, saved = {}, {}
for k = 1, #KEYS - 1 do
  local key = KEYS[1 + k]
  local held = call('HMGET', key, 'rev', 'count', 'rebuild')
  -- Without a count, the revision is that of a count that was invalidated.
  if held[1] == ARGV[k] and held[2] then
    call('HSET', key, 'saved', ARGV[k])
    if held[3] then call('HDEL', key, 'rebuild') end
    saved[#saved + 1] = key
    replies[k] = 'SAVED'
  else
    replies[k] = 'CHANGED'
  end
end
if #saved > 0 then call('SREM', KEYS[1], unpack(saved)) end
return replies
