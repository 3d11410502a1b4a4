-- Stores new jobs: what a job is at its first instant, and what a repeated unique job does to the one that is there.

enqueue_store = { EXISTING = 0 } -- what a repeated unique job does: see ON_DUPLICATE in enqueue.py
local DEBOUNCE = 2

local NOT_YET = string.rep("\0", 12) -- claimed, and finished

local items = {} -- lane -> items that became ready, pushed together at the end

-- When a job of this run may start.
local function due_of(run, from)
  return run.due_at >= 0 and run.due_at or from + run.delay
end

-- What few jobs have: u32 length, msgpack [unique key | nil, its states, its window or -1, what a repetition does, mode,
-- number of parents], the parents' ids as they were named, large arguments.
function enqueue_store.meta(raw)
  local head, at = record.piece(raw, 1)
  local key, states, window, on_duplicate, mode, count = unpack(head, 1, 6)
  local named = sub(raw, at, at + ID_BYTES * count - 1)
  local body = sub(raw, at + #named)
  return {
    key = key, states = states, window = window, on_duplicate = on_duplicate, mode = mode, named = named,
    parents = base.ids(named), body = body ~= "" and body or nil,
  }
end

-- The first bytes of a new record, before its arrival number.
local function first_bytes(state, flags)
  return struct.pack(RECORD.version_to_held.format, 1, state, flags, 0, 0, 0)
end

-- A run is what consecutive jobs of a call have in common; the record of each differs only in seq and tail.
function enqueue_store.run(packed, defs, policies)
  local run = {
    flags = packed[RUN.flags], delay = packed[RUN.delay], due_at = packed[RUN.due_at], expires = packed[RUN.expires],
    def = defs[packed[RUN.lane]], policy = policies[packed[RUN.policy]].id, lane = false, new = 0,
    due = 0, state = READY, first = "", middle = "",
  }
  run.due = due_of(run, tx.now)
  run.state = run.due > tx.now and SCHEDULED or READY
  local rare = ""
  if run.expires >= 0 then
    rare, run.flags = record.packed({ [ADDED.expires_ms] = tx.now + run.expires }), run.flags + RARE
  end
  local instants = struct.pack(RECORD.due_to_enqueued.format, run.due, tx.now)
  run.middle = instants .. run.def.id .. run.policy .. NOT_YET .. rare
  run.first = first_bytes(run.state, run.flags)
  return run
end

function enqueue_store.lane(run)
  run.lane = run.lane or lanes.remember(run.def.id, run.def.raw, run.def.class_raw)
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
function enqueue_store.plain(run, id, seq, tail)
  local seq6 = base.b6(seq)
  if call("HSETNX", K.jobs, id, run.first .. seq6 .. run.middle .. tail) == 0 then
    return false
  end
  local lane = enqueue_store.lane(run)
  run.new = run.new + 1
  if run.state == READY then
    wait_ready(lane, base.b6(run.due) .. seq6 .. id)
  else
    lanes_due.schedule(lane, base.b6(run.due) .. seq6 .. id)
  end
  index_expiry(run, id)
  return true
end

-- Count a new job that came alone.
local function count_one(lane, state)
  tx.tally(ENQUEUED, 1)
  tx.move(tx.class(lane.kind), nil, state)
  tx.count_lane(lane.id, 1)
  lanes.crowd(lane, 1)
end

-- Any other new job; `parents` are {id, state}. The state it is in.
function enqueue_store.other(run, id, seq, tail, meta, parents)
  local lane, state, first, doom, waits = enqueue_store.lane(run), run.state, run.first, nil, false
  if #parents > 0 then
    waits, doom = graph.depend(id, meta.named, parents, meta.mode)
    state = waits and BLOCKED or state
    local flag = notes.stand_ins(id, meta.parents, parents) and NOTES or 0
    first = first_bytes(state, run.flags + INPUTS + flag)
  end
  call("HSET", K.jobs, id, first .. base.b6(seq) .. run.middle .. tail)
  if meta.body then
    call("HSET", K.large_args, id, meta.body)
  end
  if waits then
    call("ZADD", K.blocked, base.text(seq), id)
  end
  count_one(lane, state)
  index_expiry(run, id)
  if meta.key then
    unique.hold(meta.key, id, meta.states, meta.window)
  end
  if doom then
    graph.doom(id, doom)
    return CANCELLED
  end
  local item = base.b6(run.due) .. base.b6(seq) .. id
  if state == READY then
    wait_ready(lane, item)
  elseif state == SCHEDULED then
    lanes_due.schedule(lane, item)
  end
  return state
end

-- -- a repeated unique job

-- True when a job is part of a flow.
local function flows_with(flags, tail)
  return record.extra({ flags = flags, tail = tail })[PACKED.flow] ~= nil
end

-- The job takes the arguments that were given with the repetition. Where one of the two is part of a flow, or waits for
-- parents, it keeps what it costs and where it belongs.
local function take_arguments(r, run, tail, meta)
  local extra = record.halves(r.flags, r.tail)
  local new_extra, args = record.halves(run.flags, tail)
  local waits = HAS(r.flags, INPUTS) or #meta.parents > 0
  if not (waits or flows_with(r.flags, r.tail) or flows_with(run.flags, tail)) then
    extra = new_extra
    r.flags = extra == "" and record.without(r.flags, EXTRA) or record.with(r.flags, EXTRA)
  end
  r.tail, r.flags = extra .. args, record.without(r.flags, BODY)
  call("HDEL", K.large_args, r.id)
  if meta.body then
    r.flags = record.with(r.flags, BODY)
    call("HSET", K.large_args, r.id, meta.body)
  end
end

-- The job leaves the place where it waits.
local function leave_place(r, stays)
  if r.state == SCHEDULED then
    lanes_due.unschedule(lanes.get(r.lane), record.item(r))
  elseif r.state == READY then
    if not stays then
      call("ZREM", K.ready_aside .. r.lane, record.item(r))
    end
    gates_wait.leave_line(r)
  end
  if r.rare[ADDED.expires_ms] then
    call("ZREM", K.expiring, base.b6(r.rare[ADDED.expires_ms]) .. r.id)
  end
end

-- A job that waits is counted in another lane and state.
local function recount(r, lane, state)
  local old = lanes.get(r.lane)
  tx.move(tx.class(old.kind), r.state, nil)
  tx.move(tx.class(lane.kind), nil, state)
  tx.count_lane(old.id, -1)
  tx.count_lane(lane.id, 1)
  lanes.crowd(old, -1)
  lanes.crowd(lane, 1)
end

-- The waiting job takes new arguments, priority, time and cost; one that runs, has ended, or remembers what it has done
-- stays as it is. `replace` counts the delay from the first enqueue, `debounce` restarts it.
function enqueue_store.replace(target, run, tail, meta)
  local r = record.load(target)
  if not r or r.running or r.state > READY or notes.remembers(r) then
    return
  end
  local lane, due = enqueue_store.lane(run), due_of(run, meta.on_duplicate == DEBOUNCE and tx.now or r.enq)
  local state = r.state == BLOCKED and BLOCKED or due > tx.now and SCHEDULED or READY
  local stays = r.state == READY and state == READY and r.lane == lane.id and r.due == due
  leave_place(r, stays)
  index_expiry(run, r.id)
  take_arguments(r, run, tail, meta)
  recount(r, lane, state)
  r.rare[ADDED.expires_ms] = run.expires >= 0 and tx.now + run.expires or nil
  r.rare[ADDED.held_since_ms] = nil
  r.state, r.due, r.lane, r.policy, r.attempt, r.held = state, due, lane.id, run.policy, 0, 0
  record.save(r)
  if state == SCHEDULED then
    lanes_due.schedule(lane, record.item(r))
  elseif state == READY and not stays then
    wait_ready(lane, record.item(r))
  end
end

-- -- the end

-- Count plain jobs and put everything that is ready into its lane.
function enqueue_store.finish(runs)
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
  items = {} -- a step that stores jobs may store those of hooks after them
end
