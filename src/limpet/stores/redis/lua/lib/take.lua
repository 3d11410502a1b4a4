-- Takes ready jobs for one claim, gates kept. Which lanes come next is chosen elsewhere, and so is who gets how many.

local MAX_CLAIM = 1024
local MAX_ROUNDS = 256 -- looks at the active lanes within one claim: then "ask again"
local MAX_SET_ASIDE = 256 -- and lanes that turn out shut or empty: a hundred thousand keys may run out at once
local LEAST = 9 -- the least urgent priority
local SLACK_MS = 30000 -- beyond the hard timeout that the worker itself enforces

take = {}
local t -- the claim that is being filled

-- Begin: `sig` says what the worker can run, `options` is the map of core.jobs.lease.ClaimOptions.
function take.begin(sig, limit, slots, options)
  t = {
    sig = sig, left = min(limit, MAX_CLAIM), slots = slots, options = options, least = options.least_urgent or LEAST, most = 0,
    rows = {}, leases = {}, tokens = {}, charges = {}, hard = {}, moved = {},
    reopening = nil, -- the earliest instant at which a shut class may go on
    skipped = {}, -- classes that give nothing to this claim
    skipped_lanes = {}, skipped_count = 0,
    set_aside = 0, -- lanes that were active, and gave nothing since they were shut or empty
    met = {}, -- kind member -> how many of its lanes were skipped
    floors = {}, -- class -> priority below which it has given all it can
    serves = {}, read = {}, cut = false, chosen = false,
  }
  take.claim = t
  return t
end

-- -- gates

-- The gates of a class that exist.
function take.class_gates(class)
  if not class.found then
    class.found = {}
    gates.load(class.gates)
    for _, key in ipairs(class.gates) do
      class.found[#class.found + 1] = gates.get(key)
    end
  end
  return class.found
end

-- All existing gates of a lane: those of its class, then its own.
local function gates_of(lane)
  local class = tx.class(lane.kind)
  if not lane.keyed then
    return take.class_gates(class)
  end
  if not lane.found then
    lane.found = {}
    for _, found in ipairs(take.class_gates(class)) do
      lane.found[#lane.found + 1] = found
    end
    gates.load(lanes.gates(lane))
    for _, key in ipairs(lanes.gates(lane)) do
      lane.found[#lane.found + 1] = gates.get(key)
    end
  end
  return lane.found
end

function take.room(ruling)
  local free = base.UNLIMITED
  for _, each in ipairs(ruling) do
    free = min(free, gates_math.room(each, tx.now))
  end
  return free
end

-- Jobs under a limit are never held ahead of time.
function take.must_start(class)
  if class.starts == nil then
    class.starts = class.limited or class.keyed
    for _, each in ipairs(take.class_gates(class)) do
      class.starts = class.starts or gates_math.is_counting(each, tx.now)
    end
  end
  return class.starts
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

-- A class gives nothing to this claim. When its gates are shut, time may open them.
function take.skip_class(class)
  local at = gates.opens_at(class.gates)
  t.reopening = at and min(t.reopening or at, at) or t.reopening
  t.skipped[class.kind] = true
end

-- A lane stopped by a gate of its own waits there; the others it passed are looked at again.
local function park(lane)
  skip_lane(lane)
  for _, key in ipairs(lanes.gates(lane)) do
    local found = gates.get(key)
    if found and gates_math.room(found, tx.now) <= 0 then
      t.set_aside = t.set_aside + 1
      gates_wait.park(lane, key)
      gates_wait.wake_now(lanes.gates(lane))
      return
    end
  end
  take.skip_class(tx.class(lane.kind))
end

-- How many jobs of a lane may be looked at; 0 when a gate or the want of a slot stops it.
function take.allowance(lane, count)
  local free = take.room(gates_of(lane))
  if free <= 0 then
    park(lane)
    return 0
  end
  local asked = min(count, free)
  if take.must_start(tx.class(lane.kind)) then
    asked = min(asked, t.slots)
  end
  if asked <= 0 then -- no slot is left for it: that says nothing about what the lane holds
    skip_lane(lane)
  end
  return asked
end

-- The lane is empty: it rests, and a wake that it was given for nothing is passed on.
function take.rest(lane)
  t.set_aside = t.set_aside + 1
  lanes.rest(lane)
  skip_lane(lane)
  gates_wait.wake_now(lanes.gates(lane))
end

-- How long a job of this policy may run at most, as text; "-" is for ever.
local function hard_of(policy)
  local hard = t.hard[policy]
  if hard == nil then
    hard = string.match(call("HGET", K.policy_limits, policy) or "0 -", " (.+)$")
    t.hard[policy] = hard
  end
  return hard
end

-- Jobs with one hard deadline share a lease; a suspect has one of its own.
local function cover(row)
  local hard = hard_of(sub(row.raw, RECORD.policy))
  local what = row.lost > 0 and row.id or hard
  local lease = t.leases[what]
  if not lease then
    local token = tx.next_token()
    local hold = struct.pack(HOLD.format, token, tx.now)
    lease = { token = token, text = base.text(token), hold = hold, hard = tonumber(hard), ids = {} }
    t.leases[what] = lease
    t.tokens[#t.tokens + 1] = lease
  end
  lease.ids[#lease.ids + 1] = row.id
  row.lease = lease
end

local NOTHING = {}
local UNCOUNTED = false -- the unit of a gate that looks at the number of jobs alone

local function unit_of(rule)
  return (rule.interval_us or rule.cap) and (rule.unit or "") or UNCOUNTED
end

-- What the jobs cost in each unit that the gates count: {unit -> costs}.
local function costs_of(rows, ruling)
  local costs, counted = {}, false
  if #ruling == 0 then
    return costs
  end
  for _, each in ipairs(ruling) do
    local unit = unit_of(each.rule)
    costs[unit], counted = costs[unit] or {}, counted or unit ~= UNCOUNTED
  end
  local extras = counted and {} or NOTHING
  for i, row in ipairs(counted and rows or NOTHING) do
    local r = HAS(row.flags, EXTRA) and record.open(row.id, row.raw)
    extras[i] = r and record.extra(r) or NOTHING
  end
  for unit, list in pairs(costs) do
    for i = 1, #rows do
      list[i] = unit and record.cost(extras[i], unit) or 1
    end
  end
  return costs
end

-- How many of `count` jobs, at most `most`, pass all gates.
local function admit(ruling, costs, count, most)
  local admitted = max(0, min(count, most))
  for _, each in ipairs(ruling) do
    admitted = min(admitted, gates_math.admits(each, costs[unit_of(each.rule)], tx.now))
  end
  return admitted
end

-- The gates that admit `admitted` jobs and no more: {gate, what the next one costs there} each.
local function stop(ruling, costs, admitted)
  local stopping = {}
  for _, each in ipairs(ruling) do
    local of_unit = costs[unit_of(each.rule)]
    if gates_math.admits(each, of_unit, tx.now) == admitted then
      stopping[#stopping + 1] = { each, of_unit[admitted + 1] }
    end
  end
  return stopping
end

-- If only budgets stopped the first job, close those budgets, so that smaller jobs cannot overtake it (aged claims may).
local function fall_short(stopping)
  if t.passing then
    return
  end
  for _, each in ipairs(stopping) do
    if not gates_math.is_short(each[1], each[2], tx.now) then
      return
    end
  end
  for _, each in ipairs(stopping) do
    gates_math.falls_short(gates.edit(each[1].rule.key), each[2], tx.now)
  end
end

-- Take what the jobs need from each gate; their charges by job, and whether they are a breaker's probe.
local function charge(lane, rows, ruling, costs)
  local probe = false
  for _, each in ipairs(ruling) do
    local rule = each.rule
    if rule.breaker or (each.open_until_ms or 0) > 0 or gates_math.is_counting(each, tx.now) then
      local taken = gates_math.charge(gates.edit(rule.key), costs[unit_of(rule)], rows[1].lease.token, tx.now)
      for i, one in ipairs(taken) do
        local heap = t.charges[rows[i].id] or {}
        heap[#heap + 1], t.charges[rows[i].id] = one, heap
        probe = probe or one[CHARGE.probe]
      end
    end
  end
  if lane.breaker then -- by key
    local own = tx.class(lane.kind).gates
    for _, row in ipairs(rows) do
      t.charges[row.id] = gates_math.by_key(t.charges[row.id], own[#own], lane.breaker)
    end
  end
  return probe
end

-- How many may run at once under the tightest of these gates; 0 when none of them says so.
function take.together(ruling)
  local least = 0
  for _, each in ipairs(ruling) do
    local most = each.rule.concurrency
    if most and (least == 0 or most < least) then
      least = most
    end
  end
  return least
end

-- The rows that can run. A suspect is started at once or not taken at all.
local function usable_of(lane, rows)
  local usable, slots = {}, t.slots
  for _, row in ipairs(rows) do
    if row.raw and not take_front.leaves(row, lane) then
      if row.lost > 0 and slots <= 0 then
        row.stays = true
        skip_lane(lane)
      else
        slots = slots - (row.lost > 0 and 1 or 0)
        usable[#usable + 1] = row
      end
    end
  end
  return usable
end

-- Rows beyond the first `admitted` keep their place in the lane.
local function keep_back(usable, costs, admitted)
  for i = #usable, admitted + 1, -1 do
    usable[i].stays, usable[i] = true, nil
    for _, list in pairs(costs) do
      list[i] = nil
    end
  end
end

-- Nothing of the lane passes its gates.
local function turn_away(lane, ruling, stopping)
  fall_short(stopping)
  if take.room(ruling) <= 0 then
    park(lane)
  else
    skip_lane(lane)
  end
end

-- Put these rows under leases and charge their gates; how many of them are suspects.
local function hold(lane, usable, ruling, costs)
  local suspects = 0
  for _, row in ipairs(usable) do
    cover(row)
    suspects = suspects + (row.lost > 0 and 1 or 0)
  end
  if charge(lane, usable, ruling, costs) then
    usable[1].probe = true -- a half-open breaker lets one job through
  end
  return suspects
end

-- Take as many of `rows`, which are the first of the lane, as its gates admit; how many it was.
function take.start(lane, rows)
  local class, usable, ruling = tx.class(lane.kind), usable_of(lane, rows), gates_of(lane)
  local costs, found = costs_of(usable, ruling), #usable
  local must_start = take.must_start(class)
  local admitted = admit(ruling, costs, found, must_start and t.slots or base.UNLIMITED)
  local stopping = admitted < found and stop(ruling, costs, admitted) or NOTHING
  keep_back(usable, costs, admitted)
  take_front.remove(lane, rows)
  if admitted <= 0 then
    if found > 0 then
      turn_away(lane, ruling, stopping)
    end
    return 0
  end
  local suspects = hold(lane, usable, ruling, costs)
  fall_short(stopping)
  local together = take.together(ruling)
  for _, row in ipairs(usable) do
    row.together = together
    t.rows[#t.rows + 1] = row
  end
  t.left = t.left - admitted
  t.slots = t.slots - (must_start and admitted or suspects)
  t.moved[class] = (t.moved[class] or 0) + admitted
  lanes.crowd(lane, -admitted)
  return admitted
end

-- Take up to `count` jobs of one lane.
function take.lane(lane, count)
  local asked = take.allowance(lane, count)
  if asked <= 0 then
    return 0
  end
  local rows, all = take_front.seen(lane, asked)
  local taken = #rows > 0 and take.start(lane, rows) or 0
  if all and lanes.empty(lane) then
    take.rest(lane)
  end
  return taken
end

-- Those of the candidates whose definition is there; the others give nothing to this claim.
local function stored(list)
  local found = {}
  for _, each in ipairs(list) do
    if lanes.get(each.id) then
      found[#found + 1] = each
    else
      t.skipped_lanes[each.id], t.skipped_count = true, t.skipped_count + 1
    end
  end
  return found
end

-- Take until there is enough or nothing is left; true when a bound ended it first.
local function fill()
  for _ = 1, MAX_ROUNDS do
    if t.left <= 0 then
      return false
    end
    if t.set_aside >= MAX_SET_ASIDE then
      return true
    end
    local list, prio = choose.candidates()
    if #list == 0 then
      return false
    end
    local ids = {}
    for i, each in ipairs(list) do
      ids[i] = each.id
    end
    lanes.load(ids)
    list = stored(list)
    if #list == 0 then
      t.set_aside = t.set_aside + 1
    elseif #list == 1 and not t.cut and not t.chosen then
      take.lane(lanes.get(list[1].id), t.left)
    else
      turns_share.fairly(list, prio)
    end
  end
  return t.left > 0
end

-- The same, where up to `aged` jobs are taken first, of the priority `most_urgent` and less urgent ones.
function take.fill()
  local aged, most = t.options.aged, t.options.most_urgent or 0
  if not aged then
    return fill()
  end
  local enough, least = t.left, t.least
  t.left, t.least, t.most, t.passing = min(enough, aged), LEAST, most, true
  local bounded = fill()
  t.left, t.least, t.most, t.passing = enough - #t.rows, least, 0, false
  t.floors, t.skipped_lanes, t.skipped_count, t.met = {}, {}, 0, {}
  return fill() or bounded
end

-- -- the lease

-- Write the leases that cover all that was taken.
function take.lease(session)
  local running = {}
  for class, count in pairs(t.moved) do
    tx.move(class, READY, RUNNING, count)
  end
  for _, row in ipairs(t.rows) do
    local charges = t.charges[row.id]
    local n = #running
    running[n + 1], running[n + 2] = row.id, charges and row.lease.hold .. pack(charges) or row.lease.hold
  end
  base.chunked("HSET", K.running, running)
  local shift = tx.meta("shift") or 0
  for _, lease in ipairs(t.tokens) do
    local token = lease.text
    call("HSET", K.leases, token, pack({ session, #lease.ids }))
    call("SET", K.lease_jobs .. token, table.concat(lease.ids))
    call("SADD", K.session_leases .. session, token)
    if lease.hard then
      call("ZADD", K.hard_deadlines, base.text(tx.now + lease.hard + SLACK_MS - shift), token)
    end
  end
end
