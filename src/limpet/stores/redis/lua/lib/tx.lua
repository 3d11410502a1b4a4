-- One verb's view of the store: the clock, gates and counters it gathers, and what it must write and tell at its end.
-- Every script begins with tx.begin() and ends, if it wrote anything, with tx.finish().

tx = {
  now = 0,
  store = false, -- the store's own name; an emptied store has another
  ready = {}, -- lane -> jobs that became ready in it: workers are woken for this number
  timers = {}, -- lane -> a new instant at which it will have some
  counts = {},
  crowds = {}, -- queue and tenant -> how many more wait, or (below zero) fewer
  lane_jobs = {},
  tells = {}, -- mailbox -> messages
  hooks = "", -- the codes of the states that there are hooks for
  ended = {}, -- jobs that ended in one of these: {record, token of the lease, or 0}
  gated = false, -- gates were looked at
  seated = false, -- turns were looked at
}
local meta, classes = {}, {}

-- -- the clock

local META = { "layout", "min_client", "token", "turn", "seq", "swept", "calm", "shift", "recount", "counted" }

-- Read the clock and the counters; an error reply when the stored layout is not for this release.
function tx.begin()
  local found = call("HMGET", K.meta, "store", "hooks", unpack(META))
  tx.store, tx.hooks = table.remove(found, 1), table.remove(found, 1) or ""
  for i, name in ipairs(META) do
    meta[name] = tonumber(found[i])
  end
  if (meta.min_client or 0) > base.LAYOUT then
    return redis.error_reply("LPLAYOUT layout " .. meta.layout .. ", this release knows " .. base.LAYOUT)
  end
  tx.now = base.now(meta.token, meta.swept)
  if (meta.recount or 0) > tx.now then
    tx.trace()
  end
end

-- What frees memory must go through when memory is full: a script whose first write needs none may write the rest too.
function tx.insist()
  call("ZREM", K.timers, "")
end

-- -- a recount: a repair counts all jobs, in order of arrival and a few at a time (see repair_count). Up to the instant
-- `recount` a change of a job that is counted already (its number is at most `counted`) moves it in that count too.

local places = {} -- id -> where it was counted before this call changed it, or false

-- Where a job counts (COUNTED): its lane and state, and the cause of a dead one; and its arrival number. Nil when it is not stored.
function tx.place(id)
  local raw = redis.call("HGET", K.jobs, id)
  local r = raw and record.open(id, raw)
  if not r then
    return nil
  end
  local state = redis.call("HEXISTS", K.running, id) == 1 and RUNNING or r.state
  return r.lane .. char(state) .. (state == DEAD and r.rare[ADDED.cause] or ""), r.seq
end

function tx.recounted(place, count)
  if redis.call("HINCRBY", K.recount, place, count) == 0 then
    redis.call("HDEL", K.recount, place)
  end
end

local function note_place(id)
  if places[id] == nil then
    local place, seq = tx.place(id)
    places[id] = place and seq <= (meta.counted or 0) and place or false
  end
end

-- From now on every change of a record or of the running jobs is noted before it is made.
function tx.trace()
  local every = { HSET = 2, HSETNX = 2, HDEL = 1 }
  local jobs, running = K.jobs, K.running
  call = function(command, key, ...)
    local step = (key == jobs or key == running) and every[command]
    if step then
      local values = { ... }
      for i = 1, #values, step do
        note_place(values[i])
      end
    end
    return redis.call(command, key, ...)
  end
end

local function move_places()
  for id, before in pairs(places) do
    local after, seq = tx.place(id)
    after = after and seq <= (meta.counted or 0) and after or false
    if before ~= after then
      if before then
        tx.recounted(before, -1)
      end
      if after then
        tx.recounted(after, 1)
      end
    end
  end
end

-- -- calls that must not happen twice: their second argument is the call's own name

local REMEMBER = 60000 -- a call is repeated within seconds, or not at all

-- What this very call answered before, or nil: the answer was lost on its way.
function tx.answered()
  return call("GET", K.answers .. ARGV[2]) or nil
end

-- Remember and return the answer (text).
function tx.answer(text)
  call("SET", K.answers .. ARGV[2], text, "PX", REMEMBER)
  return text
end

-- -- counters

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

-- True when there is a hook for this state.
function tx.has_hooks(state)
  return tx.hooks ~= "" and string.find(tx.hooks, state, 1, true) ~= nil
end

-- A job has ended: under this token, or as it waited. Its hooks follow at the end of the step.
function tx.ends(r, token)
  if tx.has_hooks(r.state) then
    tx.ended[#tx.ended + 1] = { r, token or 0 }
  end
end

-- -- classes, turns and gates, each read once

local function read_class(kind, raw)
  local ok, body = pcall(unpack_, raw)
  if not ok or type(body) ~= "table" then
    return nil
  end
  local queue, task, limits, breaker = body[CLASS.queue], body[CLASS.task], body[CLASS.limits], body[CLASS.breaker]
  if type(queue) ~= "string" or type(task) ~= "string" or type(body[CLASS.scope]) ~= "string" then
    return nil
  end
  local keys = { "all", "queue:" .. queue, "task:" .. body[CLASS.scope] }
  for _, key in ipairs(type(limits) == "table" and limits or {}) do
    keys[#keys + 1] = "limit:" .. key
  end
  if breaker then
    keys[#keys + 1] = "breaker:" .. breaker
  end
  local class = {
    kind = kind, queue = queue, task = task, scope = body[CLASS.scope], needs = body[CLASS.needs], gates = keys, limited = #keys > 3,
    keyed = body[CLASS.keyed], field = queue .. "\0" .. task .. "\0", -- and a state: what its jobs are counted under
  }
  classes[kind] = class
  return class
end

-- What all lanes of a class have in common; nil when it is not stored and its definition is not given.
function tx.class(kind, definition)
  local class = classes[kind]
  if class == nil then
    local raw = definition or call("HGET", K.classes, kind)
    if not raw then
      return nil
    end
    class = read_class(kind, raw)
  end
  return class
end

-- The classes of lanes that are the keys of `of`: {lane -> class}.
function tx.classes(of)
  local ids, found = {}, {}
  for id in pairs(of) do
    ids[#ids + 1] = id
  end
  for i, raw in ipairs(base.mget(K.lanes, ids)) do
    if raw then
      local kind = sub(raw, LANE.kind)
      found[ids[i]] = classes[kind] or tx.class(kind)
    end
  end
  return found
end

-- -- telling

-- Leave a message for a mailbox; it is sent when the script ends.
function tx.tell(mailbox, kind, name)
  if mailbox and mailbox ~= "" then
    local heap = tx.tells[mailbox]
    if not heap then
      heap = {}
      tx.tells[mailbox] = heap
    end
    heap[#heap + 1] = kind .. name
  end
end

function tx.tell_cancel(session)
  tx.tell(call("HGET", K.session .. session, "mailbox"), TELL_CANCEL, session)
end

-- Wake the callers that wait for the end of this job.
function tx.tell_finished(id)
  for _, mailbox in ipairs(call("SMEMBERS", K.watchers .. id)) do
    tx.tell(mailbox, TELL_FINISHED, id)
  end
  call("DEL", K.watchers .. id)
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

-- Hashes that are asked by field, many times per call. Small ones are packed and searched from end to end, unless they
-- hold one long value: so each gets one, under an empty name, when the store is first written to.
local function keep_unpacked(hashes)
  for _, key in ipairs(hashes) do
    call("HSET", key, "", string.rep("-", 65))
  end
end

local function write_counts()
  for lane_id, count in pairs(tx.lane_jobs) do
    lanes.count(lane_id, count) -- when it comes to nothing too: a lane made on the way may be forgotten
  end
  for field, count in pairs(tx.counts) do
    if count ~= 0 and call("HINCRBY", K.counters, field, count) == 0 then
      call("HDEL", K.counters, field)
    end
  end
  for field, count in pairs(tx.crowds) do
    if count ~= 0 and call("HINCRBY", K.waiting_by_tenant, field, count) <= 0 then
      call("HDEL", K.waiting_by_tenant, field)
    end
  end
end

-- The store's own name and layout, and the numbers that changed.
local function write_meta()
  if not tx.store then
    local at = call("TIME")
    tx.store = sub(redis.sha1hex(at[1] .. "." .. at[2] .. tostring(tx)), 1, 16) -- the time, and an address in memory
    call("HSET", K.meta, "store", tx.store)
  end
  if not meta.layout then
    keep_unpacked({ K.running, K.turns, K.lane_states, K.seat_lanes, K.lane_jobs, K.lanes })
  end
  if (meta.layout or 0) < base.LAYOUT then
    tx.set_meta("layout", base.LAYOUT)
    tx.set_meta("min_client", max(meta.min_client or 0, base.MIN_CLIENT))
  end
  if meta.dirty then
    local values = {}
    for name in pairs(meta.dirty) do
      values[#values + 1] = name
      values[#values + 1] = base.text(meta[name])
    end
    call("HSET", K.meta, unpack(values))
  end
end

local function send_messages()
  for mailbox, heap in pairs(tx.tells) do
    base.chunked("RPUSH", K.mailbox .. mailbox, heap)
    call("PEXPIRE", K.mailbox .. mailbox, 60000) -- cleanup: no session listens there any more
  end
end

-- Write what was gathered. After it every touched gate with waiters has none left to wake, or is timed.
function tx.finish()
  if #tx.ended > 0 then
    hooks.write()
  end
  if tx.gated then
    gates.settle()
  end
  write_counts()
  if next(tx.ready) or next(tx.timers) then
    wake.workers()
  end
  if tx.seated then
    turns.write()
  end
  write_meta()
  if next(places) then
    move_places()
  end
  send_messages()
end
