-- mark_saved: note that a live count has been written to its item.
--
-- KEYS[1]  the item's hash, item:{<id>}
-- ARGV[1]  rev: the rev that was peeked before the write, µs
--
-- Replies
--   'SAVED'    the count has not changed since it was peeked
--   'CHANGED'  it has, or it is gone: nothing is marked
if redis.call('HGET', KEYS[1], 'rev') ~= ARGV[1] then return 'CHANGED' end
redis.call('HSET', KEYS[1], 'saved', ARGV[1])
return 'SAVED'
