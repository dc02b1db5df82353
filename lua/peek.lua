-- peek: what the sync worker needs to know of an item. Changes nothing.
--
-- KEYS[1]  the item's hash, item:{<id>}
-- ARGV     none
--
-- Reply: {now, count, rev, saved, seeded, recount}
--   now      this Redis' time, µs
--   count    the live count, or nil if there is none
--   rev      µs, or nil as above
--   saved    the rev last saved, µs; nil if this count was never saved
--   seeded   when this count was seeded, µs; nil if there is no count
--   recount  the recount token, or nil if no recount is asked for
local clock = redis.call('TIME')
local held = redis.call('HMGET', KEYS[1], 'count', 'rev', 'saved', 'seeded', 'recount')
return {clock[1] * 1000000 + clock[2], tonumber(held[1]) or false, tonumber(held[2]) or false,
  tonumber(held[3]) or false, tonumber(held[4]) or false, held[5]}
