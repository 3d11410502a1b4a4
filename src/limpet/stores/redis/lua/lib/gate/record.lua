-- What a gate is: its fields with their types, and the defaults that are not stored (core/gate/record.py).
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

  -- A stored gate; one that cannot be read admits no job until an operator sets it anew, and says why.
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
