-- The front of a lane as one claim sees it: the jobs that can run, in order; what no longer belongs there is dropped.

local UNDECODABLE = { "permanent", "holdfast.Undecodable", "the stored record cannot be decoded; its bytes are kept", "", "" }

local front = {}

-- Read up to `n` items and their records. A row is {item, id, raw, flags, lost, aside}; one without `raw` is to be dropped.
function front.read(lane, n)
  local listed, aside = call("LRANGE", P .. "L:" .. lane.id, 0, n - 1), call("ZRANGE", P .. "R:" .. lane.id, 0, n - 1)
  local items = base.merge(listed, aside, n)
  local ids, is_aside = {}, {}
  for _, item in ipairs(aside) do
    is_aside[item] = true
  end
  for i, item in ipairs(items) do
    ids[i] = sub(item, 13)
  end
  local raws, runs = base.mget(P .. "J", ids), base.mget(P .. "run", ids)
  local rows = {}
  for i, item in ipairs(items) do
    local raw, row = raws[i], { item = item, id = ids[i], aside = is_aside[item] }
    -- Cancelled, replaced, moved or already running: the item outlived its job's stay in this lane.
    if
      raw and not runs[i]
      and (#raw < 56 or byte(raw, 1) ~= 1
        or (byte(raw, 2) == READY and sub(raw, 29, 36) == lane.id and sub(raw, 17, 22) == sub(item, 1, 6)))
    then
      row.raw = raw
      if #raw >= 56 then
        row.flags, row.lost = byte(raw, 3) * 256 + byte(raw, 4), byte(raw, 7) * 256 + byte(raw, 8)
      end
    end
    rows[i] = row
  end
  return rows, #items < n
end

-- A row that cannot run leaves its job's record as it should be: expired ones are cancelled, unreadable ones are buried.
function front.leaves(row)
  if row.flags == nil or byte(row.raw, 1) ~= 1 then
    graph.bury_waiting(row.id, UNDECODABLE)
    return true
  end
  if record.has(row.flags, RARE) then
    local expires = record.open(row.id, row.raw).rare.e
    if expires and expires <= tx.now then
      graph.cancel_waiting(row.id, "expired")
      return true
    end
  end
  return false
end

-- Remove rows from the front of a lane: all of `rows` but those marked `stays`, which keep their place.
function front.remove(lane, rows)
  local listed, aside, kept, last = 0, {}, {}, #rows
  while last > 0 and rows[last].stays do
    last = last - 1
  end
  for i = 1, last do
    local row = rows[i]
    if not row.aside then
      listed = listed + 1
      if row.stays then
        kept[#kept + 1] = 0
        kept[#kept + 1] = row.item
      end
    elseif not row.stays then
      aside[#aside + 1] = row.item
    end
  end
  if listed > 0 then
    call("LTRIM", P .. "L:" .. lane.id, listed, -1)
  end
  base.chunked("ZREM", P .. "R:" .. lane.id, aside)
  base.chunked("ZADD", P .. "R:" .. lane.id, kept)
end
