-- throttle: take a place in each window of an attempt to vote, or refuse the attempt.
--
-- A window begins with its first attempt and lasts for its throttle's interval. Its key holds the
-- number of attempts that it has taken.
--
-- KEYS[k]      a window, <prefix>throttle:<what>:<interval>:<of whom>, each once
-- ARGV[1]      plan: for each attempt in order, two bytes for each throttle: the number k of the
--              attempt's window, the high byte first; 0: the throttle does not look at the attempt
-- ARGV[2t]     limit of throttle t: how many attempts a window takes
-- ARGV[2t+1]   interval_ms of throttle t
--
-- Reply: for each attempt, in order
--   an integer   0: it is admitted, and has taken a place in each of its windows
--   {t, ms}      two integers: it is refused, and has taken no place. Its window of throttle t is
--                full for ms milliseconds more; t is the one that is full for the longest.
local call, byte = redis.call, string.byte
local plan, throttles = ARGV[1], (#ARGV - 1) / 2
local limits, intervals = {}, {}
for t = 1, throttles do
  limits[t], intervals[t] = tonumber(ARGV[2 * t]), tonumber(ARGV[2 * t + 1])
end

local held = call('MGET', unpack(KEYS))
-- For each window: how many attempts it has taken, how many of them in this call, its throttle,
-- and for how long it is full.
local taken, fresh, of, full_ms = {}, {}, {}, {}
for k = 1, #KEYS do
  -- Tally writes only numbers. Anything else is overwritten.
  local number = held[k] and tonumber(held[k])
  taken[k], held[k], fresh[k] = number or 0, number, 0
end

local function left_ms(k, t)
  if not full_ms[k] then
    local left = held[k] and call('PTTL', KEYS[k]) or intervals[t]
    -- Redis' clock has gone back, or the throttle had another interval.
    if held[k] and (left < 0 or left > intervals[t]) then
      call('PEXPIRE', KEYS[k], intervals[t])
      left = intervals[t]
    end
    full_ms[k] = left
  end
  return full_ms[k]
end

local replies, at = {}, 1
for attempt = 1, #plan / (2 * throttles) do
  local windows, refused = {byte(plan, at, at + 2 * throttles - 1)}, nil
  at = at + 2 * throttles
  for t = 1, throttles do
    local k = windows[2 * t - 1] * 256 + windows[2 * t]
    windows[t] = k
    if k > 0 and taken[k] >= limits[t] then
      local ms = left_ms(k, t)
      if not refused or ms > refused[2] then refused = {t, ms} end
    end
  end
  if not refused then
    for t = 1, throttles do
      local k = windows[t]
      if k > 0 then taken[k], fresh[k], of[k] = taken[k] + 1, fresh[k] + 1, t end
    end
  end
  replies[attempt] = refused or 0
end

for k = 1, #KEYS do
  if fresh[k] > 0 then
    if held[k] then
      call('INCRBY', KEYS[k], fresh[k])
    else
      call('SET', KEYS[k], fresh[k], 'PX', intervals[of[k]])
    end
  end
end
return replies
