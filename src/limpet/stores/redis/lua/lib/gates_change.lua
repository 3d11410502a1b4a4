-- Operators' words and declarations reach stored gates here; the arithmetic is gate.change.

gates_change = {}

local RULE = {
  concurrency = false, interval_us = false, burst = 1, default_for_429 = false, unit = "", floor = false, climb_ms = 60000,
  cap = false, period = false, depth = false, tenant_depth = false,
}
local BREAKER = {
  failures = 5, within_ms = 60000, cooldown_ms = 60000, probe_after_ms = 60000, rate = false, min_calls = 20,
}

-- Equal, when a field left out has its default.
local function alike(a, b, defaults)
  for name, default in pairs(defaults) do
    if (a[name] or default) ~= (b[name] or default) then
      return false
    end
  end
  return true
end

local function same_rule(a, b)
  if not alike(a, b, RULE) or (a.breaker == nil) ~= (b.breaker == nil) then
    return false
  end
  return a.breaker == nil or alike(a.breaker, b.breaker, BREAKER)
end

-- Apply core.gate.GateChange maps in order; the packed gate after each. tx.finish wakes lanes that can run now.
function gates_change.apply(changes)
  local answers = {}
  for i, each in ipairs(changes) do
    answers[i] = gates_math.encode(gates_math.change(gates.edit(each.key), each, tx.now))
  end
  return answers
end

-- Make a limit or breaker that jobs name known (a core.gate.GateRule map); an operator's rule stays.
function gates_change.declare(rule)
  local known = gates.get(rule.key)
  if not known or (known.declared ~= false and not same_rule(known.rule, rule)) then
    gates_math.change(gates.edit(rule.key), { key = rule.key, rule = rule, declared = true }, tx.now)
  end
end
