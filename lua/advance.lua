-- advance: claim the next page of the scan that several sync workers share.
--
-- KEYS[1]  <prefix>scan or <prefix>unsaved_scan: the cursor of the shared scan; absent: 0, the
--          scan begins
-- ARGV[1]  from: the cursor at which the page begins
-- ARGV[2]  to: the cursor at which the page ends
--
-- Replies
--   'CLAIMED'  the page is the caller's
--   'TAKEN'    another worker was first: read the cursor again
if (redis.call('GET', KEYS[1]) or '0') ~= ARGV[1] then return 'TAKEN' end
-- First, as in invalidate.lua: the scan of a full Redis is what makes it emptier.
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], ARGV[2])
return 'CLAIMED'
