-- One verb's view of the store: the clock, gates and counters it gathers, and what it must write and tell at its end.
-- Every script begins with tx.begin() and ends, if it wrote anything, with tx.finish().

local LAYOUT = 1
-- Hashes that are asked by field, many times per call. Small ones are packed and searched from end to end, unless they
-- hold one long value: so each gets one, under an empty name, when the store is first written to.
local UNPACKED = { "run", "tn", "ls", "sl", "lj", "ln" }

tx = {
  now = 0,
  ready = {}, -- lane -> jobs that became ready in it: workers are woken for so many
  timers = {}, -- lane -> a new instant at which it will have some
  counts = {},
  lane_jobs = {},
  tells = {}, -- ear -> messages
  told = false,
}
local meta, turns, gates, changed, touched, shut, classes = {}, {}, {}, {}, {}, {}, {}

-- -- the clock

local META = { "layout", "token", "turn", "seq", "swept", "calm", "shift" }

-- Read the clock and the counters; an error reply when the stored layout is not this release's.
function tx.begin()
  local found = call("HMGET", P .. "m", unpack(META))
  for i, name in ipairs(META) do
    meta[name] = tonumber(found[i])
  end
  if meta.layout and meta.layout ~= LAYOUT then
    return redis.error_reply("HFLAYOUT " .. meta.layout)
  end
  if ARGV[1] ~= "" then
    tx.now = tonumber(ARGV[1])
  else
    local time = call("TIME")
    local real = time[1] * 1000 + floor(time[2] / 1000)
    -- Clocks jump back after a failover: nobody is behind the last claim or sweep.
    tx.now = max(real, floor((meta.token or 0) / 2048), meta.swept or 0)
  end
end

-- What frees memory must go through when memory is full: a script whose first write needs none may write the rest too.
function tx.insist()
  call("ZREM", P .. "T", "")
end

-- The stored number `name`, or nil.
function tx.meta(name)
  return meta[name]
end

function tx.set_meta(name, value)
  meta[name] = value
  meta.dirty = meta.dirty or {}
  meta.dirty[name] = true
end

-- The next fencing token: grows whatever the clock does, and stays an exact integer everywhere.
function tx.next_token()
  tx.set_meta("token", max((meta.token or 0) + 1, tx.now * 2048))
  return meta.token
end

function tx.next_turn()
  tx.set_meta("turn", (meta.turn or 0) + 1)
  return meta.turn
end

-- The first of `count` new arrival numbers.
function tx.next_seq(count)
  local first = (meta.seq or 0) + 1
  tx.set_meta("seq", first + count - 1)
  return first
end

-- -- counting

-- Count jobs of a class that went from one state to another; nil is "not stored".
function tx.move(class, old, new, count)
  count = count or 1
  local counts, field = tx.counts, class.field
  if old then
    counts[field .. old] = (counts[field .. old] or 0) - count
  end
  if new then
    counts[field .. new] = (counts[field .. new] or 0) + count
    if new == SUCCEEDED then
      tx.tally(EVER_SUCCEEDED, count)
    elseif new == CANCELLED then
      tx.tally(EVER_CANCELLED, count)
    end
  end
end

function tx.tally(what, count)
  local field = "\0\0" .. what
  tx.counts[field] = (tx.counts[field] or 0) + (count or 1)
end

-- Jobs stored in a lane, finished ones included: a lane is forgotten after the last of them.
function tx.count_lane(lane_id, count)
  tx.lane_jobs[lane_id] = (tx.lane_jobs[lane_id] or 0) + count
end

-- -- classes, turns and gates, each read once

-- What all lanes of a class have in common; nil when it is not stored.
function tx.class(kind)
  local class = classes[kind]
  if class == nil then
    local raw = call("HGET", P .. "cl", kind)
    if not raw then
      return nil
    end
    class = tx.read_class(kind, raw)
  end
  return class
end

function tx.read_class(kind, raw)
  local body = unpack_(raw)
  local queue, task, limits, breaker = body[1], body[2], body[4], body[5]
  local keys = { "all", "queue:" .. queue, "task:" .. task }
  for _, key in ipairs(limits) do
    keys[#keys + 1] = "limit:" .. key
  end
  if breaker then
    keys[#keys + 1] = "breaker:" .. breaker
  end
  local class = {
    kind = kind, queue = queue, task = task, needs = body[3], gates = keys, limited = #keys > 3, keyed = body[6],
    field = queue .. "\0" .. task .. "\0",
  }
  classes[kind] = class
  return class
end

local function read_turn(raw)
  if not raw then
    return false
  end
  local at, left, seats = string.match(raw, "^(%d+) (%d+) (%d+)$")
  return { turn = tonumber(at), left = tonumber(left), seats = tonumber(seats) }
end

-- Where a member or ring stands: {turn, left, seats}; nil while it has no seat.
function tx.turn(id)
  local turn = turns[id]
  if turn == nil then
    turn = read_turn(call("HGET", P .. "tn", id))
    turns[id] = turn
  end
  return turn or nil
end

-- Read several turns at once.
function tx.load_turns(ids)
  local missing = {}
  for _, id in ipairs(ids) do
    if turns[id] == nil then
      missing[#missing + 1] = id
    end
  end
  for i, raw in ipairs(base.mget(P .. "tn", missing)) do
    turns[missing[i]] = read_turn(raw)
  end
end

function tx.put_turn(id, turn)
  turn.dirty = true
  turns[id] = turn
end

-- How many jobs a turn of this queue or group is worth.
function tx.weight(name)
  if tx.weighed == nil then
    tx.weighed = call("EXISTS", P .. "wgt") == 1
  end
  return tx.weighed and tonumber(call("HGET", P .. "wgt", name) or 1) or 1
end

-- Read several gates at once.
function tx.load_gates(keys)
  local missing = {}
  for _, key in ipairs(keys) do
    if gates[key] == nil then
      missing[#missing + 1] = key
      gates[key] = false
    end
  end
  for i, raw in ipairs(base.mget(P .. "g", missing)) do
    if raw then
      gates[missing[i]] = gate.decode(raw, missing[i])
    end
  end
end

-- The gate of that key, or nil.
function tx.gate(key)
  if gates[key] == nil then
    tx.load_gates({ key })
  end
  return gates[key] or nil
end

-- The gate to be changed in place, made when it is missing; whoever can go on because of it is woken at the end.
function tx.edit(key)
  local found = tx.gate(key)
  if found and not changed[key] and gate.room(found, tx.now) <= 0 then
    shut[key] = true
  end
  if not found then
    found = { rule = { key = key } }
    gates[key] = found
  end
  changed[key], touched[key] = true, true
  return found
end

-- Look again at the end whether those who wait at this gate can go on.
function tx.touch(key)
  touched[key] = true
end

-- Forget a gate.
function tx.drop_gate(key)
  gates[key], changed[key], touched[key] = false, nil, nil
  call("HDEL", P .. "g", key)
  call("ZREM", P .. "T", "g" .. key)
end

-- -- telling

-- Leave a message for an ear; it is sent when the script ends.
function tx.tell(ear, kind, name)
  if ear and ear ~= "" then
    local heap = tx.tells[ear]
    if not heap then
      heap = {}
      tx.tells[ear] = heap
    end
    heap[#heap + 1] = kind .. name
  end
end

function tx.tell_cancel(session)
  tx.tell(call("HGET", P .. "s:" .. session, "ear"), "c", session)
end

-- Rouse those who wait for the end of this job.
function tx.tell_finished(id)
  for _, ear in ipairs(call("SMEMBERS", P .. "wa:" .. id)) do
    tx.tell(ear, "f", id)
  end
  call("DEL", P .. "wa:" .. id)
end

function tx.note_ready(lane_id, count)
  tx.ready[lane_id] = (tx.ready[lane_id] or 0) + count
end

function tx.note_timer(lane_id, due)
  local known = tx.timers[lane_id]
  if not known or due < known then
    tx.timers[lane_id] = due
  end
end

-- -- the end

-- Say when time alone may open a gate that lanes wait at; nil takes it off the list.
function tx.arm(key, opens)
  if opens then
    call("ZADD", P .. "T", opens, "g" .. key)
  else
    call("ZREM", P .. "T", "g" .. key)
  end
end

local function settle_gates()
  local opened = {}
  for key in pairs(shut) do
    local free = gate.room(gates[key], tx.now)
    if free > 0 then
      opened[key] = min(free, 64)
      opened[1] = true
    end
  end
  if opened[1] then
    lanes.wake_classes(opened)
  end
  local keys = {}
  for key in pairs(touched) do
    keys[#keys + 1] = key
  end
  table.sort(keys)
  for _, key in ipairs(keys) do
    if sub(key, 1, 6) == "limit:" then
      tx.arm(key, lanes.wake(key))
    end
    if changed[key] then
      local body = gates[key]
      call("HSET", P .. "g", key, gate.encode(body))
      call(body.draining and "SADD" or "SREM", P .. "dr", key)
    end
  end
end

local function write_turns()
  local sitting, left = {}, {}
  for id, turn in pairs(turns) do
    if turn and turn.dirty and turn.seats > 0 then
      local n = #sitting
      sitting[n + 1], sitting[n + 2] = id, string.format("%.0f %.0f %.0f", turn.turn, turn.left, turn.seats)
    elseif turn and turn.dirty then
      left[#left + 1] = id
    end
  end
  base.chunked("HSET", P .. "tn", sitting)
  base.chunked("HDEL", P .. "tn", left)
end

-- Write what was gathered. After it every touched gate with waiters has none left to wake, or is timed.
function tx.finish()
  settle_gates()
  for lane_id, count in pairs(tx.lane_jobs) do
    if count ~= 0 then
      lanes.count(lane_id, count)
    end
  end
  for field, count in pairs(tx.counts) do
    if count ~= 0 and call("HINCRBY", P .. "n", field, count) == 0 then
      call("HDEL", P .. "n", field)
    end
  end
  if next(tx.ready) or next(tx.timers) then
    wake.workers()
  end
  write_turns()
  if not meta.layout then
    for _, name in ipairs(UNPACKED) do
      call("HSET", P .. name, "", string.rep("-", 65))
    end
    tx.set_meta("layout", LAYOUT)
  end
  if meta.dirty then
    local values = {}
    for name in pairs(meta.dirty) do
      values[#values + 1] = name
      values[#values + 1] = base.text(meta[name])
    end
    call("HSET", P .. "m", unpack(values))
  end
  for ear, heap in pairs(tx.tells) do
    base.chunked("RPUSH", P .. "ear:" .. ear, heap)
    call("PEXPIRE", P .. "ear:" .. ear, 60000) -- hygiene: nobody listens there any more
  end
end
