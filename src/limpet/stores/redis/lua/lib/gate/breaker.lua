-- Opens a gate's breaker when too much fails behind it, and closes it when a probe succeeds (core/gate/breaker.py).
  local TWENTY_BITS = 2 ^ 20

  -- Whether no job passes: it is open, or its probe is under way.
  local function is_open(g, now)
    local open_until = g.open_until_ms or 0
    return open_until > now or (open_until ~= 0 and (g.probe_token or 0) ~= 0)
  end

  -- All may pass while it is closed, one as a probe when it is half-open.
  local function breaker_room(g, now)
    return (g.open_until_ms or 0) == 0 and UNLIMITED or is_open(g, now) and 0 or 1
  end

  -- When it lets a probe through; nil when it waits for the end of one, or for an operator.
  local function breaker_opens_at(g, now)
    local open_until = g.open_until_ms or 0
    if open_until == 0 then return now end
    return (g.probe_token or 0) == 0 and open_until < gates_math.FOREVER_MS and open_until or nil
  end

  -- What was counted is forgotten.
  local function forget(g)
    g.failed_at_ms, g.calls = nil, nil
  end

  -- Open the breaker until `until_ms`, when one probe is let through.
  function gates_math.trip(g, until_ms)
    forget(g)
    g.open_until_ms, g.probe_token, g.opened, g.by_hand = until_ms, 0, (g.opened or 0) + 1, false
  end

  -- Close the breaker and forget its failures.
  function gates_math.reset(g)
    forget(g)
    g.open_until_ms, g.probe_token, g.by_hand = 0, 0, false
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

  -- Give the breaker of a key the numbers of its task's own, unless an operator has given it others.
  function gates_math.under_own(g, own)
    if g.declared ~= false then g.rule.breaker = own.rule.breaker end
  end

  -- The charges of a job under a breaker by key: what it does counts there, and not at its task's own breaker. But a probe,
  -- of either of the two, teaches the gate that let it through, and no other.
  function gates_math.by_key(charges, own, key)
    local kept, probed, ruled = {}, false, false
    for _, each in ipairs(charges or {}) do
      local gate, probe = each[1], each[4]
      local mine = gate == own or gate == key
      ruled, probed = ruled or mine, probed or mine and probe
      if probe and gate == key then each[5] = own end
      if probe or not mine then kept[#kept + 1] = each end
    end
    if ruled and not probed then kept[#kept + 1] = {key, false, 0, false, own} end
    return kept
  end

  -- Where a list of breakers has this gate, worst first; nil when it is none, and not open as one.
  function gates_math.rank(g)
    if (g.open_until_ms or 0) ~= 0 then return OPEN end
    if string.sub(g.rule.key, 1, 8) ~= "breaker:" then return nil end
    local counts = (g.failed_at_ms and #g.failed_at_ms > 0) or (g.calls and g.calls[2] > 0)
    return counts and COUNTING or CLOSED
  end

  -- The probe has ended: a success closes the breaker, a failure opens it for another cooldown.
  local function end_probe(g, verdict, now)
    if verdict == "ok" then
      gates_math.reset(g)
    elseif verdict == "failed" then
      gates_math.trip(g, now + (g.rule.breaker and g.rule.breaker.cooldown_ms or 60000))
    else
      g.probe_token = 0
    end
  end

  -- The job under `token` was told that there is no money left: open, until one job probes it. Jobs that were under way
  -- with it say nothing new, and prolong nothing.
  function gates_math.cut_off(g, until_ms, token, now)
    local probe = g.probe_token or 0
    if token == probe or (probe == 0 and (g.open_until_ms or 0) <= now) then gates_math.trip(g, until_ms) end
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
