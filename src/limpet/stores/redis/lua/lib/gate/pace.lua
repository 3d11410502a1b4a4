-- How fast a gate goes after a pushback (core/gate/pace.py).
  local RAMP_MS = 10000 -- how long a ceiling takes to come back after a pushback

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
  local function at_pace(count, pace)
    return floor(count / FULL_PACE) * pace + floor(count % FULL_PACE * pace / FULL_PACE)
  end

  -- What a token is worth at a rate, in thousandths: less while an adaptive gate goes slower.
  local function pace_factor(g, now)
    return g.rule.floor and max(1, gates_math.pace(g, now)) or FULL_PACE
  end

  -- When the gate goes that fast, if there is no further pushback.
  local function climbed_at(g, to)
    return (g.paced_at_ms or 0) + ceil((to - (g.pace or FULL_PACE)) * climb_ms(g.rule) / FULL_PACE)
  end

  -- The gate is held after a pushback of the job under `token`: it climbs from the end of the hold. An adaptive gate goes
  -- half as fast as it did, once for all the jobs that were claimed before; others begin at zero.
  local function slow_down(g, token, now)
    local floor_pace, held = g.rule.floor, g.held_until_ms
    if token > (g.last_cut_token or 0) then
      g.pace = floor_pace and max(floor_pace, floor(gates_math.pace(g, now) / 2)) or 0
      g.paced_at_ms, g.last_cut_token = held, (now + 1) * 2048 - 1
    elseif (g.pace or FULL_PACE) < FULL_PACE then
      g.paced_at_ms = max(g.paced_at_ms or 0, held)
    end
  end
