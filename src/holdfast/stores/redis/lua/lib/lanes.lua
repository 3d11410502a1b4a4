-- Lanes: idle, active (with a seat in the line of their class) or waiting at a gate; and the jobs that are ready in them.

local GATES = 64 -- due gates and levels that one step opens
local PROMOTE = 512 -- due jobs that one step makes ready
local WAKE = 256 -- lanes of a class that one gate wakes at once
local TURNS = 281474976710656 -- 2^48: the priority stands above the turn in a wait list's score

local known = {}
lanes = {}

-- The lane by its id; nil when it is not stored.
function lanes.get(id)
  local lane = known[id]
  if lane == nil then
    local raw = call("HGET", P .. "ln", id)
    lane = raw and lanes.read(id, raw) or false
    known[id] = lane
  end
  return lane or nil
end

function lanes.read(id, raw)
  local flags = byte(raw, 26)
  local lane = {
    id = id, raw = raw, kind = sub(raw, 1, 8), member = sub(raw, 9, 16), ring = sub(raw, 17, 24), prio = byte(raw, 25),
    keyed = flags % 2 == 1, limited = flags % 4 >= 2, multi = flags % 8 >= 4,
  }
  known[id] = lane
  return lane
end

-- Several at once, in one read.
function lanes.load(ids)
  local missing = {}
  for _, id in ipairs(ids) do
    if known[id] == nil then
      missing[#missing + 1] = id
    end
  end
  for i, raw in ipairs(base.mget(P .. "ln", missing)) do
    known[missing[i]] = raw and lanes.read(missing[i], raw) or false
  end
end

-- The gates that stop this lane alone.
function lanes.gates(lane)
  if not lane.own_gates then
    lane.own_gates = {}
    if lane.keyed then
      for _, key in ipairs(unpack_(sub(lane.raw, 27))[7]) do
        lane.own_gates[#lane.own_gates + 1] = "limit:" .. key
      end
    end
  end
  return lane.own_gates
end

-- "group:G" for a member that is a group, "" for others.
function lanes.group(lane)
  local group = unpack_(sub(lane.raw, 27))[4]
  return group and "group:" .. group or ""
end

-- Store a lane that is not there yet; `class` is the packed definition of its class.
function lanes.remember(id, raw, class)
  if lanes.get(id) then
    return known[id]
  end
  local lane = lanes.read(id, raw)
  if call("HSETNX", P .. "cl", lane.kind, class) == 1 then
    signature.meet_class(lane.kind, class)
  end
  call("HSET", P .. "ln", id, raw)
  for _, key in ipairs(lanes.ruling(lane)) do
    call("HINCRBY", P .. "gn", key, 1)
  end
  call("SADD", P .. "qs", tx.class(lane.kind).queue)
  return lane
end

-- The limits and breakers that rule a lane.
function lanes.ruling(lane)
  local keys = {}
  for i, key in ipairs(tx.class(lane.kind).gates) do
    if i > 3 then
      keys[#keys + 1] = key
    end
  end
  for _, key in ipairs(lanes.gates(lane)) do
    keys[#keys + 1] = key
  end
  return keys
end

-- The lane has more or fewer stored jobs; one without any may be forgotten.
function lanes.count(id, count)
  if call("HINCRBY", P .. "lj", id, count) <= 0 then
    call("ZADD", P .. "lz", 0, id)
  elseif count > 0 then
    call("ZREM", P .. "lz", id)
  end
end

-- -- seats

local function seats_key(lane)
  return P .. "S:" .. lane.kind .. char(lane.prio)
end

local function add_seats(id, count)
  local turn = tx.turn(id)
  turn.seats = turn.seats + count
  tx.put_turn(id, turn)
end

-- The lane is active: its member has a place in the line of its class.
local function take_seat(lane, turn)
  if lane.multi then
    call("ZADD", P .. "A:" .. lane.kind .. lane.member, tx.now, lane.id)
  end
  if call("ZADD", seats_key(lane), "NX", turn, lane.member) == 1 then
    if not lane.multi then
      call("HSET", P .. "sl", lane.kind .. lane.member, lane.id)
    end
    call("ZADD", P .. "act", 0, char(lane.prio) .. lane.ring .. lane.kind)
    add_seats(lane.member, 1)
    add_seats(lane.ring, 1)
  end
end

-- With the last active lane of its kind a member gives up its place.
local function leave_seat(lane)
  if lane.multi then
    local key = P .. "A:" .. lane.kind .. lane.member
    call("ZREM", key, lane.id)
    if call("EXISTS", key) == 1 then
      return
    end
  end
  local key = seats_key(lane)
  if call("ZREM", key, lane.member) == 1 then
    call("HDEL", P .. "sl", lane.kind .. lane.member)
    add_seats(lane.member, -1)
    add_seats(lane.ring, -1)
    if call("EXISTS", key) == 0 then
      call("ZREM", P .. "act", char(lane.prio) .. lane.ring .. lane.kind)
    end
  end
end

-- Lanes of a class at one priority, least recently served member first: {id, member, turn}; and the last turn in view
-- when there are more than `n` members, whose lanes may be seen in part.
function lanes.line(kind, prio, n)
  local seats, fields, out = call("ZRANGE", P .. "S:" .. kind .. char(prio), 0, n - 1, "WITHSCORES"), {}, {}
  for i = 1, #seats, 2 do
    fields[#fields + 1] = kind .. seats[i]
  end
  for i, id in ipairs(base.mget(P .. "sl", fields)) do
    local member, turn = seats[2 * i - 1], tonumber(seats[2 * i])
    if id then
      out[#out + 1] = { id = id, member = member, turn = turn, kind = kind }
    else
      for _, one in ipairs(call("ZRANGE", P .. "A:" .. kind .. member, 0, n - 1)) do
        out[#out + 1] = { id = one, member = member, turn = turn, kind = kind }
      end
    end
  end
  return out, #fields == n and tonumber(seats[#seats]) or nil
end

-- Members whose turn is over go to the end of every line that they stand in; `moves` is turn, member, turn, member…
function lanes.move_seats(ring, prio, moves)
  if #moves == 0 then
    return
  end
  for _, entry in ipairs(call("ZRANGEBYLEX", P .. "act", "[" .. char(prio) .. ring, "(" .. char(prio + 1))) do
    if sub(entry, 2, 9) ~= ring then
      return
    end
    local key = P .. "S:" .. sub(entry, 10, 17) .. char(prio)
    for i = 1, #moves, MANY do
      call("ZADD", key, "XX", unpack(moves, i, min(i + MANY - 1, #moves)))
    end
  end
end

-- What has no seat enters at the end of the round, or where `turn` says.
local function enter(lane, turn)
  local member, ring = tx.turn(lane.member), tx.turn(lane.ring)
  local sits = member and member.seats > 0
  if not sits then
    turn = turn or tx.next_turn()
    tx.put_turn(lane.member, { turn = turn, left = tx.weight(lanes.group(lane)), seats = 0 })
  end
  if not ring or ring.seats == 0 then
    local weight = tx.weight("queue:" .. tx.class(lane.kind).queue)
    tx.put_turn(lane.ring, { turn = turn or tx.next_turn(), left = weight, seats = 0 })
  end
  take_seat(lane, tx.turn(lane.member).turn)
end

-- -- ready jobs

-- Put items into a lane, each in its place: at the end of the list when it comes last, else into the side list.
function lanes.add(lane, items)
  local key, tail, pushed, aside = P .. "L:" .. lane.id, nil, {}, {}
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
  base.chunked("ZADD", P .. "R:" .. lane.id, aside)
  if #aside > 0 then
    local first = call("ZRANGE", P .. "R:" .. lane.id, 0, 0)[1]
    call("ZADD", P .. "hd:" .. tx.class(lane.kind).queue, "LT", base.n6(first, 1), lane.id)
  end
  lanes.activate(lane, #items, items[1])
end

-- The lane has `count` more ready jobs; an idle one takes a seat.
function lanes.activate(lane, count, item)
  tx.note_ready(lane.id, count)
  if call("HSETNX", P .. "ls", lane.id, "a") == 1 then
    call("ZADD", P .. "hd:" .. tx.class(lane.kind).queue, "LT", base.n6(item, 1), lane.id)
    enter(lane)
  end
end

-- The first items of a lane, at most `n`, in order.
function lanes.front(lane, n)
  local listed = call("LRANGE", P .. "L:" .. lane.id, 0, n - 1)
  local aside = call("ZRANGE", P .. "R:" .. lane.id, 0, n - 1)
  return base.merge(listed, aside, n), listed, aside
end

-- True when nothing is left in the lane.
function lanes.empty(lane)
  return call("EXISTS", P .. "L:" .. lane.id, P .. "R:" .. lane.id) == 0
end

-- The lane has no ready jobs.
function lanes.rest(lane)
  call("HDEL", P .. "ls", lane.id)
  call("ZREM", P .. "hd:" .. tx.class(lane.kind).queue, lane.id)
  leave_seat(lane)
end

-- The lane waits at a gate.
function lanes.park(lane, key)
  local turn = tx.turn(lane.member)
  call("HSET", P .. "ls", lane.id, "w" .. key)
  call("ZADD", P .. "W:" .. lane.kind .. key, lane.prio * TURNS + (turn and turn.turn or 0), lane.id)
  call("SADD", P .. "WC:" .. key, lane.kind)
  leave_seat(lane)
end

-- Wake as many lanes of each waiting class as the gate has room for; the instant to look again when it has none.
function lanes.wake(key)
  local kinds = call("SMEMBERS", P .. "WC:" .. key)
  if #kinds == 0 then
    return nil
  end
  local found = tx.gate(key)
  local free = found and gate.room(found, tx.now) or LOTS
  if free <= 0 then
    return gate.opens_at(found, tx.now)
  end
  for _, kind in ipairs(kinds) do
    local waiting = P .. "W:" .. kind .. key
    local woken = call("ZPOPMIN", waiting, min(free, WAKE))
    for i = 1, #woken, 2 do
      local lane = lanes.get(woken[i])
      call("HSET", P .. "ls", lane.id, "a")
      enter(lane, tonumber(woken[i + 1]) % TURNS)
      tx.note_ready(lane.id, 1)
    end
    if call("EXISTS", waiting) == 0 then
      call("SREM", P .. "WC:" .. key, kind)
    end
  end
  -- The woken lanes carry the room: whoever uses it, finds it taken or turns out empty looks at the gate again.
  return nil
end

function lanes.wake_now(keys)
  for _, key in ipairs(keys) do
    tx.arm(key, lanes.wake(key))
  end
end

-- Gates that stop whole classes have room again ({key -> room}): sleeping workers should hear of it.
function lanes.wake_classes(opened)
  for _, entry in ipairs(call("ZRANGE", P .. "act", 0, -1)) do
    local kind, most = sub(entry, 10, 17), nil
    for _, key in ipairs(tx.class(kind).gates) do
      if opened[key] then
        most = min(most or LOTS, opened[key])
      end
    end
    if most then
      tx.note_ready(lanes.line(kind, byte(entry, 1), 1)[1].id, most)
    end
  end
end

-- A lane without jobs is forgotten; if it was woken for a free place, the next one that waits gets it.
function lanes.forget(id)
  local lane = lanes.get(id)
  if lane then
    for _, key in ipairs(lanes.ruling(lane)) do
      tx.touch(key)
      if call("HINCRBY", P .. "gn", key, -1) <= 0 then
        call("HDEL", P .. "gn", key)
      end
    end
    local state = call("HGET", P .. "ls", id)
    if state and sub(state, 1, 1) == "w" then
      local key = sub(state, 2)
      call("ZREM", P .. "W:" .. lane.kind .. key, id)
      if call("EXISTS", P .. "W:" .. lane.kind .. key) == 0 then
        call("SREM", P .. "WC:" .. key, lane.kind)
      end
    end
    lanes.rest(lane)
    call("DEL", P .. "L:" .. id, P .. "R:" .. id)
    call("HDEL", P .. "ln", id)
    known[id] = false
  end
  call("HDEL", P .. "lj", id)
  call("ZREM", P .. "lz", id)
end

-- -- time

-- Put a job on the schedule.
function lanes.schedule(lane, item)
  local due = base.n6(item, 1)
  call("ZADD", P .. "Z:" .. lane.prio, 0, item)
  call("ZADD", P .. "T", "LT", due, "z" .. lane.prio)
  tx.note_timer(lane.id, due)
end

-- Open what is due: gates whose time has come, and scheduled jobs, urgent ones first. True when more is due.
function lanes.open_due()
  local due = call("ZRANGEBYSCORE", P .. "T", "-inf", base.text(tx.now), "LIMIT", 0, GATES)
  local levels, keys = {}, {}
  for _, name in ipairs(due) do
    if sub(name, 1, 1) == "z" then
      levels[#levels + 1] = tonumber(sub(name, 2))
    else
      keys[#keys + 1] = sub(name, 2)
    end
  end
  if #keys > 0 then
    tx.load_gates(keys)
    lanes.wake_now(keys)
  end
  table.sort(levels)
  local left = PROMOTE
  for _, level in ipairs(levels) do
    left = left - lanes.promote(level, left)
  end
  return #due == GATES or left <= 0
end

-- Make at most `limit` due jobs of one level ready; how many it looked at.
function lanes.promote(level, limit)
  if limit <= 0 then
    return 0
  end
  local key = P .. "Z:" .. level
  local items = call("ZRANGEBYLEX", key, "-", "(" .. base.b6(tx.now + 1), "LIMIT", 0, limit)
  local ids, by_lane = {}, {}
  for i, item in ipairs(items) do
    ids[i] = sub(item, 13)
  end
  base.chunked("ZREM", key, items)
  local found = record.load_all(ids)
  for i, id in ipairs(ids) do
    local r = found[id]
    if r and r.state == SCHEDULED and not r.running and r.due == base.n6(items[i], 1) then
      r.state = READY
      record.save(r)
      local heap = by_lane[r.lane] or {}
      heap[#heap + 1], by_lane[r.lane] = items[i], heap
    end
  end
  for lane_id, heap in pairs(by_lane) do
    local lane = lanes.get(lane_id)
    tx.move(tx.class(lane.kind), SCHEDULED, READY, #heap)
    lanes.add(lane, heap)
  end
  local first = call("ZRANGE", key, 0, 0)[1]
  if first then
    call("ZADD", P .. "T", base.n6(first, 1), "z" .. level)
  else
    call("ZREM", P .. "T", "z" .. level)
  end
  return #items
end

-- The earliest instant at which time alone makes something runnable; nil when there is none.
function lanes.next_instant()
  return tonumber(call("ZRANGE", P .. "T", 0, 0, "WITHSCORES")[2])
end
