-- The front of a lane as one claim sees it: the jobs that can run, in order; what no longer belongs there is dropped.

take_front = {}

local ahead = {} -- lane -> rows that were read for it together with others

local LISTED, ASIDE, BOTH = 1, 2, 3 -- where an item lies

-- The first items of a lane, at most `n`, and where each of them lies. A job that was moved and came back to its old
-- place may have left an item there: the two are one.
local function items_of(lane, n)
  local listed, aside = call("LRANGE", K.ready .. lane.id, 0, n - 1), call("ZRANGE", K.ready_aside .. lane.id, 0, n - 1)
  local items, where, i, j = listed, {}, 1, 1
  if #aside > 0 then
    items = {}
    while #items < n and (listed[i] or aside[j]) do
      local one, other = listed[i], aside[j]
      if one == other then
        items[#items + 1], where[#items + 1], i, j = one, BOTH, i + 1, j + 1
      elseif not other or (one and base.before(one, other)) then
        items[#items + 1], where[#items + 1], i = one, LISTED, i + 1
      else
        items[#items + 1], where[#items + 1], j = other, ASIDE, j + 1
      end
    end
  end
  return items, where
end

-- True when the record is that of a job that waits in this lane at this place.
local function belongs(raw, item, lane)
  return byte(raw, RECORD.state) == READY and sub(raw, RECORD.lane) == lane.id
    and sub(raw, RECORD.due) == sub(item, ITEM.due)
end

-- True when no job can be read from these bytes: where it stands is all that is known of it. Scripts that change nothing do
-- without lanes.
local function is_spoilt(raw)
  return not record.is_head(raw) or (lanes and not lanes.whole(sub(raw, RECORD.lane)))
end

-- Eight fields from the start: a table that grows is allocated again.
local function row_of(item, id, raw, running, lane, where)
  local flags, lost = nil, 0
  if raw and #raw >= RECORD.size and byte(raw, RECORD.version) == 1 and belongs(raw, item, lane) then
    local high, low, _, _, lost_high, lost_low = byte(raw, RECORD.flags_to_lost)
    flags, lost = high * 256 + low, lost_high * 256 + lost_low
  end
  -- Cancelled, replaced, moved or already running: the item has outlived its job's stay in this lane.
  if not raw or running or (not flags and not is_spoilt(raw)) then
    return { item = item, id = id, where = where }
  end
  return { item = item, id = id, where = where, raw = raw, flags = flags, lost = lost, lease = false, stays = false }
end

-- Read the fronts of several lanes ({lane, n} each) with one look at their records.
function take_front.look(wanted)
  local ids = {}
  for _, each in ipairs(wanted) do
    each.items, each.where = items_of(each.lane, each.n)
    for _, item in ipairs(each.items) do
      ids[#ids + 1] = sub(item, ITEM.id)
    end
  end
  local raws, runs, at = base.mget(K.jobs, ids), base.mget(K.running, ids), 0
  for _, each in ipairs(wanted) do
    local rows = {}
    for i, item in ipairs(each.items) do
      at = at + 1
      rows[i] = row_of(item, ids[at], raws[at], runs[at], each.lane, each.where[i] or LISTED)
    end
    ahead[each.lane.id] = { rows = rows, n = each.n }
  end
end

-- Read up to `n` rows of a lane: {item, id, raw, flags, lost, where}; one without `raw` is to be dropped. The second
-- answer is true when these are all.
function take_front.read(lane, n)
  take_front.look({ { lane = lane, n = n } })
  return take_front.seen(lane, n)
end

-- The same from what was read for several lanes together, if it was.
function take_front.seen(lane, n)
  local seen = ahead[lane.id]
  ahead[lane.id] = nil
  if not seen or seen.n ~= n then
    return take_front.read(lane, n)
  end
  return seen.rows, #seen.rows < n
end

-- A row that cannot run leaves its job's record as it should be: expired ones are cancelled, unreadable ones are buried.
function take_front.leaves(row, lane)
  local rare = row.flags and HAS(row.flags, RARE)
  local r = rare and record.open(row.id, row.raw)
  if row.flags == nil or (rare and not r) then
    effect_ending.bury_spoilt(row.id, { item = row.item, lane = lane.id, state = READY })
    return true
  end
  local expires = r and r.rare[ADDED.expires_ms]
  if expires and expires <= tx.now then
    graph.cancel_waiting(row.id, "expired")
    return true
  end
  return false
end

-- Remove rows from the front of a lane: all of `rows` but those marked `stays`, which keep their place.
function take_front.remove(lane, rows)
  local listed, aside, kept, last = 0, {}, {}, #rows
  while last > 0 and rows[last].stays do
    last = last - 1
  end
  for i = 1, last do
    local row = rows[i]
    if row.where ~= ASIDE then
      listed = listed + 1
      if row.stays and row.where == LISTED then
        kept[#kept + 1] = 0
        kept[#kept + 1] = row.item
      end
    end
    if row.where ~= LISTED and not row.stays then
      aside[#aside + 1] = row.item
    end
  end
  if listed > 0 then
    call("LTRIM", K.ready .. lane.id, listed, -1)
  end
  base.chunked("ZREM", K.ready_aside .. lane.id, aside)
  base.chunked("ZADD", K.ready_aside .. lane.id, kept)
end
