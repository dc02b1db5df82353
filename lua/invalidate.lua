-- invalidate: drop live counts and request rebuilds. Always safe.
--
-- KEYS[1]  <prefix>unsaved: the index, the keys of items with something to be written
-- KEYS[1 + k]  the items' counters, <prefix>{<item id>}, each once
-- ARGV     two for each key, in order:
--   request   a fresh token
--   revision  invalidates only a count with this revision, µs; '': any count, or none
--
-- Reply: for each key, in order
--   'INVALIDATED'  there is no count and no lease, and the rebuild request is set
--   'CHANGED'      the count has another revision or is gone: nothing is done
local held = call('MGET', unpack(KEYS, 2))
local replies, changed, unsaved = {}, {}, {}
for k = 1, #held do
  local key = KEYS[1 + k]
  local request, expected = ARGV[2 * k - 1], ARGV[2 * k]
  local _, _, revision, _, _, seeded = parts(held[k])
  if expected ~= '' and not (revision and seeded > 0 and revision == tonumber(expected)) then
    replies[k] = 'CHANGED'
  else
    -- The lease goes too: the snapshot read under it may be older than the reason to
    -- invalidate. The revision stays. A later count must not have it again, even if the clock
    -- went back: a worker may still be about to write or mark the dropped count. A value that
    -- someone else has put there has none.
    changed[#changed + 1] = key
    changed[#changed + 1] = packed(0, 0, revision or 0, 0, 0, 0, '', request, '')
    unsaved[#unsaved + 1] = key
    replies[k] = 'INVALIDATED'
  end
end
if #unsaved > 0 then
  -- A Redis without memory refuses MSET as a script's first write, and takes it after DEL.
  call('DEL', unpack(unsaved))
  call('MSET', unpack(changed))
  local added = redis.pcall('SADD', KEYS[1], unpack(unsaved))
  if type(added) == 'table' and added.err then
    -- Someone has put a value of another type there. The index is built anew: the scan over all
    -- counters adds the others. Any other error comes again.
    if string.find(added.err, 'WRONGTYPE', 1, true) then call('DEL', KEYS[1]) end
    call('SADD', KEYS[1], unpack(unsaved))
  end
end
return replies
