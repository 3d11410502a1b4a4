-- Promise: how fast a gate goes after a pushback, as core/gate/pace.py has it, number for number; nothing is read or written. Inputs: a gate,
-- the engine's time in ms. Answer: numbers, or the gate as it is afterwards. Relies on: nothing. Paces are thousandths of
-- what is declared. Few gates go slower than that: what only they need is not written into the expression that calls it.

-- How fast a gate goes now: it climbs evenly from its pace at the last pushback.
CREATE OR REPLACE FUNCTION lp.gate_pace(p_gate lp.gate, p_now bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  v_ms bigint := greatest(0, p_now - p_gate.paced_at_ms);
BEGIN
  IF p_gate.floor IS NULL THEN
    RETURN least(:FULL_PACE, p_gate.pace + v_ms / 10);
  END IF;
  RETURN least(:FULL_PACE, greatest(p_gate.floor, least(p_gate.ceiling, p_gate.pace + v_ms * :FULL_PACE / greatest(1, p_gate.climb_ms))));
END $$;

-- p_count at this pace; a product would be too large.
CREATE OR REPLACE FUNCTION lp.at_pace(p_count bigint, p_pace bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT p_count / :FULL_PACE * p_pace + p_count % :FULL_PACE * p_pace / :FULL_PACE
$$;
