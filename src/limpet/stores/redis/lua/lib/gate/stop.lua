-- A gate that is stopped as a whole: an operator paused it, or a provider pushed back (core/gate/stop.py).
  -- Whether the gate is paused or held.
  local function is_stopped(g, now)
    return g.paused ~= nil or (g.held_until_ms or 0) > now
  end

  -- When it is no longer held; nil when only an operator can resume it.
  local function stop_opens_at(g, now)
    return not g.paused and max(now, g.held_until_ms or 0) or nil
  end

  -- Admit no job before `until_ms`; a longer hold stays.
  local function hold(g, until_ms)
    g.held_until_ms = max(g.held_until_ms or 0, until_ms)
  end
