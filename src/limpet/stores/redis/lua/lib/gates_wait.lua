-- Lanes that wait at gates, and how they go on: a gate that opens wakes as many of each class as it has room for.

local WAKE = 256 -- lanes of a class that one gate wakes at once
local CLASSES = 256 -- classes that a gate wakes workers for at once
local LEAST = 9 -- the least urgent priority
local TURNS = 281474976710656 -- 2^48: the priority stands above the turn in a wait list's score

gates_wait = {}

-- The lane waits at a gate.
function gates_wait.park(lane, key)
  local turn = turns.turn(lane.member)
  call("HSET", K.lane_states, lane.id, LANE_WAITS .. key)
  call("ZADD", K.waiting_lanes .. lane.kind .. key, lane.prio * TURNS + (turn and turn.turn or 0), lane.id)
  call("SADD", K.waiting_classes .. key, lane.kind)
  turns.leave(lane)
end

-- Wake as many lanes of each waiting class as the gate has room for; the instant to look again when it has none.
function gates_wait.wake(key)
  local kinds = call("SMEMBERS", K.waiting_classes .. key)
  if #kinds == 0 then
    return nil
  end
  local found = gates.get(key)
  local free = found and gates_math.room(found, tx.now) or base.UNLIMITED
  if free <= 0 then
    return gates_math.opens_at(found, tx.now)
  end
  for _, kind in ipairs(kinds) do
    local waiting = K.waiting_lanes .. kind .. key
    local woken = call("ZPOPMIN", waiting, min(free, WAKE))
    for i = 1, #woken, 2 do
      local lane = lanes.whole(woken[i]) and lanes.get(woken[i])
      if lane then
        call("HSET", K.lane_states, lane.id, LANE_ACTIVE)
        turns.enter(lane, tonumber(woken[i + 1]) % TURNS)
        tx.note_ready(lane.id, 1)
      end
    end
    if call("EXISTS", waiting) == 0 then
      call("SREM", K.waiting_classes .. key, kind)
    end
  end
  -- The woken lanes carry the room: a lane that uses it, finds it taken or is empty looks at the gate again.
  return nil
end

function gates_wait.wake_now(keys)
  for _, key in ipairs(keys) do
    gates.arm(key, gates_wait.wake(key))
  end
end

-- A ready job goes without having run: where a budget was shut for it, others may go on.
function gates_wait.leave_line(r)
  local lane, extra = lanes.get(r.lane), nil
  local class = tx.class(lane.kind)
  if not (class.limited or lane.keyed) then
    return
  end
  for _, keys in ipairs({ class.gates, lanes.gates(lane) }) do
    gates.load(keys)
    for _, key in ipairs(keys) do
      local found = gates.get(key)
      if found and found.reserved_for then
        extra = extra or record.extra(r)
        if gates_math.is_shut_for(found, record.cost(extra, found.rule.unit or "")) then
          gates.edit(key).reserved_for = 0
        end
      end
    end
  end
end

-- Lanes that wait at a gate can run sooner than sleeping workers were told.
function gates_wait.time_lanes(key, opens)
  for _, kind in ipairs(call("SMEMBERS", K.waiting_classes .. key)) do
    tx.note_timer(call("ZRANGE", K.waiting_lanes .. kind .. key, 0, 0)[1], opens)
  end
end

-- The first active lane of a class at one priority; nil when there is none.
local function first_lane(kind, prio)
  local first = turns.line(kind, prio, 1, {})[1]
  return first and first.id
end

-- Gates that stop whole classes have room again ({key -> room}): sleeping workers should hear of it. Of very many
-- classes that a gate rules some are told of, others each time.
function gates_wait.wake_classes(opened)
  local rooms = {} -- kind -> least room
  for key, free in pairs(opened) do
    for _, kind in ipairs(gates_wait.ruled(key)) do
      rooms[kind] = min(rooms[kind] or free, free)
    end
  end
  for kind, free in pairs(rooms) do
    for prio = 0, LEAST do
      local first = first_lane(kind, prio)
      if first then
        tx.note_ready(first, free)
      end
    end
  end
end

-- Gates that stop whole classes ({key -> true}) open sooner than sleeping workers were told.
function gates_wait.time_classes(sooner)
  for key in pairs(sooner) do
    for _, kind in ipairs(gates_wait.ruled(key)) do
      local opens, prio = gates.opens_at(tx.class(kind).gates), 0
      while opens and prio <= LEAST do
        local first = first_lane(kind, prio)
        if first then
          tx.note_timer(first, opens)
          break
        end
        prio = prio + 1
      end
    end
  end
end

-- Classes that a gate rules, those with work if it rules all.
function gates_wait.ruled(key)
  if key ~= "all" then
    return call("SRANDMEMBER", K.gate_classes .. key, CLASSES)
  end
  local kinds = {}
  for i, entry in ipairs(call("ZRANGE", K.active_classes, 0, CLASSES - 1)) do
    kinds[i] = sub(entry, ACTIVE.kind)
  end
  return kinds
end
