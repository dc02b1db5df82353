-- counter: how scripts read and write counters. No script of its own: it stands before each script that uses
-- it. src/live/counter.rs describes the format.
local call = redis.call
local FORMAT, BYTES = '<dddddI4', 44

-- Whether this is a number that Tally may have written. Its revisions are times (µs) before the year 2286.
local function is_whole(number) return number % 1 == 0 and number < 1e16 and number > -1e16 end

-- Returns the parts of a counter: count, downs, revision, saved, xmax, seeded, lease, request, snapshot.
-- Returns nothing if there is no value, or if it is no counter's. There is a live count if seeded is not 0.
local function parts(value)
  if not value or #value < BYTES then return end
  local count, downs, revision, saved, xmax, seeded = struct.unpack(FORMAT, value)
  if not (is_whole(count) and is_whole(downs) and is_whole(revision) and is_whole(saved)) then return end
  if #value == BYTES then return count, downs, revision, saved, xmax, seeded, '', '', '' end
  local lease, request, snapshot = string.match(value, '^([^|]*)|([^|]*)|([^|]*)$', BYTES + 1)
  if not lease then return end
  return count, downs, revision, saved, xmax, seeded, lease, request, snapshot
end

-- Returns the value of a counter with these parts.
local function packed(count, downs, revision, saved, xmax, seeded, lease, request, snapshot)
  local value = struct.pack(FORMAT, count, downs, revision, saved, xmax, seeded)
  if lease == '' and request == '' and snapshot == '' then return value end
  return value .. lease .. '|' .. request .. '|' .. snapshot
end

