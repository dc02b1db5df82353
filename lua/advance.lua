-- advance: claim the next page of the scan that several sync workers share.
--
-- KEYS[1]  the scan's cursor, <prefix>scan
-- ARGV[1]  from: the cursor that the page was scanned from
-- ARGV[2]  to: the cursor that the page ended at
--
-- Replies
--   'CLAIMED'  the page is the caller's
--   'TAKEN'    another worker was first: read the cursor again
if (redis.call('GET', KEYS[1]) or '0') ~= ARGV[1] then return 'TAKEN' end
redis.call('SET', KEYS[1], ARGV[2])
return 'CLAIMED'
