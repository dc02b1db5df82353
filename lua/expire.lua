-- expire: drop live counts that are saved and idle (compare and delete).
--
-- KEYS[1]      <prefix>unsaved: the index, not changed here. A saved count's item is not in
--              it, and an item with a rebuild request stays in it.
-- KEYS[1 + k]  the items' counters, <prefix>{<item id>}, each once
-- ARGV[1]      retention_us: how long a count stays after its last change, µs
-- ARGV[1 + k]  revision of KEYS[1 + k]: the one that the caller has read, µs
--
-- Reply: for each key, in order
--   'EXPIRED'  the count is gone
--   'KEPT'     it has changed since, is not saved, or has not been idle for long enough
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local held = call('MGET', unpack(KEYS, 2))

local replies = {}
for k = 1, #held do
  local key, wanted = KEYS[1 + k], tonumber(ARGV[1 + k])
  local _, _, revision, saved, _, seeded, _, request = parts(held[k])
  if revision and seeded > 0 and revision == wanted and saved == wanted and wanted + tonumber(ARGV[1]) <= now then
    -- First, as in invalidate.lua.
    call('DEL', key)
    -- A rebuild request beside the count stays.
    if request ~= '' then call('SET', key, packed(0, 0, 0, 0, 0, 0, '', request, '')) end
    replies[k] = 'EXPIRED'
  else
    replies[k] = 'KEPT'
  end
end
return replies
