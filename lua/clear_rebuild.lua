-- clear_rebuild: clear rebuild requests whose exact counts have been written.
--
-- KEYS[1]      <prefix>unsaved: the index, the keys of items with something to be written
-- KEYS[1 + k]  the items' hashes, <prefix>{<item id>}, each once
-- ARGV[1]      lease_limit_ms: how long a lease beside a cleared request may stay
-- ARGV[1 + k]  request of KEYS[1 + k]: its token, read before the ledger was read
--
-- Reply: for each key, in order
--   'CLEARED'  the request is gone
--   'CHANGED'  there is another request, or none: nothing is done
local call = redis.call
local replies, saved = {}, {}
for k = 1, #KEYS - 1 do
  local key = KEYS[1 + k]
  if call('HGET', key, 'rebuild') == ARGV[1 + k] then
    call('HDEL', key, 'rebuild')
    local held = call('HMGET', key, 'count', 'rev', 'saved')
    if not held[1] or held[2] == held[3] then saved[#saved + 1] = key end
    if not held[1] then
      if call('HEXISTS', key, 'lease') == 1 then
        -- The holder of the lease may have read the item before the write, so its seed still
        -- needs this revision as a floor. The request kept the key without a time to live;
        -- from now on the lease and the revision expire with the key.
        call('PEXPIRE', key, ARGV[1])
      else
        -- A later seed reads the written item, and takes a higher revision.
        call('HDEL', key, 'rev')
      end
    end
    replies[k] = 'CLEARED'
  else
    replies[k] = 'CHANGED'
  end
end
if #saved > 0 then call('SREM', KEYS[1], unpack(saved)) end
return replies
