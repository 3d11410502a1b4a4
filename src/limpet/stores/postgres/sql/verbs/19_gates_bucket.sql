-- Promise: the tokens of a rate, as core/gate/bucket.py has them, number for number; nothing is read or written. Inputs: a gate,
-- the engine's time in ms. Answer: numbers, or the gate as it is afterwards. Relies on: nothing. The short ones are SQL, so that they
-- are written into the expression that calls them; beside a name of a column there is always its row.

-- A product, or MOST: an extreme rule must not stop claims.
CREATE OR REPLACE FUNCTION lp.gate_times(p_count bigint, p_interval bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE
    WHEN p_count::double precision * p_interval::double precision < 9007199254740992 THEN p_count * p_interval
    ELSE :MOST
  END
$$;

-- Whole tokens in the rate bucket now; below zero while a costly job is being paid off.
CREATE OR REPLACE FUNCTION lp.gate_tokens(p_gate lp.gate, p_now bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE
    WHEN (p_gate).interval_us IS NULL THEN :UNLIMITED
    WHEN (p_gate).full_at_us <= p_now * 1000 THEN (p_gate).burst
    ELSE (p_gate).burst - ((p_gate).full_at_us - p_now * 1000 - 1) / (p_gate).interval_us - 1
  END
$$;

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

-- How many jobs of cost 1 the rate admits now. One that costs more takes the place of as many as it costs.
CREATE OR REPLACE FUNCTION lp.gate_rate_room(p_gate lp.gate, p_now bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN lp.gate_is_slow(p_gate) THEN lp.gate_slow_rate_room(p_gate, p_now) ELSE lp.gate_tokens(p_gate, p_now) END
$$;

-- When the bucket is full again after p_tokens more were taken, each of which takes p_interval (us).
CREATE OR REPLACE FUNCTION lp.gate_full_at(p_gate lp.gate, p_tokens bigint, p_interval bigint, p_now bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT least(greatest((p_gate).full_at_us, p_now * 1000) + lp.gate_times(p_tokens, p_interval), :MOST)
$$;

-- The same after jobs that cost so much have passed, at the pace that the gate goes now.
CREATE OR REPLACE FUNCTION lp.gate_passed(p_gate lp.gate, p_cost bigint, p_now bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE
    WHEN lp.gate_is_slow(p_gate) THEN lp.gate_full_at(p_gate, p_cost, lp.gate_slow_interval(p_gate, p_now), p_now)
    ELSE lp.gate_full_at(p_gate, p_cost, (p_gate).interval_us, p_now)
  END
$$;

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

-- For how long (us) the rate would have stood for what a job was charged and did not cost; p_actual_cost NULL: it cost that.
CREATE OR REPLACE FUNCTION lp.gate_returned(p_gate lp.gate, p_taken jsonb, p_actual_cost bigint, p_charged_at bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  v_cost bigint := p_taken -> :CHARGE_COST;
BEGIN
  IF p_gate.interval_us IS NULL OR p_actual_cost IS NULL OR p_actual_cost >= v_cost THEN
    RETURN 0;
  END IF;
  RETURN lp.gate_times(v_cost - p_actual_cost, lp.gate_charged_interval(p_gate, p_charged_at));
END $$;

-- What a rate gets back (us) of all that was returned in one settlement: when it was charged, and for how long. Since it
-- was charged, time has brought back some of it, once for all of them: together they leave the rate as if it had stood
-- still since the first. Those for which time has brought back more than they were charged stay out of it.
CREATE OR REPLACE FUNCTION lp.refundable_us(p_ats bigint[], p_returned bigint[], p_now bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  IF cardinality(p_ats) = 1 THEN -- most often they were claimed together
    RETURN greatest(0, least(p_returned[1], :MOST) - greatest(0, p_now - p_ats[1]) * 1000);
  END IF;
  RETURN (
    SELECT greatest(0, max(least(r.total, :MOST) - greatest(0, p_now - r.at) * 1000)) FROM (
      SELECT u.at, sum(u.returned) OVER (ORDER BY u.at DESC) AS total FROM unnest(p_ats, p_returned) AS u (at, returned)
    ) AS r
  );
END $$;

-- When the bucket of a gate is full under its new rate, by the gate as it was: tokens that were taken stay taken, and come
-- back at the new rate. A smaller bucket is as full as the larger one was, in thousandths; or it would be in debt for what
-- it never held.
CREATE OR REPLACE FUNCTION lp.gate_full_under(p_gate lp.gate, p_interval bigint, p_burst bigint, p_now bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  v_begins numeric := greatest(p_now, p_gate.held_until_ms) * 1000::numeric;
  v_missing numeric; -- whatever an operator says: a number that does not fit would stop who changes it
BEGIN
  IF p_gate.interval_us IS NULL OR p_interval IS NULL THEN
    RETURN 0;
  END IF;
  IF p_gate.full_at_us <= v_begins OR (p_gate.interval_us = p_interval AND p_gate.burst = p_burst) THEN
    RETURN p_gate.full_at_us;
  END IF;
  v_missing := div(p_gate.full_at_us - v_begins + greatest(1, p_gate.interval_us) - 1, greatest(1, p_gate.interval_us));
  IF v_missing > p_gate.burst AND p_gate.burst > p_burst THEN
    v_missing := v_missing - (p_gate.burst - p_burst);
  ELSIF p_gate.burst > p_burst THEN
    v_missing := least(v_missing, div(div(v_missing * 1000 + p_gate.burst - 1, p_gate.burst) * p_burst + 999, 1000));
  END IF;
  RETURN least(v_begins + v_missing * p_interval, :MOST)::bigint;
END $$;
