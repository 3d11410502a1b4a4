-- A repair, its records and who runs what: everything that is kept beside a record is compared with it, a page at a time; with
-- `mend` it is set by it. Lists are in repair_lists, counters in repair_count.

repair = { found = {} } -- word and id (or "") in turn

-- Whether what is found is to be put right.
function repair.begin(mend)
  repair.mend = mend
end

local KIDS_SEEN = 1000 -- children of one job that are looked at

-- One entry is wrong; true when it is to be put right.
function repair.tell(word, id)
  local n = #repair.found
  repair.found[n + 1], repair.found[n + 2] = word, id or ""
  return repair.mend
end

local tell = repair.tell

-- -- records

-- True when an item is in the list of a lane, which is in order.
local function is_listed(lane_id, item)
  local key = K.ready .. lane_id
  local low, high = 0, call("LLEN", key) - 1
  while low <= high do
    local middle = floor((low + high) / 2)
    local other = call("LINDEX", key, middle)
    if other == item then
      return true
    elseif base.before(other, item) then
      low = middle + 1
    else
      high = middle - 1
    end
  end
  return false
end

-- True when a lane with ready jobs stands where claims, or the opening of its gate, find it.
local function is_seen(lane)
  local state = call("HGET", K.lane_states, lane.id)
  if state == LANE_ACTIVE then
    local seat = call("ZSCORE", K.seats .. lane.kind .. char(lane.prio), lane.member)
    local act = call("ZSCORE", K.active_classes, char(lane.prio) .. lane.ring .. lane.kind)
    local place = lane.multi and call("ZSCORE", K.member_lanes .. lane.kind .. lane.member, lane.id)
      or not lane.multi and call("HGET", K.seat_lanes, lane.kind .. lane.member)
    return seat and act and place and turns.turn(lane.member) and turns.turn(lane.ring) and true
  end
  local gate_key = state and sub(state, 2)
  return state and call("ZSCORE", K.waiting_lanes .. lane.kind .. gate_key, lane.id)
    and call("SISMEMBER", K.waiting_classes .. gate_key, lane.kind) == 1
end

local waits = {}

waits[BLOCKED] = function(r)
  local key, open, gone = K.parents .. r.id, 0, nil
  if call("ZSCORE", K.blocked, r.id) ~= base.text(r.seq) and tell("blocked", r.id) then
    call("ZADD", K.blocked, base.text(r.seq), r.id)
  end
  local all = call("HGETALL", key)
  for i = 1, #all, 2 do
    local parent = all[i]
    if #parent == ID_BYTES and base.begins(all[i + 1], PARENT_OPEN) then
      open = open + 1
      if call("HEXISTS", K.jobs, parent) == 0 then
        gone = parent
      elseif not call("ZSCORE", K.children .. parent, r.id) and tell("children", r.id) then
        graph.wait_for(r.id, parent)
      end
    end
  end
  if tonumber(call("HGET", key, "#") or -1) ~= open and tell("parents", r.id) then
    call("HSET", key, "#", base.text(open))
  end
  if gone and tell("vanished", gone) then
    graph.wait_for(r.id, gone)
    graph.removed(gone)
  elseif open == 0 and tell("unblocked", r.id) then
    graph.free({ r.id })
  end
end

waits[SCHEDULED] = function(r)
  local lane, item = lanes.get(r.lane), record.item(r)
  local timer = tonumber(call("ZSCORE", K.timers, TIMER_LEVEL .. lane.prio) or math.huge)
  local listed = call("ZSCORE", K.scheduled .. lane.prio, item)
  if (not listed or (r.due < NEVER and timer > r.due)) and tell("scheduled", r.id) then
    lanes_due.schedule(lane, item)
  end
end

waits[READY] = function(r)
  local lane, item = lanes.get(r.lane), record.item(r)
  if not call("ZSCORE", K.ready_aside .. r.lane, item) and not is_listed(r.lane, item) and tell("ready", r.id) then
    call("ZADD", K.ready_aside .. r.lane, 0, item)
  end
  if not is_seen(lane) and tell("unseen") then
    call("HDEL", K.lane_states, r.lane)
    lanes.activate(lane, 1, item)
  end
end

local function includes(ids, id)
  for _, each in ipairs(ids) do
    if each == id then
      return true
    end
  end
  return false
end

local function is_filed(r)
  local key = K.finished .. r.state .. effect_ending.class(r).queue
  if call("ZSCORE", key, base.b6(r.finished) .. r.id) then
    return true
  end
  if r.state == SUCCEEDED then
    for _, member in ipairs(call("ZRANGEBYLEX", key, "[" .. base.b6(r.finished), "(" .. base.b6(r.finished + 1))) do
      if includes(base.ids(member, ENDED.ids), r.id) then
        return true
      end
    end
  end
  return false
end

-- A job that has ended is among those that have.
local function ended(r)
  if (r.finished == 0 or not is_filed(r)) and tell("finished", r.id) then
    r.finished = r.finished > 0 and r.finished or tx.now
    record.save(r)
    call("ZADD", K.finished .. r.state .. effect_ending.class(r).queue, 0, base.b6(r.finished) .. r.id)
  end
end

-- Children that do not wait for this job are not among those that do.
local function kids(r)
  for _, child in ipairs(call("ZRANGE", K.children .. r.id, 0, KIDS_SEEN - 1)) do
    local open = base.begins(call("HGET", K.parents .. child, r.id) or "", PARENT_OPEN)
    if not (open and call("HEXISTS", K.jobs, child) == 1) and tell("children", child) then
      call("ZREM", K.children .. r.id, child)
    end
  end
end

-- What is beside the record is what it says; and what it says of its end and of its run fits the state.
local function beside(r)
  local flags, state, finished = r.flags, r.state, r.finished
  for flag, there in pairs({
    [NOTES] = call("EXISTS", K.notes .. r.id), [RESULT] = call("HEXISTS", K.results, r.id),
    [ATTEMPTS] = call("EXISTS", K.attempts .. r.id), [BODY] = call("HEXISTS", K.large_args, r.id),
  }) do
    flags = there == 1 and record.with(flags, flag) or record.without(flags, flag)
  end
  if call("EXISTS", K.children .. r.id) == 1 then
    flags = record.with(flags, KIDS)
  end
  if call("EXISTS", K.parents .. r.id) == 1 then
    flags = record.with(flags, INPUTS)
  end
  if r.running then
    state = READY
  end
  if state < SUCCEEDED then
    finished = 0
  end
  if (flags ~= r.flags or state ~= r.state or finished ~= r.finished) and tell("record", r.id) then
    r.flags, r.state, r.finished = flags, state, finished
    record.save(r)
  end
end

-- A job is in the ledger under its number, or under a new one.
local function listed(r)
  local there = find_ledger.at(r.seq)
  if there == r.id or not tell("ledger", r.id) then
    return
  end
  if there or r.seq > (tx.meta("seq") or 0) then
    r.seq = tx.next_seq(1)
    record.save(r)
  end
  find_ledger.write(r.seq, { r.id }, { true })
end

local function sound(r)
  listed(r)
  beside(r)
  local extra, state = record.extra(r), record.state(r)
  local flow, expires = extra[PACKED.flow], r.rare[ADDED.expires_ms]
  if not unique.knows(r, extra, repair.mend) then
    tell("key", r.id)
  end
  if flow and not find_flows.knows(base.bytes(flow), r.seq, repair.mend) then
    tell("flow", r.id)
  end
  local expiry = state <= READY and expires and base.b6(expires) .. r.id
  if expiry and not call("ZSCORE", K.expiring, expiry) and tell("expiring", r.id) then
    call("ZADD", K.expiring, 0, expiry)
  end
  if state ~= BLOCKED and state ~= CANCELLED and HAS(r.flags, INPUTS) then
    if (call("HGET", K.parents .. r.id, "#") or "0") ~= "0" and tell("parents", r.id) then
      graph.leave_parents(r.id)
    end
  end
  kids(r)
  if state >= SUCCEEDED then
    ended(r)
  elseif state ~= RUNNING then
    waits[state](r)
  end
end

-- Some of the records; where to go on.
function repair.records(cursor, count)
  local page = call("HSCAN", K.jobs, cursor, "COUNT", count)
  for i = 1, #page[2], 2 do
    local id = page[2][i]
    local r = record.load(id)
    local body_gone = r and HAS(r.flags, BODY) and call("HEXISTS", K.large_args, id) == 0
    if r and not (body_gone and record.state(r) <= READY) then
      sound(r)
    elseif r ~= nil and tell("unreadable", id) then
      local running = call("HGET", K.running, id)
      if running then -- its worker is told so when it ends
        effect.all({ effect_ending.salvage(id, call("HGET", K.jobs, id), running, {}) }, {}, "", MADE.unreadable)
      else
        effect_ending.bury_spoilt(id)
      end
      sound(record.load(id))
    end
  end
  return page[1]
end

-- -- running jobs and leases

-- A lease that nothing else ends is over at once.
local function end_lease(token)
  call("ZADD", K.hard_deadlines, base.text(tx.now - (tx.meta("shift") or 0)), token)
end

-- The lease with this token is there and names the job.
local function leased(id, token)
  local lease = call("HGET", K.leases, token)
  lease = lease and settle.lease(lease)
  local named = includes(base.ids(call("GET", K.lease_jobs .. token) or ""), id)
  if not (named and lease) and tell("lease", id) then
    if not named then
      call("APPEND", K.lease_jobs .. token, id)
    end
    settle.put_lease(token, lease and lease[LEASE.session] or "", lease and lease[LEASE.left] or 1)
    if not lease then
      end_lease(token)
    end
  end
end

-- A running job is one that is stored, under a lease that names it. A lease without a holder ends with the next sweep.
function repair.running(cursor, count)
  local page = call("HSCAN", K.running, cursor, "COUNT", count)
  for i = 1, #page[2], 2 do
    local id, running = page[2][i], page[2][i + 1]
    if id ~= "" and (call("HEXISTS", K.jobs, id) == 0 or #running < HOLD.size) then
      if tell(#running < HOLD.size and "lease" or "vanished", id) then
        call("HDEL", K.running, id)
      end
    elseif id ~= "" then
      leased(id, base.text((record.hold(running))))
    end
  end
  return page[1]
end

-- A lease counts what runs under it, and is of a session that is known, or has an end.
function repair.leases(cursor, count)
  local page = call("HSCAN", K.leases, cursor, "COUNT", count)
  for i = 1, #page[2], 2 do
    local token, lease = page[2][i], settle.lease(page[2][i + 1])
    local session, left = lease and lease[LEASE.session] or "", #sessions.jobs({ token }, base.UNLIMITED)
    local kept = call("EXISTS", K.session .. session) == 1 or call("ZSCORE", K.hard_deadlines, token)
    local listed_there = call("SISMEMBER", K.session_leases .. session, token) == 1
    if (not lease or lease[LEASE.left] ~= left or not kept or not listed_there) and tell("lease") then
      settle.put_lease(token, session, left)
      if left > 0 and not kept then
        end_lease(token)
      end
    end
  end
  return page[1]
end

-- Breakers stand in a list, by rank.
local function list_breakers(keys)
  local missing = {}
  for _, key in ipairs(keys) do
    local rank = gates_math.rank(gates.get(key))
    if rank then
      missing[rank .. key] = true
    end
  end
  for _, member in ipairs(call("ZRANGE", K.breakers, 0, -1)) do
    if not missing[member] and tell("unknown") then
      call("ZREM", K.breakers, member)
    end
    missing[member] = nil
  end
  for member in pairs(missing) do
    if tell("unknown") then
      call("ZADD", K.breakers, 0, member)
    end
  end
end

-- Drains and queues with a depth stand in lists of their own, which enqueues and sweeps read.
local function list_gates(keys)
  local draining, bounded = {}, {}
  for _, key in ipairs(keys) do
    local g = gates.get(key)
    draining[key] = g.draining or nil
    bounded[key] = base.begins(key, "queue:") and (g.rule.depth or g.rule.tenant_depth) or nil
  end
  for set, missing in pairs({ [K.draining] = draining, [K.bounded] = bounded }) do
    for _, key in ipairs(call("SMEMBERS", set)) do
      if not missing[key] and tell("unknown") then
        call("SREM", set, key)
      end
      missing[key] = nil
    end
    for key in pairs(missing) do
      if tell("unknown") then
        call("SADD", set, key)
      end
    end
  end
end

-- What running jobs have taken: gate -> slots, and gate \0 token -> true for a probe.
local function taken_of_gates()
  local slots, probes, all = {}, {}, call("HGETALL", K.running)
  for i = 2, #all, 2 do
    local token, _, charges = record.hold(all[i])
    for _, taken in ipairs(all[i - 1] ~= "" and charges or {}) do
      local key = taken[CHARGE.gate]
      slots[key] = (slots[key] or 0) + (taken[CHARGE.slot] and 1 or 0)
      probes[key .. "\0" .. token] = taken[CHARGE.probe] or probes[key .. "\0" .. token]
    end
  end
  return slots, probes
end

-- Gates count the slots that running jobs hold, and wait for probes that run. The answer is key, used, held, stuck 0|1 of each
-- that does not.
function repair.gates()
  local wrong, keys = {}, call("HKEYS", K.gates)
  local slots, probes = taken_of_gates()
  list_gates(keys)
  list_breakers(keys)
  for _, key in ipairs(keys) do
    local g, held = gates.get(key), slots[key] or 0
    local used, probe = g.used or 0, g.probe_token or 0
    local stuck = probe ~= 0 and not probes[key .. "\0" .. probe]
    if used ~= held or stuck then
      wrong[#wrong + 1] = { key, used, held, stuck and 1 or 0 }
      if repair.mend then
        local mended = gates.edit(key)
        mended.used, mended.probe_token = held, not stuck and g.probe_token or nil
      end
    end
  end
  return wrong
end
