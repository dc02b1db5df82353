-- permissions: try commands that the scripts of a program run, to find out which of them this login
-- may not run. Leaves nothing behind.
--
-- KEYS[1]  <prefix>probe: only probe.lua uses it, too
-- ARGV     each a command with what comes after its key, words separated by spaces: 'HSET field 1'
--
-- Reply
--   'ALLOWED'              each of them
--   {'REFUSED', command…}  not these
local refused = {'REFUSED'}
for _, line in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(line, '%S+') do words[#words + 1] = word end
  if words[1] ~= 'TIME' then table.insert(words, 2, KEYS[1]) end
  -- Other errors, as of a value of another type, say nothing of the login.
  local reply = redis.pcall(unpack(words))
  local why = type(reply) == 'table' and reply.err or ''
  -- Redis 7; Redis 6.
  for _, text in ipairs({'ACL failure', "can't run this command", "can't access at least one"}) do
    if string.find(why, text, 1, true) then refused[#refused + 1] = words[1] end
  end
end
redis.pcall('DEL', KEYS[1])
if #refused > 1 then return refused end
return 'ALLOWED'
