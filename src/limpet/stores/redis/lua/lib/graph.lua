-- Remembers dependencies: releases dependents, cancels them with their parent, revives them with it.
-- The parents of a child have a field each: o and what its failure means while the dependency is open, then r result, n
-- nothing or f why it failed; "#" open ones, "@" the parents as they were named, "?" one that was over when last looked at.
-- A child is among the children of a parent exactly as long as its dependency is open. While a parent is in graph_walks, not
-- all its children are revived yet, or cancelled because it was asked to stop: it hands nothing on before they are.

graph = {}

local FAN_OUT = 256 -- children that one success releases: the rest follow with the next claims
local BATCH = 256 -- children that are looked at together
-- An open dependency, and what a failed parent means to it: see MODES in enqueue.py.
local CANCEL_CHILD, RUN_CHILD, WAIT_CHILD = PARENT_OPEN .. 0, PARENT_OPEN .. 1, PARENT_OPEN .. 2
local left = 1000 -- children that one script touches: what is left over goes to graph_todo

-- The first 200 characters of a reason: thousands of dependents may be told it.
local function cut(text)
  local at, count = 1, 0
  while count < 200 and at <= #text do
    local first = byte(text, at)
    at, count = at + (first < 128 and 1 or first < 224 and 2 or first < 240 and 3 or 4), count + 1
  end
  return sub(text, 1, at - 1)
end

-- Why a job will not run: what became of a parent of it, and the cause of that if one is known. Texts are the same on
-- every engine: people search for them.
local function why(parent, word, cause)
  return "parent " .. effect_ending.name(parent) .. " " .. word .. (cause and cause ~= "" and ": " .. cut(cause) or "")
end

local function expiry(r)
  return base.b6(r.rare[ADDED.expires_ms]) .. r.id
end

local function is_open(dependency)
  return base.begins(dependency or "", PARENT_OPEN)
end

-- -- dependencies of a job that is being enqueued

local flagged = {}

-- These jobs are waited for from now on.
local function flag_kids(parents)
  local ids, stored = {}, {}
  for _, parent in ipairs(parents) do
    if not flagged[parent] then
      flagged[parent] = true
      ids[#ids + 1] = parent
    end
  end
  for i, raw in ipairs(base.mget(K.jobs, ids)) do
    local changed = raw and #raw >= RECORD.size and record.with_flag(raw, KIDS)
    if changed then
      stored[#stored + 1] = ids[i]
      stored[#stored + 1] = changed
    end
  end
  base.chunked("HSET", K.jobs, stored)
end

-- The cause in what a job was told when a parent of it died: its own dependents are told that one, not the way.
local function root_cause(told)
  return (string.gsub(told, "^parent [-%x]+ is %a+:? ?", "", 1))
end

-- What is noted with a child about a parent that has ended, the child being of this mode: nothing when it waits all the
-- same, and then a reason if it is to be cancelled.
local function met(parent, state, open)
  if state ~= DEAD and state ~= CANCELLED then
    return nil
  end
  local r = record.load(parent)
  local by_parent, told = r and HAS(r.flags, BY_PARENT), r and r.rare[ADDED.reason]
  local cause = by_parent and root_cause(told or "") or told
  local reason = why(parent, state == DEAD and "is dead" or "is cancelled", cause)
  if open == RUN_CHILD then
    return PARENT_FAILED .. reason
  end
  -- A child that shall be cancelled waits for its parent in name, so that a replay can revive it: of a dead parent, or
  -- of the dead one above that has taken the parent down.
  return nil, open == CANCEL_CHILD and { reason = reason, revivable = state == DEAD or by_parent } or nil
end

-- Remember that `child` depends on `parents` ({id, state} each; stored, or known to have ended), which it named as
-- `named`. True when it waits for any of them; and if it is to be cancelled at once, why, and whether a replay of the
-- parent that is the reason revives it.
function graph.depend(child, named, parents, mode)
  local key, open, fields, waited, worked, doom = K.parents .. child, PARENT_OPEN .. mode, {}, {}, {}, nil
  local seen = {}
  for _, parent in ipairs(parents) do
    local id, state = parent[1], parent[2]
    if not seen[id] then
      seen[id] = true
      if state == SUCCEEDED then
        worked[#worked + 1] = id
      else
        local value, reason = met(id, state, open)
        doom = doom or reason
        fields[#fields + 1], fields[#fields + 2] = id, value or open
        if not value then
          waited[#waited + 1] = id
          call("ZADD", K.children .. id, 0, child)
        end
      end
    end
  end
  for i, result in ipairs(base.mget(K.results, worked)) do
    fields[#fields + 1], fields[#fields + 2] = worked[i], result and PARENT_RESULT .. result or PARENT_NOTHING
  end
  fields[#fields + 1], fields[#fields + 2] = "#", base.text(#waited)
  fields[#fields + 1], fields[#fields + 2] = "@", "@" .. named
  base.chunked("HSET", key, fields)
  flag_kids(waited)
  return #waited > 0, doom
end

-- -- release

-- Children without an open dependency become ready or scheduled.
local function free(ids)
  local stored, listed, ready, scheduled = {}, {}, {}, {} -- the last two by lane
  for i, raw in ipairs(base.mget(K.jobs, ids)) do
    local r = raw and record.open(ids[i], raw)
    if r == false then
      effect_ending.bury_spoilt(ids[i])
    elseif r and r.state == BLOCKED then
      local is_due = r.due <= tx.now
      listed[#listed + 1] = r.id
      stored[#stored + 1] = r.id
      stored[#stored + 1] = record.with_state(raw, is_due and READY or SCHEDULED)
      local heap = base.heap(is_due and ready or scheduled, r.lane)
      heap[#heap + 1] = record.item(r)
    end
  end
  base.chunked("HSET", K.jobs, stored)
  base.chunked("ZREM", K.blocked, listed)
  for lane_id, heap in pairs(scheduled) do
    local lane = lanes.get(lane_id)
    tx.move(tx.class(lane.kind), BLOCKED, SCHEDULED, #heap)
    for _, item in ipairs(heap) do
      lanes_due.schedule(lane, item)
    end
  end
  for lane_id, heap in pairs(ready) do
    local lane = lanes.get(lane_id)
    tx.move(tx.class(lane.kind), BLOCKED, READY, #heap)
    table.sort(heap, base.before)
    lanes.add(lane, heap)
  end
end

-- These dependencies on `parent` are settled; children without another open dependency are released.
local function close(parent, children, value)
  local released = {}
  base.chunked("ZREM", K.children .. parent, children)
  for _, child in ipairs(children) do
    local key = K.parents .. child
    call("HSET", key, parent, value)
    if call("HINCRBY", key, "#", -1) <= 0 then
      released[#released + 1] = child
    end
  end
  free(released)
end

-- Hand the result of a parent that succeeded on to the next of its children.
local function release_some(parent, result)
  local key, count = K.children .. parent, min(FAN_OUT, left)
  if count > 0 then
    local children = call("ZRANGE", key, 0, count - 1)
    left = left - #children
    close(parent, children, result and PARENT_RESULT .. result or PARENT_NOTHING)
  end
  if call("EXISTS", key) == 1 then
    call("SADD", K.graph_todo, pack({ "succeeded", parent }))
  end
end

-- -- cancelling

-- Take a job that is scheduled or ready off the lists. Its item may stay in its lane: claim drops it.
local function unlist(r)
  if r.state == SCHEDULED then
    lanes_due.unschedule(lanes.get(r.lane), record.item(r))
  else
    call("ZREM", K.ready_aside .. r.lane, record.item(r))
  end
end

-- Waiting jobs end as cancelled.
local function cancel_records(records, reason, by_parent)
  local stored, blocked, expiring, filed, instant = {}, {}, {}, {}, base.b6(tx.now)
  for _, r in ipairs(records) do
    local class = effect_ending.class(r)
    local entries = base.heap(filed, class.queue)
    entries[#entries + 1] = "0"
    entries[#entries + 1] = instant .. r.id
    if r.rare[ADDED.expires_ms] then
      expiring[#expiring + 1] = expiry(r)
    end
    if r.state == BLOCKED then
      blocked[#blocked + 1] = r.id
    else
      unlist(r)
      if r.state == READY then
        gates_wait.leave_line(r)
      end
    end
    tx.move(class, r.state, CANCELLED)
    lanes.crowd(lanes.get(r.lane), -1)
    r.state, r.finished, r.rare[ADDED.reason] = CANCELLED, tx.now, reason
    if by_parent then
      r.flags = record.with(r.flags, BY_PARENT)
    end
    stored[#stored + 1] = r.id
    stored[#stored + 1] = record.close(r)
    tx.ends(r)
    if HAS(r.flags, WATCHED) then
      tx.tell_finished(r.id)
    end
  end
  base.chunked("ZREM", K.blocked, blocked)
  base.chunked("ZREM", K.expiring, expiring)
  base.chunked("HSET", K.jobs, stored)
  for queue, entries in pairs(filed) do
    base.chunked("ZADD", K.finished .. CANCELLED .. queue, entries)
    effect_ending.note_cancelled(queue, #entries / 2)
  end
end

-- -- walking down the graph: each task is a WALK

local handle = {}

-- Do the tasks of a stack, and those that they lead to, as far as this script may go.
local function walk(stack)
  while #stack > 0 do
    local task = stack[#stack]
    stack[#stack] = nil
    local what, parent, after, text, revivable, cause = unpack(task, WALK.what, WALK.cause)
    if left <= 0 then
      if call("SADD", K.graph_todo, pack(task)) == 1 and (what == "revived" or what == "unwanted") then
        call("HINCRBY", K.graph_walks, parent, 1)
      end
    else
      local from, size = after == "" and "-" or "(" .. after, min(BATCH, left)
      local children = call("ZRANGEBYLEX", K.children .. parent, from, "+", "LIMIT", 0, size)
      left = left - max(1, #children)
      if #children == size then
        stack[#stack + 1] = { what, parent, children[size], text, revivable, cause }
      end
      handle[what](task, children, stack, #children < size)
    end
  end
end

-- Cancel those of `children` that still wait, and what depends on them; that is told the cause.
local function cancel_all(children, reason, cause, revivable, stack)
  local records = {}
  for i, raw in ipairs(base.mget(K.jobs, children)) do
    local r = raw and record.open(children[i], raw)
    if r == false then
      effect_ending.bury_spoilt(children[i])
    elseif r and r.state == BLOCKED then -- whose dependency is open has never been ready
      records[#records + 1] = r
      if HAS(r.flags, KIDS) then
        stack[#stack + 1] = { "failed", r.id, "", "is cancelled", revivable, cause }
      end
    end
  end
  cancel_records(records, reason, revivable)
end

-- Children whose dependency on `parent` is open, by what its failure means to them.
local function by_mode(parent, children)
  local found = { [CANCEL_CHILD] = {}, [RUN_CHILD] = {}, [WAIT_CHILD] = {} }
  for _, child in ipairs(children) do
    local mode = found[call("HGET", K.parents .. child, parent)]
    if mode then
      mode[#mode + 1] = child
    end
  end
  return found
end

-- The parent is dead or cancelled: each child goes by its own mode, and so on down the graph.
function handle.failed(task, children, stack)
  local parent, cause = task[WALK.parent], task[WALK.cause]
  local reason, modes = why(parent, task[WALK.text], cause), by_mode(parent, children)
  cancel_all(modes[CANCEL_CHILD], reason, cause, task[WALK.revivable], stack)
  close(parent, modes[RUN_CHILD], PARENT_FAILED .. reason)
end

-- All children of a parent are dealt with; if it has worked meanwhile, it hands on to those that still wait for it.
local function hand_on_late(parent)
  local raw = call("HEXISTS", K.graph_walks, parent) == 0 and call("HGET", K.jobs, parent)
  if raw and byte(raw, RECORD.state) == SUCCEEDED then
    release_some(parent, call("HGET", K.results, parent))
  end
end

-- The parent was asked to stop: dependents that would not run without it are cancelled. It may have worked meanwhile.
function handle.unwanted(task, children, stack, last)
  local reason = why(task[WALK.parent], "was asked to stop", task[WALK.text])
  cancel_all(by_mode(task[WALK.parent], children)[CANCEL_CHILD], reason, reason, false, stack)
  if last then
    hand_on_late(task[WALK.parent])
  end
end

-- The parent is removed for good: children that still wait for it never could run.
function handle.removed(task, children, stack)
  base.chunked("ZREM", K.children .. task[WALK.parent], children)
  local reason = why(task[WALK.parent], "was removed")
  cancel_all(children, reason, reason, false, stack)
end

local function is_over(raw)
  return not raw or (byte(raw, RECORD.state) or DEAD) > SUCCEEDED -- one that succeeded serves children that still wait
end

-- True when every parent that the child still waits for is alive; `parent` is. Very many may be brought back one by one:
-- a parent that was found finished is looked at first the next time, so that the others need no look.
local function may_wait_again(child, parent)
  local key = K.parents .. child
  local open_ones, last = unpack(call("HMGET", key, "#", "?"))
  if open_ones == "1" then
    return true
  end
  last = last and sub(last, 2)
  if last and is_open(call("HGET", key, last)) and is_over(call("HGET", K.jobs, last)) then
    return false
  end
  local all, open = call("HGETALL", key), {}
  for i = 1, #all, 2 do
    if is_open(all[i + 1]) and all[i] ~= parent then
      open[#open + 1] = all[i]
    end
  end
  left = left - #open
  for i, raw in ipairs(base.mget(K.jobs, open)) do
    if is_over(raw) then
      call("HSET", key, "?", "?" .. open[i])
      return false
    end
  end
  return true
end

-- A cancelled job waits for its parents again.
local function block_again(r)
  effect_ending.unfile(r)
  tx.move(effect_ending.class(r), CANCELLED, BLOCKED)
  lanes.crowd(lanes.get(r.lane), 1)
  tx.tally(EVER_CANCELLED, -1) -- it is no longer one of those that were cancelled
  r.state, r.flags, r.rare[ADDED.reason] = BLOCKED, record.without(r.flags, BY_PARENT), nil
  record.save(r)
  call("ZADD", K.blocked, base.text(r.seq), r.id)
  if r.rare[ADDED.expires_ms] then
    call("ZADD", K.expiring, 0, expiry(r))
  end
end

-- The parent is tried again: dependents that its death cancelled wait for it again. It may have worked meanwhile.
function handle.revived(task, children, stack, last)
  for i, raw in ipairs(base.mget(K.jobs, children)) do
    local r = record.open(children[i], raw)
    -- One with another parent that is dead or gone would wait for ever; one whose key is taken stays cancelled.
    if
      r and r.state == CANCELLED and HAS(r.flags, BY_PARENT) and may_wait_again(r.id, task[WALK.parent])
      and unique.reclaim(r)
    then
      block_again(r)
      if HAS(r.flags, KIDS) then
        stack[#stack + 1] = { "revived", r.id, "", "", false }
      end
    end
  end
  if last then
    hand_on_late(task[WALK.parent])
  end
end

-- -- what other modules ask for

-- Cancel a waiting job and, level by level, all that depend on it; false when it does not wait.
function graph.cancel_waiting(id, reason, by_parent)
  local r = record.load(id)
  if r == false and call("HEXISTS", K.running, id) == 0 then
    effect_ending.bury_spoilt(id)
  end
  if not r or r.running or r.state > READY then
    return false
  end
  cancel_records({ r }, reason, by_parent)
  if HAS(r.flags, KIDS) then
    walk({ { "failed", id, "", "is cancelled", false, reason } })
  end
  return true
end

-- For a repair: jobs without an open dependency are released; a job with a missing parent is cancelled; a child is
-- where its parent finds it.
graph.free = free

function graph.removed(parent)
  walk({ { "removed", parent, "", "", false } })
end

function graph.wait_for(child, parent)
  call("ZADD", K.children .. parent, 0, child)
  flag_kids({ parent })
end

-- A job waits for no parent any more, whatever becomes of it.
function graph.leave_parents(id)
  local key = K.parents .. id
  local all = call("HGETALL", key)
  for i = 1, #all, 2 do
    if is_open(all[i + 1]) then
      call("ZREM", K.children .. all[i], id)
      call("HSET", key, all[i], PARENT_NOTHING, "#", "0")
    end
  end
end

-- Cancel a child whose parent had failed before it came; a replay of a dead parent revives it.
function graph.doom(child, doom)
  graph.cancel_waiting(child, doom.reason, doom.revivable)
end

-- Cancel the dependents of a job that was asked to stop, in the same step as the request.
function graph.cancel_children(parent, reason)
  walk({ { "unwanted", parent, "", reason, false } })
end

-- The parent is tried again, and so are dependents that its death cancelled.
function graph.revive_children(parent)
  walk({ { "revived", parent, "", "", false } })
end

-- What everyone who waits for this job must hear.
function graph.after_end(r, state, result)
  if HAS(r.flags, KIDS) then
    if state == SUCCEEDED then
      if call("HEXISTS", K.graph_walks, r.id) == 0 then -- else a walk through its children ends with this
        release_some(r.id, result)
      end
    else
      local is_dead = state == DEAD
      walk({ { "failed", r.id, "", is_dead and "is dead" or "is cancelled", is_dead, r.rare[ADDED.reason] } })
    end
  end
  if HAS(r.flags, WATCHED) then
    tx.tell_finished(r.id)
  end
end

-- A parent is about to be erased. False when it must stay for now: it has more results to hand on than one
-- step takes.
function graph.orphan(r)
  if r.state ~= SUCCEEDED then
    walk({ { "removed", r.id, "", "", false } })
    return true
  end
  if call("HEXISTS", K.graph_walks, r.id) == 1 then
    return false
  end
  local result = call("HGET", K.results, r.id)
  while left > 0 and call("EXISTS", K.children .. r.id) == 1 do
    release_some(r.id, result)
  end
  return call("EXISTS", K.children .. r.id) == 0
end

-- One task that was left over.
local function go_on(task)
  local what, r = task[WALK.what], record.load(task[WALK.parent])
  if what == "succeeded" then
    if r ~= nil then -- else it was erased, after the last of them
      release_some(task[WALK.parent], call("HGET", K.results, task[WALK.parent]))
    end
    return
  elseif what == "failed" and r ~= false and not (r and r.state >= DEAD) then
    return -- it was brought back, or its children were told that it is gone
  elseif what == "revived" or what == "unwanted" then
    if call("HINCRBY", K.graph_walks, task[WALK.parent], -1) <= 0 then
      call("HDEL", K.graph_walks, task[WALK.parent])
    end
    if not r or r.state > SUCCEEDED then
      return
    end
  end
  walk({ task })
end

-- Do what earlier steps had left over for parents with very many children; true when there is more.
function graph.fan_out()
  while left > 0 do
    local packed = call("SPOP", K.graph_todo)
    if not packed then
      return false
    end
    left = left - 1
    go_on(unpack_(packed))
  end
  return call("EXISTS", K.graph_todo) == 1
end
