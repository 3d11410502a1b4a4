-- What is left of a budget in its period (core/gate/budget.py).
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
    if not g.rule.cap then return UNLIMITED end
    local free, wanted = gates_math.budget_left(g, now), is_current(g, now) and g.reserved_for or 0
    return free >= wanted and free or 0
  end

  -- When the next period begins, if nothing is left of this one.
  local function budget_opens_at(g, now)
    local period = g.rule.period
    if not period or budget_room(g, now) > 0 then return now end
    return gates_period.ends(period, max(now, g.period_ms or 0))
  end

  -- How many of the first `limit` jobs fit into what is left, each with all that it costs.
  local function admitted_by_budget(g, costs, limit, now)
    local free = gates_math.budget_left(g, now)
    for n = 1, limit do
      if free < max(1, costs[n]) then return n - 1 end
      free = free - costs[n]
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

  -- A job that reserved `cost` turned out to cost `actual_cost`: corrected in its period, as long as that lasts. What has
  -- reached MOST stays there. True when it changed.
  local function correct_budget(g, cost, actual_cost, charged_at)
    local period, spent = g.rule.period, g.spent or 0
    if actual_cost == cost or not period or spent >= MOST or (g.period_ms or 0) ~= gates_period.began(period, charged_at) then
      return false
    end
    g.spent = min(MOST, max(0, spent + actual_cost - cost))
    return true
  end

  -- Whether nothing is spent or announced in this period.
  local function budget_is_blank(g, now)
    return not (((g.spent or 0) ~= 0 or (g.announced_marks or 0) ~= 0) and is_current(g, now))
  end
