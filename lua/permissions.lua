-- permissions: find out which of the commands in a program's scripts this login may not run, or
-- this Redis does not know. Tries each one, and leaves nothing behind.
--
-- KEYS[1]  <prefix>probe: only probe.lua uses it, too
-- KEYS[2]  and KEYS[3], the counters of two items, <prefix>{<item id>}. Nothing touches them. In a
--          Redis Cluster they are in different slots, so that it refuses the call.
-- ARGV     each a command without its key, its words separated by spaces: 'MSET x'
--
-- Reply
--   'ALLOWED'              the login may run all of them
--   {'REFUSED', command…}  the login may not run these; 'unknown MSET': Redis does not know it
local refused = {'REFUSED'}
for _, line in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(line, '%S+') do words[#words + 1] = word end
  if words[1] ~= 'TIME' then table.insert(words, 2, KEYS[1]) end
  -- Other errors, such as a value of the wrong type, say nothing about the login.
  local reply = redis.pcall(unpack(words))
  local why = type(reply) == 'table' and reply.err or ''
  -- The first text is of Redis 7, the others are of Redis 6.
  for _, text in ipairs({'ACL failure', "can't run this command", "can't access at least one"}) do
    if string.find(why, text, 1, true) then refused[#refused + 1] = words[1] end
  end
  if string.find(why, 'Unknown Redis command', 1, true) then refused[#refused + 1] = 'unknown ' .. words[1] end
end
redis.pcall('DEL', KEYS[1])
if #refused > 1 then return refused end
return 'ALLOWED'
