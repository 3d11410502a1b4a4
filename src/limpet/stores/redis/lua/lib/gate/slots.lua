-- How many jobs run at once under a gate, at the pace that it goes now (core/gate/slots.py).
  local RAMP_JOBS = 20 -- concurrent jobs that a gate without numbers climbs to, before it stops counting

  -- How many jobs may run at once when the gate goes at its full pace; nil when it does not count. A gate without
  -- numbers counts starts only while it climbs after pushback.
  function gates_math.max_concurrency(g, now)
    local rule = g.rule
    if rule.concurrency or rule.interval_us or rule.cap then return rule.concurrency end
    return (g.pace or FULL_PACE) < FULL_PACE and gates_math.pace(g, now) < FULL_PACE and RAMP_JOBS or nil
  end

  -- How many jobs may run at once, at the pace that the gate goes now: one, unless none ever may.
  function gates_math.slots(g, now)
    local most = gates_math.max_concurrency(g, now) or 0
    return max(min(1, most), at_pace(most, gates_math.pace(g, now)))
  end

  -- How many slots are free.
  local function slot_room(g, now)
    if not gates_math.max_concurrency(g, now) then return UNLIMITED end
    return max(0, gates_math.slots(g, now) - (g.used or 0))
  end

  -- When the pace has climbed to one slot more; nil when only the end of a job frees one.
  local function slot_opens_at(g, now)
    local rule, most = g.rule, gates_math.max_concurrency(g, now)
    if not most or (g.used or 0) < gates_math.slots(g, now) then return now end
    local wanted = ceil(((g.used or 0) + 1) * FULL_PACE / most)
    if not rule.concurrency then wanted = min(FULL_PACE, wanted) end -- then it counts nothing
    if wanted > FULL_PACE or (rule.floor and wanted > max(rule.floor, g.ceiling or FULL_PACE)) then return nil end
    return climbed_at(g, wanted)
  end
