-- Applies effects to running jobs: the one way in which a job leaves `running`. An effect is a table with the fields that
-- core/endings/effect.py names and explains; MADE.success and the like are effects that core has made beforehand. A field
-- with the value that core gives it by default is left out: false, none, or what MADE.blank says.

effect = {}

local MOST = 65535 -- what two bytes of a record can count
local MAX_LOST = 10 -- of a job whose policy is not stored
local FOREVER_MS = 4503599627370496 -- for a job that continues only when an event is signalled
local LONGEST_MS = 140737488355328 -- what ends, counted from now, at an instant that can be stored

-- The effect of a success with this result, or none.
function effect.success(result)
  local success = MADE.success
  success.result = result
  return success
end

-- -- what only this step can know

-- The effect with other values in these fields, if there are any.
local function otherwise(e, fields)
  if not fields then
    return e
  end
  local other = setmetatable({}, { __index = e })
  for name, value in pairs(fields) do
    other[name] = value
  end
  return other
end

-- A text of core's with this in the last place that was left for it.
local function filled(text, place, value)
  local before, after = string.match(text, "^(.*)" .. place .. "(.*)$")
  return before and before .. value .. after or text
end

-- A failure whose message has this in that place.
local function saying(failure, place, value)
  return otherwise(failure, { message = filled(failure.message, place, value) })
end

local function max_lost(r)
  local policy = call("HGET", K.policy_limits, r.policy)
  return tonumber(policy and string.match(policy, "^%d+") or MAX_LOST)
end

local function is_own_gate(r, key)
  local lane = lanes.get(r.lane)
  for _, keys in ipairs({ tx.class(lane.kind).gates, lanes.gates(lane) }) do
    for _, own in ipairs(keys) do
      if own == key then
        return true
      end
    end
  end
  return false
end

-- The effect with the answers to what core could not know.
local function resolved(r, e)
  if HAS(r.flags, CANCELLING) then
    return otherwise(e, MADE.stopped[e.if_cancelling or MADE.blank.if_cancelling])
  elseif e.if_lost_too_often and r.lost + 1 >= max_lost(r) then
    local poison = otherwise(e, e.if_lost_too_often)
    poison.failure = saying(poison.failure, "{count}", r.lost + 1)
    return poison
  elseif e.if_foreign_gate and not is_own_gate(r, e.gate) then
    return otherwise(e, e.if_foreign_gate)
  elseif e.if_signalled and notes.has_event(r, e.events) then
    return otherwise(e, e.if_signalled)
  end
  return e
end

-- -- one job

-- The record of the attempt, unless this end leaves none.
local function keep_attempt(s, r, e, reason)
  if e.record == "never" or (e.record == "again" and r.number == 1 and r.lost == 0) then
    return
  end
  r.flags = record.with(r.flags, ATTEMPTS)
  local failure = not e.hides_failure and e.failure
  s.attempts[#s.attempts + 1] = { r.id, effect_ending.attempt(r, r.number, e.word, s.session, failure, e.reason and reason) }
end

-- What is counted about the job.
local function count(r, e)
  if not e.unspent then
    r.attempt = min(r.attempt + 1, MOST)
  end
  if e.lost then
    tx.tally(EVER_LOST)
    r.lost = min(r.lost + 1, MOST)
  end
  if e.held == "more" then
    r.held, r.rare[ADDED.held_since_ms] = min(r.held + 1, MOST), r.rare[ADDED.held_since_ms] or tx.now
  elseif e.held == "none" then
    r.held, r.rare[ADDED.held_since_ms] = 0, nil
  end
end

-- Why the job is where it is now; the answer is its reason.
local function explain(r, e)
  local rare, failure, own = r.rare, e.failure, r.rare[ADDED.reason]
  if e.blame then
    rare[ADDED.reason] = failure and failure.message
    rare[ADDED.cause], rare[ADDED.error_type] = failure and failure.cause, failure and failure.type
  elseif e.reason and not (e.own_reason and own and own ~= "") then
    rare[ADDED.reason] = e.reason ~= "" and e.reason or nil
  end
  return rare[ADDED.reason]
end

-- The job still waits. One that was started once is not cancelled any more for starting late.
local function wait(s, r, e)
  if e.delay_ms then
    r.due = e.delay_ms >= FOREVER_MS and NEVER or tx.now + min(e.delay_ms, LONGEST_MS)
  end
  r.expires = e.unstarted and r.expired ~= nil
  r.rare[ADDED.expires_ms] = r.expires and r.expired or nil
  if e.events then
    s.suspended[#s.suspended + 1] = { r, e.events }
  end
  if e.state == READY then
    local items = base.heap(s.ready, r.lane)
    items[#items + 1] = record.item(r)
  else
    s.scheduled[#s.scheduled + 1] = r
  end
end

-- The job is in this lane from now on ({id, definition, class}, in hex); its queue, task and tenant are the same, and so are their
-- counters. A lane that is not there yet is stored when all is written.
local function relane(s, r, definition)
  local id = base.bytes(definition[1])
  s.lanes[id] = { id, base.bytes(definition[2]), base.bytes(definition[3]) }
  tx.count_lane(r.lane, -1)
  tx.count_lane(id, 1)
  r.lane = id
end

-- The job has ended.
local function finish(s, r, e, queue)
  r.finished = tx.now
  if e.result then
    r.flags = record.with(r.flags, RESULT)
    s.results[#s.results + 1] = r.id
    s.results[#s.results + 1] = e.result
  end
  if e.state == SUCCEEDED then
    local ids = base.heap(s.succeeded, queue)
    ids[#ids + 1] = r.id
    return
  elseif e.state == DEAD then
    s.buried[#s.buried + 1] = { r, e.failure }
  end
  local entries = base.heap(s.filed, e.state .. queue)
  entries[#entries + 1] = "0"
  entries[#entries + 1] = s.instant .. r.id
end

-- Apply an effect that is known to be allowed. `spent`: what the job actually cost (unit -> cost), if that was said. Answers
-- the state that the job is in after it, and the gates at which it failed, or that it held. A record that could not be read
-- goes to the dead letters, whatever became of its run.
function effect.apply(s, r, e, spent)
  if r.spoilt then
    e = MADE.unreadable
  end
  local token, claimed, charges = record.hold(r.running)
  local touched = {}
  settle.leave(s, r.running)
  s.records[#s.records + 1] = r
  r.claimed, r.number, r.expired = claimed, r.attempt + 1, r.rare[ADDED.expires_ms]
  if e.gate then -- what the job was told of a key counts for other jobs, should it stop or not
    give_back.hold(e, token)
    touched[1] = e.gate
  end
  e = resolved(r, e)
  keep_attempt(s, r, e, explain(r, e))
  count(r, e)
  r.state = e.state
  local class, lane = effect_ending.class(r), lanes.get(r.lane)
  if e.lane then
    relane(s, r, e.lane)
  end
  if e.state < RUNNING then
    wait(s, r, e)
    lanes.crowd(lane, 1)
  else
    finish(s, r, e, class.queue)
  end
  tx.move(class, RUNNING, e.state)
  if charges then
    give_back.take(s, charges, token, claimed, e, spent, touched)
  end
  if e.state >= SUCCEEDED then
    tx.ends(r, token)
    if HAS(r.flags, KIDS) or HAS(r.flags, WATCHED) then
      s.ended[#s.ended + 1] = { r, e.state, e.result }
    end
  end
  return e.state, touched
end

-- A running job whose record was removed leaves its lease and its gates.
function effect.vanished(s, id, running, e, spent)
  local token, claimed, charges = record.hold(running)
  settle.leave(s, running)
  s.vanished[#s.vanished + 1] = id
  give_back.take(s, charges or {}, token, claimed, e, spent, {})
end

-- -- writing

local function write_records(s)
  local stored = {}
  for _, r in ipairs(s.records) do
    stored[#stored + 1] = r.id
    stored[#stored + 1] = record.close(r)
    if r.expires then
      call("ZADD", K.expiring, 0, base.b6(r.expired) .. r.id)
    elseif r.expired then
      call("ZREM", K.expiring, base.b6(r.expired) .. r.id)
    end
  end
  base.chunked("HSET", K.jobs, stored)
end

-- Write what was gathered here; the first write only removes.
function effect.write(s)
  local ids = s.vanished
  for _, r in ipairs(s.records) do
    ids[#ids + 1] = r.id
  end
  base.chunked("HDEL", K.running, ids)
  for _, lane in pairs(s.lanes) do
    lanes.remember(unpack(lane))
  end
  for _, each in ipairs(s.buried) do
    effect_ending.bury(each[1], each[2])
  end
  for _, each in ipairs(s.suspended) do
    notes.wait(each[1], each[2])
  end
  write_records(s)
  for _, each in ipairs(s.attempts) do
    call("RPUSH", K.attempts .. each[1], each[2])
  end
  for name, entries in pairs(s.filed) do
    base.chunked("ZADD", K.finished .. name, entries)
  end
  for _, r in ipairs(s.scheduled) do
    lanes_due.schedule(lanes.get(r.lane), record.item(r))
  end
  for lane_id, items in pairs(s.ready) do
    table.sort(items, base.before)
    lanes.add(lanes.get(lane_id), items)
  end
  for _, each in ipairs(s.ended) do
    graph.after_end(each[1], each[2], each[3])
  end
end

-- -- what other modules ask for

-- An effect of core's that leaves room for the name of a session, with that name.
function effect.of_session(e, session)
  local place, too_often = "{session}", e.if_lost_too_often
  e.reason, e.failure = filled(e.reason, place, session), saying(e.failure, place, session)
  too_often.failure = saying(too_often.failure, place, session)
  return e
end

-- Apply one effect to jobs that no worker has settled: their records, and {id, entry in `running`} of jobs without one.
function effect.all(records, vanished, session, e)
  local s = settle.new(session)
  for _, r in ipairs(records) do
    effect.apply(s, r, e)
  end
  for _, each in ipairs(vanished) do
    effect.vanished(s, each[1], each[2], e)
  end
  settle.write(s)
end
