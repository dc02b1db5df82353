-- clear_rebuild: clear rebuild requests whose exact counts have been written.
--
-- KEYS         the items' hashes, <prefix>{<item id>}, each once
-- ARGV[1]      lease_limit_ms: how long a lease beside a cleared request may stay
-- ARGV[1 + k]  request of KEYS[k]: its token, read before the ledger was read
--
-- Reply: for each key, in order
--   'CLEARED'  the request is gone
--   'CHANGED'  there is another request, or none: nothing is done
local call = redis.call
local replies = {}
for k, key in ipairs(KEYS) do
  if call('HGET', key, 'rebuild') == ARGV[1 + k] then
    call('HDEL', key, 'rebuild')
    if call('HEXISTS', key, 'count') == 0 then
      if call('HEXISTS', key, 'lease') == 1 then
        -- The holder of the lease may have read the item before it was written: its seed
        -- still needs this revision as a floor. Both go away with the lease, which had no
        -- time to live while the request was there.
        call('PEXPIRE', key, ARGV[1])
      else
        -- Whoever seeds from now on reads the item as it was written, and goes above that.
        call('HDEL', key, 'rev')
      end
    end
    replies[k] = 'CLEARED'
  else
    replies[k] = 'CHANGED'
  end
end
return replies
