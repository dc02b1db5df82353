-- enter_epoch: note the epoch that a worker has entered, unless Redis lost its data
-- while the worker went through the counters.
--
-- KEYS[1]  <prefix>epoch: the known epoch
-- KEYS[2]  <prefix>entering:<nonce>: the mark that the worker set before it looked at
--          the first counter
-- ARGV[1]  epoch: the one that is entered
--
-- Replies
--   'ENTERED'  the epoch is known from now on, and the mark is gone
--   'LOST'     the mark was gone, so the counters are gone too: begin again
if redis.call('DEL', KEYS[2]) == 0 then return 'LOST' end
redis.call('SET', KEYS[1], ARGV[1])
return 'ENTERED'
