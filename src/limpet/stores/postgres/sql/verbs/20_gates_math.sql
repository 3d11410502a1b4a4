-- Promise: the arithmetic of core/gate, number for number, on a row of `gate`; nothing is read or written.
-- Inputs: a gate, the engine's time in ms; a charge is [key, slot, cost, probe, concurrency]; verdicts are ok, failed, neutral.
-- Answer: numbers, or the gate as it is afterwards. Relies on: nothing. The short ones are SQL, so that they are
-- written into the expression that calls them; beside a name of a column there is always its row.

-- Room of a gate that stops no job: 2^30 (UNLIMITED). An instant that never comes: 2^52 (FOREVER_MS). The largest number that
-- a gate counts to: 2^53 - 1 (MOST).

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

-- How many jobs of cost 1 the rate admits now. One that costs more takes the place of as many as it costs.
CREATE OR REPLACE FUNCTION lp.gate_rate_room(p_gate lp.gate, p_now bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN lp.gate_is_slow(p_gate) THEN lp.gate_slow_rate_room(p_gate, p_now) ELSE lp.gate_tokens(p_gate, p_now) END
$$;

-- How many jobs the gate admits now, whatever they cost; UNLIMITED when it has no say. (least passes over what is NULL.)
CREATE OR REPLACE FUNCTION lp.gate_places(p_gate lp.gate, p_now bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE
    WHEN (p_gate).paused_at_ms IS NOT NULL OR (p_gate).held_until_ms > p_now THEN 0
    ELSE least(
      CASE
        WHEN (p_gate).concurrency IS NULL AND ((p_gate).pace = :FULL_PACE OR NOT lp.gate_climbs(p_gate, p_now)) THEN :UNLIMITED
        ELSE least(:UNLIMITED, greatest(0, lp.gate_slots(p_gate, p_now) - (p_gate).used))
      END,
      CASE
        WHEN (p_gate).open_until_ms = 0 THEN NULL
        WHEN (p_gate).open_until_ms > p_now OR (p_gate).probe_token <> 0 THEN 0
        ELSE 1
      END
    )
  END
$$;

-- How many jobs of cost 1 the gate admits now; UNLIMITED when it has no say.
CREATE OR REPLACE FUNCTION lp.gate_room(p_gate lp.gate, p_now bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE
    WHEN (p_gate).paused_at_ms IS NOT NULL OR (p_gate).held_until_ms > p_now THEN 0
    ELSE least(
      lp.gate_places(p_gate, p_now),
      CASE WHEN (p_gate).interval_us IS NOT NULL THEN lp.gate_rate_room(p_gate, p_now) END,
      CASE WHEN (p_gate).cap IS NOT NULL THEN lp.gate_budget_room(p_gate, p_now) END
    )
  END
$$;

-- Whether no job passes, whatever the numbers say: it is paused or held, or its breaker is open.
CREATE OR REPLACE FUNCTION lp.gate_is_shut(p_gate lp.gate, p_now bigint) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT (p_gate).paused_at_ms IS NOT NULL OR (p_gate).held_until_ms > p_now OR (p_gate).open_until_ms > p_now
    OR ((p_gate).open_until_ms > 0 AND (p_gate).probe_token <> 0)
$$;

-- When a shut gate may admit again by the passing of time alone; NULL when only an event can open it.
CREATE OR REPLACE FUNCTION lp.gate_opens_at(p_gate lp.gate, p_now bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE
    WHEN (p_gate).paused_at_ms IS NOT NULL THEN NULL
    WHEN (p_gate).used >= lp.gate_slots(p_gate, p_now) AND lp.gate_climbed_at(p_gate) IS NULL THEN NULL
    WHEN (p_gate).open_until_ms >= :FOREVER_MS THEN NULL
    WHEN (p_gate).open_until_ms <> 0 AND (p_gate).probe_token <> 0 THEN NULL
    ELSE greatest(
      p_now, (p_gate).held_until_ms, (p_gate).open_until_ms,
      CASE WHEN (p_gate).used >= lp.gate_slots(p_gate, p_now) THEN lp.gate_climbed_at(p_gate) END,
      CASE WHEN (p_gate).interval_us IS NOT NULL THEN
        (greatest(0, (p_gate).full_at_us - lp.gate_times((p_gate).burst - 1, (p_gate).interval_us)) + 999) / 1000
      END,
      CASE WHEN (p_gate).cap IS NOT NULL AND lp.gate_budget_room(p_gate, p_now) <= 0 THEN
        lp.period_ends((p_gate).period, greatest(p_now, (p_gate).period_ms))
      END
    )
  END
$$;

-- Whether a gate that was shut, and still is, now opens sooner than waiting workers were told.
CREATE OR REPLACE FUNCTION lp.gate_opens_sooner(p_before lp.gate, p_after lp.gate, p_now bigint) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  RETURN lp.gate_room(p_before, p_now) <= 0 AND lp.gate_room(p_after, p_now) <= 0 AND coalesce(
    lp.gate_opens_at(p_after, p_now) < coalesce(lp.gate_opens_at(p_before, p_now), 9223372036854775807), false
  );
END $$;

-- How many jobs from the front of the costs pass, with this number of places, starts (gate_rate_room) and this money (NULL: no
-- matter) left at a gate: each needs one whole start, where the last may leave a debt, and all that it costs of a budget.
CREATE OR REPLACE FUNCTION lp.admitted(p_places bigint, p_tokens bigint, p_money bigint, p_costs bigint[]) RETURNS integer
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  v_limit integer := greatest(0, least(p_places, p_tokens, p_money, cardinality(p_costs))); -- a debt may be long
BEGIN
  IF (p_tokens IS NULL AND p_money IS NULL) OR 1 >= ALL (p_costs) THEN
    RETURN v_limit; -- no more than there are tokens, and none takes more than one
  END IF;
  FOR i IN 1 .. v_limit LOOP
    IF p_tokens < 1 OR p_money < greatest(1, p_costs[i]) THEN
      RETURN i - 1;
    END IF;
    p_tokens := p_tokens - p_costs[i];
    p_money := p_money - p_costs[i];
  END LOOP;
  RETURN v_limit;
END $$;

-- What a job of this cost is charged; NULL when nothing is counted.
CREATE OR REPLACE FUNCTION lp.gate_taken(p_gate lp.gate, p_cost integer, p_now bigint) RETURNS jsonb LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT CASE
    WHEN (p_gate).breaker_failures IS NOT NULL OR (p_gate).open_until_ms <> 0 OR lp.gate_counts(p_gate, p_now)
    THEN jsonb_build_array(
      (p_gate).key, (p_gate).concurrency IS NOT NULL OR lp.gate_climbs(p_gate, p_now),
      CASE WHEN (p_gate).interval_us IS NULL AND (p_gate).cap IS NULL THEN 0 ELSE p_cost END, (p_gate).open_until_ms <> 0,
      (p_gate).concurrency
    )
  END
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

-- Admit no job before p_until; a longer hold stays.
CREATE OR REPLACE FUNCTION lp.gate_hold(p_gate lp.gate, p_until bigint) RETURNS lp.gate
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  p_gate.held_until_ms := greatest(p_gate.held_until_ms, p_until);
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

-- The gate after a job that had reserved p_cost turned out to cost p_actual_cost. A rate gets back only what time has not given
-- back already (p_back, see refundable_us). A budget is corrected in the period that was charged, as long as it lasts. What has
-- reached MOST stays there: how much was cut off is not known, and what comes back would forgive what others took.
CREATE OR REPLACE FUNCTION lp.gate_correct(
  p_gate lp.gate, p_cost bigint, p_actual_cost bigint, p_now bigint, p_charged_at bigint, p_back bigint
) RETURNS lp.gate LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  IF p_gate.interval_us IS NOT NULL AND p_actual_cost > p_cost THEN
    p_gate.full_at_us := lp.gate_full_at(p_gate, p_actual_cost - p_cost, p_gate.interval_us, p_now);
  ELSIF p_gate.interval_us IS NOT NULL AND p_gate.full_at_us < :MOST THEN
    p_gate.full_at_us := greatest(0, p_gate.full_at_us - p_back);
  END IF;
  IF p_gate.period_ms = lp.period_began(p_gate.period, coalesce(p_charged_at, p_now)) AND p_gate.spent < :MOST THEN
    p_gate.spent := least(greatest(0, p_gate.spent + p_actual_cost - p_cost), :MOST);
  END IF;
  RETURN p_gate;
END $$;

-- The gate after a job that was charged p_taken has ended. Slots always return; what was counted stays, unless its actual
-- cost is known (0: it never started; p_back: what its rate gets back). Only ok and failed teach a breaker.
CREATE OR REPLACE FUNCTION lp.gate_give_back(
  p_gate lp.gate, p_taken jsonb, p_token bigint, p_verdict text, p_actual_cost bigint, p_now bigint, p_charged_at bigint, p_back bigint
) RETURNS lp.gate LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  IF p_gate.used > 0 AND (p_taken -> :CHARGE_SLOT)::boolean THEN
    p_gate.used := p_gate.used - 1;
  END IF;
  IF p_actual_cost IS NOT NULL THEN
    p_gate := lp.gate_correct(p_gate, (p_taken -> :CHARGE_COST)::bigint, p_actual_cost, p_now, p_charged_at, p_back);
  END IF;
  IF p_gate.probe_token <> p_token OR NOT (p_taken -> :CHARGE_PROBE)::boolean THEN
    IF p_gate.breaker_failures IS NULL OR p_verdict = 'neutral' THEN
      RETURN p_gate;
    END IF;
    RETURN lp.gate_learn(p_gate, p_verdict, p_now);
  END IF;
  IF p_verdict = 'ok' THEN
    RETURN lp.gate_reset(p_gate);
  END IF;
  IF p_verdict = 'failed' THEN
    RETURN lp.gate_trip(p_gate, p_now + coalesce(p_gate.breaker_cooldown_ms, 60000));
  END IF;
  p_gate.probe_token := 0;
  RETURN p_gate;
END $$;

-- True when forgetting the gate changes nothing, so that a janitor may delete it.
CREATE OR REPLACE FUNCTION lp.gate_is_blank(p_gate lp.gate, p_now bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT (p_gate).paused_at_ms IS NULL AND NOT (p_gate).draining AND (p_gate).declared AND (p_gate).used = 0
    AND (p_gate).open_until_ms = 0 AND (p_gate).held_until_ms <= p_now AND (p_gate).full_at_us <= p_now * 1000
    AND ((p_gate).spent = 0 AND (p_gate).announced_marks = 0 OR NOT lp.gate_is_current(p_gate, p_now))
    AND (p_gate).ceiling = :FULL_PACE AND ((p_gate).pace = :FULL_PACE OR lp.gate_pace(p_gate, p_now) = :FULL_PACE)
    AND CASE -- what its breaker has counted can open it no more
      WHEN (p_gate).breaker_failures IS NULL THEN true
      WHEN (p_gate).breaker_rate IS NULL THEN p_now - (p_gate).breaker_within_ms >= ALL ((p_gate).failed_at_ms)
      ELSE (p_gate).calls[2] <= 0 OR p_now / greatest(1, (p_gate).breaker_within_ms / 2) > (p_gate).calls[1] + 1
    END
$$;
