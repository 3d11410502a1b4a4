-- Stores new jobs: what a job is at its first instant, and what a repeated unique job does to the one that is there.

local ZEROS = string.rep("\0", 12) -- not yet claimed, not yet finished

storing = {}
local items = {} -- lane -> items that became ready, pushed together at the end

-- When a job of this run may start.
local function due_of(run, from)
  return run.due_at >= 0 and run.due_at or from + run.delay
end

-- What few jobs have: u32 length, msgpack [unique key | nil, its states, its window or -1, 0 existing 1 replace
-- 2 debounce, mode, number of parents], the parents' ids as they were named, large arguments.
function storing.meta(raw)
  local size = struct.unpack(">I4", raw)
  local key, states, window, on_duplicate, mode, count = unpack(unpack_(sub(raw, 5, 4 + size)), 1, 6)
  local meta, at = { key = key, states = states, window = window, on_duplicate = on_duplicate, mode = mode }, 5 + size
  meta.named, meta.parents = sub(raw, at, at + 16 * count - 1), {}
  for i = 1, count do
    meta.parents[i], at = sub(raw, at, at + 15), at + 16
  end
  meta.body = at <= #raw and sub(raw, at) or nil
  return meta
end

-- A run is what consecutive jobs of a call have in common; the record of each differs only in seq and tail.
function storing.run(packed, defs, policies)
  local run = { flags = packed[3], delay = packed[4], due_at = packed[5], expires = packed[6] }
  run.def, run.policy = defs[packed[1]], policies[packed[2]][1]
  run.due = due_of(run, tx.now)
  run.state = run.due > tx.now and SCHEDULED or READY
  local rare = ""
  if run.expires >= 0 then
    local body = pack({ e = tx.now + run.expires })
    rare, run.flags = struct.pack(">I4", #body) .. body, run.flags + RARE
  end
  run.middle = struct.pack(">I6I6", run.due, tx.now) .. run.def[1] .. run.policy .. ZEROS .. rare
  run.first = struct.pack(">BBHHHH", 1, run.state, run.flags, 0, 0, 0)
  run.new = 0
  return run
end

function storing.lane(run)
  run.lane = run.lane or lanes.remember(run.def[1], run.def[2], run.def[3])
  return run.lane
end

local function wait_ready(lane, item)
  local heap = items[lane.id] or {}
  heap[#heap + 1], items[lane.id] = item, heap
end

local function index_expiry(run, id)
  if run.expires >= 0 then
    call("ZADD", K.expiring, 0, base.b6(tx.now + run.expires) .. id)
  end
end

-- A job without parents or key: true when it is new. One command both looks and stores.
function storing.plain(run, id, seq, tail)
  local seq6 = base.b6(seq)
  if call("HSETNX", K.jobs, id, run.first .. seq6 .. run.middle .. tail) == 0 then
    return false
  end
  local lane = storing.lane(run)
  run.new = run.new + 1
  if run.state == READY then
    wait_ready(lane, base.b6(run.due) .. seq6 .. id)
  else
    calendar.schedule(lane, base.b6(run.due) .. seq6 .. id)
  end
  index_expiry(run, id)
  return true
end

-- Any other new job; `parents` are {id, state}. The state it is in.
function storing.other(run, id, seq, tail, meta, parents)
  local lane, state, first, fate, waits = storing.lane(run), run.state, run.first, nil, false
  if #parents > 0 then
    waits, fate = graph.depend(id, meta.named, parents, meta.mode)
    state = waits and BLOCKED or state
    local notes = noting.stand_ins(id, meta.parents, parents) and NOTES or 0
    first = struct.pack(">BBHHHH", 1, state, run.flags + INPUTS + notes, 0, 0, 0)
  end
  call("HSET", K.jobs, id, first .. base.b6(seq) .. run.middle .. tail)
  if meta.body then
    call("HSET", K.large_args, id, meta.body)
  end
  if waits then
    call("ZADD", K.blocked, base.text(seq), id)
  end
  tx.tally(ENQUEUED, 1)
  tx.move(tx.class(lane.kind), nil, state)
  tx.count_lane(lane.id, 1)
  lanes.crowd(lane, 1)
  index_expiry(run, id)
  if meta.key then
    unique.hold(meta.key, id, meta.states, meta.window)
  end
  local item = base.b6(run.due) .. base.b6(seq) .. id
  if fate then
    graph.doom(id, fate)
    return CANCELLED
  elseif state == READY then
    wait_ready(lane, item)
  elseif state == SCHEDULED then
    calendar.schedule(lane, item)
  end
  return state
end

-- The arguments of a tail (and its last byte), without the part before them.
local function arguments(flags, tail)
  return record.has(flags, EXTRA) and sub(tail, 5 + struct.unpack(">I4", tail)) or tail
end

-- The part of a tail before the arguments, with its length; "" when there is none.
local function before_arguments(flags, tail)
  return record.has(flags, EXTRA) and sub(tail, 1, 4 + struct.unpack(">I4", tail)) or ""
end

-- True when a job is part of a flow.
local function flows_with(flags, tail)
  return record.extra({ flags = flags, tail = tail })[4] ~= nil
end

-- The waiting job takes new arguments, priority, time and cost; one that runs, has ended, or remembers what it has done
-- stays as it is. Where one of them is part of a flow, it costs what it did. `replace` counts the delay from the first
-- enqueue, `debounce` starts it anew.
function storing.replace(target, run, tail, meta)
  local r = record.load(target)
  if not r or r.running or r.state > READY or noting.remembers(r) then
    return
  end
  local old, lane, old_item, old_state = lanes.get(r.lane), storing.lane(run), record.item(r), r.state
  local due = due_of(run, meta.on_duplicate == 2 and tx.now or r.enq)
  local state = old_state == BLOCKED and BLOCKED or due > tx.now and SCHEDULED or READY
  local stays = old_state == READY and state == READY and r.lane == lane.id and r.due == due
  if old_state == SCHEDULED then
    calendar.unschedule(old, old_item)
  elseif old_state == READY and not stays then
    call("ZREM", K.ready_aside .. old.id, old_item)
  end
  if r.rare.e then
    call("ZREM", K.expiring, base.b6(r.rare.e) .. r.id)
  end
  r.rare.e = run.expires >= 0 and tx.now + run.expires or nil
  index_expiry(run, r.id)
  if old_state == READY then
    waiting.leave_line(r)
  end
  local extra = before_arguments(r.flags, r.tail)
  local waits = record.has(r.flags, INPUTS) or #meta.parents > 0
  if not (waits or flows_with(r.flags, r.tail) or flows_with(run.flags, tail)) then
    extra = before_arguments(run.flags, tail)
    r.flags = extra == "" and record.without(r.flags, EXTRA) or record.with(r.flags, EXTRA)
  end
  r.tail, r.flags = extra .. arguments(run.flags, tail), record.without(r.flags, BODY)
  call("HDEL", K.large_args, r.id)
  if meta.body then
    r.flags = record.with(r.flags, BODY)
    call("HSET", K.large_args, r.id, meta.body)
  end
  r.state, r.due, r.lane, r.policy, r.attempt, r.held, r.rare.hs = state, due, lane.id, run.policy, 0, 0, nil
  record.save(r)
  tx.move(tx.class(old.kind), old_state, nil)
  tx.move(tx.class(lane.kind), nil, state)
  tx.count_lane(old.id, -1)
  tx.count_lane(lane.id, 1)
  lanes.crowd(old, -1)
  lanes.crowd(lane, 1)
  if state == SCHEDULED then
    calendar.schedule(lane, record.item(r))
  elseif state == READY and not stays then
    wait_ready(lane, record.item(r))
  end
end

-- Count plain jobs and put everything that is ready into its lane.
function storing.finish(runs)
  for _, run in ipairs(runs) do
    if run.new > 0 then
      tx.tally(ENQUEUED, run.new)
      tx.move(tx.class(run.lane.kind), nil, run.state, run.new)
      tx.count_lane(run.lane.id, run.new)
      lanes.crowd(run.lane, run.new)
    end
  end
  for lane_id, heap in pairs(items) do
    lanes.add(lanes.get(lane_id), heap)
  end
end
