-- counter: how scripts read and write counters. No script of its own: it stands before each script that uses
-- it. src/live/counter.rs describes the format.
local call, pack, unpack_numbers = redis.call, struct.pack, struct.unpack
local FORMAT, BYTES = '<dddddI4', 44
-- Tally writes no larger number: its revisions are times (µs) before the year 2286.
local LIMIT = 1e16

-- Returns the parts of a counter: count, downs, revision, saved, xmax, seeded, lease, request, snapshot.
-- Returns nothing if there is no value, or if it is no counter's. There is a live count if seeded is not 0.
local function parts(value)
  if not value or #value < BYTES then return end
  local count, downs, revision, saved, xmax, seeded = unpack_numbers(FORMAT, value)
  -- Four whole numbers below the limit. In one expression, since every vote passes here.
  if count % 1 + downs % 1 + revision % 1 + saved % 1 ~= 0
    or count >= LIMIT or downs >= LIMIT or revision >= LIMIT or saved >= LIMIT
    or count <= -LIMIT or downs <= -LIMIT or revision <= -LIMIT or saved <= -LIMIT then return end
  if #value == BYTES then return count, downs, revision, saved, xmax, seeded, '', '', '' end
  local lease, request, snapshot = string.match(value, '^([^|]*)|([^|]*)|([^|]*)$', BYTES + 1)
  if not lease then return end
  return count, downs, revision, saved, xmax, seeded, lease, request, snapshot
end

-- Returns the value of a counter with these parts.
local function packed(count, downs, revision, saved, xmax, seeded, lease, request, snapshot)
  local value = pack(FORMAT, count, downs, revision, saved, xmax, seeded)
  if lease == '' and request == '' and snapshot == '' then return value end
  return value .. lease .. '|' .. request .. '|' .. snapshot
end

