-- Promise: how many jobs run at once under a gate, as core/gate/slots.py has it, number for number; nothing is read or written. Inputs: a gate,
-- the engine's time in ms. Answer: numbers, or the gate as it is afterwards. Relies on: nothing.

-- Whether a gate without numbers climbs after pushback: it counts starts until it is done.
CREATE OR REPLACE FUNCTION lp.gate_climbs(p_gate lp.gate, p_now bigint) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT (p_gate).pace < :FULL_PACE AND (p_gate).concurrency IS NULL AND (p_gate).interval_us IS NULL AND (p_gate).cap IS NULL
    AND lp.gate_pace(p_gate, p_now) < :FULL_PACE
$$;

-- How many jobs may run at once at the pace that the gate goes now: one, unless none ever may. NULL: as many as there are.
-- A gate without numbers has climbed to 20 (RAMP_JOBS) before it stops counting.
CREATE OR REPLACE FUNCTION lp.gate_slots(p_gate lp.gate, p_now bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE
    WHEN (p_gate).pace = :FULL_PACE AND (p_gate).ceiling = :FULL_PACE THEN (p_gate).concurrency
    WHEN (p_gate).concurrency IS NOT NULL THEN
      greatest(least(1, (p_gate).concurrency), lp.at_pace((p_gate).concurrency, lp.gate_pace(p_gate, p_now)))
    WHEN lp.gate_climbs(p_gate, p_now) THEN greatest(1, lp.at_pace(:RAMP_JOBS, lp.gate_pace(p_gate, p_now)))
  END
$$;

-- When a gate has a place more, if there is no further pushback and no job ends; NULL: it never will by the passing of time.
CREATE OR REPLACE FUNCTION lp.gate_climbed_at(p_gate lp.gate) RETURNS bigint LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  v_wanted bigint := CASE
    WHEN p_gate.concurrency IS NULL THEN least(:FULL_PACE, ceil((p_gate.used + 1) * :FULL_PACE::numeric / :RAMP_JOBS)) -- then it does not count
    WHEN p_gate.used < p_gate.concurrency THEN ceil((p_gate.used + 1) * :FULL_PACE::numeric / p_gate.concurrency)
  END;
  v_ms bigint := (v_wanted - p_gate.pace) * CASE WHEN p_gate.floor IS NULL THEN 10000 ELSE least(p_gate.climb_ms, :FOREVER_MS) END;
BEGIN
  RETURN CASE
    WHEN p_gate.floor IS NULL OR v_wanted <= greatest(p_gate.floor, p_gate.ceiling) THEN
      p_gate.paced_at_ms + CASE WHEN v_ms > 0 THEN (v_ms + :FULL_PACE - 1) / :FULL_PACE ELSE v_ms / :FULL_PACE END
  END;
END $$;
