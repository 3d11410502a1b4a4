-- Promise: the arithmetic of gates that were pushed back or adapt, as core/gate has it, number for number; nothing is
-- read or written. Inputs: a gate, the engine's time in ms; paces are thousandths of what is declared. Answer: numbers, or
-- the gate as it is afterwards. Relies on: nothing. Few gates go slower than declared: what only they need is not written
-- into the expression that calls it.

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

-- Whether a gate without numbers climbs after pushback: it counts starts until it is done.
CREATE OR REPLACE FUNCTION lp.gate_climbs(p_gate lp.gate, p_now bigint) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT (p_gate).pace < :FULL_PACE AND (p_gate).concurrency IS NULL AND (p_gate).interval_us IS NULL AND (p_gate).cap IS NULL
    AND lp.gate_pace(p_gate, p_now) < :FULL_PACE
$$;

-- Whether a gate counts the jobs that pass: such jobs are never claimed ahead of time.
CREATE OR REPLACE FUNCTION lp.gate_counts(p_gate lp.gate, p_now bigint) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT (p_gate).concurrency IS NOT NULL OR (p_gate).interval_us IS NOT NULL OR (p_gate).cap IS NOT NULL
    OR ((p_gate).pace < :FULL_PACE AND lp.gate_climbs(p_gate, p_now))
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

-- Whether a rate may go slower than it is declared.
CREATE OR REPLACE FUNCTION lp.gate_is_slow(p_gate lp.gate) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT (p_gate).floor IS NOT NULL AND ((p_gate).pace <> :FULL_PACE OR (p_gate).ceiling <> :FULL_PACE)
$$;

-- How many jobs of cost 1 such a rate admits now: each takes more of a token.
CREATE OR REPLACE FUNCTION lp.gate_slow_rate_room(p_gate lp.gate, p_now bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  v_tokens bigint := lp.gate_tokens(p_gate, p_now);
BEGIN
  RETURN CASE WHEN v_tokens < 1 THEN v_tokens ELSE lp.at_pace(v_tokens - 1, greatest(1, lp.gate_pace(p_gate, p_now))) + 1 END;
END $$;

-- And how long (us) what one takes needs to come back; MOST at most.
CREATE OR REPLACE FUNCTION lp.gate_slow_interval(p_gate lp.gate, p_now bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  RETURN least(ceil(p_gate.interval_us * :FULL_PACE::numeric / greatest(1, lp.gate_pace(p_gate, p_now))), :MOST);
END $$;

-- How long (us) what a job of cost 1 was charged then needs to come back, or less: the pace before a cut, or under a ceiling,
-- is not known. Nothing when the rule was changed since: this bucket was not charged, and others would start on what came back.
CREATE OR REPLACE FUNCTION lp.gate_charged_interval(p_gate lp.gate, p_charged_at bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  IF p_charged_at <= p_gate.rule_changed_at_ms THEN
    RETURN 0;
  END IF;
  IF p_gate.floor IS NULL OR p_charged_at <= p_gate.paced_at_ms THEN
    RETURN p_gate.interval_us;
  END IF;
  p_gate.ceiling := :FULL_PACE;
  RETURN lp.gate_slow_interval(p_gate, p_charged_at);
END $$;

-- The gate after a provider pushed back the job under p_token: it is held, and goes slower after that. A rate
-- begins again with one token, a ceiling with one job, and so does a gate without numbers; all climb. An adaptive gate goes
-- half as fast as it did, once for all the jobs that were claimed before.
CREATE OR REPLACE FUNCTION lp.gate_push_back(p_gate lp.gate, p_until bigint, p_token bigint, p_now bigint) RETURNS lp.gate
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  p_gate := lp.gate_hold(p_gate, p_until);
  IF p_gate.interval_us IS NOT NULL THEN
    p_gate.full_at_us := greatest(
      p_gate.full_at_us,
      least(p_gate.held_until_ms * 1000 + lp.gate_times(p_gate.burst - 1, p_gate.interval_us), :MOST)
    );
  END IF;
  IF p_token > p_gate.last_cut_token THEN
    p_gate.pace := CASE WHEN p_gate.floor IS NULL THEN 0 ELSE greatest(p_gate.floor, lp.gate_pace(p_gate, p_now) / 2) END;
    p_gate.paced_at_ms := p_gate.held_until_ms;
    p_gate.last_cut_token := (p_now + 1) * :TOKENS_PER_MS - 1;
  ELSIF p_gate.pace < :FULL_PACE THEN
    p_gate.paced_at_ms := greatest(p_gate.paced_at_ms, p_gate.held_until_ms);
  END IF;
  RETURN p_gate;
END $$;

-- The gate after the job under p_token was told that there is no money left: open, until one job probes it. Jobs that were
-- under way with it say nothing new, and prolong nothing.
CREATE OR REPLACE FUNCTION lp.gate_cut_off(p_gate lp.gate, p_until bigint, p_token bigint, p_now bigint) RETURNS lp.gate
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  IF p_token <> p_gate.probe_token AND (p_gate.probe_token <> 0 OR p_gate.open_until_ms > p_now) THEN
    RETURN p_gate;
  END IF;
  RETURN lp.gate_trip(p_gate, p_until);
END $$;
