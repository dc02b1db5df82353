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
    -- While the request was there, the key had no time to live. A lease needs one.
    if call('HEXISTS', key, 'lease') == 1 then call('PEXPIRE', key, ARGV[1]) end
    replies[k] = 'CLEARED'
  else
    replies[k] = 'CHANGED'
  end
end
return replies
