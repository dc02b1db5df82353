-- remove_saved: remove items with nothing to be written from the index. No other script notices a
-- counter that someone deleted or Redis evicted.
--
-- KEYS[1]      <prefix>unsaved: the index, the keys of items with something to be written
-- KEYS[1 + k]  the items' hashes, <prefix>{<item id>}, each once
--
-- Reply: for each key, in order
--   'REMOVED'  there is neither an unsaved count nor a rebuild request
--   'KEPT'     there is one by now
local call = redis.call
local replies, saved = {}, {}
for k = 1, #KEYS - 1 do
  local key = KEYS[1 + k]
  -- This is an error if someone has put a value of another type there. That is no counter.
  local held = redis.pcall('HMGET', key, 'count', 'rev', 'saved', 'rebuild')
  if held[4] or (held[1] and held[2] ~= held[3]) then
    replies[k] = 'KEPT'
  else
    saved[#saved + 1] = key
    replies[k] = 'REMOVED'
  end
end
if #saved > 0 then call('SREM', KEYS[1], unpack(saved)) end
return replies
