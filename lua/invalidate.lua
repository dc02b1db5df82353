-- invalidate: drop live counts and request rebuilds. Always safe.
--
-- KEYS[1]  <prefix>unsaved: the index, the keys of items with something to be written
-- KEYS[1 + k]  the items' hashes, <prefix>{<item id>}, each once
-- ARGV     two for each key, in order:
--   request   a fresh token
--   revision  invalidates only a count with this revision, µs; '': any count, or none
--
-- Reply: for each key, in order
--   'INVALIDATED'  there is no count and no lease, and the rebuild request is set
--   'CHANGED'      the count has another revision or is gone: nothing is done
local replies, unsaved = {}, {}
for k = 1, #KEYS - 1 do
  local key = KEYS[1 + k]
  local request, expected = ARGV[2 * k - 1], ARGV[2 * k]
  -- This is an error if someone has put a value of another type there. DEL deletes that too.
  local held = redis.pcall('HMGET', key, 'count', 'rev')
  local count, revision = held[1], held[2]
  if expected ~= '' and not (count and revision == expected) then
    replies[k] = 'CHANGED'
  else
    -- The lease goes too: the snapshot read under it may be older than the reason to
    -- invalidate.
    redis.call('DEL', key)
    redis.call('HSET', key, 'rebuild', request)
    -- The revision stays. A later count must not have it again, even if the clock went
    -- back: a worker may still be about to write or mark the dropped count.
    -- Tally's revisions are times (µs) before the year 2286. Any other value is not Tally's.
    if (tonumber(revision or '') or 1e16) < 1e16 then redis.call('HSET', key, 'rev', revision) end
    unsaved[#unsaved + 1] = key
    replies[k] = 'INVALIDATED'
  end
end
if #unsaved > 0 then
  local added = redis.pcall('SADD', KEYS[1], unpack(unsaved))
  if type(added) == 'table' and added.err then
    -- Someone has put a value of another type there. The index is built anew: the scan over all
    -- counters adds the others. Any other error comes again.
    if string.find(added.err, 'WRONGTYPE', 1, true) then redis.call('DEL', KEYS[1]) end
    redis.call('SADD', KEYS[1], unpack(unsaved))
  end
end
return replies
