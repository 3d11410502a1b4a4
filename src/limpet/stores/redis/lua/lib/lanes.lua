-- Lanes: idle, active (with a seat in the line of their class) or waiting at a gate; and the jobs that are ready in them.

local known = {}
lanes = {}

-- The lane by its id; nil when it is not stored.
function lanes.get(id)
  local lane = known[id]
  if lane == nil then
    lane = lanes.read(id, call("HGET", K.lanes, id))
  end
  return lane or nil
end

-- True when the lane and its class are stored.
function lanes.whole(id)
  local lane = lanes.get(id)
  return lane ~= nil and tx.class(lane.kind) ~= nil
end

-- The lane that these bytes stand for; false when there are none, or too few.
function lanes.read(id, raw)
  local lane = false
  if raw and #raw > LANE.size then
    local flags = byte(raw, LANE.flags)
    lane = {
      id = id, raw = raw, kind = sub(raw, LANE.kind), member = sub(raw, LANE.member), ring = sub(raw, LANE.ring),
      prio = byte(raw, LANE.prio), keyed = HAS(flags, KEYED), limited = HAS(flags, LIMITED),
      multi = HAS(flags, MULTI), -- its member may have many lanes of this class
      has_tenant = HAS(flags, TENANT),
    }
  end
  known[id] = lane
  return lane
end

-- What Python wrote of a lane (DEFINITION).
function lanes.definition(raw)
  return unpack_(sub(raw, LANE.definition))
end

-- Several at once, in one read.
function lanes.load(ids)
  local missing = {}
  for _, id in ipairs(ids) do
    if known[id] == nil then
      missing[#missing + 1] = id
    end
  end
  for i, raw in ipairs(base.mget(K.lanes, missing)) do
    lanes.read(missing[i], raw)
  end
end

-- The gates that stop this lane alone; a breaker comes last.
function lanes.gates(lane)
  if not lane.own_gates then
    lane.own_gates = {}
    if lane.keyed then
      local definition = lanes.definition(lane.raw)
      for _, key in ipairs(definition[DEFINITION.keys]) do
        lane.own_gates[#lane.own_gates + 1] = "limit:" .. key
      end
      local key = definition[DEFINITION.breaker_key]
      lane.breaker = key and "breaker:" .. key
      lane.own_gates[#lane.own_gates + 1] = lane.breaker or nil
    end
  end
  return lane.own_gates
end

-- "tenant:T" for a member that is a tenant, "" for others.
function lanes.tenant(lane)
  local tenant = lanes.definition(lane.raw)[DEFINITION.tenant]
  return tenant and "tenant:" .. tenant or ""
end

-- What the waiting jobs of a tenant's lane are counted under: queue and tenant. Nil for other lanes.
function lanes.field(lane)
  if lane.has_tenant and not lane.counted then
    lane.counted = tx.class(lane.kind).queue .. "\0" .. lanes.definition(lane.raw)[DEFINITION.tenant]
  end
  return lane.counted
end

-- Jobs of a lane came to wait, or (below zero) wait no more.
function lanes.crowd(lane, count)
  local field = lanes.field(lane)
  if field then
    tx.crowds[field] = (tx.crowds[field] or 0) + count
  end
end

-- Store a lane that is not there yet; `class` is the packed definition of its class.
function lanes.remember(id, raw, class)
  if lanes.get(id) then
    return known[id]
  end
  local lane = lanes.read(id, raw)
  if call("HSETNX", K.classes, lane.kind, class) == 1 then
    sessions_signature.meet_class(lane.kind, class)
    for i, key in ipairs(tx.class(lane.kind).gates) do
      if i > 1 then -- all classes are ruled by the first
        call("SADD", K.gate_classes .. key, lane.kind)
      end
    end
  end
  call("HINCRBY", K.class_lanes, lane.kind, 1)
  call("HSET", K.lanes, id, raw)
  for _, key in ipairs(lanes.lasting(lane)) do
    call("HINCRBY", K.gate_lanes, key, 1)
  end
  call("SADD", K.queues, tx.class(lane.kind).queue)
  return lane
end

-- The limits and breakers of a lane that are known while it is stored: all but a breaker by key.
function lanes.lasting(lane)
  local keys = {}
  for i, key in ipairs(tx.class(lane.kind).gates) do
    if i > 3 then
      keys[#keys + 1] = key
    end
  end
  for _, key in ipairs(lanes.gates(lane)) do
    keys[#keys + 1] = key ~= lane.breaker and key or nil
  end
  return keys
end

-- The lane has more or fewer stored jobs; one without any may be forgotten.
function lanes.count(id, count)
  local stored = call("HINCRBY", K.lane_jobs, id, count)
  if stored <= 0 then
    call("ZADD", K.empty_lanes, 0, id)
  elseif stored <= count then -- it had none
    call("ZREM", K.empty_lanes, id)
  end
end

-- -- ready jobs

-- Put items into a lane, each in its place: at the end of the list when it comes last, else into the side list.
function lanes.add(lane, items)
  local key, tail, pushed, aside = K.ready .. lane.id, nil, {}, {}
  tail = call("LINDEX", key, -1)
  for _, item in ipairs(items) do
    if not tail or base.before(tail, item) then
      pushed[#pushed + 1], tail = item, item
    else
      aside[#aside + 1] = 0
      aside[#aside + 1] = item
    end
  end
  base.chunked("RPUSH", key, pushed)
  base.chunked("ZADD", K.ready_aside .. lane.id, aside)
  if #aside > 0 then
    local first = call("ZRANGE", K.ready_aside .. lane.id, 0, 0)[1]
    call("ZADD", K.oldest_ready .. tx.class(lane.kind).queue, "LT", base.n6(first, ITEM.due.at), lane.id)
  end
  lanes.activate(lane, #items, items[1])
end

-- The lane has `count` more ready jobs; an idle one takes a seat.
function lanes.activate(lane, count, item)
  tx.note_ready(lane.id, count)
  if call("HSETNX", K.lane_states, lane.id, LANE_ACTIVE) == 1 then
    call("ZADD", K.oldest_ready .. tx.class(lane.kind).queue, "LT", base.n6(item, ITEM.due.at), lane.id)
    turns.enter(lane)
  end
end

-- True when nothing is left in the lane.
function lanes.empty(lane)
  return call("EXISTS", K.ready .. lane.id, K.ready_aside .. lane.id) == 0
end

-- The lane has no ready jobs.
function lanes.rest(lane)
  call("HDEL", K.lane_states, lane.id)
  call("ZREM", K.oldest_ready .. tx.class(lane.kind).queue, lane.id)
  turns.leave(lane)
end

-- A class goes with its last lane.
local function forget_class(class)
  local kind = class.kind
  for i, key in ipairs(class.gates) do
    if i > 1 then
      call("SREM", K.gate_classes .. key, kind)
    end
  end
  sessions_signature.forget_class(kind)
  call("HDEL", K.classes, kind)
  call("HDEL", K.class_lanes, kind)
end

-- A lane without jobs is forgotten; if it was woken for a free place, the next one that waits gets it.
function lanes.forget(id)
  local lane = lanes.get(id)
  if lane then
    for _, key in ipairs(lanes.gates(lane)) do
      gates.touch(key)
    end
    for _, key in ipairs(lanes.lasting(lane)) do
      gates.touch(key)
      if call("HINCRBY", K.gate_lanes, key, -1) <= 0 then
        call("HDEL", K.gate_lanes, key)
      end
    end
    local state = call("HGET", K.lane_states, id)
    if state and base.begins(state, LANE_WAITS) then
      local key = sub(state, 2)
      call("ZREM", K.waiting_lanes .. lane.kind .. key, id)
      if call("EXISTS", K.waiting_lanes .. lane.kind .. key) == 0 then
        call("SREM", K.waiting_classes .. key, lane.kind)
      end
    end
    lanes.rest(lane)
    call("DEL", K.ready .. id, K.ready_aside .. id)
    call("HDEL", K.lanes, id)
    known[id] = false
    if call("HINCRBY", K.class_lanes, lane.kind, -1) <= 0 then
      forget_class(tx.class(lane.kind))
    end
  end
  call("HDEL", K.lane_jobs, id)
  call("ZREM", K.empty_lanes, id)
end
