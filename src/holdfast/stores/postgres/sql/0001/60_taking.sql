-- Promise: ready jobs of one lane become running, as far as its gates admit them. Inputs: what the claim has taken so
-- far (hf.taking) and a lane of the floor. Answer: the same, and the jobs in order. The caller holds lock 1 and so waits
-- for nobody: a gate or job that is locked by somebody else is left for the next claim ("again").
-- Relies on wait_ready, whose range begins at the lane's floor: rows that are gone are not walked over again.

CREATE TYPE hf.taking AS (
  now bigint,
  left_n integer, -- how many it may still take
  slots integer, -- how many of them may be ones that must start at once
  least smallint, -- and of which priorities
  queues text[], tasks text[], capabilities text[],
  token bigint, -- the last one given
  tokens bigint[], hards bigint[], -- tokens of this claim, and the hard timeout (-1: none) that the jobs of each share
  shared boolean[], -- whether further jobs may join that token: a suspect's lease is its own
  ids bytea[], -- what was taken, in order
  skipped bigint[], -- classes that give nothing to this claim
  skipped_lanes bigint[],
  floor_classes bigint[], floor_priorities smallint[], -- classes that have given all above this priority
  reopening bigint, -- when the first of the shut classes may go on
  disturbed boolean, -- a job left on the way, so its dependents may have come into lanes seen before
  cut boolean, -- the lanes in view are only the first of more
  again boolean
);

-- The token for a job of this hard timeout: jobs that end together share a lease, a suspect has one of its own.
CREATE FUNCTION hf.token_for_1(INOUT t hf.taking, p_hard bigint, p_alone boolean, OUT token bigint) LANGUAGE plpgsql AS $$
BEGIN
  IF NOT p_alone THEN
    FOR i IN 1 .. cardinality(t.tokens) LOOP
      IF t.shared[i] AND t.hards[i] = p_hard THEN
        token := t.tokens[i];
        RETURN;
      END IF;
    END LOOP;
  END IF;
  t.token := greatest(t.token + 1, t.now * 2048);
  t.tokens := t.tokens || t.token;
  t.hards := t.hards || p_hard;
  t.shared := t.shared || NOT p_alone;
  token := t.token;
END $$;

-- A lane that its gates stop: it waits at the first of its own that is shut, or its class is stopped as a whole.
CREATE FUNCTION hf.stop_lane_1(INOUT t hf.taking, p_lane hf.lane, p_gates hf.gate[]) LANGUAGE plpgsql AS $$
DECLARE
  v_key text;
  v_shut text;
BEGIN
  t.skipped_lanes := t.skipped_lanes || p_lane.id;
  SELECT g.key INTO v_shut FROM unnest(p_lane.lane_gates) WITH ORDINALITY AS k (key, at) JOIN unnest(p_gates) AS g ON g.key = k.key
  WHERE hf.gate_room_1(g, t.now) <= 0 ORDER BY k.at LIMIT 1;
  IF v_shut IS NULL THEN
    t.skipped := t.skipped || p_lane.class;
    RETURN;
  END IF;
  PERFORM hf.park_1(p_lane, v_shut);
  FOREACH v_key IN ARRAY p_lane.lane_gates LOOP -- it may have been woken for another's place: pass the wake on
    IF NOT hf.wake_lanes_1(v_key, t.now) THEN
      PERFORM hf.post_gate_1(v_key);
    END IF;
  END LOOP;
END $$;

-- A lane in which nothing was found: it rests, unless somebody else holds what it has.
CREATE FUNCTION hf.found_empty_1(INOUT t hf.taking, p_lane hf.lane) LANGUAGE plpgsql AS $$
DECLARE
  v_key text;
BEGIN
  t.skipped_lanes := t.skipped_lanes || p_lane.id;
  IF EXISTS (SELECT 1 FROM hf.wait WHERE lane = p_lane.id AND state = 2) THEN
    UPDATE hf.lane_now SET floor_ms = 0, floor_id = '\x' WHERE id = p_lane.id AND floor_ms > 0;
    t.again := true;
    RETURN;
  END IF;
  PERFORM hf.rest_1(p_lane);
  FOREACH v_key IN ARRAY p_lane.lane_gates LOOP
    IF NOT hf.wake_lanes_1(v_key, t.now) THEN
      PERFORM hf.post_gate_1(v_key);
    END IF;
  END LOOP;
END $$;

-- The gates of a lane, by key; those that count, or at which it would have to wait, are locked. NULL when one of these
-- is held by somebody else.
CREATE FUNCTION hf.gates_for_1(p_lane hf.lane) RETURNS hf.gate[] LANGUAGE plpgsql AS $$
DECLARE
  v_gates hf.gate[];
  v_locked hf.gate[];
  v_keys text[];
BEGIN
  SELECT coalesce(array_agg(g), '{}'), array_agg(g.key ORDER BY g.key COLLATE "C") FILTER (
    WHERE g.concurrency IS NOT NULL OR g.interval_us IS NOT NULL OR g.breaker_failures IS NOT NULL OR g.open_until_ms > 0
      OR g.key = ANY (p_lane.lane_gates)
  ) INTO v_gates, v_keys FROM hf.gate AS g WHERE g.key = ANY (p_lane.class_gates || p_lane.lane_gates);
  IF v_keys IS NULL THEN
    RETURN v_gates;
  END IF;
  SELECT array_agg(g) INTO v_locked FROM (
    SELECT * FROM hf.gate WHERE key = ANY (v_keys) ORDER BY key COLLATE "C" FOR UPDATE SKIP LOCKED
  ) AS g;
  IF cardinality(v_locked) IS DISTINCT FROM cardinality(v_keys) THEN
    RETURN NULL;
  END IF;
  RETURN v_locked || ARRAY(SELECT g FROM unnest(v_gates) AS g WHERE NOT g.key = ANY (v_keys));
END $$;

-- Of the rows that were popped, those that can run now. Expired ones are cancelled on the way; suspects need a slot.
CREATE FUNCTION hf.usable_1(
  INOUT t hf.taking, p_lane bigint, p_ids bytea[], p_losts integer[], p_expires bigint[], OUT usable integer[]
) LANGUAGE plpgsql AS $$
DECLARE
  v_slots integer := t.slots;
BEGIN
  usable := '{}';
  FOR i IN 1 .. cardinality(p_ids) LOOP
    IF p_expires[i] <= t.now THEN
      IF hf.try_lock_1(2) THEN
        t.disturbed := true;
        PERFORM hf.cancel_waiting_1(p_ids[i], 'expired', t.now);
      ELSE
        t.skipped_lanes := t.skipped_lanes || p_lane;
        t.again := true;
      END IF;
    ELSIF p_losts[i] > 0 THEN
      IF v_slots > 0 THEN
        v_slots := v_slots - 1;
        usable := usable || i;
      ELSE
        t.skipped_lanes := t.skipped_lanes || p_lane;
      END IF;
    ELSE
      usable := usable || i;
    END IF;
  END LOOP;
END $$;

-- Charge the gates for these jobs; what each job was charged, NULL when nothing is counted.
CREATE FUNCTION hf.charge_1(p_gates hf.gate[], p_costs integer[], p_token bigint, p_now bigint) RETURNS jsonb[] LANGUAGE plpgsql AS $$
DECLARE
  v_got record;
  v_gate hf.gate;
  v_after hf.gate;
  v_charged jsonb[];
  v_all jsonb[];
BEGIN
  FOREACH v_gate IN ARRAY p_gates LOOP
    SELECT * INTO v_got FROM hf.gate_charge_1(v_gate, p_costs, p_token, p_now);
    v_after := v_got.gate;
    v_charged := v_got.charged;
    IF cardinality(v_charged) > 0 THEN
      UPDATE hf.gate SET used = v_after.used, full_at_us = v_after.full_at_us, probe_token = v_after.probe_token
      WHERE key = v_gate.key;
      SELECT array_agg(coalesce(c.so_far, '[]') || jsonb_build_array(c.this) ORDER BY c.at) INTO v_all
      FROM unnest(v_all, v_charged) WITH ORDINALITY AS c (so_far, this, at);
    END IF;
  END LOOP;
  RETURN v_all;
END $$;

-- Take up to `p_count` jobs from the front of a lane.
CREATE FUNCTION hf.take_lane_1(INOUT t hf.taking, p_lane bigint, p_count integer, OUT taken bytea[]) LANGUAGE plpgsql AS $$
DECLARE
  v_got record;
  v_lane hf.lane;
  v_gates hf.gate[];
  v_must boolean;
  v_free bigint := 1 << 30;
  v_asked integer;
  v_n integer;
  v_places tid[];
  v_ids bytea[];
  v_dues bigint[];
  v_costs integer[];
  v_losts integer[];
  v_expires bigint[];
  v_hards bigint[];
  v_odd boolean;
  v_usable integer[];
  v_token bigint;
  v_tokens bigint[] := '{}';
  v_charged jsonb[];
  v_popped integer;
BEGIN
  taken := '{}';
  SELECT * INTO v_lane FROM hf.lane WHERE id = p_lane;
  v_gates := hf.gates_for_1(v_lane);
  IF v_gates IS NULL THEN
    t.skipped_lanes := t.skipped_lanes || p_lane;
    t.again := true;
    RETURN;
  END IF;
  v_must := v_lane.limited;
  IF v_gates <> '{}' THEN
    SELECT min(hf.gate_room_1(g, t.now)), v_must OR bool_or(
      g.key = ANY (v_lane.class_gates) AND (g.concurrency IS NOT NULL OR g.interval_us IS NOT NULL)
    ) INTO v_free, v_must FROM unnest(v_gates) AS g;
    IF v_free <= 0 THEN
      t := hf.stop_lane_1(t, v_lane, v_gates);
      RETURN;
    END IF;
  END IF;
  v_asked := least(p_count, v_free, CASE WHEN v_must THEN t.slots END);
  IF v_asked <= 0 THEN -- no slot is left for it: that says nothing about what the lane holds
    t.skipped_lanes := t.skipped_lanes || p_lane;
    RETURN;
  END IF;

  SELECT array_agg(w.place), array_agg(w.id), array_agg(w.due_ms), array_agg(w.cost), array_agg(w.lost), array_agg(w.expires_ms),
    array_agg(coalesce(p.hard_timeout_ms, -1)), bool_or(w.lost > 0 OR coalesce(w.expires_ms <= t.now, false))
  INTO v_places, v_ids, v_dues, v_costs, v_losts, v_expires, v_hards, v_odd
  FROM (
    SELECT r.ctid AS place, r.id, r.due_ms, r.cost, r.lost, r.expires_ms
    FROM hf.lane_now AS l JOIN hf.wait AS r ON r.lane = l.id AND r.state = 2 AND (r.due_ms, r.id) >= (l.floor_ms, l.floor_id)
    WHERE l.id = p_lane ORDER BY r.due_ms, r.id LIMIT v_asked FOR UPDATE OF r SKIP LOCKED
  ) AS w JOIN hf.job AS j ON j.id = w.id LEFT JOIN hf.policy AS p ON p.id = j.policy;
  IF v_ids IS NULL THEN
    t := hf.found_empty_1(t, v_lane);
    RETURN;
  END IF;
  v_popped := cardinality(v_ids);

  IF v_odd THEN
    SELECT * INTO v_got FROM hf.usable_1(t, p_lane, v_ids, v_losts, v_expires);
    t := v_got.t;
    v_usable := v_got.usable;
    SELECT array_agg(v_places[i]), array_agg(v_ids[i]), array_agg(v_dues[i]), array_agg(v_costs[i]), array_agg(v_losts[i]), array_agg(v_hards[i])
    INTO v_places, v_ids, v_dues, v_costs, v_losts, v_hards FROM unnest(v_usable) AS i;
  END IF;
  v_n := coalesce(cardinality(v_ids), 0);
  IF v_gates <> '{}' AND v_n > 0 THEN
    SELECT least(v_n, min(hf.gate_admits_1(g, v_costs, t.now)), CASE WHEN v_must THEN t.slots END) INTO v_n FROM unnest(v_gates) AS g;
  END IF;
  IF v_n <= 0 THEN
    IF v_ids IS NOT NULL THEN
      t.skipped_lanes := t.skipped_lanes || p_lane;
    END IF;
    RETURN;
  END IF;
  taken := v_ids[:v_n];

  FOR i IN 1 .. v_n LOOP
    IF i > 1 AND v_hards[i] = v_hards[i - 1] AND v_losts[i] = 0 AND v_losts[i - 1] = 0 THEN
      v_tokens := v_tokens || v_token;
    ELSE
      SELECT * INTO v_got FROM hf.token_for_1(t, v_hards[i], v_losts[i] > 0);
      t := v_got.t;
      v_token := v_got.token;
      v_tokens := v_tokens || v_token;
    END IF;
  END LOOP;
  v_charged := hf.charge_1(v_gates, v_costs[:v_n], v_tokens[1], t.now);

  WITH gone AS (
    DELETE FROM hf.wait WHERE ctid = ANY (v_places[:v_n]) RETURNING *
  )
  INSERT INTO hf.running (
    id, token, lane, due_ms, claimed_ms, expires_ms, held_since_ms, attempt, lost, held, cost, priority, flags, charged,
    reason, cause, error_type
  )
  SELECT g.id, k.token, g.lane, g.due_ms, t.now, g.expires_ms, g.held_since_ms, g.attempt + 1, g.lost, g.held, g.cost,
    g.priority, g.flags, k.charged, g.reason, g.cause, g.error_type
  FROM gone AS g JOIN unnest(taken, v_tokens, v_charged) AS k (id, token, charged) ON k.id = g.id;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'jobs of lane % were gone while they were held', p_lane USING ERRCODE = 'data_corrupted';
  END IF;

  PERFORM hf.count_1(p_lane, 2, -v_n, 3, v_n);
  t.left_n := t.left_n - v_n;
  t.slots := t.slots - CASE WHEN v_must THEN v_n ELSE (SELECT count(*) FROM unnest(v_losts[:v_n]) AS lost WHERE lost > 0)::integer END;
  IF v_popped < v_asked AND v_lane.lane_gates = '{}' AND NOT t.disturbed
    AND NOT EXISTS (SELECT 1 FROM hf.wait WHERE lane = p_lane AND state = 2) THEN
    PERFORM hf.rest_1(v_lane); -- nothing is left: no need to look again
  ELSIF v_n >= 16 AND NOT EXISTS (
    SELECT 1 FROM hf.wait WHERE lane = p_lane AND state = 2 AND (due_ms, id) < (v_dues[v_n], v_ids[v_n])
  ) THEN
    UPDATE hf.lane_now SET floor_ms = v_dues[v_n], floor_id = v_ids[v_n] WHERE id = p_lane;
  END IF;
END $$;
