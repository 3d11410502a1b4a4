-- Applies what became of running jobs whose tokens were compared: reads and decides first, writes at the end.
-- A transition t has a `kind`, the name of its core record in small letters, and that record's fields.

settling = {}

local MOST = 65535 -- what two bytes of a record can count

-- What one settlement has gathered.
function settling.new(session)
  return {
    session = session, instant = base.b6(tx.now),
    leases = {}, -- token (7 bytes) -> {n = jobs that left it}
    -- first tries that simply worked: ids, new records, entries of the finished index by lane, and what is the same for
    -- many of them
    count = 0, ids = {}, stored = {}, clean = {}, starts = {}, running = "", times = "", lease = false, lane = "", entries = false,
    -- all others
    records = {}, filed = {}, ready = {}, scheduled = {}, results = {}, attempts = {}, buried = {}, ended = {},
    queues = {}, -- state .. queue -> {state, queue}: indexes that grew
  }
end

local function heap(of, key)
  local found = of[key]
  if not found then
    found = {}
    of[key] = found
  end
  return found
end

local function leave(s, running)
  local lease = heap(s.leases, sub(running, 1, 7))
  lease.n = (lease.n or 0) + 1
  return lease
end

-- A first try that simply worked: by far the most common end, and no more than a few bytes of its record change. False
-- when there is more to do: it failed or was lost before, is limited, watched, waited for, or has something to forget.
function settling.clean(s, id, running, raw)
  local _, _, high, low, tried, tried_, lost, lost_ = byte(raw, 1, 8)
  if #running > 13 or tried + tried_ + lost + lost_ > 0 or low % 8 > 0 or low % 128 >= RARE then
    return false
  end
  local flags, n = high * 256 + low, s.count
  if running ~= s.running then
    s.running, s.times, s.lease = running, sub(running, 8, 13) .. s.instant, leave(s, running)
  else
    s.lease.n = s.lease.n + 1
  end
  local start = s.starts[flags]
  if not start then
    start = "\1\4" .. char(high, low) .. "\0\1"
    s.starts[flags] = start
  end
  local lane = sub(raw, 29, 36)
  if lane ~= s.lane then
    s.lane, s.entries = lane, heap(s.clean, lane)
  end
  local entries = s.entries
  local size = (entries.n or 0) + 2
  entries[size - 1], entries[size], entries.n = "0", s.instant .. id, size
  s.count = n + 1
  s.ids[n + 1] = id
  s.stored[2 * n + 1], s.stored[2 * n + 2] = id, start .. sub(raw, 7, 44) .. s.times .. sub(raw, 57)
  return true
end

local function spend(r)
  r.attempt = min(r.attempt + 1, MOST)
end

local function note(s, r, outcome, failure, message)
  r.flags = record.with(r.flags, ATTEMPTS)
  s.attempts[#s.attempts + 1] = { r.id, ending.attempt(r, r.number, outcome, s.session, failure, message) }
end

local function finish(s, r, state)
  local queue = tx.class(lanes.get(r.lane).kind).queue
  r.state, r.finished = state, tx.now
  local entries = heap(s.filed, state .. queue)
  entries[#entries + 1] = "0"
  entries[#entries + 1] = s.instant .. r.id
  s.queues[state .. queue] = { state, queue }
  return state
end

-- Whoever was started once is not cancelled any more for starting late.
local function wait_on(s, r, state)
  r.state, r.rare.e = state, nil
  if state == READY then
    local items = heap(s.ready, r.lane)
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
    return bury(s, r, { "lost", "holdfast.Poison", reason .. "; " .. words, "", "poison" })
  end
  note(s, r, "lost", { "lost", "holdfast.LeaseLost", reason, "", "" })
  r.rare.r = reason
  return wait_on(s, r, READY)
end

local function hold_back(s, r, outcome, reason)
  note(s, r, outcome, nil, reason)
  r.held, r.rare.r = min(r.held + 1, MOST), reason
  r.rare.hs = r.rare.hs or tx.now
end

local function put_off(s, r, outcome, t)
  hold_back(s, r, outcome, t.reason)
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

function apply.hold(s, r, t)
  gate.hold(tx.edit(t.gate), tx.now + t.delay_ms)
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
local function is_unmoved(found, taken, verdict, unstarted)
  if taken[2] or taken[4] or (unstarted and (taken[3] or 0) ~= 0) then
    return false
  end
  local rule = found.rule.breaker
  return not rule or verdict == "neutral" or (verdict == "ok" and not rule.rate and not found.failed_at_ms)
end

local function give_back(charges, token, claimed, t)
  local verdict, unstarted = verdict_of(t), t.kind == "release" and not t.started
  for _, taken in ipairs(charges) do
    local key = taken[1]
    local found = tx.gate(key)
    if found and is_unmoved(found, taken, verdict, unstarted) then
      tx.touch(key)
    elseif found then
      gate.give_back(tx.edit(key), taken, token, verdict, unstarted, tx.now, claimed)
    end
  end
end

-- Apply a transition that is known to be allowed; the state that the job is in after it.
function settling.one(s, r, t)
  local token, claimed, charges = record.hold(r.running)
  leave(s, r.running)
  s.records[#s.records + 1] = r
  r.claimed, r.number, r.expired = claimed, r.attempt + 1, r.rare.e
  local state
  if t.kind ~= "succeed" and record.has(r.flags, CANCELLING) then
    state = cancelled(s, r, t, r.rare.r or "cancelled")
  else
    state = apply[t.kind](s, r, t)
  end
  tx.move(tx.class(lanes.get(r.lane).kind), RUNNING, state)
  if charges then
    give_back(charges, token, claimed, t)
  end
  if state >= SUCCEEDED and (record.has(r.flags, KIDS) or record.has(r.flags, WATCHED)) then
    s.ended[#s.ended + 1] = { r, state, t.result }
  end
  return state
end

-- -- writing

local function write_clean(s)
  base.chunked("HDEL", P .. "run", s.ids)
  base.chunked("HSET", P .. "J", s.stored)
  for lane_id, entries in pairs(s.clean) do
    local class = tx.class(lanes.get(lane_id).kind)
    base.chunked("ZADD", P .. "F:" .. SUCCEEDED .. class.queue, entries)
    tx.move(class, RUNNING, SUCCEEDED, #entries / 2)
    s.queues[SUCCEEDED .. class.queue] = { SUCCEEDED, class.queue }
  end
end

local function write_records(s)
  local ids, stored = {}, {}
  for i, r in ipairs(s.records) do
    ids[i] = r.id
  end
  base.chunked("HDEL", P .. "run", ids)
  for _, each in ipairs(s.buried) do
    ending.bury(each[1], each[2])
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
  base.chunked("HSET", P .. "res", s.results)
  for _, each in ipairs(s.attempts) do
    call("RPUSH", P .. "at:" .. each[1], each[2])
  end
  for name, entries in pairs(s.filed) do
    base.chunked("ZADD", P .. "F:" .. name, entries)
  end
end

-- Jobs have left their leases; one that has given up its last is over.
local function write_leases(s)
  for name, gone in pairs(s.leases) do
    local token = base.text((struct.unpack(">I7", name)))
    local raw = call("HGET", P .. "le", token)
    local lease = raw and unpack_(raw)
    if lease and lease[2] > gone.n then
      call("HSET", P .. "le", token, pack({ lease[1], lease[2] - gone.n }))
    elseif lease then
      call("HDEL", P .. "le", token)
      call("DEL", P .. "b:" .. token)
      call("ZREM", P .. "H", token)
      call("SREM", P .. "st:" .. lease[1], token)
    end
  end
end

-- Write what was gathered; the first write only removes. Dependents are moved last, when every parent's record is true.
function settling.write(s)
  if s.count > 0 then
    write_clean(s)
  end
  if #s.records > 0 then
    write_records(s)
  end
  write_leases(s)
  for _, r in ipairs(s.scheduled) do
    lanes.schedule(lanes.get(r.lane), record.item(r))
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

local function all(records, session, t)
  local s = settling.new(session)
  for _, r in ipairs(records) do
    settling.one(s, r, t)
  end
  settling.write(s)
end

-- Lost leases: as if each job had been settled with Lose.
function settling.take_back(records, session, reason)
  all(records, session, { kind = "lose", reason = reason, proven = false })
end

-- A session that leaves in order gives back what it holds, unspent.
function settling.release_all(records, session)
  all(records, session, { kind = "release", started = true })
end

-- A forced cancel: the lease is over at once, and its holder's late success is stale.
function settling.revoke(r, reason)
  r.rare.r = reason -- whatever was said when it was asked to stop
  all({ r }, "", { kind = "drop", reason = reason })
end

-- Write a note of a running job while its token holds; false when it does not.
function settling.save(id, token, kind, name, body)
  local running, raw = call("HGET", P .. "run", id), call("HGET", P .. "J", id)
  if not running or not raw or record.hold(running) ~= token then
    tx.tally(STALE)
    return false
  end
  if byte(raw, 4) % (NOTES * 2) < NOTES then
    call("HSET", P .. "J", id, sub(raw, 1, 3) .. char(byte(raw, 4) + NOTES) .. sub(raw, 5))
  end
  call("HSET", P .. "no:" .. id, kind .. "\0" .. name, body)
  return true
end
