-- clear_rebuild: clear rebuild requests whose exact counts have been written.
--
-- KEYS[1]      <prefix>unsaved: the index, the keys of items with something to be written
-- KEYS[1 + k]  the items' counters, <prefix>{<item id>}, each once
-- ARGV[1]      lease_limit_ms: how long a lease beside a cleared request may stay
-- ARGV[1 + k]  request of KEYS[1 + k]: its token, read before the ledger was read
--
-- Reply: for each key, in order
--   'CLEARED'  the request is gone
--   'CHANGED'  there is another request, or none: nothing is done
local held = call('MGET', unpack(KEYS, 2))
local replies, saved_keys = {}, {}
for k = 1, #held do
  local key = KEYS[1 + k]
  local count, downs, revision, saved, xmax, seeded, lease, request, snapshot = parts(held[k])
  if count and request ~= '' and request == ARGV[1 + k] then
    local is_live = seeded > 0
    if not is_live or saved == revision then saved_keys[#saved_keys + 1] = key end
    -- First, as in invalidate.lua. Where neither a count nor a lease is left, nothing stays: a later seed reads
    -- the written item, and takes a higher revision.
    call('DEL', key)
    if is_live then
      call('SET', key, packed(count, downs, revision, saved, xmax, seeded, lease, '', snapshot))
    elseif lease ~= '' then
      -- The holder of the lease may have read the item before the write, so its seed still
      -- needs this revision as a floor. The request kept the key without a time to live;
      -- from now on the lease and the revision expire with the key.
      call('SET', key, packed(0, 0, revision, 0, 0, 0, lease, '', ''), 'PX', ARGV[1])
    end
    replies[k] = 'CLEARED'
  else
    replies[k] = 'CHANGED'
  end
end
if #saved_keys > 0 then call('SREM', KEYS[1], unpack(saved_keys)) end
return replies
