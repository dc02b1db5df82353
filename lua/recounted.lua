-- recounted: note that items' exact counts have been written.
--
-- KEYS     the items' hashes, item:{<id>}, each once
-- ARGV[1]  lease_limit_ms: how long a lease beside a token may still stay
-- ARGV[1 + k]  token of KEYS[k]: the one that was peeked before the ledger was read
--
-- Reply: for each key, in order
--   'RECOUNTED'  the token is cleared
--   'CHANGED'    another doubt came since, or someone else has recounted
local call = redis.call
local replies = {}
for k, key in ipairs(KEYS) do
  if call('HGET', key, 'recount') == ARGV[1 + k] then
    call('HDEL', key, 'recount')
    -- While the token stood, a lease beside it could not be given a time to live.
    if call('HEXISTS', key, 'lease') == 1 then call('PEXPIRE', key, ARGV[1]) end
    replies[k] = 'RECOUNTED'
  else
    replies[k] = 'CHANGED'
  end
end
return replies
