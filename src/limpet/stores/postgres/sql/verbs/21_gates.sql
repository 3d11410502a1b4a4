-- Promise: changes by operators and declarations reach stored gates, and lanes that can run because of them are woken.
-- Inputs: core.gate.GateChange and GateRule as JSON; a field left out has its default. Answer: gates as JSON that
-- core.gate.Gate is decoded from, and what was posted (w_*).
-- Relies on: the key of `gate`, lane_now_waiting. Gates are locked in the order of their keys' bytes; a step
-- that changes one holds its row, so that no change is lost and no lane comes to wait there unseen.

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

-- The gate after an operator's change; one that was not there (NULL) starts with a rule that allows all.
CREATE OR REPLACE FUNCTION lp.gate_apply(p_gate lp.gate, p_change jsonb, p_now bigint) RETURNS lp.gate
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  v_declared boolean := coalesce((p_change ->> 'declared')::boolean, false);
BEGIN
  IF p_gate.key IS NULL THEN
    p_gate := lp.gate_new(p_change ->> 'key');
  END IF;
  IF (p_change ->> 'clear')::boolean THEN
    p_gate.declared := true;
  END IF;
  IF p_change ->> 'rule' IS NOT NULL AND (p_gate.declared OR NOT v_declared) THEN
    p_gate := lp.gate_ruled(p_gate, p_change -> 'rule', v_declared, p_now);
  END IF;
  IF p_change ->> 'pause' IS NOT NULL THEN
    p_gate.paused_by := p_change #>> '{pause,by}';
    p_gate.paused_reason := p_change #>> '{pause,reason}';
    p_gate.paused_at_ms := (p_change #>> '{pause,at_ms}')::bigint;
  END IF;
  IF (p_change ->> 'resume')::boolean THEN
    p_gate.paused_by := NULL;
    p_gate.paused_reason := NULL;
    p_gate.paused_at_ms := NULL;
    p_gate.draining := false;
  END IF;
  p_gate.draining := coalesce((p_change ->> 'drain')::boolean, p_gate.draining);
  IF p_change ->> 'hold_ms' IS NOT NULL THEN
    p_gate := lp.gate_hold(p_gate, p_now + (p_change ->> 'hold_ms')::bigint);
  END IF;
  IF p_change ->> 'ceiling' IS NOT NULL THEN
    p_gate.ceiling := greatest(1, least(:FULL_PACE, (p_change ->> 'ceiling')::bigint));
  END IF;
  IF p_change ->> 'trip_ms' IS NOT NULL THEN
    p_gate := lp.gate_trip(p_gate, least(:FOREVER_MS, p_now + (p_change ->> 'trip_ms')::bigint));
    p_gate.by_hand := true;
  END IF;
  IF (p_change ->> 'reset')::boolean THEN
    p_gate := lp.gate_opened(p_gate, p_now);
  END IF;
  RETURN p_gate;
END $$;

-- The stored gates of these keys, locked.
CREATE OR REPLACE FUNCTION lp.gate_lock(p_keys text[]) RETURNS SETOF lp.gate LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY SELECT g.* FROM lp.gate AS g WHERE g.key = ANY (p_keys) ORDER BY g.key COLLATE "C" || '' FOR UPDATE;
END $$;

-- The gates of these keys, locked; missing ones are made first.
CREATE OR REPLACE FUNCTION lp.gate_take(p_keys text[]) RETURNS SETOF lp.gate LANGUAGE plpgsql AS $$
DECLARE
  v_key text;
  v_gate lp.gate;
BEGIN
  FOR v_key IN SELECT DISTINCT k COLLATE "C" FROM unnest(p_keys) AS k ORDER BY 1 LOOP
    LOOP
      SELECT g.* INTO v_gate FROM lp.gate AS g WHERE g.key = v_key FOR UPDATE;
      EXIT WHEN FOUND;
      INSERT INTO lp.gate (key) VALUES (v_key) ON CONFLICT (key) DO NOTHING;
    END LOOP;
    RETURN NEXT v_gate;
  END LOOP;
END $$;

-- Lanes that wait at a gate, and workers that sleep since it had no room, look again; also when it has room sooner than they were
-- told. p_before: as it was before it changed. Its row is held, and written.
CREATE OR REPLACE FUNCTION lp.gate_post_change(p_before lp.gate, p_gate lp.gate, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF (lp.gate_room(p_before, p_now) <= 0 AND lp.gate_room(p_gate, p_now) > 0)
    OR lp.gate_opens_sooner(p_before, p_gate, p_now)
    OR EXISTS (SELECT FROM lp.lane_now AS l WHERE l.gate = p_gate.key AND l.state = :WAITING)
  THEN
    PERFORM lp.post_gate(p_gate.key);
  END IF;
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

-- A claim's commit waits for no disk: a crash of the server takes it back, and its jobs run again.
CREATE OR REPLACE FUNCTION lp.commit_without_waiting() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('limpet.sync', current_setting('synchronous_commit'), true);
  PERFORM set_config('synchronous_commit', 'off', true);
END $$;

-- Unless it took something from a gate: the started jobs may spend it immediately, so no other job may have it after a crash.
CREATE OR REPLACE FUNCTION lp.commit_durably() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('synchronous_commit', s.was, true)
  FROM nullif(current_setting('limpet.sync', true), '') AS s (was) WHERE s.was IS NOT NULL;
END $$;

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

-- Reserve the same of the budgets among them, and note what the first job that did not fit needs there (NULL: all did).
-- For claims, which wait for no lock.
CREATE OR REPLACE FUNCTION lp.reserve_budgets(p_keys text[], p_ns integer[], p_costs bigint[], p_reserved_for bigint[], p_now bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_each record;
  v_gate lp.gate;
  v_after lp.gate;
BEGIN
  FOR v_each IN
    SELECT c.* FROM unnest(p_keys, p_ns, p_costs, p_reserved_for) AS c (key, n, cost, reserved_for) WHERE c.n > 0 OR c.reserved_for IS NOT NULL
  LOOP
    SELECT g.* INTO v_gate FROM lp.gate AS g WHERE g.key = v_each.key AND g.cap IS NOT NULL;
    CONTINUE WHEN NOT FOUND;
    v_after := lp.gate_reserve(v_gate, v_each.cost, coalesce(v_each.reserved_for, 0), p_now);
    UPDATE lp.gate AS g SET period_ms = v_after.period_ms, spent = v_after.spent, reserved_for = v_after.reserved_for WHERE g.key = v_each.key;
    IF v_each.n > 0 THEN
      PERFORM lp.commit_durably();
    END IF;
    PERFORM lp.log_gate_events(v_gate, v_after, false, p_now);
  END LOOP;
END $$;

-- Write a gate and let its waiting lanes look again. p_before: the gate before the change, by a step that holds its row
-- (gate_lock, gate_take); NULL by a step that saw no row and makes it. Of two steps that make one gate at the same time the second is
-- told to do its whole step again: what it has to say must be said to the gate that is there now.
CREATE OR REPLACE FUNCTION lp.put_gate(p_before lp.gate, p_gate lp.gate, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_before.key IS NULL THEN
    INSERT INTO lp.gate (key) VALUES (p_gate.key) ON CONFLICT (key) DO NOTHING;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'the gate % was made meanwhile', p_gate.key USING ERRCODE = 'serialization_failure';
    END IF;
  END IF;
  PERFORM lp.gate_write(p_gate);
  PERFORM lp.gate_post_change(p_before, p_gate, p_now);
END $$;

-- Apply changes in order; the gate after each, as JSON.
CREATE OR REPLACE FUNCTION lp.apply_changes(p_changes jsonb, p_now bigint) RETURNS json[] LANGUAGE plpgsql AS $$
DECLARE
  v_change jsonb;
  v_gate lp.gate;
  v_after lp.gate;
  v_old lp.gate[] := ARRAY( -- before the first change
    SELECT g FROM lp.gate_take(ARRAY(SELECT c ->> 'key' FROM jsonb_array_elements(p_changes) AS c)) AS g
  );
  v_answers json[] := '{}';
  v_shuts boolean := false; -- one that was not shut
BEGIN
  FOR v_change IN SELECT c FROM jsonb_array_elements(p_changes) AS c LOOP
    SELECT g.* INTO v_gate FROM lp.gate AS g WHERE g.key = v_change ->> 'key';
    v_after := lp.gate_apply(v_gate, v_change, p_now);
    IF v_after IS DISTINCT FROM v_gate THEN
      PERFORM lp.gate_write(v_after);
    END IF;
    v_answers := v_answers || lp.gate_json(v_after);
  END LOOP;
  FOREACH v_gate IN ARRAY v_old LOOP
    SELECT g.* INTO v_after FROM lp.gate AS g WHERE g.key = v_gate.key;
    PERFORM lp.gate_post_change(v_gate, v_after, p_now), lp.log_gate_events(v_gate, v_after, true, p_now);
    v_shuts := v_shuts OR (lp.gate_is_shut(v_after, p_now) AND NOT lp.gate_is_shut(v_gate, p_now));
  END LOOP;
  IF v_shuts THEN
    PERFORM lp.lock(:DOOR);
  END IF;
  RETURN v_answers;
END $$;

-- Verb: operators' changes in order; the gate after each. p_call names the call: when its answer got lost and it is
-- made again, it has happened, and the answer is what these gates are now.
CREATE OR REPLACE FUNCTION lp.change_gates_1(
  p_changes jsonb, p_call text, p_now bigint,
  OUT gates text, OUT w_lanes bigint[], OUT w_ns integer[], OUT w_dues bigint[], OUT w_gates text[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint := lp.now_1(p_now);
BEGIN
  INSERT INTO lp.receipt (session, claimer, seq, at_ms) VALUES ('', p_call, 0, v_now)
  ON CONFLICT (session, claimer) DO NOTHING;
  IF FOUND THEN
    gates := array_to_json(lp.apply_changes(p_changes, v_now));
    SELECT * INTO w_lanes, w_ns, w_dues, w_gates FROM lp.posted();
  ELSE
    SELECT coalesce(json_agg(
      lp.gate_json(CASE WHEN g.key IS NULL THEN lp.gate_new(c.change ->> 'key') ELSE g END) ORDER BY c.n
    ), '[]') INTO gates
    FROM jsonb_array_elements(p_changes) WITH ORDINALITY AS c (change, n)
    LEFT JOIN lp.gate AS g ON g.key = ANY (ARRAY[c.change ->> 'key']);
  END IF;
END $$;

-- Make limits and breakers that jobs name known; an operator's rule stays. Locks nothing where nothing differs. No lane
-- waits at a gate that was not there: those are stored together, a batch may name ten thousand.
CREATE OR REPLACE FUNCTION lp.declare(p_rules jsonb, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_new jsonb;
  v_changes jsonb;
BEGIN
  SELECT jsonb_agg(r.rule) FILTER (WHERE (f.gate).key IS NULL),
    jsonb_agg(jsonb_build_object('key', r.rule ->> 'key', 'rule', r.rule, 'declared', true)) FILTER (WHERE (f.gate).key IS NOT NULL)
  INTO v_new, v_changes
  FROM ( -- of several the last counts
    SELECT DISTINCT ON (a.rule ->> 'key' COLLATE "C") a.rule FROM jsonb_array_elements(p_rules) WITH ORDINALITY AS a (rule, at)
    ORDER BY a.rule ->> 'key' COLLATE "C", a.at DESC
  ) AS r
  LEFT JOIN LATERAL (SELECT g FROM lp.gate AS g WHERE g.key = r.rule ->> 'key' LIMIT 1) AS f (gate) ON true
  WHERE (f.gate).key IS NULL OR (f.gate).declared AND lp.gate_rule(f.gate, r.rule) IS DISTINCT FROM f.gate;
  IF v_new IS NOT NULL THEN
    INSERT INTO lp.gate
    SELECT g.* FROM (SELECT a.rule FROM jsonb_array_elements(v_new) AS a (rule) ORDER BY a.rule ->> 'key' COLLATE "C") AS r
    CROSS JOIN LATERAL lp.gate_rule(lp.gate_new(r.rule ->> 'key'), r.rule) AS g
    ON CONFLICT (key) DO NOTHING;
  END IF;
  IF v_changes IS NOT NULL THEN
    PERFORM lp.apply_changes(v_changes, p_now);
  END IF;
END $$;

-- Verb: those of the gates with these keys that there are, by key.
CREATE OR REPLACE FUNCTION lp.gates_of_keys_1(p_keys text[]) RETURNS text LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  RETURN (
    SELECT coalesce(json_agg(lp.gate_json(g) ORDER BY g.key COLLATE "C"), '[]') FROM lp.gate AS g WHERE g.key = ANY (p_keys)
  );
END $$;

-- Verb: gates whose key begins with p_prefix, by key, at most 10,000. In the order of bytes they stand together.
CREATE OR REPLACE FUNCTION lp.gates_1(p_prefix text) RETURNS text LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_gate lp.gate;
  v_found json[] := '{}';
BEGIN
  FOR v_gate IN
    SELECT g.* FROM lp.gate AS g WHERE g.key >= p_prefix ORDER BY g.key LIMIT 10000
  LOOP
    EXIT WHEN NOT starts_with(v_gate.key, p_prefix);
    v_found := v_found || lp.gate_json(v_gate);
  END LOOP;
  RETURN array_to_json(v_found);
END $$;

-- Verb: the gates, by key, at most 10,000; and [token, instant of the claim, charges] of each running job that was charged
-- anything. Both in the snapshot of the statement that calls it.
CREATE OR REPLACE FUNCTION lp.accounts_1(OUT gates text, OUT running text) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  gates := lp.gates_1('');
  SELECT coalesce(json_agg(json_build_array(r.token, r.claimed_ms, r.charged)), '[]') INTO running
  FROM lp.running AS r WHERE r.charged IS NOT NULL;
END $$;
