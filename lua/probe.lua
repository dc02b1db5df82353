-- probe: find out whether Redis takes a write that needs memory, as a vote's does. Leaves
-- nothing behind.
--
-- KEYS[1]  <prefix>probe: only permissions.lua uses it, too
--
-- Reply
--   'WRITABLE'  it does; otherwise the reply is Redis' error
redis.call('SET', KEYS[1], '')
redis.call('DEL', KEYS[1])
return 'WRITABLE'
