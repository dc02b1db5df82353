-- count: add the votes of one committed batch to the live counts of its items.
--
-- KEYS[1]      <prefix>unsaved: the index, the keys of items with something to be written
-- KEYS[1 + k]  the items' counters, <prefix>{<item id>}, each once
-- the last     <prefix>cold: a token, set to the nonce if an item is cold
-- ARGV[1]      xid: the id of the batch's transaction, committed; decimal
-- ARGV[2]      nonce: makes a fresh lease unique; the token of a rebuild request
-- ARGV[3]      lease_limit_ms: a lease that is older is replaced; with a ! behind it, all items are warm
-- ARGV[3 + k]  delta of KEYS[1 + k]: the sum of the batch's rows on this item, a whole number;
--              or delta,downs, if its down-votes change too. A delta of 0 only reads a count,
--              but leases a missing one. With a ! behind it, the item is warm: a missing count is
--              leased.
--
-- Reply: for each key, in order
--   an integer       the live count, with these votes in it; it has no down-votes
--   {count, downs}   the same with its down-votes: two integers
--   {'MISS', lease}  there is no live count, or none any more; the holder of this lease may
--                    seed one
--   'COLD'           there is nothing of this item in Redis, and it is not warm. A later seed has
--                    these votes: it reads the ledger under a later lease
--
-- Without KEYS: the same for several buckets of a Redis Cluster, at the node that should have them.
-- Behind lease_limit_ms, ARGV then has for each bucket: how many items, their counters, the index, the
-- token, the deltas. The reply has for each bucket, in order, what is above; or, if the node does not
-- have all keys that it needs, its error: no vote of that bucket was counted, and at most leases were taken.
local xid, nonce = tonumber(ARGV[1]), ARGV[2]
local lease_limit_text, all_warm = string.match(ARGV[3], '^(%d+)(!?)$')
local lease_limit_ms = tonumber(lease_limit_text)
all_warm = all_warm == '!'

-- Returns whether the visibility snapshot has seen this batch; nil if nobody can say. A
-- snapshot has one of three forms:
--   xmin:xmax:running,running      it has seen a committed xid below xmin, and one below xmax
--                                  that is not among the running
--   xmax                           short for xmax:xmax: (in the counter, a number)
--   low:xmax:running,running:xmin  only the newest of the running, from low on: it cannot say
--                                  whether it has seen an xid from xmin to below low
local function visible(snapshot)
  local low, xmax, running, xmin = string.match(snapshot, '^(%d+):(%d+):([%d,]*):?(%d*)$')
  if xid >= tonumber(xmax) then return false end
  if xid < tonumber(low) then
    if xmin ~= '' and xid >= tonumber(xmin) then return nil end
    return true
  end
  return not string.find(',' .. running .. ',', ',' .. ARGV[1] .. ',', 1, true)
end

local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- Leases a counter without a live count, unless it is leased. It keeps this floor and rebuild request. Returns
-- nothing if there is a value of another type.
local function miss(key, is_there, floor, lease, request)
  if lease ~= '' then
    local age = now - tonumber(string.match(lease, '^%d+'))
    if age >= 0 and age < lease_limit_ms * 1000 then return {'MISS', lease} end
  end
  -- A lease reads <µs when taken>:<nonce>.
  local fresh_lease = string.format('%.0f:%s', now, nonce)
  local value = packed(0, 0, floor, 0, 0, 0, fresh_lease, request, '')
  if request ~= '' then
    call('SET', key, value)
  -- The lease expires with its key.
  elseif not call('SET', key, value, 'PX', lease_limit_ms, is_there and 'XX' or 'NX') then
    return
  end
  return {'MISS', fresh_lease}
end

-- Made once for all buckets, and filled from 1 for each: what is behind its end is of a bucket before.
local changed, unsaved = {}, {}
-- Globals that every vote needs.
local unpack, tonumber, ARGV = unpack, tonumber, ARGV

-- Counts the votes on the items of one bucket: names[before + 1] and so on, whose values are held. Returns the
-- replies. `try` is redis.call or redis.pcall; with that, it returns the error of the only call that may fail.
local function count_items(try, held, names, before, items, index, cold, deltas_before)
  local replies, is_cold, missed = {}, false, nil
  local changed_end, unsaved_end = 0, 0
  for k = 1, items do
    local key = names[before + k]
    local count, downs, revision, saved, xmax, seeded, lease, request, snapshot = parts(held[k])
    local given, delta_downs = ARGV[deltas_before + k], 0
    -- Most are 1.
    local delta = given == '1' and 1 or tonumber(given)
    local changes, is_warm = delta ~= 0, all_warm or delta == 0
    if not delta then
      local net, downs_changed, warm = string.match(given, '^(-?%d+),?(-?%d*)(!?)$')
      delta, delta_downs, is_warm = tonumber(net), tonumber(downs_changed) or 0, all_warm or warm == '!'
      changes = delta ~= 0 or delta_downs ~= 0
    end
    local is_live = count and seeded > 0
    -- A seed that has seen these votes has them in its count: do not add them twice.
    local seen = true
    if is_live and changes then
      if snapshot == '' then seen = xid < xmax else seen = visible(snapshot) end
    end
    if is_live and seen ~= nil then
      if not seen then
        count, downs = count + delta, downs + delta_downs
        -- The first vote after a save. Before later ones, the item is in the index already.
        if saved == revision then
          unsaved_end = unsaved_end + 1
          unsaved[unsaved_end] = key
        end
        revision = revision < now and now or revision + 1
        changed[changed_end + 1] = key
        changed_end = changed_end + 2
        -- A counter without texts, as most are, needs no look at them.
        changed[changed_end] = #held[k] == BYTES and pack(FORMAT, count, downs, revision, saved, xmax, seeded)
          or packed(count, downs, revision, saved, xmax, seeded, lease, request, snapshot)
      end
      replies[k] = downs ~= 0 and {count, downs} or count
    elseif not held[k] and not is_warm then
      is_cold = true
      replies[k] = 'COLD'
    else
      missed = missed or {}
      if seen ~= nil and (count or not held[k]) then
        missed[#missed + 1] = {k, count, revision or 0, lease or '', request or ''}
      else
        -- Nobody can say whether the count has these votes, or someone else has written there. It is
        -- invalidated, as in invalidate.lua. The exact count that this batch reads next has the votes.
        unsaved_end = unsaved_end + 1
        unsaved[unsaved_end] = key
        missed[#missed + 1] = {k, count, revision or 0, '', nonce}
      end
    end
  end
  -- First, since the index alone may be at another node by now, when the bucket's slot moves: nothing is done then.
  if unsaved_end > 0 then
    local added = try('SADD', index, unpack(unsaved, 1, unsaved_end))
    if type(added) == 'table' then return nil, added.err end
  end
  for _, one in ipairs(missed or {}) do
    local k, is_there, floor, lease, request = unpack(one, 1, 5)
    local key = names[before + k]
    replies[k] = miss(key, is_there, floor, lease, request)
    if not replies[k] then
      -- A value of another type is invalidated too.
      local added = try('SADD', index, key)
      if type(added) == 'table' then return nil, added.err end
      replies[k] = miss(key, is_there, floor, '', nonce)
    end
  end
  if changed_end > 0 then call('MSET', unpack(changed, 1, changed_end)) end
  if is_cold then call('SET', cold, nonce) end
  return replies
end

if #KEYS > 0 then
  local held = call('MGET', unpack(KEYS, 2, #KEYS - 1))
  return (count_items(call, held, KEYS, 1, #KEYS - 2, KEYS[1], KEYS[#KEYS], 3))
end
local all, at = {}, 4
while at <= #ARGV do
  local items = tonumber(ARGV[at])
  local index = at + items + 1
  -- While the bucket's slot moves, it fails if any of the counters is not here: only what is here is written below.
  local held = redis.pcall('MGET', unpack(ARGV, at + 1, index - 1))
  local replies, failure = nil, held.err
  if not failure then
    replies, failure = count_items(redis.pcall, held, ARGV, at, items, ARGV[index], ARGV[index + 1], index + 1)
  end
  all[#all + 1] = replies or failure
  at = index + 2 + items
end
return all
