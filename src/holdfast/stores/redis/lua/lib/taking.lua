-- Chooses and takes ready jobs for one claim: best priority first, fair between queues and groups, gates kept.

local MAX_CLAIM = 1024
local MAX_ROUNDS = 256 -- looks at the active lanes within one claim: then "ask again"
local FIRST_PIECE = 4
local SLACK_MS = 30000 -- beyond the hard timeout that the worker itself enforces

taking = {}
local t -- the claim that is being filled

-- Begin: `sig` says what the worker can run, `least` the least urgent priority that it asks for.
function taking.begin(sig, limit, slots, least)
  t = {
    sig = sig, left = min(limit, MAX_CLAIM), slots = slots, least = least,
    rows = {}, leases = {}, tokens = {}, charges = {}, hard = {},
    reopening = nil, -- the earliest instant at which a shut class may go on
    skipped = {}, -- classes that give nothing to this claim
    skipped_lanes = {}, skipped_count = 0,
    floors = {}, -- class -> priority below which it has given all it can
    serves = {}, cut = false,
  }
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
local function class_gates(class)
  if not class.found then
    class.found = {}
    tx.load_gates(class.gates)
    for _, key in ipairs(class.gates) do
      class.found[#class.found + 1] = tx.gate(key)
    end
  end
  return class.found
end

-- All existing gates of a lane: those of its class, then its own.
local function gates_of(lane)
  local class = tx.class(lane.kind)
  if not lane.keyed then
    return class_gates(class)
  end
  if not lane.found then
    lane.found = {}
    for _, found in ipairs(class_gates(class)) do
      lane.found[#lane.found + 1] = found
    end
    tx.load_gates(lanes.gates(lane))
    for _, key in ipairs(lanes.gates(lane)) do
      lane.found[#lane.found + 1] = tx.gate(key)
    end
  end
  return lane.found
end

local function room_of(gates)
  local free = LOTS
  for _, each in ipairs(gates) do
    free = min(free, gate.room(each, tx.now))
  end
  return free
end

-- Jobs under a limit are never held ahead of time.
local function must_start(class)
  if class.starts == nil then
    class.starts = class.limited or class.keyed
    for _, each in ipairs(class_gates(class)) do
      class.starts = class.starts or each.rule.concurrency ~= nil or each.rule.interval_us ~= nil
    end
  end
  return class.starts
end

local function class_is_open(class)
  local shut, at = false, 0
  for _, each in ipairs(class_gates(class)) do
    if gate.room(each, tx.now) <= 0 then
      shut = true
      local opens = gate.opens_at(each, tx.now)
      at = opens and at and max(at, opens) or nil
    end
  end
  if not shut and (t.slots > 0 or not must_start(class)) then
    return true
  end
  t.skipped[class.kind] = true
  if shut and at then
    t.reopening = min(t.reopening or at, at)
  end
  return false
end

-- The lanes of these classes at one priority that were not met before.
local function unmet(entries, prio)
  local found, horizons, asked = {}, {}, t.left + t.skipped_count + 1
  for _, entry in ipairs(entries) do
    local ring = sub(entry, 2, 9)
    local line, last = lanes.line(sub(entry, 10, 17), prio, asked)
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

-- Active lanes of the best priority that has any for this worker.
local function candidates()
  local entries = call("ZRANGE", P .. "act", 0, -1)
  learn(entries)
  local i = 1
  while entries[i] do
    local prio, open = byte(entries[i], 1), {}
    if prio > t.least then
      return {}
    end
    while entries[i] and byte(entries[i], 1) == prio do
      local kind = sub(entries[i], 10, 17)
      if t.serves[kind] and not t.skipped[kind] and prio >= (t.floors[kind] or 0) and class_is_open(tx.class(kind)) then
        open[#open + 1] = entries[i]
      end
      i = i + 1
    end
    if #open > 0 then
      local found = unmet(open, prio)
      if #found > 0 then
        return found, prio
      end
      for _, entry in ipairs(open) do
        t.floors[sub(entry, 10, 17)] = prio + 1
      end
    end
  end
  return {}
end

-- -- taking

local function skip_lane(id)
  if not t.skipped_lanes[id] then
    t.skipped_lanes[id] = true
    t.skipped_count = t.skipped_count + 1
  end
end

-- A lane stopped by a gate of its own waits there; the others it passed are looked at again.
local function park(lane)
  skip_lane(lane.id)
  for _, key in ipairs(lanes.gates(lane)) do
    local found = tx.gate(key)
    if found and gate.room(found, tx.now) <= 0 then
      lanes.park(lane, key)
      lanes.wake_now(lanes.gates(lane))
      return
    end
  end
  t.skipped[lane.kind] = true
end

-- How many jobs of a lane may be looked at; 0 when a gate or the want of a slot stops it.
local function allowance(lane, count)
  local free = room_of(gates_of(lane))
  if free <= 0 then
    park(lane)
    return 0
  end
  local asked = min(count, free)
  if must_start(tx.class(lane.kind)) then
    asked = min(asked, t.slots)
  end
  if asked <= 0 then -- no slot is left for it: that says nothing about what the lane holds
    skip_lane(lane.id)
  end
  return asked
end

-- The lane is empty: it rests, and a wake that it was given for nothing is passed on.
local function rest(lane)
  lanes.rest(lane)
  skip_lane(lane.id)
  lanes.wake_now(lanes.gates(lane))
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
      local taken = gate.charge(tx.edit(rule.key), costs, rows[1].lease.token, tx.now)
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
local function start(lane, rows)
  local class, usable, slots = tx.class(lane.kind), {}, t.slots
  for _, row in ipairs(rows) do
    if row.raw then
      local leaves = front.leaves(row, lane)
      if not leaves and row.lost > 0 and slots <= 0 then
        row.stays = true -- a suspect is started at once or not taken at all
        skip_lane(lane.id)
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
  if must_start(class) then
    admitted = min(admitted, t.slots)
  end
  if admitted < #usable then
    if admitted <= 0 then
      skip_lane(lane.id)
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
  t.slots = t.slots - (must_start(class) and admitted or suspects)
  tx.move(class, READY, RUNNING, admitted)
  return admitted
end

-- Take up to `count` jobs of one lane.
local function take_lane(lane, count)
  local asked = allowance(lane, count)
  if asked <= 0 then
    return 0
  end
  local rows, all = front.seen(lane, asked)
  local taken = #rows > 0 and start(lane, rows) or 0
  if all and lanes.empty(lane) then
    rest(lane)
  end
  return taken
end

-- A stream gives the rows of one lane in order, read in growing pieces: with many lanes most need only their first.
local function refill(stream)
  local size = min(stream.size, stream.most)
  local rows, all = front.read(stream.lane, size)
  stream.rows, stream.all, stream.size = rows, all, stream.size * 4
end

local function head(stream)
  local row = stream.rows[stream.at]
  if not row and not stream.all and #stream.rows < stream.most then
    refill(stream)
    row = stream.rows[stream.at]
  end
  if not row then
    return false
  end
  stream.due, stream.seq = struct.unpack(">I6I6", row.item)
  return true
end

local function sooner(a, b)
  return a.due < b.due or (a.due == b.due and a.seq < b.seq)
end

-- Keep the heap in order after its first element has changed.
local function sift(heap)
  local at, size = 1, #heap
  while true do
    local least = at
    for child = 2 * at, min(2 * at + 1, size) do
      if sooner(heap[child], heap[least]) then
        least = child
      end
    end
    if least == at then
      return
    end
    heap[at], heap[least], at = heap[least], heap[at], least
  end
end

-- Take up to `count` jobs of one member, in order of (due, arrival) across its lanes; how many it was.
local function take(members_lanes, count)
  if #members_lanes == 1 then
    return take_lane(lanes.get(members_lanes[1].id), count)
  end
  local heap, streams = {}, {}
  for _, each in ipairs(members_lanes) do
    local lane = lanes.get(each.id)
    local most = allowance(lane, count)
    if most > 0 then
      local stream = { lane = lane, most = most, size = FIRST_PIECE, at = 1, rows = {}, chosen = 0 }
      streams[#streams + 1] = stream
      if head(stream) then
        heap[#heap + 1] = stream
      end
    end
  end
  table.sort(heap, sooner)
  for _ = 1, count do
    local stream = heap[1]
    if not stream then
      break
    end
    stream.chosen, stream.at = stream.chosen + 1, stream.at + 1
    if not head(stream) then
      heap[1] = heap[#heap]
      heap[#heap] = nil
    end
    sift(heap)
  end
  local first, taken = #t.rows + 1, 0
  for _, stream in ipairs(streams) do
    local chosen = {}
    for i = 1, stream.chosen do
      chosen[i] = stream.rows[i]
    end
    local given = #chosen > 0 and start(stream.lane, chosen) or 0
    if given > 0 and stream.lane.multi then
      call("ZADD", P .. "A:" .. stream.lane.kind .. stream.lane.member, "XX", tx.now, stream.lane.id)
    end
    if stream.all and lanes.empty(stream.lane) then
      rest(stream.lane)
    end
    taken = taken + given
  end
  local mine = {}
  for i = first, #t.rows do
    mine[#mine + 1] = t.rows[i]
  end
  table.sort(mine, function(a, b)
    return base.before(a.item, b.item)
  end)
  for i, row in ipairs(mine) do
    t.rows[first + i - 1] = row
  end
  return taken
end

-- -- sharing

local function by(list, field)
  local groups, order = {}, {}
  for _, each in ipairs(list) do
    local key = each[field]
    if not groups[key] then
      groups[key] = {}
      order[#order + 1] = key
    end
    local group = groups[key]
    group[#group + 1] = each
  end
  return groups, order
end

-- Members or rings in the order of their turns, with what their turns are worth.
local function ring_of(ids, name_of)
  local ring = {}
  tx.load_turns(ids)
  for i, id in ipairs(ids) do
    local turn, weight = tx.turn(id) or { turn = 0, left = 1 }, tx.weight(name_of(id))
    ring[i] = { member = id, turn = turn.turn, left = max(1, min(turn.left, weight)), weight = weight, at = i }
  end
  table.sort(ring, function(a, b)
    return a.turn < b.turn or (a.turn == b.turn and a.at < b.at)
  end)
  return ring
end

-- Who has had its turn goes to the end; what was moved is answered as turn, member, turn, member…
local function advance(ring, served)
  local moves = {}
  for _, place in ipairs(fair.places(ring, served)) do
    local turn = tx.turn(place.member)
    if turn then
      local at, n = turn.turn, #moves
      if place.moves then
        at = tx.next_turn()
        moves[n + 1], moves[n + 2] = at, place.member
      end
      tx.put_turn(place.member, { turn = at, left = place.left, seats = turn.seats })
    end
  end
  return moves
end

-- How much may be shared at once: when a gate leaves less than is asked, everyone gets a part of that.
local function scarce(list, count)
  local most, least, seen = 0, count, {}
  for _, each in ipairs(list) do
    if not seen[each.kind] then
      seen[each.kind] = true
      local class = tx.class(each.kind)
      local free = room_of(class_gates(class))
      if must_start(class) then
        free = min(free, t.slots)
      end
      most, least = max(most, free), min(least, free)
    end
  end
  return most < count and max(1, least) or count
end

local function take_from_ring(list, count, prio)
  local members, ids = by(list, "member")
  local ring = ring_of(ids, function(id)
    return tx.weighed ~= false and lanes.group(lanes.get(members[id][1].id)) or ""
  end)
  local given = fair.share(scarce(list, count), ring)
  local first, served, total, parts, longest, ahead = #t.rows, {}, 0, {}, 0, {}
  for i, turn in ipairs(ring) do
    local own = members[turn.member]
    if given[i] > 0 and #own == 1 and not lanes.get(own[1].id).keyed then
      ahead[#ahead + 1] = { lane = lanes.get(own[1].id), n = given[i] }
    end
  end
  front.look(ahead)
  for i, turn in ipairs(ring) do
    local before = #t.rows
    served[i] = given[i] > 0 and take(members[turn.member], given[i]) or 0
    total = total + served[i]
    parts[i] = { at = before, size = #t.rows - before }
    longest = max(longest, parts[i].size)
  end
  if #ring > 1 then
    -- One of each in turn, so that nobody's jobs wait behind a whole share of another's.
    local mixed = {}
    for n = 1, longest do
      for _, part in ipairs(parts) do
        if n <= part.size then
          mixed[#mixed + 1] = t.rows[part.at + n]
        end
      end
    end
    for i, row in ipairs(mixed) do
      t.rows[first + i] = row
    end
  end
  if #ring > 1 or t.cut then
    lanes.move_seats(list[1].ring, prio, advance(ring, served))
  end
  return total
end

local function take_fairly(list, prio)
  local rings, ids = by(list, "ring")
  local ring = ring_of(ids, function(id)
    return "queue:" .. tx.class(rings[id][1].kind).queue
  end)
  local given, served = fair.share(scarce(list, t.left), ring), {}
  for i, turn in ipairs(ring) do
    served[i] = given[i] > 0 and take_from_ring(rings[turn.member], given[i], prio) or 0
  end
  if #ring > 1 then
    advance(ring, served)
  end
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
    if #list == 1 and not t.cut then
      take_lane(lanes.get(list[1].id), t.left)
    else
      take_fairly(list, prio)
    end
  end
  return t.left > 0
end

-- -- the lease

-- Write the leases that cover all that was taken.
function taking.lease(session)
  local running = {}
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
