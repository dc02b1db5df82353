-- clear_rebuild: note that items' exact counts have been written.
--
-- KEYS     the items' hashes, <prefix>{<item id>}, each once
-- ARGV[1]  lease_limit_ms: how long a lease beside a token may still stay
-- ARGV[1 + k]  token of KEYS[k]: the one that was read before the ledger was read
--
-- Reply: for each key, in order
--   'CLEARED'  the token is cleared
--   'CHANGED'    another suspect came since, or someone else has rebuilt
local call = redis.call
local replies = {}
for k, key in ipairs(KEYS) do
  if call('HGET', key, 'rebuild') == ARGV[1 + k] then
    call('HDEL', key, 'rebuild')
    -- While the token stood, a lease beside it could not be given a time to live.
    if call('HEXISTS', key, 'lease') == 1 then call('PEXPIRE', key, ARGV[1]) end
    replies[k] = 'CLEARED'
  else
    replies[k] = 'CHANGED'
  end
end
return replies
