-- Gives back to gates what running jobs took, and holds the gates that jobs were told to leave alone.

give_back = {}

local FOREVER_MS = 4503599627370496 -- an instant that never comes, as core has it
local NEUTRAL = MADE.blank.verdict

-- The gate that an effect names admits no job for a while.
function give_back.hold(e, token)
  local shut = e.trips and gates_math.cut_off or gates_math.push_back
  shut(gates.edit(e.gate), min(tx.now + (e.gate_ms or 0), FOREVER_MS), token, tx.now)
end

-- True when a gate looks the same after this end, so that it need not be written: most ends under a breaker alone.
local function is_unmoved(found, taken, verdict, actual)
  if taken[CHARGE.slot] or taken[CHARGE.probe] or (actual and actual ~= (taken[CHARGE.cost] or 0)) then
    return false
  end
  local rule = found.rule.breaker
  return not rule or verdict == NEUTRAL or (verdict == "ok" and not rule.rate and not found.failed_at_ms)
end

-- What the job cost at a gate, if that is not what it was charged there.
local function actual_cost(rule, spent, refund)
  if refund == "all" then
    return 0
  end
  return gates_math.reported_cost(rule, spent, refund == "unsaid")
end

local made = 0 -- breakers by key that this call makes

-- The gate where a charge counts: of a breaker by key without a record its task's own, unless it gets one now.
local function ruling(taken, verdict)
  local key, own_key = taken[CHARGE.gate], taken[CHARGE.own] or ""
  local found, own = gates.get(key), own_key ~= "" and gates.get(own_key)
  local rule = own and own.rule.breaker
  if not rule then
    return found
  end
  local is_news = verdict == "failed" or (verdict == "ok" and rule.rate)
  if not found and is_news and call("ZCARD", K.breakers) + made < MOST_BREAKERS then
    found, made = gates.edit(key), made + 1
  end
  if found then
    gates_math.under_own(found, own)
  end
  return found or own
end

-- Give back what a job took. The gates at which it failed are added to `touched`.
function give_back.take(s, charges, token, claimed, e, spent, touched)
  local verdict, unstarted = e.verdict or NEUTRAL, e.refund == "all"
  for _, taken in ipairs(charges) do
    local found = ruling(taken, verdict)
    if found then
      local key = found.rule.key
      if verdict == "failed" and (taken[CHARGE.probe] or found.rule.breaker) then
        touched[#touched + 1] = key
      end
      local actual = actual_cost(found.rule, spent, e.refund)
      if is_unmoved(found, taken, verdict, actual) then
        gates.touch(key)
      else
        local returned = base.heap(s.returned, key)
        gates_math.give_back(gates.edit(key), taken, token, verdict, unstarted, tx.now, claimed, actual, returned)
      end
    end
  end
end

-- Those of these gates that are shut now.
function give_back.shut(keys)
  local shut = {}
  for _, key in ipairs(keys) do
    shut[#shut + 1] = gates_math.is_shut(gates.get(key), tx.now) and key or nil
  end
  return shut
end
