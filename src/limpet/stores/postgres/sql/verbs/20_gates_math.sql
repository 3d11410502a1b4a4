-- Promise: a gate as a whole: its record, and what its parts (19_gates_*.sql) admit, charge and give back together, as
-- core/gate/record.py and core/gate/gate.py have it, number for number; `gate_write` and `charge_gates` alone write.
-- Inputs: a gate, the engine's time in ms; a charge is [key, slot, cost, probe, concurrency]; verdicts are ok, failed, neutral.
-- Answer: numbers, or the gate as it is afterwards. Relies on: the key of `gate`. The short ones are SQL, so that they are
-- written into the expression that calls them; beside a name of a column there is always its row.

-- Room of a gate that stops no job: 2^30 (UNLIMITED). An instant that never comes: 2^52 (FOREVER_MS). The largest number that
-- a gate counts to: 2^53 - 1 (MOST).

-- A gate that is not stored: its rule allows all.
CREATE OR REPLACE FUNCTION lp.gate_new(p_key text) RETURNS lp.gate LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  v_gate lp.gate;
BEGIN
  v_gate.key := p_key;
  v_gate.burst := 1;
  v_gate.default_for_429 := false;
  v_gate.declared := true;
  v_gate.draining := false;
  v_gate.used := 0;
  v_gate.full_at_us := 0;
  v_gate.held_until_ms := 0;
  v_gate.failed_at_ms := '{}';
  v_gate.calls := '{0,0,0,0}';
  v_gate.open_until_ms := 0;
  v_gate.probe_token := 0;
  v_gate.opened := 0;
  v_gate.unit := '';
  v_gate.period_ms := 0;
  v_gate.spent := 0;
  v_gate.reserved_for := 0;
  v_gate.climb_ms := 60000;
  v_gate.pace := :FULL_PACE;
  v_gate.paced_at_ms := 0;
  v_gate.ceiling := :FULL_PACE;
  v_gate.last_cut_token := 0;
  v_gate.rule_changed_at_ms := 0;
  v_gate.announced_marks := 0;
  v_gate.by_hand := false;
  RETURN v_gate;
END $$;

-- The gate as core.gate.Gate is written in JSON.
CREATE OR REPLACE FUNCTION lp.gate_json(p_gate lp.gate) RETURNS json LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT json_build_object(
    'rule', json_build_object(
      'key', (p_gate).key, 'concurrency', (p_gate).concurrency, 'interval_us', (p_gate).interval_us,
      'burst', (p_gate).burst, 'default_for_429', (p_gate).default_for_429,
      'breaker', CASE WHEN (p_gate).breaker_failures IS NOT NULL THEN json_build_object(
        'failures', (p_gate).breaker_failures, 'within_ms', (p_gate).breaker_within_ms,
        'cooldown_ms', (p_gate).breaker_cooldown_ms, 'probe_after_ms', (p_gate).breaker_probe_after_ms,
        'rate', (p_gate).breaker_rate, 'min_calls', (p_gate).breaker_min_calls
      ) END,
      'unit', (p_gate).unit, 'cap', (p_gate).cap, 'period', (p_gate).period, 'floor', (p_gate).floor, 'climb_ms', (p_gate).climb_ms,
      'depth', (p_gate).depth, 'tenant_depth', (p_gate).tenant_depth
    ),
    'declared', (p_gate).declared,
    'paused', CASE WHEN (p_gate).paused_at_ms IS NOT NULL THEN json_build_object(
      'by', (p_gate).paused_by, 'reason', (p_gate).paused_reason, 'at_ms', (p_gate).paused_at_ms
    ) END,
    'draining', (p_gate).draining, 'used', (p_gate).used, 'full_at_us', (p_gate).full_at_us,
    'held_until_ms', (p_gate).held_until_ms, 'failed_at_ms', (p_gate).failed_at_ms, 'calls', (p_gate).calls,
    'open_until_ms', (p_gate).open_until_ms, 'probe_token', (p_gate).probe_token, 'opened', (p_gate).opened,
    'period_ms', (p_gate).period_ms, 'spent', (p_gate).spent, 'reserved_for', (p_gate).reserved_for,
    'pace', (p_gate).pace, 'paced_at_ms', (p_gate).paced_at_ms, 'ceiling', (p_gate).ceiling, 'last_cut_token', (p_gate).last_cut_token, 'rule_changed_at_ms', (p_gate).rule_changed_at_ms, 'announced_marks', (p_gate).announced_marks,
    'by_hand', (p_gate).by_hand
  )
$$;

-- The gate with another rule.
CREATE OR REPLACE FUNCTION lp.gate_rule(p_gate lp.gate, p_rule jsonb) RETURNS lp.gate LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  v_breaker jsonb := nullif(p_rule -> 'breaker', 'null');
BEGIN
  p_gate.concurrency := (p_rule ->> 'concurrency')::bigint;
  p_gate.interval_us := (p_rule ->> 'interval_us')::bigint;
  p_gate.burst := coalesce((p_rule ->> 'burst')::bigint, 1);
  p_gate.default_for_429 := coalesce((p_rule ->> 'default_for_429')::boolean, false);
  p_gate.breaker_failures := CASE WHEN v_breaker IS NOT NULL THEN coalesce((v_breaker ->> 'failures')::bigint, 5) END;
  p_gate.breaker_within_ms := CASE WHEN v_breaker IS NOT NULL THEN coalesce((v_breaker ->> 'within_ms')::bigint, 60000) END;
  p_gate.breaker_cooldown_ms := CASE WHEN v_breaker IS NOT NULL THEN coalesce((v_breaker ->> 'cooldown_ms')::bigint, 60000) END;
  p_gate.breaker_probe_after_ms := CASE WHEN v_breaker IS NOT NULL THEN coalesce((v_breaker ->> 'probe_after_ms')::bigint, 60000) END;
  p_gate.breaker_rate := (v_breaker ->> 'rate')::double precision;
  p_gate.breaker_min_calls := CASE WHEN v_breaker IS NOT NULL THEN coalesce((v_breaker ->> 'min_calls')::bigint, 20) END;
  p_gate.unit := coalesce(p_rule ->> 'unit', '');
  p_gate.cap := (p_rule ->> 'cap')::bigint;
  p_gate.period := p_rule ->> 'period';
  p_gate.floor := (p_rule ->> 'floor')::bigint;
  p_gate.climb_ms := coalesce((p_rule ->> 'climb_ms')::bigint, 60000);
  p_gate.depth := (p_rule ->> 'depth')::bigint;
  p_gate.tenant_depth := (p_rule ->> 'tenant_depth')::bigint;
  RETURN p_gate;
END $$;

-- Write a gate whose row is held; `opens_ms` stays as it is stored.
CREATE OR REPLACE FUNCTION lp.gate_write(p_gate lp.gate) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF starts_with(p_gate.key, 'queue:') AND EXISTS (
    SELECT FROM lp.gate AS g WHERE g.key = p_gate.key AND (g.depth, g.tenant_depth) IS DISTINCT FROM (p_gate.depth, p_gate.tenant_depth)
  ) THEN
    PERFORM lp.forget_depths(substr(p_gate.key, 7));
  END IF;
  UPDATE lp.gate AS g SET
    concurrency = p_gate.concurrency, interval_us = p_gate.interval_us, burst = p_gate.burst, default_for_429 = p_gate.default_for_429,
    breaker_failures = p_gate.breaker_failures, breaker_within_ms = p_gate.breaker_within_ms,
    breaker_cooldown_ms = p_gate.breaker_cooldown_ms, breaker_probe_after_ms = p_gate.breaker_probe_after_ms,
    breaker_rate = p_gate.breaker_rate, breaker_min_calls = p_gate.breaker_min_calls, declared = p_gate.declared,
    paused_at_ms = p_gate.paused_at_ms, paused_by = p_gate.paused_by, paused_reason = p_gate.paused_reason,
    draining = p_gate.draining, used = p_gate.used, full_at_us = p_gate.full_at_us,
    held_until_ms = p_gate.held_until_ms, failed_at_ms = p_gate.failed_at_ms, calls = p_gate.calls,
    open_until_ms = p_gate.open_until_ms, probe_token = p_gate.probe_token, opened = p_gate.opened,
    unit = p_gate.unit, cap = p_gate.cap, period = p_gate.period, period_ms = p_gate.period_ms, spent = p_gate.spent,
    reserved_for = p_gate.reserved_for, floor = p_gate.floor, climb_ms = p_gate.climb_ms, pace = p_gate.pace,
    paced_at_ms = p_gate.paced_at_ms, ceiling = p_gate.ceiling, last_cut_token = p_gate.last_cut_token, rule_changed_at_ms = p_gate.rule_changed_at_ms,
    depth = p_gate.depth, tenant_depth = p_gate.tenant_depth, by_hand = p_gate.by_hand
  WHERE g.key = p_gate.key;
END $$;

-- Whether a gate counts the jobs that pass: such jobs are never claimed ahead of time.
CREATE OR REPLACE FUNCTION lp.gate_counts(p_gate lp.gate, p_now bigint) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT (p_gate).concurrency IS NOT NULL OR (p_gate).interval_us IS NOT NULL OR (p_gate).cap IS NOT NULL
    OR ((p_gate).pace < :FULL_PACE AND lp.gate_climbs(p_gate, p_now))
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
      '', (p_gate).concurrency
    )
  END
$$;

-- Take the total cost of the jobs of a claim from each of these gates, whose rows are held. p_tokens: of the first
-- job at each, for a half-open breaker to remember.
CREATE OR REPLACE FUNCTION lp.charge_gates(p_keys text[], p_ns integer[], p_costs bigint[], p_tokens bigint[], p_now bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE lp.gate AS g SET
    used = CASE WHEN g.concurrency IS NULL AND NOT lp.gate_climbs(g, p_now) THEN g.used ELSE g.used + c.n END,
    full_at_us = CASE WHEN g.interval_us IS NULL THEN g.full_at_us ELSE lp.gate_passed(g, c.cost, p_now) END,
    probe_token = CASE WHEN g.open_until_ms = 0 THEN g.probe_token ELSE c.token END
  FROM unnest(p_keys, p_ns, p_costs, p_tokens) AS c (key, n, cost, token)
  WHERE g.key = ANY (ARRAY[c.key]) AND c.n > 0
    AND (g.concurrency IS NOT NULL OR g.interval_us IS NOT NULL OR g.open_until_ms <> 0 OR lp.gate_climbs(g, p_now));
  IF FOUND THEN
    PERFORM lp.commit_durably();
  END IF;
END $$;

-- What a job cost at a gate by its own account (spent: {unit: how much}); NULL: what was counted stands. One that was
-- put off (unfinished) will reserve again, so the budget is refunded the part that it did not report as spent.
CREATE OR REPLACE FUNCTION lp.gate_reported_cost(p_gate lp.gate, p_spent jsonb, p_unstarted boolean, p_unfinished boolean) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE
    WHEN (p_gate).interval_us IS NULL AND (p_gate).period IS NULL THEN NULL
    WHEN p_unstarted THEN 0
    ELSE coalesce((p_spent ->> (p_gate).unit)::bigint, CASE WHEN p_unfinished AND (p_gate).cap IS NOT NULL THEN 0 END)
  END
$$;

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

-- The gate with another rule, declared or an operator's: what was taken under the old rule stays taken.
CREATE OR REPLACE FUNCTION lp.gate_ruled(p_gate lp.gate, p_rule jsonb, p_declared boolean, p_now bigint) RETURNS lp.gate
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  v_after lp.gate := lp.gate_rule(p_gate, p_rule);
BEGIN
  v_after.full_at_us := lp.gate_full_under(p_gate, v_after.interval_us, v_after.burst, p_now);
  IF p_gate.interval_us IS NOT NULL OR p_gate.cap IS NOT NULL THEN -- or else no job was charged
    v_after.rule_changed_at_ms := p_now;
  END IF;
  v_after.declared := p_declared;
  v_after.reserved_for := 0;
  RETURN v_after;
END $$;

-- The gate after an operator has opened it: nothing holds or slows it any more.
CREATE OR REPLACE FUNCTION lp.gate_opened(p_gate lp.gate, p_now bigint) RETURNS lp.gate LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  p_gate := lp.gate_reset(p_gate);
  IF p_gate.interval_us IS NOT NULL THEN -- one job may start now, however far pushback had moved it
    p_gate.full_at_us := least(p_gate.full_at_us, p_now * 1000 + lp.gate_times(p_gate.burst - 1, p_gate.interval_us));
    p_gate.rule_changed_at_ms := p_now;
  END IF;
  p_gate.held_until_ms := 0;
  p_gate.reserved_for := 0;
  p_gate.pace := :FULL_PACE;
  p_gate.paced_at_ms := 0;
  p_gate.ceiling := :FULL_PACE;
  p_gate.last_cut_token := 0;
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
