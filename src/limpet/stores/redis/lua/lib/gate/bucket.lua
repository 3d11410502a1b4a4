-- The tokens of a rate (core/gate/bucket.py).
  -- Whole tokens in the rate bucket now; below zero while a costly job is being paid off.
  function gates_math.tokens(g, now)
    local interval = g.rule.interval_us
    if not interval then return gates_math.UNLIMITED end
    local debt = max(0, (g.full_at_us or 0) - now * 1000)
    return (g.rule.burst or 1) - ceil(debt / interval)
  end

  -- How many jobs of cost 1 the rate admits now: each of an adaptive gate that goes slower takes more of a token.
  local function rate_room(g, now)
    if not g.rule.interval_us then return UNLIMITED end
    local whole = gates_math.tokens(g, now)
    return whole < 1 and whole or at_pace(whole - 1, pace_factor(g, now)) + 1
  end

  -- When one whole token is there.
  local function rate_opens_at(g, now)
    local rule = g.rule
    if not rule.interval_us then return now end
    return ceil(((g.full_at_us or 0) - ((rule.burst or 1) - 1) * rule.interval_us) / 1000)
  end

  -- How many of the first `limit` jobs pass: each needs one whole token, and the last may leave a debt.
  local function admitted_by_rate(g, costs, limit, now)
    local token = pace_factor(g, now)
    local worth = gates_math.tokens(g, now) * token
    for n = 1, limit do
      if worth < token then return n - 1 end
      worth = worth - costs[n] * FULL_PACE
    end
    return limit
  end

  -- When `count` tokens have come back, from `from` on; at most the largest number that can be stored.
  local function later(from, count, interval)
    return min(MOST, from + count * interval)
  end

  -- How long what a job of cost 1 takes of the rate needs to come back.
  local function token_us(g, now)
    local interval, worth = g.rule.interval_us, pace_factor(g, now)
    return min(MOST, floor(interval / worth) * FULL_PACE + ceil(interval % worth * FULL_PACE / worth)) -- the product is too large
  end

  -- Jobs that cost so much have started, at the pace that the gate goes now.
  local function take_tokens(g, cost, now)
    g.full_at_us = later(max(g.full_at_us or 0, now * 1000), cost, token_us(g, now))
  end

  -- What such a job was charged then, or less: the pace before a cut, or under a ceiling, is not known. Nothing when the
  -- rule was changed since: this bucket was not charged, and others would start on what came back.
  local function charged_token_us(g, charged_at)
    if charged_at <= (g.rule_changed_at_ms or 0) then return 0 end
    if charged_at <= (g.paced_at_ms or 0) then return g.rule.interval_us end
    return token_us({rule = g.rule, pace = g.pace, paced_at_ms = g.paced_at_ms}, charged_at)
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

  -- A job that was charged `cost` turned out to cost `actual_cost`. A rate gets back only what time has not given back
  -- already. What has reached MOST stays there: how much was cut off is not known, and what comes back would forgive what
  -- others took. `refunded`: what jobs of the same settlement have returned, to which this one adds. True when it changed.
  local function correct_tokens(g, cost, actual_cost, now, charged_at, refunded)
    local interval, more = g.rule.interval_us, actual_cost - cost
    if interval and more > 0 then
      g.full_at_us = later(max(g.full_at_us or 0, now * 1000), more, interval)
      return true
    elseif interval and more < 0 and (g.full_at_us or 0) < MOST then
      local before = refundable_us(refunded, now)
      refunded[charged_at] = later(refunded[charged_at] or 0, -more, charged_token_us(g, charged_at))
      local back = refundable_us(refunded, now) - before
      g.full_at_us = max(0, (g.full_at_us or 0) - back)
      return back > 0
    end
    return false
  end

  -- When the bucket is full again if it has one token at that instant.
  local function one_token_left(rule, from)
    return later(from * 1000, (rule.burst or 1) - 1, rule.interval_us)
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
