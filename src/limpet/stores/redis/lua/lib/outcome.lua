-- What becomes of a running job: each way in which a hold can end, applied to its record.
-- A transition t has a `kind`, the name of its core record in small letters, and that record's fields; and `spent`, what
-- the job cost in truth (unit -> cost), if that was said. It gets `touched`: the gates at which it failed, or that it held.

outcome = {}

local MOST = 65535 -- what two bytes of a record can count

local function spend(r)
  r.attempt = min(r.attempt + 1, MOST)
end

local function note(s, r, how, failure, message)
  r.flags = record.with(r.flags, ATTEMPTS)
  s.attempts[#s.attempts + 1] = { r.id, ending.attempt(r, r.number, how, s.session, failure, message) }
end

local function finish(s, r, state)
  local queue = ending.class(r).queue
  r.state, r.finished = state, tx.now
  if state == SUCCEEDED then
    local ids = base.heap(s.succeeded, queue)
    ids[#ids + 1] = r.id
  else
    local entries = base.heap(s.filed, state .. queue)
    entries[#entries + 1] = "0"
    entries[#entries + 1] = s.instant .. r.id
  end
  return state
end

-- Whoever was started once is not cancelled any more for starting late.
local function wait_on(s, r, state)
  r.state, r.rare.e = state, nil
  if state == READY then
    local items = base.heap(s.ready, r.lane)
    items[#items + 1] = record.item(r)
  else
    s.scheduled[#s.scheduled + 1] = r
  end
  return state
end

local function bury(s, r, failure)
  note(s, r, "dead", failure)
  s.buried[#s.buried + 1] = { r, failure }
  return finish(s, r, DEAD)
end

local function lose(s, r, reason, proven)
  tx.tally(EVER_LOST)
  r.lost = min(r.lost + 1, MOST)
  local policy = call("HGET", P .. "pm", r.policy)
  local most = tonumber(policy and string.match(policy, "^%d+") or 10)
  if proven or r.lost >= most then
    local words = proven and "proven alone in its process" or "lost " .. r.lost .. " times"
    return bury(s, r, { "lost", "limpet.Poison", reason .. "; " .. words, "", "poison" })
  end
  note(s, r, "lost", { "lost", "limpet.LeaseLost", reason, "", "" })
  r.rare.r = reason
  return wait_on(s, r, READY)
end

local function hold_back(s, r, how, reason)
  note(s, r, how, nil, reason)
  r.held, r.rare.r = min(r.held + 1, MOST), reason
  r.rare.hs = r.rare.hs or tx.now
end

local function put_off(s, r, how, t)
  hold_back(s, r, how, t.reason)
  r.due = tx.now + t.delay_ms
  return wait_on(s, r, SCHEDULED)
end

local function cancelled(s, r, t, reason)
  if t.kind == "lose" then
    tx.tally(EVER_LOST)
    r.lost = min(r.lost + 1, MOST)
  else
    spend(r)
  end
  note(s, r, "cancelled", t.failure, reason)
  r.rare.r = reason
  return finish(s, r, CANCELLED)
end

local apply = {}

function apply.succeed(s, r, t)
  if t.result then
    r.flags = record.with(r.flags, RESULT)
    s.results[#s.results + 1] = r.id
    s.results[#s.results + 1] = t.result
  end
  if r.number > 1 or r.lost > 0 then -- a clean first-try success writes no attempt
    note(s, r, "succeeded")
  end
  spend(r)
  r.rare.r, r.rare.c, r.rare.t = nil, nil, nil
  return finish(s, r, SUCCEEDED)
end

function apply.retryafter(s, r, t)
  note(s, r, "retried", t.failure)
  spend(r)
  r.due = tx.now + t.delay_ms
  r.rare.r, r.rare.c, r.rare.t = t.failure[3], t.failure[5], t.failure[2]
  return wait_on(s, r, t.delay_ms > 0 and SCHEDULED or READY)
end

function apply.bury(s, r, t)
  spend(r)
  return bury(s, r, t.failure)
end

function apply.drop(s, r, t)
  return cancelled(s, r, t, t.reason)
end

function apply.release(s, r, t)
  local expires = r.rare.e
  if t.started then
    note(s, r, "released")
  end
  wait_on(s, r, READY)
  if expires and not t.started then
    r.rare.e, r.expires = expires, true
  end
  return READY
end

function apply.snooze(s, r, t)
  return put_off(s, r, "snoozed", t)
end

function apply.suspend(s, r, t)
  local came = noting.has_event(r, t.events)
  r.rare.r, r.held, r.rare.hs = nil, 0, nil -- it got as far as this
  r.due = came and tx.now or t.delay_ms and tx.now + t.delay_ms or NEVER
  s.suspended[#s.suspended + 1] = { r, not came and t.events or {} }
  return wait_on(s, r, r.due > tx.now and SCHEDULED or READY)
end

function apply.hold(s, r, t)
  local lane = lanes.get(r.lane)
  for _, keys in ipairs({ tx.class(lane.kind).gates, lanes.gates(lane) }) do
    for _, key in ipairs(keys) do
      if key == t.gate then
        hold_back(s, r, "held", t.reason)
        return wait_on(s, r, READY)
      end
    end
  end
  -- The gate holds others, not this job: without a wait of its own it would come back at once.
  return put_off(s, r, "held", t)
end

function apply.lose(s, r, t)
  return lose(s, r, t.reason ~= "" and t.reason or "its worker died", t.proven)
end

-- What an outcome says about the health of what the job depends on.
local function verdict_of(t)
  if t.kind == "succeed" then
    return "ok"
  end
  local kind = (t.kind == "retryafter" or t.kind == "bury") and t.failure[1]
  return (kind == "transient" or kind == "timeout") and "failed" or "neutral"
end

-- True when a gate looks the same after this end, so that it need not be written: most ends under a breaker alone.
local function is_unmoved(found, taken, verdict, real)
  if taken[2] or taken[4] or (real and real ~= (taken[3] or 0)) then
    return false
  end
  local rule = found.rule.breaker
  return not rule or verdict == "neutral" or (verdict == "ok" and not rule.rate and not found.failed_at_ms)
end

local PUTS_OFF = { hold = true, snooze = true, suspend = true, drop = true }

local function give_back(s, charges, token, claimed, t)
  local verdict, unstarted = verdict_of(t), t.kind == "release" and not t.started
  for _, taken in ipairs(charges) do
    local key = taken[1]
    local found = gating.get(key)
    if found and verdict == "failed" and (taken[4] or found.rule.breaker) then
      t.touched[#t.touched + 1] = key
    end
    local real = found and (unstarted and 0 or gate.real_cost(found.rule, t.spent, PUTS_OFF[t.kind] and not t.forced))
    if found and is_unmoved(found, taken, verdict, real) then
      gating.touch(key)
    elseif found then
      gate.give_back(gating.edit(key), taken, token, verdict, unstarted, tx.now, claimed, real, base.heap(s.returned, key))
    end
  end
end

-- A running job whose record somebody has removed leaves its lease and its gates.
function outcome.vanished(s, id, running, t)
  local token, claimed, charges = record.hold(running)
  t.touched = {}
  settling.leave(s, running)
  s.vanished[#s.vanished + 1] = id
  give_back(s, charges or {}, token, claimed, t)
end

-- Apply a transition that is known to be allowed; the state that the job is in after it. A record that could not be read
-- goes to the dead letters, whatever became of its run.
function outcome.one(s, r, t)
  t.touched = {}
  if r.spoilt then
    t = { kind = "bury", failure = ending.UNDECODABLE, spent = t.spent, touched = t.touched }
  end
  local token, claimed, charges = record.hold(r.running)
  settling.leave(s, r.running)
  s.records[#s.records + 1] = r
  r.claimed, r.number, r.expired = claimed, r.attempt + 1, r.rare.e
  if t.kind == "hold" then -- what it was told of a key counts for the others, should it stop or not
    local shut = t.trips and gate.cut_off or gate.push_back
    shut(gating.edit(t.gate), tx.now + t.delay_ms, token, tx.now)
    t.touched[1] = t.gate
  end
  local state
  if t.kind ~= "succeed" and record.has(r.flags, CANCELLING) then
    state = cancelled(s, r, t, r.rare.r or "cancelled")
  else
    state = apply[t.kind](s, r, t)
  end
  tx.move(tx.class(lanes.get(r.lane).kind), RUNNING, state)
  if state < RUNNING then
    lanes.crowd(lanes.get(r.lane), 1)
  end
  if charges then
    give_back(s, charges, token, claimed, t)
  end
  if state >= SUCCEEDED and (record.has(r.flags, KIDS) or record.has(r.flags, WATCHED)) then
    s.ended[#s.ended + 1] = { r, state, t.result }
  end
  return state
end

-- -- writing

-- Write what was gathered here; the first write only removes.
function outcome.write(s)
  local ids, stored = s.vanished, {}
  for _, r in ipairs(s.records) do
    ids[#ids + 1] = r.id
  end
  base.chunked("HDEL", P .. "run", ids)
  for _, each in ipairs(s.buried) do
    ending.bury(each[1], each[2])
  end
  for _, each in ipairs(s.suspended) do
    noting.wait(each[1], each[2])
  end
  for _, r in ipairs(s.records) do
    stored[#stored + 1] = r.id
    stored[#stored + 1] = record.close(r)
    if r.expires then
      call("ZADD", P .. "E", 0, base.b6(r.rare.e) .. r.id)
    elseif r.expired then
      call("ZREM", P .. "E", base.b6(r.expired) .. r.id)
    end
  end
  base.chunked("HSET", P .. "J", stored)
  for _, each in ipairs(s.attempts) do
    call("RPUSH", P .. "at:" .. each[1], each[2])
  end
  for name, entries in pairs(s.filed) do
    base.chunked("ZADD", P .. "F:" .. name, entries)
  end
  for _, r in ipairs(s.scheduled) do
    calendar.schedule(lanes.get(r.lane), record.item(r))
  end
  for lane_id, items in pairs(s.ready) do
    table.sort(items, base.before)
    lanes.add(lanes.get(lane_id), items)
  end
  for _, each in ipairs(s.ended) do
    graph.after_end(each[1], each[2], each[3])
  end
end

-- -- what other rooms ask for

local function all(records, vanished, session, t)
  local s = settling.new(session)
  for _, r in ipairs(records) do
    outcome.one(s, r, t)
  end
  for _, each in ipairs(vanished) do
    outcome.vanished(s, each[1], each[2], t)
  end
  settling.write(s)
end

-- Lost leases: as if each job had been settled with Lose.
function outcome.take_back(records, vanished, session, reason)
  all(records, vanished, session, { kind = "lose", reason = reason, proven = false })
end

-- A session that leaves in order gives back what it holds, unspent.
function outcome.release_all(records, vanished, session)
  all(records, vanished, session, { kind = "release", started = true })
end

-- A forced cancel: the lease is over at once, and its holder's late success is stale.
function outcome.revoke(r, reason)
  r.rare.r = reason -- whatever was said when it was asked to stop
  all({ r }, {}, "", { kind = "drop", reason = reason, forced = true }) -- whoever runs it may spend more
end
