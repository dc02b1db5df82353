-- mark_saved: mark live counts as saved, after they were written to their items. A
-- request to rebuild such an item is cleared: its count was seeded after the request.
--
-- KEYS[1]  <prefix>unsaved: the index, the keys of items with something to be written
-- KEYS[1 + k]  the items' counters, <prefix>{<item id>}, each once
-- ARGV[k]  revision of KEYS[1 + k]: the one that was read before the write, µs
--
-- Reply: for each key, in order
--   'SAVED'    the count has not changed since it was read, and is marked
--   'CHANGED'  the count has changed or is gone: nothing is marked
local held = call('MGET', unpack(KEYS, 2))
local replies, changed, saved = {}, {}, {}
for k = 1, #held do
  local key = KEYS[1 + k]
  local count, downs, revision, _, xmax, seeded, lease, _, snapshot = parts(held[k])
  -- Without a count, the revision is that of a count that was invalidated.
  if count and seeded > 0 and revision == tonumber(ARGV[k]) then
    changed[#changed + 1] = key
    changed[#changed + 1] = packed(count, downs, revision, revision, xmax, seeded, lease, '', snapshot)
    saved[#saved + 1] = key
    replies[k] = 'SAVED'
  else
    replies[k] = 'CHANGED'
  end
end
if #saved > 0 then
  -- A Redis without memory refuses MSET as a script's first write, and takes it after SREM.
  call('SREM', KEYS[1], unpack(saved))
  call('MSET', unpack(changed))
end
return replies
