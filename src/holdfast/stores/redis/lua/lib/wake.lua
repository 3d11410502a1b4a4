-- Wakes sleeping workers: as many as there is work that they can do, and no more.

local SLEEPERS = 256 -- sessions that one step looks at

wake = {}

-- Idle sessions that can run jobs of a class, those with free slots first.
local function sleepers_of(kind)
  local found = {}
  for _, sig in ipairs(call("SMEMBERS", P .. "cs:" .. kind)) do
    local row = call("ZRANGE", P .. "idle:" .. sig, 0, SLEEPERS - 1, "WITHSCORES")
    for i = 1, #row, 2 do
      found[#found + 1] = { name = row[i], sig = sig, slots = row[i + 1] == "0" }
    end
  end
  return found
end

local function rouse(sleeper, woken)
  local key = P .. "s:" .. sleeper.name
  woken[sleeper.name] = true
  call("ZREM", P .. "idle:" .. sleeper.sig, sleeper.name)
  tx.tell(call("HGET", key, "ear"), "w", sleeper.name)
  call("HDEL", key, "idle")
end

-- Nobody sleeps: an urgent job is announced to workers that are busy but may have a slot kept for it.
local function rouse_busy(lane, count, woken)
  local able = {}
  for _, sig in ipairs(call("SMEMBERS", P .. "cs:" .. lane.kind)) do
    able[sig] = true
  end
  for _, name in ipairs(call("ZRANGEBYSCORE", P .. "S!", "(" .. base.text(tx.now), "+inf", "LIMIT", 0, SLEEPERS)) do
    if count <= 0 then
      return
    end
    if not woken[name] then
      local found = call("HMGET", P .. "s:" .. name, "sig", "ear")
      if able[found[1]] then
        tx.tell(found[2], "u", name)
        count = count - 1
      end
    end
  end
end

-- A worker that sleeps until a later instant must hear of an earlier one; one of them is enough.
local function rouse_for(lane, due)
  for _, sig in ipairs(call("SMEMBERS", P .. "cs:" .. lane.kind)) do
    local name = call("ZRANGE", P .. "idle:" .. sig, 0, 0)[1]
    if name then
      local known = tonumber(call("HGET", P .. "nx", sig) or nil)
      if known and known <= due then
        return
      end
      call("HSET", P .. "nx", sig, base.text(due))
      tx.tell(call("HGET", P .. "s:" .. name, "ear"), "w", name)
      return
    end
  end
end

-- Rouse for every lane that gained ready jobs, the most urgent first, and for new instants.
function wake.workers()
  local gained, by_kind, woken = {}, {}, {}
  for lane_id, count in pairs(tx.ready) do
    local lane = lanes.get(lane_id)
    if lane then
      gained[#gained + 1] = { lane = lane, count = count }
    end
  end
  table.sort(gained, function(a, b)
    return a.lane.prio < b.lane.prio
  end)
  for _, each in ipairs(gained) do
    local lane, count = each.lane, each.count
    by_kind[lane.kind] = by_kind[lane.kind] or sleepers_of(lane.kind)
    for _, sleeper in ipairs(by_kind[lane.kind]) do
      if count <= 0 then
        break
      end
      if not woken[sleeper.name] and (sleeper.slots or not lane.limited) then
        rouse(sleeper, woken)
        count = count - 1
      end
    end
    if count > 0 and lane.prio <= URGENT then
      rouse_busy(lane, count, woken)
    end
  end
  for lane_id, due in pairs(tx.timers) do
    local lane = lanes.get(lane_id)
    if lane then
      rouse_for(lane, due)
    end
  end
end
