-- The gates that one verb reads and changes, each read once; what waits at them is looked at when the verb ends.

gates = {}
tx.gated = true -- tx.finish settles the gates
local known, changed, touched = {}, {}, {}
local shut = {} -- those that changed and had no room at first: when time alone would have opened them
local before = {} -- those that changed as they were at first, as far as it can be news

-- Read several gates at once.
function gates.load(keys)
  local missing = {}
  for _, key in ipairs(keys) do
    if known[key] == nil then
      missing[#missing + 1] = key
      known[key] = false
    end
  end
  for i, raw in ipairs(base.mget(K.gates, missing)) do
    if raw then
      known[missing[i]] = gates_math.decode(raw, missing[i])
    end
  end
end

-- The gate of that key, or nil.
function gates.get(key)
  if known[key] == nil then
    gates.load({ key })
  end
  return known[key] or nil
end

-- What of a gate can be news, and where a list of breakers has it.
local function facts(g)
  return {
    opened = g.opened, open_until_ms = g.open_until_ms, held_until_ms = g.held_until_ms, last_cut_token = g.last_cut_token,
    period_ms = g.period_ms, spent = g.spent, reserved_for = g.reserved_for, announced_marks = g.announced_marks, rule = g.rule,
    rank = gates_math.rank(g),
  }
end

-- True when a change need not be looked at more closely: most take or give back a slot or a token.
local function is_quiet(was, g)
  return was and not g.rule.cap and was.opened == g.opened and was.open_until_ms == g.open_until_ms
    and was.held_until_ms == g.held_until_ms and was.last_cut_token == g.last_cut_token
end

-- The gate to be changed in place, made when it is missing; lanes that can run because of it are woken at the end.
function gates.edit(key)
  local found = gates.get(key)
  if found and not changed[key] then
    before[key] = facts(found)
    shut[key] = gates_math.room(found, tx.now) <= 0 and (gates_math.opens_at(found, tx.now) or math.huge) or nil
  elseif not found then
    found = { rule = { key = key } }
    known[key] = found
  end
  changed[key], touched[key] = true, true
  return found
end

-- Look again at the end whether lanes that wait at this gate can run.
function gates.touch(key)
  touched[key] = true
end

-- Forget a gate.
function gates.drop(key)
  known[key], changed[key], touched[key] = false, nil, nil
  call("HDEL", K.gates, key)
  call("SREM", K.bounded, key)
  call("ZREM", K.timers, TIMER_GATE .. key)
  gates.file(key, nil)
end

-- Put a breaker where the list of all, worst first, has it; nil takes it off the list.
function gates.file(key, rank)
  if rank then
    call("ZADD", K.breakers, 0, rank .. key)
  end
  for other = OPEN, CLOSED do
    if other ~= rank then
      call("ZREM", K.breakers, other .. key)
    end
  end
end

-- Say when time alone may open a gate that lanes wait at; nil takes it off the list.
function gates.arm(key, opens)
  if opens then
    call("ZADD", K.timers, opens, TIMER_GATE .. key)
  else
    call("ZREM", K.timers, TIMER_GATE .. key)
  end
end

-- When the last of these gates that is shut opens; nil when none is, or time alone does not open them all.
function gates.opens_at(keys)
  local last = nil
  for _, key in ipairs(keys) do
    local found = gates.get(key)
    if found and gates_math.room(found, tx.now) <= 0 then
      local at = gates_math.opens_at(found, tx.now)
      if not at then
        return nil
      end
      last = max(last or at, at)
    end
  end
  return last
end

-- Of the gates that were shut and have changed: {key -> room} of those that are open, {key -> true} of those that are
-- still shut and open sooner than sleeping workers were told.
local function openings()
  local opened, sooner = {}, {}
  for key, was in pairs(shut) do
    local free = gates_math.room(known[key], tx.now)
    if free > 0 then
      opened[key] = min(free, 64)
    elseif (gates_math.opens_at(known[key], tx.now) or math.huge) < was then
      sooner[key] = true
    end
  end
  return opened, sooner
end

-- Write a gate that changed; what of it is news is added to `events`.
local function write(key, body, was, events)
  for _, event in ipairs(is_quiet(was, body) and {} or gates_events.of(was, body, tx.now)) do
    events[#events + 1] = event
  end
  call("HSET", K.gates, key, gates_math.encode(body))
  call(body.draining and "SADD" or "SREM", K.draining, key)
  local rank = gates_math.rank(body)
  if rank ~= (was and was.rank) then
    gates.file(key, rank)
  end
  if base.begins(key, "queue:") then
    call((body.rule.depth or body.rule.tenant_depth) and "SADD" or "SREM", K.bounded, key)
  end
end

-- Write the gates that changed; lanes that can run because of them are woken, the others are timed.
function gates.settle()
  local opened, sooner = openings()
  if next(opened) then
    gates_wait.wake_classes(opened)
  end
  if next(sooner) then
    gates_wait.time_classes(sooner)
  end
  local keys = {}
  for key in pairs(touched) do
    keys[#keys + 1] = key
  end
  table.sort(keys)
  local events = {}
  for _, key in ipairs(keys) do
    if base.begins(key, "limit:") or base.begins(key, "breaker:") then
      local opens = gates_wait.wake(key)
      gates.arm(key, opens)
      if opens and sooner[key] then
        gates_wait.time_lanes(key, opens)
      end
    end
    if changed[key] then
      write(key, known[key], before[key], events)
    end
  end
  if #events > 0 then
    gates_events.log(events)
  end
end
