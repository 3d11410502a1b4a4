-- Promise: the arithmetic of core/gate, number for number; functions that change a gate do so in place. One file for each
--   mechanism, as in core; here is what they do together.
-- Inputs: a gate is the map of core.gate.Gate with its field names (rule nested); a field left out has its default.
--         A charge is the array {gate, slot, cost, probe}. Verdicts are "ok", "failed", "neutral".
-- Answer: numbers below 2^53, where doubles are integers and floor(a / b) is exact; whether a gate changed.
gates_math = {UNLIMITED = 2 ^ 30, FOREVER_MS = 2 ^ 52, MOST = 2 ^ 53 - 1}
do
  local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
  local UNLIMITED = gates_math.UNLIMITED
  local MOST = gates_math.MOST -- where counting ends: a sum or a product that is larger is inexact, but never smaller than this
  local FULL_PACE = 1000 -- the pace of a gate without a pushback; paces are thousandths of it

  -- Part: gate/stop

  -- Part: gate/pace

  -- Part: gate/slots

  -- Part: gate/bucket

  -- Part: gate/budget

  -- Part: gate/breaker

  -- How many jobs of cost 1 the gate admits now; UNLIMITED when it has no say. May be below zero under a debt.
  function gates_math.room(g, now)
    if is_stopped(g, now) then return 0 end
    return min(slot_room(g, now), rate_room(g, now), budget_room(g, now), breaker_room(g, now))
  end

  -- Whether no job passes, whatever the numbers say: it is paused or held, or its breaker is open.
  function gates_math.is_shut(g, now)
    return is_stopped(g, now) or is_open(g, now)
  end

  -- Whether the gate counts the jobs that pass: they are never held ahead of time.
  function gates_math.is_counting(g, now)
    return (g.rule.interval_us or g.rule.cap or gates_math.max_concurrency(g, now)) ~= nil
  end

  local OPENINGS = {stop_opens_at, slot_opens_at, rate_opens_at, budget_opens_at, breaker_opens_at}

  -- When a shut gate may admit again by the passing of time alone; nil when only an event can open it.
  function gates_math.opens_at(g, now)
    local latest = now
    for n = 1, #OPENINGS do
      local at = OPENINGS[n](g, now)
      if not at then return nil end
      latest = max(latest, at)
    end
    return latest
  end

  -- How many jobs from the front of `costs` pass: each needs one whole token of a rate, where the last may leave a
  -- debt, and all that it costs of a budget.
  function gates_math.admits(g, costs, now)
    local count, rule = max(0, min(gates_math.room(g, now), #costs)), g.rule
    if rule.interval_us then count = admitted_by_rate(g, costs, count, now) end
    if rule.cap then count = admitted_by_budget(g, costs, count, now) end
    return count
  end

  -- Take what `costs` need. Answers one charge per job (none when nothing is counted), and whether the gate changed.
  function gates_math.charge(g, costs, token, now)
    local rule, count = g.rule, #costs
    local slot, probe = gates_math.max_concurrency(g, now) ~= nil, (g.open_until_ms or 0) ~= 0
    local counted = rule.interval_us ~= nil or rule.cap ~= nil
    if count == 0 or not (slot or probe or counted or rule.breaker) then return {}, false end
    local charges, sum = {}, 0
    for n = 1, count do
      sum = sum + costs[n]
      charges[n] = {rule.key, slot, counted and costs[n] or 0, probe}
    end
    if rule.interval_us then take_tokens(g, sum, now) end
    if slot then g.used = (g.used or 0) + count end
    if probe then g.probe_token = token end
    reserve(g, sum, 0, now)
    return charges, slot or probe or counted
  end

  -- What a job cost at a gate by its own account (unit -> cost, or nil); nil: what it had reserved stands. One that was
  -- put off (`unfinished`) will reserve again, so the budget is refunded the part that it did not report as spent.
  function gates_math.reported_cost(rule, spent, unfinished)
    local said = spent and spent[rule.unit or ""]
    if said == nil and unfinished and rule.cap then return 0 end
    return said
  end

  -- A job that was charged `taken` has ended; `charged_at` may be nil. Answers whether the gate changed.
  -- Slots always return; what was counted stays, unless the job never started or its actual cost is known. `refunded`:
  -- what jobs of the same settlement have returned to the rate, to which this one adds.
  function gates_math.give_back(g, taken, token, verdict, unstarted, now, charged_at, actual_cost, refunded)
    local slot, cost, probe = taken[2], taken[3] or 0, taken[4]
    local changed = false
    if slot and (g.used or 0) > 0 then
      g.used, changed = g.used - 1, true
    end
    if unstarted then actual_cost = 0 end
    if actual_cost then
      charged_at = charged_at or now
      changed = correct_tokens(g, cost, actual_cost, now, charged_at, refunded or {}) or changed
      changed = correct_budget(g, cost, actual_cost, charged_at) or changed
    end
    if probe and (g.probe_token or 0) == token then
      end_probe(g, verdict, now)
      return true
    end
    return gates_math.learn(g, verdict, now) or changed
  end

  -- A provider pushed back the job under `token`: the gate is held, and goes slower after that.
  -- A rate begins again with one token, a ceiling with one job, and so does a gate without numbers; all climb.
  function gates_math.push_back(g, until_ms, token, now)
    local rule = g.rule
    hold(g, until_ms)
    if rule.interval_us then g.full_at_us = max(g.full_at_us or 0, one_token_left(rule, g.held_until_ms)) end
    slow_down(g, token, now)
  end

  -- True when forgetting the gate changes nothing, so that a janitor may delete it.
  function gates_math.is_blank(g, now)
    return not is_stopped(g, now) and not g.draining and g.declared ~= false and (g.used or 0) == 0
      and (g.open_until_ms or 0) == 0 and (g.full_at_us or 0) <= now * 1000 and budget_is_blank(g, now)
      and (g.ceiling or FULL_PACE) == FULL_PACE and gates_math.pace(g, now) == FULL_PACE and not remembers(g, now)
  end

  -- An operator has opened the gate: nothing holds or slows it any more.
  local function open_again(g, now)
    local rule = g.rule
    if rule.interval_us then -- one job may go at once, however far the rate was pushed back
      g.full_at_us, g.rule_changed_at_ms = min(g.full_at_us or 0, one_token_left(rule, now)), now
    end
    gates_math.reset(g)
    g.held_until_ms, g.reserved_for, g.pace, g.paced_at_ms, g.ceiling, g.last_cut_token = nil, nil, nil, nil, nil, nil
  end

  -- The gate after an operator's word: `change` is the map of core.gate.GateChange, `g` nil for a gate not there yet.
  function gates_math.change(g, change, now)
    g = g or {rule = {key = change.key}}
    if change.clear then g.declared = nil end
    if change.rule and (g.declared ~= false or not change.declared) then
      if g.rule.interval_us or g.rule.cap then g.rule_changed_at_ms = now end -- or else no job was charged
      g.full_at_us = full_at(g, change.rule, now)
      g.rule, g.declared, g.reserved_for = change.rule, change.declared or false, nil
    end
    if change.pause then g.paused = change.pause end
    if change.resume then g.paused, g.draining = nil, nil end
    if change.drain ~= nil then g.draining = change.drain end
    if change.hold_ms then hold(g, now + change.hold_ms) end
    if change.ceiling then g.ceiling = max(1, min(FULL_PACE, change.ceiling)) end
    if change.trip_ms then
      gates_math.trip(g, min(gates_math.FOREVER_MS, now + change.trip_ms))
      g.by_hand = true
    end
    if change.reset then open_again(g, now) end
    return g
  end

  -- What a gate is: its fields with their types (core/gate/record.py).
  local TYPES = {
    rule = "table", declared = "boolean", paused = "table", draining = "boolean", used = "number",
    full_at_us = "number", held_until_ms = "number", failed_at_ms = "table", calls = "table",
    open_until_ms = "number", probe_token = "number", opened = "number", pace = "number", paced_at_ms = "number",
    ceiling = "number", last_cut_token = "number", period_ms = "number", spent = "number", reserved_for = "number",
    rule_changed_at_ms = "number", announced_marks = "number", by_hand = "boolean"
  }
  local RULE_TYPES = {
    key = "string", concurrency = "number", interval_us = "number", burst = "number", breaker = "table",
    default_for_429 = "boolean", unit = "string", floor = "number", climb_ms = "number", cap = "number", period = "string",
    depth = "number", tenant_depth = "number"
  }
  local BREAKER_TYPES = {
    failures = "number", within_ms = "number", cooldown_ms = "number", probe_after_ms = "number", rate = "number",
    min_calls = "number"
  }
  -- Numbers begin at 0, and yes or no with no, unless it is said here; fields of a rule that are not here have no default.
  local DEFAULTS = {declared = true, pace = FULL_PACE, ceiling = FULL_PACE}
  local ZEROS = {number = 0, boolean = false}
  local RULE_DEFAULTS = {burst = 1, default_for_429 = false, unit = "", climb_ms = 60000}
  local BREAKER_DEFAULTS = {
    failures = 5, within_ms = 60000, cooldown_ms = 60000, probe_after_ms = 60000, min_calls = 20
  }

  local function fits(map, types)
    for name, value in pairs(map) do
      local wanted = types[name]
      if wanted and type(value) ~= wanted then return false end
    end
    return true
  end

  local function numbers(list)
    for n = 1, #list do
      if type(list[n]) ~= "number" then return false end
    end
    return true
  end

  local function sound(g)
    if type(g) ~= "table" or not fits(g, TYPES) then return false end
    local rule = g.rule
    if not rule or not fits(rule, RULE_TYPES) or not rule.key then return false end
    if rule.breaker and not fits(rule.breaker, BREAKER_TYPES) then return false end
    if rule.period and not gates_period.is_known(rule.period) then return false end
    if g.failed_at_ms and not numbers(g.failed_at_ms) then return false end
    return not g.calls or (#g.calls == 4 and numbers(g.calls))
  end

  -- A stored gate; one that cannot be read admits no job until an operator sets it again, and says why.
  function gates_math.decode(bytes, key)
    local ok, g, more = pcall(cmsgpack.unpack, bytes)
    if ok and more == nil and sound(g) then return g end
    local reason = "its record cannot be decoded"
    return {rule = {key = key}, declared = false, paused = {by = "limpet", reason = reason, at_ms = 0}}
  end

  -- The known fields of a map that differ from their defaults.
  local function differing(map, types, defaults, zeros)
    local kept = {}
    for name, kind in pairs(types) do
      local value, default = map[name], defaults[name]
      if default == nil then default = zeros and zeros[kind] end
      if value ~= nil and value ~= default then kept[name] = value end
    end
    return kept
  end

  -- Equal, when a field left out has its default.
  local function alike(a, b, types, defaults)
    for name, kind in pairs(types) do
      if kind ~= "table" then
        local x, y = a[name], b[name]
        if x == nil then x = defaults[name] end
        if y == nil then y = defaults[name] end
        if x ~= y then return false end
      end
    end
    return true
  end

  -- Whether two rules say the same.
  function gates_math.same_rule(a, b)
    if not alike(a, b, RULE_TYPES, RULE_DEFAULTS) or (a.breaker == nil) ~= (b.breaker == nil) then return false end
    return a.breaker == nil or alike(a.breaker, b.breaker, BREAKER_TYPES, BREAKER_DEFAULTS)
  end

  -- The bytes to store: msgspec.msgpack reads them as a Gate.
  function gates_math.encode(g)
    local map, breaker, calls = differing(g, TYPES, DEFAULTS, ZEROS), g.rule.breaker, g.calls
    map.rule = differing(g.rule, RULE_TYPES, RULE_DEFAULTS)
    if breaker then
      map.rule.breaker = differing(breaker, BREAKER_TYPES, BREAKER_DEFAULTS)
      -- cmsgpack writes an empty table as an array, which is no rule in Python: `failures` is always said.
      map.rule.breaker.failures = breaker.failures or 5
    end
    if g.failed_at_ms and #g.failed_at_ms == 0 then map.failed_at_ms = nil end
    if calls and calls[1] == 0 and calls[2] == 0 and calls[3] == 0 and calls[4] == 0 then map.calls = nil end
    return cmsgpack.pack(map)
  end
end
