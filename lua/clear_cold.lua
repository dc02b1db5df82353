-- clear_cold: note that the saved counts have all votes on cold items (compare and delete).
--
-- KEYS[1]  <prefix>cold: the token that says that they may not
-- ARGV[1]  token: the one that the caller has read, before it saved them
--
-- Replies
--   'CLEARED'  the token is gone
--   'CHANGED'  there is another one, or none
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 'CHANGED' end
redis.call('DEL', KEYS[1])
return 'CLEARED'
