-- Chooses and takes ready jobs for one claim: best priority first, fair between queues and groups, gates kept.

local MAX_CLAIM = 1024
local MAX_ROUNDS = 256 -- looks at the active lanes within one claim: then "ask again"
local PAGE = 256 -- active classes that are read together, and that one look considers
local SLACK_MS = 30000 -- beyond the hard timeout that the worker itself enforces

taking = {}
local t -- the claim that is being filled

-- Begin: `sig` says what the worker can run, `least` the least urgent priority that it asks for.
function taking.begin(sig, limit, slots, least)
  t = {
    sig = sig, left = min(limit, MAX_CLAIM), slots = slots, least = least,
    rows = {}, leases = {}, tokens = {}, charges = {}, hard = {}, moved = {},
    reopening = nil, -- the earliest instant at which a shut class may go on
    skipped = {}, -- classes that give nothing to this claim
    skipped_lanes = {}, skipped_count = 0,
    met = {}, -- kind member -> how many of its lanes were skipped
    floors = {}, -- class -> priority below which it has given all it can
    serves = {}, read = {}, cut = false, chosen = false,
  }
  taking.claim = t
  return t
end

-- -- choosing

-- Which classes of `entries` the worker can run, asked once per class.
local function learn(entries)
  local asked = {}
  for _, entry in ipairs(entries) do
    local kind = sub(entry, 10, 17)
    if t.serves[kind] == nil then
      t.serves[kind] = false
      asked[#asked + 1] = kind
    end
  end
  for i = 1, #asked, MANY do
    local answer = call("SMISMEMBER", P .. "sv:" .. t.sig, unpack(asked, i, min(i + MANY - 1, #asked)))
    for j, yes in ipairs(answer) do
      t.serves[asked[i + j - 1]] = yes == 1
    end
  end
end

-- The gates of a class that exist.
function taking.class_gates(class)
  if not class.found then
    class.found = {}
    gating.load(class.gates)
    for _, key in ipairs(class.gates) do
      class.found[#class.found + 1] = gating.get(key)
    end
  end
  return class.found
end

-- All existing gates of a lane: those of its class, then its own.
local function gates_of(lane)
  local class = tx.class(lane.kind)
  if not lane.keyed then
    return taking.class_gates(class)
  end
  if not lane.found then
    lane.found = {}
    for _, found in ipairs(taking.class_gates(class)) do
      lane.found[#lane.found + 1] = found
    end
    gating.load(lanes.gates(lane))
    for _, key in ipairs(lanes.gates(lane)) do
      lane.found[#lane.found + 1] = gating.get(key)
    end
  end
  return lane.found
end

function taking.room(gates)
  local free = LOTS
  for _, each in ipairs(gates) do
    free = min(free, gate.room(each, tx.now))
  end
  return free
end

-- Jobs under a limit are never held ahead of time.
function taking.must_start(class)
  if class.starts == nil then
    class.starts = class.limited or class.keyed
    for _, each in ipairs(taking.class_gates(class)) do
      class.starts = class.starts or each.rule.concurrency ~= nil or each.rule.interval_us ~= nil
    end
  end
  return class.starts
end

local function class_is_open(class)
  local shut, at = false, 0
  for _, each in ipairs(taking.class_gates(class)) do
    if gate.room(each, tx.now) <= 0 then
      shut = true
      local opens = gate.opens_at(each, tx.now)
      at = opens and at and max(at, opens) or nil
    end
  end
  if not shut and (t.slots > 0 or not taking.must_start(class)) then
    return true
  end
  t.skipped[class.kind] = true
  if shut and at then
    t.reopening = min(t.reopening or at, at)
  end
  return false
end

-- The lanes of these classes at one priority that were not met before.
local function unmet(entries, prio, rings)
  -- Without weights each of several queues gets an equal part at most.
  local part = (rings == 1 or seats.weighed()) and t.left or floor(t.left / rings) + 1
  local found, horizons, asked = {}, {}, part + t.skipped_count + 1
  for _, entry in ipairs(entries) do
    local ring = sub(entry, 2, 9)
    local line, last = seats.line(sub(entry, 10, 17), prio, asked, t.met)
    if last then -- cut off: members beyond this turn may be seen with only some of their lanes
      horizons[ring] = min(last, horizons[ring] or last)
    end
    for _, each in ipairs(line) do
      if not t.skipped_lanes[each.id] then
        each.ring = ring
        found[#found + 1] = each
      end
    end
  end
  t.cut = next(horizons) ~= nil
  if not t.cut then
    return found
  end
  local seen = {}
  for _, each in ipairs(found) do
    if each.turn <= (horizons[each.ring] or each.turn) then
      seen[#seen + 1] = each
    end
  end
  return seen
end

-- The entries of a page of active classes that may have something for this worker; what is asked about them is read.
local function of_interest(page)
  local wanted, kinds, keys = {}, {}, {}
  learn(page)
  for _, entry in ipairs(page) do
    local kind = sub(entry, 10, 17)
    if t.serves[kind] and not t.skipped[kind] and byte(entry, 1) >= (t.floors[kind] or 0) then
      wanted[#wanted + 1], kinds[#wanted + 1] = entry, kind
    end
  end
  local unread = {}
  for _, kind in ipairs(kinds) do
    if not t.read[kind] then
      unread[#unread + 1], t.read[kind] = kind, true
    end
  end
  for i, raw in ipairs(base.mget(P .. "cl", unread)) do
    tx.class(unread[i], raw)
  end
  for _, kind in ipairs(kinds) do
    local class = tx.class(kind)
    for _, key in ipairs(class.found and {} or class.gates) do
      keys[#keys + 1] = key
    end
  end
  gating.load(keys)
  return wanted
end

-- Add active classes between two places, of one priority and with open gates, to `open`; true when it is full.
local function look(from, to, open)
  while true do
    local page = call("ZRANGEBYLEX", P .. "act", from, to, "LIMIT", 0, PAGE)
    for _, entry in ipairs(of_interest(page)) do
      local kind = sub(entry, 10, 17)
      if open[1] and byte(entry, 1) ~= byte(open[1], 1) then
        return false
      elseif not t.skipped[kind] and class_is_open(tx.class(kind)) then
        if #open == PAGE then
          return true
        end
        open[#open + 1] = entry
      end
    end
    if #page < PAGE then
      return false
    end
    from = "(" .. page[PAGE]
  end
end

-- There are more classes than one round considers: begin where the last such round of this sort of worker has ended.
local function next_page(open, prio)
  local field, level = t.sig .. char(prio), char(prio)
  local at = call("HGET", P .. "lk", field)
  if at then
    open = {}
    if not look("(" .. at, "(" .. char(prio + 1), open) then
      look("[" .. level, "[" .. at, open)
    end
  end
  local last = sub(open[#open], 2, 9)
  if sub(open[1], 2, 9) ~= last then -- a queue is seen with all its classes, or not at all
    while sub(open[#open], 2, 9) == last do
      open[#open] = nil
    end
  end
  call("HSET", P .. "lk", field, open[#open])
  return open
end

-- Only so many queues as there are jobs to give can get one: those that were served least recently.
local function next_rings(open)
  local rings, seen = {}, {}
  for _, entry in ipairs(open) do
    local ring = sub(entry, 2, 9)
    if not seen[ring] then
      rings[#rings + 1], seen[ring] = ring, #rings + 1
    end
  end
  t.chosen = #rings > t.left
  if not t.chosen then
    return open, #rings
  end
  seats.load_turns(rings)
  table.sort(rings, function(a, b)
    local first, second = seats.turn(a), seats.turn(b)
    first, second = first and first.turn or 0, second and second.turn or 0
    return first < second or (first == second and seen[a] < seen[b])
  end)
  local chosen, entries = {}, {}
  for i = 1, t.left do
    chosen[rings[i]] = true
  end
  for _, entry in ipairs(open) do
    if chosen[sub(entry, 2, 9)] then
      entries[#entries + 1] = entry
    end
  end
  return entries, t.left
end

local function count_rings(list)
  local count, seen = 0, {}
  for _, each in ipairs(list) do
    count = count + (seen[each.ring] and 0 or 1)
    seen[each.ring] = true
  end
  return count
end

-- Active lanes of the best priority that has any for this worker.
local function candidates()
  local from = "-"
  while true do
    local open = {}
    local more, prio = look(from, "(" .. char(t.least + 1), open), nil
    if #open == 0 then
      return {}
    end
    prio = byte(open[1], 1)
    if more then
      open = next_page(open, prio)
    end
    local entries, rings = next_rings(open)
    local found = unmet(entries, prio, rings)
    if #found > 0 and rings > 1 then
      local having = count_rings(found)
      found = having < rings and unmet(entries, prio, having) or found -- fewer queues: each gets more
    end
    if #found > 0 then
      return found, prio
    end
    for _, entry in ipairs(entries) do
      t.floors[sub(entry, 10, 17)] = prio + 1
    end
    from = "[" .. char(prio)
  end
end

-- -- taking

local function skip_lane(lane)
  if not t.skipped_lanes[lane.id] then
    t.skipped_lanes[lane.id] = true
    t.skipped_count = t.skipped_count + 1
    if lane.multi then
      local of = lane.kind .. lane.member
      t.met[of] = (t.met[of] or 0) + 1
    end
  end
end

-- A lane stopped by a gate of its own waits there; the others it passed are looked at again.
local function park(lane)
  skip_lane(lane)
  for _, key in ipairs(lanes.gates(lane)) do
    local found = gating.get(key)
    if found and gate.room(found, tx.now) <= 0 then
      waiting.park(lane, key)
      waiting.wake_now(lanes.gates(lane))
      return
    end
  end
  t.skipped[lane.kind] = true
end

-- How many jobs of a lane may be looked at; 0 when a gate or the want of a slot stops it.
function taking.allowance(lane, count)
  local free = taking.room(gates_of(lane))
  if free <= 0 then
    park(lane)
    return 0
  end
  local asked = min(count, free)
  if taking.must_start(tx.class(lane.kind)) then
    asked = min(asked, t.slots)
  end
  if asked <= 0 then -- no slot is left for it: that says nothing about what the lane holds
    skip_lane(lane)
  end
  return asked
end

-- The lane is empty: it rests, and a wake that it was given for nothing is passed on.
function taking.rest(lane)
  lanes.rest(lane)
  skip_lane(lane)
  waiting.wake_now(lanes.gates(lane))
end

-- How long a job of this policy may run at most, as text; "-" is for ever.
local function hard_of(policy)
  local hard = t.hard[policy]
  if hard == nil then
    hard = string.match(call("HGET", P .. "pm", policy) or "0 -", " (.+)$")
    t.hard[policy] = hard
  end
  return hard
end

-- Jobs with one hard deadline share a lease; a suspect has one of its own.
local function cover(row)
  local hard = hard_of(sub(row.raw, 37, 44))
  local what = row.lost > 0 and row.id or hard
  local lease = t.leases[what]
  if not lease then
    local token = tx.next_token()
    lease = { token = token, text = base.text(token), run = struct.pack(">I7I6", token, tx.now), hard = tonumber(hard), ids = {} }
    t.leases[what] = lease
    t.tokens[#t.tokens + 1] = lease
  end
  lease.ids[#lease.ids + 1] = row.id
  row.lease = lease
end

local function costs_of(rows, gates)
  local rated, costs = false, {}
  if #gates == 0 then
    return costs
  end
  for _, each in ipairs(gates) do
    rated = rated or each.rule.interval_us ~= nil
  end
  for i, row in ipairs(rows) do
    costs[i] = 1
    if rated and record.has(row.flags, EXTRA) then
      costs[i] = record.extra(record.open(row.id, row.raw))[1] or 1
    end
  end
  return costs
end

-- Take what the jobs need from each gate; their charges by job, and whether they are a breaker's probe.
local function charge(rows, gates, costs)
  local probe = false
  for _, each in ipairs(gates) do
    local rule = each.rule
    if rule.concurrency or rule.interval_us or rule.breaker or (each.open_until_ms or 0) > 0 then
      local taken = gate.charge(gating.edit(rule.key), costs, rows[1].lease.token, tx.now)
      for i, one in ipairs(taken) do
        local heap = t.charges[rows[i].id] or {}
        heap[#heap + 1], t.charges[rows[i].id] = one, heap
        probe = probe or one[4]
      end
    end
  end
  return probe
end

-- Take as many of `rows`, which are the first of the lane, as its gates admit; how many it was.
function taking.start(lane, rows)
  local class, usable, slots = tx.class(lane.kind), {}, t.slots
  for _, row in ipairs(rows) do
    if row.raw then
      local leaves = front.leaves(row, lane)
      if not leaves and row.lost > 0 and slots <= 0 then
        row.stays = true -- a suspect is started at once or not taken at all
        skip_lane(lane)
      elseif not leaves then
        slots = slots - (row.lost > 0 and 1 or 0)
        usable[#usable + 1] = row
      end
    end
  end
  local gates = gates_of(lane)
  local costs, admitted = costs_of(usable, gates), #usable
  for _, each in ipairs(gates) do
    admitted = min(admitted, gate.admits(each, costs, tx.now))
  end
  if taking.must_start(class) then
    admitted = min(admitted, t.slots)
  end
  if admitted < #usable then
    if admitted <= 0 then
      skip_lane(lane)
    end
    for i = admitted + 1, #usable do
      usable[i].stays, costs[i], usable[i] = true, nil, nil
    end
  end
  front.remove(lane, rows)
  if admitted <= 0 then
    return 0
  end
  local suspects = 0
  for _, row in ipairs(usable) do
    cover(row)
    suspects = suspects + (row.lost > 0 and 1 or 0)
  end
  if charge(usable, gates, costs) then
    usable[1].probe = true -- a half-open breaker lets one job through
  end
  for _, row in ipairs(usable) do
    t.rows[#t.rows + 1] = row
  end
  t.left = t.left - admitted
  t.slots = t.slots - (taking.must_start(class) and admitted or suspects)
  t.moved[class] = (t.moved[class] or 0) + admitted
  return admitted
end

-- Take up to `count` jobs of one lane.
function taking.lane(lane, count)
  local asked = taking.allowance(lane, count)
  if asked <= 0 then
    return 0
  end
  local rows, all = front.seen(lane, asked)
  local taken = #rows > 0 and taking.start(lane, rows) or 0
  if all and lanes.empty(lane) then
    taking.rest(lane)
  end
  return taken
end

-- Take until there is enough or nothing is left; true when a bound ended it first.
function taking.fill()
  for _ = 1, MAX_ROUNDS do
    if t.left <= 0 then
      return false
    end
    local list, prio = candidates()
    if #list == 0 then
      return false
    end
    local ids = {}
    for i, each in ipairs(list) do
      ids[i] = each.id
    end
    lanes.load(ids)
    if #list == 1 and not t.cut and not t.chosen then
      taking.lane(lanes.get(list[1].id), t.left)
    else
      sharing.fairly(list, prio)
    end
  end
  return t.left > 0
end

-- -- the lease

-- Write the leases that cover all that was taken.
function taking.lease(session)
  local running = {}
  for class, count in pairs(t.moved) do
    tx.move(class, READY, RUNNING, count)
  end
  for _, row in ipairs(t.rows) do
    local charges = t.charges[row.id]
    local n = #running
    running[n + 1], running[n + 2] = row.id, charges and row.lease.run .. pack(charges) or row.lease.run
  end
  base.chunked("HSET", P .. "run", running)
  local shift = tx.meta("shift") or 0
  for _, lease in ipairs(t.tokens) do
    local token = lease.text
    call("HSET", P .. "le", token, pack({ session, #lease.ids }))
    call("SET", P .. "b:" .. token, table.concat(lease.ids))
    call("SADD", P .. "st:" .. session, token)
    if lease.hard then
      call("ZADD", P .. "H", base.text(tx.now + lease.hard + SLACK_MS - shift), token)
    end
  end
end
