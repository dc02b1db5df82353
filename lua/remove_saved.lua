-- remove_saved: remove items with nothing to be written from the index. No other script notices a
-- counter that someone deleted or Redis evicted.
--
-- KEYS[1]      <prefix>unsaved: the index, the keys of items with something to be written
-- KEYS[1 + k]  the items' counters, <prefix>{<item id>}, each once
--
-- Reply: for each key, in order
--   'REMOVED'  there is neither an unsaved count nor a rebuild request
--   'KEPT'     there is one by now
local held = call('MGET', unpack(KEYS, 2))
local replies, removed = {}, {}
for k = 1, #held do
  local key = KEYS[1 + k]
  -- A value that someone else has put there is no counter.
  local count, _, revision, saved, _, seeded, _, request = parts(held[k])
  if count and (request ~= '' or seeded > 0 and saved ~= revision) then
    replies[k] = 'KEPT'
  else
    removed[#removed + 1] = key
    replies[k] = 'REMOVED'
  end
end
if #removed > 0 then call('SREM', KEYS[1], unpack(removed)) end
return replies
