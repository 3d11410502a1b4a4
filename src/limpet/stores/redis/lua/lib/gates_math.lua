-- Promise: the arithmetic of core/gate, number for number; functions that change a gate do so in place.
-- Inputs: a gate is the map of core.gate.Gate with its field names (rule nested); a field left out has its default.
--         A charge is the array {gate, slot, cost, probe}. Verdicts are "ok", "failed", "neutral".
-- Answer: numbers below 2^53, where doubles are integers and floor(a / b) is exact; whether a gate changed.
gates_math = {UNLIMITED = 2 ^ 30, FOREVER_MS = 2 ^ 52, MOST = 2 ^ 53 - 1}
do
  local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
  local MOST = gates_math.MOST -- where counting ends: a sum or a product that is larger is inexact, but never smaller than this
  local TWENTY_BITS = 2 ^ 20
  local FULL_PACE = 1000 -- the pace of a gate that was not slowed down; paces are thousandths of it
  local RAMP_MS = 10000 -- how long a ceiling takes to come back after pushback
  local RAMP_JOBS = 20 -- concurrent jobs that a gate without numbers climbs to, before it stops counting

  -- How long the gate would take from a standstill to its full pace.
  local function climb_ms(rule)
    return rule.floor and (rule.climb_ms or 60000) or RAMP_MS
  end

  -- How fast the gate goes now, in thousandths: it climbs evenly from its pace at the last pushback.
  function gates_math.pace(g, now)
    local rule = g.rule
    local climbed = (g.pace or FULL_PACE) + floor(max(0, now - (g.paced_at_ms or 0)) * FULL_PACE / climb_ms(rule))
    if rule.floor then climbed = max(rule.floor, min(g.ceiling or FULL_PACE, climbed)) end
    return min(FULL_PACE, climbed)
  end

  -- `count` at this pace; a product would be too large.
  local function at_pace(count, thousandths)
    return floor(count / FULL_PACE) * thousandths + floor(count % FULL_PACE * thousandths / FULL_PACE)
  end

  -- How many jobs may run at once when the gate goes at its full pace; nil when it does not count. A gate without
  -- numbers counts starts only while it climbs after pushback.
  function gates_math.max_concurrency(g, now)
    local rule = g.rule
    if rule.concurrency or rule.interval_us or rule.cap then return rule.concurrency end
    return (g.pace or FULL_PACE) < FULL_PACE and gates_math.pace(g, now) < FULL_PACE and RAMP_JOBS or nil
  end

  -- Whether the gate counts the jobs that pass: such jobs are never claimed ahead of time.
  function gates_math.is_counting(g, now)
    return (g.rule.interval_us or g.rule.cap or gates_math.max_concurrency(g, now)) ~= nil
  end

  -- How many jobs may run at once, at the pace that the gate goes now: one, unless none ever may.
  function gates_math.slots(g, now)
    local most = gates_math.max_concurrency(g, now) or 0
    return max(min(1, most), at_pace(most, gates_math.pace(g, now)))
  end

  -- What a token is worth at a rate, in thousandths: less while an adaptive gate goes slower.
  local function pace_factor(g, now)
    return g.rule.floor and max(1, gates_math.pace(g, now)) or FULL_PACE
  end

  -- How long what a job of cost 1 takes of the rate needs to come back.
  local function token_us(g, now)
    local interval, worth = g.rule.interval_us, pace_factor(g, now)
    return min(MOST, floor(interval / worth) * FULL_PACE + ceil(interval % worth * FULL_PACE / worth)) -- the product is too large
  end

  -- When `count` tokens have come back, from `from` on; at most the largest number that can be stored.
  local function later(from, count, interval)
    return min(MOST, from + count * interval)
  end

  -- What such a job was charged then, or less: the pace before a cut, or under a ceiling, is not known. Nothing when the
  -- rule was changed since: this bucket was not charged, and others would start on what came back.
  local function charged_token_us(g, charged_at)
    if charged_at <= (g.rule_changed_at_ms or 0) then return 0 end
    if charged_at <= (g.paced_at_ms or 0) then return g.rule.interval_us end
    return token_us({rule = g.rule, pace = g.pace, paced_at_ms = g.paced_at_ms}, charged_at)
  end

  -- How many jobs of cost 1 the rate admits now: each of an adaptive gate that goes slower takes more of a token.
  local function rate_room(g, now)
    local whole = gates_math.tokens(g, now)
    return whole < 1 and whole or at_pace(whole - 1, pace_factor(g, now)) + 1
  end

  -- When the gate goes that fast, if there is no further pushback.
  local function climbed_at(g, to)
    return (g.paced_at_ms or 0) + ceil((to - (g.pace or FULL_PACE)) * climb_ms(g.rule) / FULL_PACE)
  end

  -- Whether the period that is counted is the one that it is now, or a later one: no clock that goes back refills.
  local function is_current(g, now)
    local name = g.rule.period
    return name ~= nil and (g.period_ms or 0) >= gates_period.began(name, now)
  end

  -- What is left of the budget in the current period; below zero when jobs cost more than they had reserved.
  function gates_math.budget_left(g, now)
    local cap = g.rule.cap
    if not cap then return gates_math.UNLIMITED end
    return cap - (is_current(g, now) and g.spent or 0)
  end

  -- What is left, unless a job waits for more than that: smaller jobs cannot starve a large one.
  local function budget_room(g, now)
    local free, wanted = gates_math.budget_left(g, now), is_current(g, now) and g.reserved_for or 0
    return free >= wanted and free or 0
  end

  -- How many jobs of cost 1 the gate admits now; UNLIMITED when it has no say. May be below zero under a debt.
  function gates_math.room(g, now)
    if g.paused or (g.held_until_ms or 0) > now then return 0 end
    local rule, free = g.rule, gates_math.UNLIMITED
    if gates_math.max_concurrency(g, now) then free = min(free, max(0, gates_math.slots(g, now) - (g.used or 0))) end
    if rule.interval_us then free = min(free, rate_room(g, now)) end
    if rule.cap then free = min(free, budget_room(g, now)) end
    local open_until = g.open_until_ms or 0
    if open_until ~= 0 then
      local shut = open_until > now or (g.probe_token or 0) ~= 0
      free = min(free, shut and 0 or 1)
    end
    return free
  end

  -- Whether no job passes, whatever the numbers say: it is paused or held, or its breaker is open.
  function gates_math.is_shut(g, now)
    local open_until = g.open_until_ms or 0
    local is_open = open_until > now or (open_until ~= 0 and (g.probe_token or 0) ~= 0)
    return is_open or g.paused ~= nil or (g.held_until_ms or 0) > now
  end

  -- Whole tokens in the rate bucket now; below zero while a costly job is being paid off.
  function gates_math.tokens(g, now)
    local interval = g.rule.interval_us
    if not interval then return gates_math.UNLIMITED end
    local debt = max(0, (g.full_at_us or 0) - now * 1000)
    return (g.rule.burst or 1) - ceil(debt / interval)
  end

  -- When a shut gate may admit again by the passing of time alone; nil when only an event can open it.
  function gates_math.opens_at(g, now)
    if g.paused then return nil end
    local rule, at = g.rule, max(now, g.held_until_ms or 0)
    local most = gates_math.max_concurrency(g, now)
    if most and (g.used or 0) >= gates_math.slots(g, now) then
      local wanted = ceil(((g.used or 0) + 1) * FULL_PACE / most)
      if not rule.concurrency then wanted = min(FULL_PACE, wanted) end -- then it does not count
      if wanted > FULL_PACE or (rule.floor and wanted > max(rule.floor, g.ceiling or FULL_PACE)) then return nil end
      at = max(at, climbed_at(g, wanted))
    end
    local open_until = g.open_until_ms or 0
    if open_until ~= 0 then
      if (g.probe_token or 0) ~= 0 or open_until >= gates_math.FOREVER_MS then return nil end
      at = max(at, open_until)
    end
    if rule.interval_us then
      local one_token = (g.full_at_us or 0) - ((rule.burst or 1) - 1) * rule.interval_us
      at = max(at, ceil(one_token / 1000))
    end
    if rule.period and budget_room(g, now) <= 0 then
      at = max(at, gates_period.ends(rule.period, max(now, g.period_ms or 0)))
    end
    return at
  end

  -- How many jobs from the front of `costs` pass: each needs one whole token of a rate, where the last may leave a
  -- debt, and all that it costs of a budget.
  function gates_math.admits(g, costs, now)
    local limit, rule = min(gates_math.room(g, now), #costs), g.rule
    local rated, capped = rule.interval_us ~= nil, rule.cap ~= nil
    if limit <= 0 or not (rated or capped) then return max(0, limit) end
    local token, money = pace_factor(g, now), gates_math.budget_left(g, now)
    local worth = gates_math.tokens(g, now) * token
    for n = 1, limit do
      if (rated and worth < token) or (capped and money < max(1, costs[n])) then return n - 1 end
      worth, money = worth - costs[n] * FULL_PACE, money - costs[n]
    end
    return limit
  end

  -- So much of the budget is spent now, and what is left is reserved for a job that needs so much; true when there is a budget.
  local function reserve(g, cost, reserved_for, now)
    local rule = g.rule
    if not (rule.cap and rule.period) then return false end
    g.spent = min(MOST, (is_current(g, now) and g.spent or 0) + cost)
    g.period_ms, g.reserved_for = max(g.period_ms or 0, gates_period.began(rule.period, now)), reserved_for
    return true
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
    if rule.interval_us then
      g.full_at_us = later(max(g.full_at_us or 0, now * 1000), sum, token_us(g, now))
    end
    if slot then g.used = (g.used or 0) + count end
    if probe then g.probe_token = token end
    reserve(g, sum, 0, now)
    return charges, slot or probe or counted
  end

  -- True when a job of this cost does not fit the budget.
  function gates_math.is_short(g, cost, now)
    local rule = g.rule
    return rule.cap ~= nil and rule.period ~= nil and gates_math.budget_left(g, now) < max(1, cost)
  end

  -- A job of this cost, which nothing else stops, did not fit the budget: no job passes it. True when the gate changed.
  function gates_math.falls_short(g, cost, now)
    return gates_math.is_short(g, cost, now) and reserve(g, 0, max(1, cost), now)
  end

  -- True when the budget is shut for a job of this cost: if that job leaves the queue, the next one is looked at.
  function gates_math.is_shut_for(g, cost)
    return (g.reserved_for or 0) ~= 0 and g.reserved_for == max(1, cost)
  end

  -- What was counted is forgotten.
  local function forget(g)
    g.failed_at_ms, g.calls = nil, nil
  end

  -- What a job cost at a gate by its own account (unit -> cost, or nil); nil: what it had reserved stands. One that was
  -- put off (`unfinished`) will reserve again, so the budget is refunded the part that it did not report as spent.
  function gates_math.reported_cost(rule, spent, unfinished)
    local said = spent and spent[rule.unit or ""]
    if said == nil and unfinished and rule.cap then return 0 end
    return said
  end

  -- What a rate gets back of all that was returned in one settlement: {when it was charged -> for how long}. Since it was
  -- charged, time has brought back some of it, once for all of them: together they leave the rate as if it had stood still
  -- since the first. Those for which time has brought back more than they were charged stay out of it.
  local function refundable_us(returned, now)
    local instants, most, total = {}, 0, 0
    for at in pairs(returned) do instants[#instants + 1] = at end
    table.sort(instants)
    for n = #instants, 1, -1 do
      total = min(MOST, total + returned[instants[n]])
      most = max(most, total - max(0, now - instants[n]) * 1000)
    end
    return most
  end

  -- A job that reserved `cost` turned out to cost `actual_cost`. A rate gets back only what time has not given back already; a
  -- budget is corrected in the period that was charged, as long as it lasts. What has reached MOST stays there: how much
  -- was cut off is not known, and what comes back would forgive what others took. True when the gate changed.
  local function correct(g, cost, actual_cost, now, charged_at, returned)
    local rule, more, changed = g.rule, actual_cost - cost, false
    if rule.interval_us and more > 0 then
      g.full_at_us, changed = later(max(g.full_at_us or 0, now * 1000), more, rule.interval_us), true
    elseif rule.interval_us and more < 0 and (g.full_at_us or 0) < MOST then
      local before = refundable_us(returned, now)
      returned[charged_at] = later(returned[charged_at] or 0, -more, charged_token_us(g, charged_at))
      local back = refundable_us(returned, now) - before
      g.full_at_us, changed = max(0, (g.full_at_us or 0) - back), back > 0
    end
    local spent = g.spent or 0
    if more ~= 0 and rule.period and (g.period_ms or 0) == gates_period.began(rule.period, charged_at) and spent < MOST then
      g.spent, changed = min(MOST, max(0, spent + more)), true
    end
    return changed
  end

  -- A job that was charged `taken` has ended; `charged_at` may be nil. Answers whether the gate changed.
  -- Slots always return; what was counted stays, unless the job never started or its actual cost is known. `returned`:
  -- what jobs of the same settlement have returned to the rate, to which this one adds.
  function gates_math.give_back(g, taken, token, verdict, unstarted, now, charged_at, actual_cost, returned)
    local slot, cost, probe = taken[2], taken[3] or 0, taken[4]
    local changed = false
    if slot and (g.used or 0) > 0 then
      g.used, changed = g.used - 1, true
    end
    if unstarted then actual_cost = 0 end
    if actual_cost then changed = correct(g, cost, actual_cost, now, charged_at or now, returned or {}) or changed end
    if not (probe and (g.probe_token or 0) == token) then
      return gates_math.learn(g, verdict, now) or changed
    end
    g.probe_token = 0
    if verdict == "ok" then
      g.open_until_ms, g.by_hand = 0, false
      forget(g)
    elseif verdict == "failed" then
      gates_math.trip(g, now + (g.rule.breaker and g.rule.breaker.cooldown_ms or 60000))
    end
    return true
  end

  -- Two half-windows: bounded memory, and a failure is forgotten after at most one whole window.
  local function learn_rate(g, rule, failed, now)
    local number = floor(now / max(1, floor((rule.within_ms or 60000) / 2)))
    local seen = g.calls or {0, 0, 0, 0}
    local window, calls, failures, before = seen[1], seen[2], seen[3], seen[4]
    if number > window + 1 then
      calls, failures, before = 0, 0, 0
    elseif number == window + 1 then
      before = min(calls, 2 ^ 32 - 1) * TWENTY_BITS + min(failures, TWENTY_BITS - 1)
      calls, failures = 0, 0
    end
    calls = calls + 1
    if failed then failures = failures + 1 end
    local all_calls, all_failures = calls + floor(before / TWENTY_BITS), failures + before % TWENTY_BITS
    if failed and all_calls >= (rule.min_calls or 20) and all_failures >= rule.rate * all_calls then
      gates_math.trip(g, now + (rule.probe_after_ms or 60000))
    else
      g.calls = {number, calls, failures, before}
    end
    return true
  end

  -- Count one outcome; open the breaker when its rule says so. Answers whether the gate changed: not while all is well.
  function gates_math.learn(g, verdict, now)
    local rule = g.rule.breaker
    if not rule or verdict == "neutral" or (g.open_until_ms or 0) ~= 0 then return false end
    if rule.rate then return learn_rate(g, rule, verdict == "failed", now) end
    local before, allowed = g.failed_at_ms or {}, rule.failures or 5
    if verdict == "ok" then
      g.failed_at_ms = nil
      return #before > 0
    end
    local recent = {now}  -- newest first
    for n = #before, 1, -1 do
      if #recent >= allowed then break end
      if before[n] > now - (rule.within_ms or 60000) then recent[#recent + 1] = before[n] end
    end
    if #recent >= allowed then
      gates_math.trip(g, now + (rule.probe_after_ms or 60000))
      return true
    end
    local count = #recent
    g.failed_at_ms = {}
    for n = 1, count do g.failed_at_ms[n] = recent[count + 1 - n] end
    return true
  end

  -- Open the breaker until `until_ms`, when one probe is let through.
  function gates_math.trip(g, until_ms)
    forget(g)
    g.open_until_ms, g.probe_token, g.opened, g.by_hand = until_ms, 0, (g.opened or 0) + 1, false
  end

  -- The job under `token` was told that there is no money left: open, until one job probes it. Jobs that were under way
  -- with it say nothing new, and prolong nothing.
  function gates_math.cut_off(g, until_ms, token, now)
    local probe = g.probe_token or 0
    if token == probe or (probe == 0 and (g.open_until_ms or 0) <= now) then gates_math.trip(g, until_ms) end
  end

  -- Close the breaker and forget its failures.
  function gates_math.reset(g)
    forget(g)
    g.open_until_ms, g.probe_token, g.by_hand = 0, 0, false
  end

  -- Admit no job before `until_ms`; a longer hold stays.
  function gates_math.hold(g, until_ms)
    g.held_until_ms = max(g.held_until_ms or 0, until_ms)
  end

  -- A provider pushed back the job under `token`: the gate is held, and goes slower after that.
  -- A rate begins again with one token, a ceiling with one job, and so does a gate without numbers; all climb. An
  -- adaptive gate goes half as fast as it did, once for all the jobs that were claimed before.
  function gates_math.push_back(g, until_ms, token, now)
    local rule = g.rule
    gates_math.hold(g, until_ms)
    local held = g.held_until_ms
    if rule.interval_us then
      g.full_at_us = max(g.full_at_us or 0, later(held * 1000, (rule.burst or 1) - 1, rule.interval_us))
    end
    if token > (g.last_cut_token or 0) then
      g.pace = rule.floor and max(rule.floor, floor(gates_math.pace(g, now) / 2)) or 0
      g.paced_at_ms, g.last_cut_token = held, (now + 1) * 2048 - 1
    elseif (g.pace or FULL_PACE) < FULL_PACE then
      g.paced_at_ms = max(g.paced_at_ms or 0, held)
    end
  end

  -- True while what a breaker has counted can still open it.
  local function remembers(g, now)
    local rule = g.rule.breaker
    if not rule then return false end
    local within = rule.within_ms or 60000
    if rule.rate then
      local calls = g.calls or {0, 0}
      return calls[2] > 0 and floor(now / max(1, floor(within / 2))) <= calls[1] + 1
    end
    for _, at in ipairs(g.failed_at_ms or {}) do
      if at > now - within then return true end
    end
    return false
  end

  -- True when forgetting the gate changes nothing, so that a janitor may delete it.
  function gates_math.is_blank(g, now)
    return not g.paused and not g.draining and g.declared ~= false and (g.used or 0) == 0
      and (g.open_until_ms or 0) == 0 and (g.held_until_ms or 0) <= now
      and (g.full_at_us or 0) <= now * 1000 and not (((g.spent or 0) ~= 0 or (g.announced_marks or 0) ~= 0) and is_current(g, now))
      and (g.ceiling or FULL_PACE) == FULL_PACE and gates_math.pace(g, now) == FULL_PACE and not remembers(g, now)
  end

  -- When the bucket is full under another rate: tokens that were taken stay taken, and come back at the new rate. A
  -- smaller bucket is as full as the larger one was, in thousandths; or it would be in debt for what it never held.
  local function full_at(g, rule, now)
    local old, full = g.rule, g.full_at_us or 0
    if not (old.interval_us and rule.interval_us) then return nil end
    local burst, begins = rule.burst or 1, max(now, g.held_until_ms or 0) * 1000
    local before = old.burst or 1
    if full <= begins or (old.interval_us == rule.interval_us and before == burst) then return full end
    local missing = ceil((full - begins) / old.interval_us)
    if missing > before and before > burst then
      missing = missing - (before - burst)
    elseif before > burst then
      missing = min(missing, ceil(ceil(missing * FULL_PACE / before) * burst / FULL_PACE))
    end
    return later(begins, missing, rule.interval_us)
  end

  -- The gate after an operator's word: `change` is the map of core.gate.GateChange, `g` nil for a gate not there yet.
  function gates_math.change(g, change, now)
    g = g or {rule = {key = change.key}}
    if change.clear then g.declared = nil end
    if change.rule and (g.declared ~= false or not change.declared) then
      if g.rule.interval_us or g.rule.cap then g.rule_changed_at_ms = now end  -- or else no job was charged
      g.full_at_us = full_at(g, change.rule, now)
      g.rule, g.declared, g.reserved_for = change.rule, change.declared or false, nil
    end
    if change.pause then g.paused = change.pause end
    if change.resume then g.paused, g.draining = nil, nil end
    if change.drain ~= nil then g.draining = change.drain end
    if change.hold_ms then gates_math.hold(g, now + change.hold_ms) end
    if change.ceiling then g.ceiling = max(1, min(FULL_PACE, change.ceiling)) end
    if change.trip_ms then
      gates_math.trip(g, min(gates_math.FOREVER_MS, now + change.trip_ms))
      g.by_hand = true
    end
    if change.reset then
      local rule = g.rule
      if rule.interval_us then  -- one job may start now, however far pushback had moved it
        g.full_at_us = min(g.full_at_us or 0, later(now * 1000, (rule.burst or 1) - 1, rule.interval_us))
        g.rule_changed_at_ms = now
      end
      gates_math.reset(g)
      g.held_until_ms, g.reserved_for, g.pace, g.paced_at_ms, g.ceiling, g.last_cut_token = nil, nil, nil, nil, nil, nil
    end
    return g
  end

  local TYPES = {
    rule = "table", declared = "boolean", paused = "table", draining = "boolean", used = "number",
    full_at_us = "number", held_until_ms = "number", failed_at_ms = "table", calls = "table",
    open_until_ms = "number", probe_token = "number", opened = "number", pace = "number", paced_at_ms = "number",
    ceiling = "number", last_cut_token = "number", period_ms = "number", spent = "number", reserved_for = "number",
    announced_marks = "number", rule_changed_at_ms = "number", by_hand = "boolean"
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

  local function keep(to, from, name, default)
    local value = from[name]
    if value ~= nil and value ~= default then to[name] = value end
  end

  local function rule_map(rule)
    local map = {key = rule.key, concurrency = rule.concurrency, interval_us = rule.interval_us}
    map.floor, map.cap, map.period = rule.floor, rule.cap, rule.period
    map.depth, map.tenant_depth = rule.depth, rule.tenant_depth
    keep(map, rule, "burst", 1)
    keep(map, rule, "default_for_429", false)
    keep(map, rule, "unit", "")
    keep(map, rule, "climb_ms", 60000)
    if rule.breaker then
      -- cmsgpack writes an empty table as an array, which is no rule in Python: `failures` is always said.
      map.breaker = {failures = rule.breaker.failures or 5, rate = rule.breaker.rate}
      keep(map.breaker, rule.breaker, "within_ms", 60000)
      keep(map.breaker, rule.breaker, "cooldown_ms", 60000)
      keep(map.breaker, rule.breaker, "probe_after_ms", 60000)
      keep(map.breaker, rule.breaker, "min_calls", 20)
    end
    return map
  end

  -- The bytes to store: msgspec.msgpack reads them as a Gate.
  function gates_math.encode(g)
    local map = {rule = rule_map(g.rule), paused = g.paused}
    keep(map, g, "declared", true)
    keep(map, g, "draining", false)
    keep(map, g, "used", 0)
    keep(map, g, "full_at_us", 0)
    keep(map, g, "held_until_ms", 0)
    keep(map, g, "open_until_ms", 0)
    keep(map, g, "probe_token", 0)
    keep(map, g, "opened", 0)
    keep(map, g, "pace", FULL_PACE)
    keep(map, g, "paced_at_ms", 0)
    keep(map, g, "ceiling", FULL_PACE)
    keep(map, g, "last_cut_token", 0)
    keep(map, g, "period_ms", 0)
    keep(map, g, "spent", 0)
    keep(map, g, "reserved_for", 0)
    keep(map, g, "rule_changed_at_ms", 0)
    keep(map, g, "announced_marks", 0)
    keep(map, g, "by_hand", false)
    if g.failed_at_ms and #g.failed_at_ms > 0 then map.failed_at_ms = g.failed_at_ms end
    local calls = g.calls
    if calls and not (calls[1] == 0 and calls[2] == 0 and calls[3] == 0 and calls[4] == 0) then map.calls = calls end
    return cmsgpack.pack(map)
  end
end
