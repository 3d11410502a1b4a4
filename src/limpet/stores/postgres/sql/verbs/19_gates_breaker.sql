-- Promise: a breaker opens when too much fails behind it, as core/gate/breaker.py has it, number for number; nothing is read or written. Inputs: a gate,
-- the engine's time in ms. Answer: numbers, or the gate as it is afterwards. Relies on: nothing. Verdicts are
-- ok, failed, neutral.

-- Open the breaker until p_until, when one probe is let through.
CREATE OR REPLACE FUNCTION lp.gate_trip(p_gate lp.gate, p_until bigint) RETURNS lp.gate
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  p_gate.open_until_ms := p_until;
  p_gate.probe_token := 0;
  p_gate.failed_at_ms := '{}';
  p_gate.calls := '{0,0,0,0}';
  p_gate.opened := p_gate.opened + 1;
  p_gate.by_hand := false;
  RETURN p_gate;
END $$;

-- Close the breaker and forget its failures.
CREATE OR REPLACE FUNCTION lp.gate_reset(p_gate lp.gate) RETURNS lp.gate LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  p_gate.open_until_ms := 0;
  p_gate.probe_token := 0;
  p_gate.by_hand := false;
  p_gate.failed_at_ms := '{}';
  p_gate.calls := '{0,0,0,0}';
  RETURN p_gate;
END $$;

-- Count one outcome in two half-windows: bounded memory, and a failure is forgotten after at most one whole window.
CREATE OR REPLACE FUNCTION lp.gate_learn_rate(p_gate lp.gate, p_failed boolean, p_now bigint) RETURNS lp.gate
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  v_number bigint := p_now / greatest(1, p_gate.breaker_within_ms / 2);
  v_window bigint := p_gate.calls[1];
  v_calls bigint := p_gate.calls[2];
  v_failures bigint := p_gate.calls[3];
  v_before bigint := p_gate.calls[4]; -- calls * 2^20 | failures
  v_all bigint;
BEGIN
  IF v_number > v_window + 1 THEN
    v_calls := 0;
    v_failures := 0;
    v_before := 0;
  ELSIF v_number = v_window + 1 THEN
    v_before := (least(v_calls, 4294967295) << 20) | least(v_failures, 1048575);
    v_calls := 0;
    v_failures := 0;
  END IF;
  v_calls := v_calls + 1;
  v_failures := v_failures + p_failed::integer;
  v_all := v_calls + (v_before >> 20);
  IF p_failed AND v_all >= p_gate.breaker_min_calls
    AND (v_failures + (v_before & 1048575))::double precision >= p_gate.breaker_rate * v_all::double precision
  THEN
    RETURN lp.gate_trip(p_gate, p_now + p_gate.breaker_probe_after_ms);
  END IF;
  p_gate.calls := ARRAY[v_number, v_calls, v_failures, v_before];
  RETURN p_gate;
END $$;

-- Count one outcome; open the breaker when its rule says so. Nothing changes while all goes well.
CREATE OR REPLACE FUNCTION lp.gate_learn(p_gate lp.gate, p_verdict text, p_now bigint) RETURNS lp.gate
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  v_recent bigint[];
BEGIN
  IF p_gate.breaker_failures IS NULL OR p_verdict = 'neutral' OR p_gate.open_until_ms <> 0 THEN
    RETURN p_gate;
  END IF;
  IF p_gate.breaker_rate IS NOT NULL THEN
    RETURN lp.gate_learn_rate(p_gate, p_verdict = 'failed', p_now);
  END IF;
  IF p_verdict = 'ok' THEN
    p_gate.failed_at_ms := '{}';
    RETURN p_gate;
  END IF;
  v_recent := ARRAY(
    SELECT f.at_ms FROM unnest(p_gate.failed_at_ms) WITH ORDINALITY AS f (at_ms, n)
    WHERE f.at_ms > p_now - p_gate.breaker_within_ms ORDER BY f.n
  ) || p_now;
  IF cardinality(v_recent) >= p_gate.breaker_failures THEN
    RETURN lp.gate_trip(p_gate, p_now + p_gate.breaker_probe_after_ms);
  END IF;
  p_gate.failed_at_ms := v_recent;
  RETURN p_gate;
END $$;

-- The breaker of a key with the numbers of its task's own, unless an operator has given it others.
CREATE OR REPLACE FUNCTION lp.gate_under_own(p_gate lp.gate, p_own lp.gate) RETURNS lp.gate LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  IF p_gate.declared AND p_own.breaker_failures IS NOT NULL THEN
    p_gate.breaker_failures := p_own.breaker_failures;
    p_gate.breaker_within_ms := p_own.breaker_within_ms;
    p_gate.breaker_cooldown_ms := p_own.breaker_cooldown_ms;
    p_gate.breaker_probe_after_ms := p_own.breaker_probe_after_ms;
    p_gate.breaker_rate := p_own.breaker_rate;
    p_gate.breaker_min_calls := p_own.breaker_min_calls;
  END IF;
  RETURN p_gate;
END $$;

-- The charges of a job under a breaker by key: what it does counts there, and not at its task's own breaker. But a probe, of
-- either of the two, teaches the gate that let it through, and no other.
CREATE OR REPLACE FUNCTION lp.charges_by_key(p_charged jsonb, p_own text, p_key text) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT coalesce(jsonb_agg(CASE
    WHEN c.charge ->> :CHARGE_GATE = p_key THEN jsonb_set(c.charge, '{:CHARGE_OWN}', to_jsonb(p_own)) ELSE c.charge
  END ORDER BY c.at) FILTER (WHERE NOT c.mine OR (c.charge -> :CHARGE_PROBE)::boolean), '[]') || CASE
    WHEN bool_or(c.mine) AND NOT bool_or(c.mine AND (c.charge -> :CHARGE_PROBE)::boolean)
    THEN jsonb_build_array(jsonb_build_array(p_key, false, 0, false, p_own, NULL)) ELSE '[]'
  END
  FROM (
    SELECT e.charge, e.at, e.charge ->> :CHARGE_GATE IN (p_own, p_key) AS mine
    FROM jsonb_array_elements(p_charged) WITH ORDINALITY AS e (charge, at)
  ) AS c
$$;

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
