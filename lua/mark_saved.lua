-- mark_saved: note that live counts have been written to their items.
--
-- KEYS     the items' hashes, <prefix>{<item id>}, each once
-- ARGV[k]  revision of KEYS[k]: the one that was read before the write, µs
--
-- Reply: for each key, in order
--   'SAVED'    the count has not changed since it was read
--   'CHANGED'  it has, or it is gone: nothing is marked
local call = redis.call
local replies = {}
for k, key in ipairs(KEYS) do
  if call('HGET', key, 'rev') == ARGV[k] then
    call('HSET', key, 'saved', ARGV[k])
    replies[k] = 'SAVED'
  else
    replies[k] = 'CHANGED'
  end
end
return replies
