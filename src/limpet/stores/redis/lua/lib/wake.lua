-- Wakes sleeping workers: as many as there is work that they can do, and no more.

local SLEEPERS = 256 -- sessions of a signature that one step looks at, and busy ones

wake = {}
local woken, busy = {}, nil

-- Idle sessions that can run jobs of a class, those with free slots first.
local function sleepers_of(kind)
  local free, full = {}, {}
  for _, sig in ipairs(call("SMEMBERS", K.class_signatures .. kind)) do
    local row = call("ZRANGE", K.sleepers .. sig, 0, SLEEPERS - 1, "WITHSCORES")
    for i = 1, #row, 2 do
      local list = row[i + 1] == "0" and free or full
      list[#list + 1] = { name = row[i], sig = sig }
    end
  end
  return { free = free, full = full }
end

-- True when a job of the class must start at once, so that a worker without a free slot could not take it.
local function needs_slot(kind, limited)
  local starts = limited
  for _, key in ipairs(starts and {} or tx.class(kind).gates) do
    local found = gates.get(key)
    starts = starts or (found ~= nil and gates_math.is_counting(found, tx.now))
  end
  return starts
end

-- Wake up to `count` of a list, from its end; how many are still wanted.
local function rouse(list, count)
  while count > 0 and #list > 0 do
    local sleeper = list[#list]
    list[#list] = nil
    if not woken[sleeper.name] then
      local key = K.session .. sleeper.name
      woken[sleeper.name] = true
      call("ZREM", K.sleepers .. sleeper.sig, sleeper.name)
      tx.tell(call("HGET", key, "mailbox"), TELL_WORK, sleeper.name)
      call("HDEL", key, "idle")
      count = count - 1
    end
  end
  return count
end

-- No worker sleeps: an urgent job is announced to workers that are busy but may have a slot kept for it, each once.
local function rouse_busy(kind, count)
  if not busy then
    busy = {}
    for _, name in ipairs(call("ZRANGEBYSCORE", K.sessions, "(" .. base.text(tx.now), "+inf", "LIMIT", 0, SLEEPERS)) do
      local found = call("HMGET", K.session .. name, "sig", "mailbox")
      busy[#busy + 1] = { name = name, sig = found[1], mailbox = found[2] }
    end
  end
  local able = {}
  for _, sig in ipairs(call("SMEMBERS", K.class_signatures .. kind)) do
    able[sig] = true
  end
  for _, each in ipairs(busy) do
    if count <= 0 then
      return
    end
    if not woken[each.name] and able[each.sig] then
      woken[each.name] = true
      tx.tell(each.mailbox, TELL_URGENT, each.name)
      count = count - 1
    end
  end
end

-- A worker that sleeps until a later instant must hear of an earlier one; one of them is enough. True when one was told.
local function rouse_until(list, due)
  local names = {}
  for i, sleeper in ipairs(list) do
    names[i] = sleeper.name
  end
  for i, at in ipairs(base.mget(K.sleeps_until, names)) do
    if not at or tonumber(at) > due then
      call("HSET", K.sleeps_until, names[i], base.text(due))
      tx.tell(call("HGET", K.session .. names[i], "mailbox"), TELL_WORK, names[i])
      return true
    end
  end
  return false
end

-- What became ready, summed up by class and priority, the most urgent first.
local function gained()
  local by, list, ids = {}, {}, {}
  for lane_id in pairs(tx.ready) do
    ids[#ids + 1] = lane_id
  end
  lanes.load(ids)
  for lane_id, count in pairs(tx.ready) do
    local lane = lanes.get(lane_id)
    if lane then
      local key = char(lane.prio) .. lane.kind
      if not by[key] then
        by[key] = { kind = lane.kind, prio = lane.prio, limited = lane.limited, count = 0 }
        list[#list + 1] = by[key]
      end
      by[key].count = by[key].count + count
    end
  end
  table.sort(list, function(a, b)
    return a.prio < b.prio
  end)
  return list
end

-- Rouse for every class that gained ready jobs, and for new instants.
function wake.workers()
  local sleepers, soonest = {}, {}
  for _, each in ipairs(gained()) do
    sleepers[each.kind] = sleepers[each.kind] or sleepers_of(each.kind)
    local of, left = sleepers[each.kind], each.count
    left = rouse(of.free, left)
    if left > 0 and #of.full > 0 and not needs_slot(each.kind, each.limited) then
      left = rouse(of.full, left)
    end
    if left > 0 and each.prio <= base.URGENT then
      rouse_busy(each.kind, left)
    end
  end
  for lane_id, due in pairs(tx.timers) do
    local lane = lanes.get(lane_id)
    if lane then
      local known = soonest[lane.kind]
      soonest[lane.kind] = { due = min(known and known.due or due, due), limited = lane.limited }
    end
  end
  for kind, each in pairs(soonest) do
    local of = sleepers_of(kind)
    if not rouse_until(of.free, each.due) and #of.full > 0 and not needs_slot(kind, each.limited) then
      rouse_until(of.full, each.due)
    end
  end
end
