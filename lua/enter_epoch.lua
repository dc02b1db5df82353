-- enter_epoch: note that every counter has been made sure of, unless Redis lost its
-- data meanwhile.
--
-- KEYS[1]  the known epoch, <prefix>epoch
-- KEYS[2]  the mark that was made before the first counter was looked at,
--          <prefix>entering:<nonce>
-- ARGV[1]  the epoch
--
-- Replies
--   'ENTERED'  the epoch is known from now on, and the mark is gone
--   'LOST'     the mark is gone, and with it whatever was made sure of
if redis.call('DEL', KEYS[2]) == 0 then return 'LOST' end
redis.call('SET', KEYS[1], ARGV[1])
return 'ENTERED'
