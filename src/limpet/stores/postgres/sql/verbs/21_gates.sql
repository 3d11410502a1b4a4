-- Promise: changes by operators and declarations reach stored gates, and lanes that can run because of them are woken.
-- Inputs: core.gate.GateChange and GateRule as JSON; a field left out has its default. Answer: gates as JSON that
-- core.gate.Gate is decoded from, and what was posted (w_*).
-- Relies on: the key of `gate`, lane_now_waiting. Gates are locked in the order of their keys' bytes; a step
-- that changes one holds its row, so that no change is lost and no lane comes to wait there unseen.

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

-- Verb: a page of breakers, and of other gates that are open as one, whose key begins with p_prefix: worst first, then by key.
-- p_ranks, p_after: the ranks to look at, each with the key behind which the page begins.
CREATE OR REPLACE FUNCTION lp.gates_worst_first_1(p_prefix text, p_ranks integer[], p_after text[], p_limit integer) RETURNS text LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_found json[] := '{}';
BEGIN
  FOR i IN 1 .. cardinality(p_ranks) LOOP
    v_found := v_found || CASE p_ranks[i]
      WHEN :BREAKER_OPEN THEN ARRAY(
        SELECT lp.gate_json(g) FROM lp.gate AS g WHERE g.open_until_ms <> 0
          AND g.key > p_after[i] AND g.key >= p_prefix AND g.key < p_prefix || chr(1114111) ORDER BY g.key LIMIT p_limit - cardinality(v_found)
      )
      WHEN :BREAKER_COUNTING THEN ARRAY(
        SELECT lp.gate_json(g) FROM lp.gate AS g WHERE g.open_until_ms = 0 AND (g.failed_at_ms <> '{}' OR g.calls[2] > 0)
          AND g.key > p_after[i] AND g.key >= p_prefix AND g.key < p_prefix || chr(1114111) ORDER BY g.key LIMIT p_limit - cardinality(v_found)
      )
      WHEN :BREAKER_CLOSED THEN ARRAY(
        SELECT lp.gate_json(g) FROM lp.gate AS g
        WHERE g.open_until_ms = 0 AND g.failed_at_ms = '{}' AND g.calls[2] <= 0 AND g.key >= 'breaker:' AND g.key < 'breaker;'
          AND g.key > p_after[i] AND g.key >= p_prefix AND g.key < p_prefix || chr(1114111) ORDER BY g.key LIMIT p_limit - cardinality(v_found)
      )
    END;
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
