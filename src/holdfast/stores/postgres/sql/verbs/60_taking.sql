-- Promise: ready jobs become running, as far as the gates of their lanes admit them. Inputs: what the claim has taken
-- so far (hf.taking) and lanes of the floor. Answer: the same, and the jobs in order. The caller holds lock 1 and so
-- waits for nobody: a gate or job that is locked by somebody else is left for the next claim ("again").
-- Relies on wait_ready, whose range begins at the lane's floor: rows that are gone are not walked over again.

-- The token for a job of this hard timeout: jobs that end together share a lease, a suspect has one of its own.
CREATE OR REPLACE FUNCTION hf.token_for_1(INOUT t hf.taking, p_hard bigint, p_alone boolean, OUT token bigint) LANGUAGE plpgsql AS $$
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
CREATE OR REPLACE FUNCTION hf.stop_lane_1(INOUT t hf.taking, p_lane hf.lane, p_gates hf.gate[]) LANGUAGE plpgsql AS $$
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
CREATE OR REPLACE FUNCTION hf.found_empty_1(INOUT t hf.taking, p_lane hf.lane) LANGUAGE plpgsql AS $$
DECLARE
  v_key text;
BEGIN
  t.skipped_lanes := t.skipped_lanes || p_lane.id;
  IF EXISTS (SELECT 1 FROM hf.wait WHERE lane = p_lane.id AND state = 2) THEN
    UPDATE hf.lane_now SET floor_ms = 0, floor_id = '\x' WHERE id = p_lane.id AND floor_ms > 0;
    t.reopening := least(t.reopening, t.now + 500); -- a caller's transaction may hold it for long
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
CREATE OR REPLACE FUNCTION hf.gates_for_1(p_lane hf.lane) RETURNS hf.gate[] LANGUAGE plpgsql AS $$
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
    SELECT * FROM hf.gate WHERE key = ANY (v_keys) ORDER BY key COLLATE "C" || '' FOR UPDATE SKIP LOCKED
  ) AS g;
  IF cardinality(v_locked) IS DISTINCT FROM cardinality(v_keys) THEN
    RETURN NULL;
  END IF;
  RETURN v_locked || ARRAY(SELECT g FROM unnest(v_gates) AS g WHERE NOT g.key = ANY (v_keys));
END $$;

-- Of the rows that were popped, those that can run now. Expired ones are cancelled on the way; suspects need a slot.
CREATE OR REPLACE FUNCTION hf.usable_1(
  INOUT t hf.taking, p_lanes bigint[], p_ids bytea[], p_losts integer[], p_expires bigint[], OUT usable integer[]
) LANGUAGE plpgsql AS $$
DECLARE
  v_slots integer := t.slots;
BEGIN
  usable := '{}';
  FOR i IN 1 .. cardinality(p_ids) LOOP
    IF p_expires[i] <= t.now THEN
      IF hf.try_lock_1(2) THEN
        PERFORM hf.cancel_waiting_1(p_ids[i], 'expired', t.now);
      ELSE
        t.skipped_lanes := t.skipped_lanes || p_lanes[i];
        t.again := true;
      END IF;
    ELSIF p_losts[i] > 0 THEN
      IF v_slots > 0 THEN
        v_slots := v_slots - 1;
        usable := usable || i;
      ELSE
        t.skipped_lanes := t.skipped_lanes || p_lanes[i];
      END IF;
    ELSE
      usable := usable || i;
    END IF;
  END LOOP;
END $$;

-- Charge the gates for these jobs; what each job was charged, NULL when nothing is counted.
CREATE OR REPLACE FUNCTION hf.charge_1(p_gates hf.gate[], p_costs integer[], p_token bigint, p_now bigint) RETURNS jsonb[] LANGUAGE plpgsql AS $$
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

-- Lock the first ready jobs of each of these lanes, as many as asked for.
CREATE OR REPLACE FUNCTION hf.pop_1(p_lanes bigint[], p_counts integer[], p_now bigint) RETURNS hf.popped LANGUAGE plpgsql AS $$
DECLARE
  p hf.popped;
BEGIN
  SELECT array_agg(w.place), array_agg(w.id), array_agg(w.lane), array_agg(w.due_ms), array_agg(w.cost),
    array_agg(w.lost), array_agg(w.expires_ms), array_agg(coalesce(k.hard_timeout_ms, -1)),
    bool_or(w.lost > 0 OR coalesce(w.expires_ms <= p_now, false))
  INTO p.places, p.ids, p.lanes, p.dues, p.costs, p.losts, p.expires, p.hards, p.odd
  FROM unnest(p_lanes, p_counts) AS l (id, n)
  CROSS JOIN LATERAL (SELECT x.id, x.floor_ms, x.floor_id FROM hf.lane_now AS x WHERE x.id = l.id OFFSET 0) AS f
  CROSS JOIN LATERAL (
    SELECT r.ctid AS place, r.id, r.lane, r.due_ms, r.cost, r.lost, r.expires_ms FROM hf.wait AS r
    WHERE r.lane = f.id AND r.state = 2 AND (r.due_ms, r.id) >= (f.floor_ms, f.floor_id)
    ORDER BY r.due_ms, r.id LIMIT l.n FOR UPDATE SKIP LOCKED
  ) AS w
  CROSS JOIN LATERAL (SELECT x.policy FROM hf.job AS x WHERE x.id = w.id OFFSET 0) AS j
  LEFT JOIN LATERAL (SELECT x.hard_timeout_ms FROM hf.policy AS x WHERE x.id = j.policy OFFSET 0) AS k ON true;
  RETURN p;
END $$;

-- The same without those that cannot run now.
CREATE OR REPLACE FUNCTION hf.sort_out_1(INOUT t hf.taking, INOUT p hf.popped) LANGUAGE plpgsql AS $$
DECLARE
  v_got record;
BEGIN
  SELECT * INTO v_got FROM hf.usable_1(t, p.lanes, p.ids, p.losts, p.expires);
  t := v_got.t;
  SELECT array_agg(p.places[i]), array_agg(p.ids[i]), array_agg(p.lanes[i]), array_agg(p.dues[i]), array_agg(p.costs[i]),
    array_agg(p.losts[i]), array_agg(p.hards[i])
  INTO p.places, p.ids, p.lanes, p.dues, p.costs, p.losts, p.hards FROM unnest(v_got.usable) AS i;
END $$;

-- Locked jobs become running under one token.
CREATE OR REPLACE FUNCTION hf.start_1(p_places tid[], p_ids bytea[], p_token bigint, p_charged jsonb[], p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_started integer;
BEGIN
  WITH gone AS (
    DELETE FROM hf.wait WHERE ctid = ANY (p_places) RETURNING *
  )
  INSERT INTO hf.running (
    id, token, lane, due_ms, claimed_ms, expires_ms, held_since_ms, attempt, lost, held, cost, priority, flags, charged,
    reason, cause, error_type
  )
  SELECT g.id, p_token, g.lane, g.due_ms, p_now, g.expires_ms, g.held_since_ms, g.attempt + 1, g.lost, g.held, g.cost,
    g.priority, g.flags, CASE WHEN p_charged IS NOT NULL THEN p_charged[array_position(p_ids, g.id)] END, g.reason, g.cause,
    g.error_type
  FROM gone AS g;
  GET DIAGNOSTICS v_started = ROW_COUNT;
  IF v_started <> cardinality(p_ids) THEN -- one more would be running with nobody to run it: better no claim at all
    RAISE EXCEPTION '% jobs would start where % are held', v_started, cardinality(p_ids) USING ERRCODE = 'data_corrupted';
  END IF;
END $$;

-- Locked jobs become running, those that end together under one token. Answer: the token of the first.
CREATE OR REPLACE FUNCTION hf.start_all_1(INOUT t hf.taking, p hf.popped, p_charged jsonb[]) LANGUAGE plpgsql AS $$
DECLARE
  v_got record;
  v_each record;
BEGIN
  FOR v_each IN
    SELECT array_agg(o.place) AS places, array_agg(o.id) AS ids, array_agg(o.charged) AS charged, o.hard, o.suspect IS NOT NULL AS alone
    FROM (
      SELECT j.place, j.id, j.hard, p_charged[j.at] AS charged, CASE WHEN j.lost > 0 THEN j.at END AS suspect, j.at
      FROM unnest(p.places, p.ids, p.hards, p.losts) WITH ORDINALITY AS j (place, id, hard, lost, at) ORDER BY j.at
    ) AS o GROUP BY o.hard, o.suspect ORDER BY min(o.at)
  LOOP
    SELECT * INTO v_got FROM hf.token_for_1(t, v_each.hard, v_each.alone);
    t := v_got.t;
    PERFORM hf.start_1(v_each.places, v_each.ids, v_got.token, CASE WHEN p_charged IS NOT NULL THEN v_each.charged END, t.now);
  END LOOP;
END $$;

-- Nothing of these lanes lies before the last that was taken: the next claim begins there. Looked at once in a while,
-- since it walks over what was just taken.
CREATE OR REPLACE FUNCTION hf.raise_floors_1(p_lanes bigint[], p_dues bigint[], p_ids bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE hf.lane_now AS f SET floor_ms = l.due_ms, floor_id = l.id
  FROM (
    SELECT DISTINCT ON (p.lane) p.lane, p.due_ms, p.id FROM unnest(p_lanes, p_dues, p_ids) AS p (lane, due_ms, id)
    ORDER BY p.lane, p.due_ms DESC, p.id DESC
  ) AS l
  WHERE f.id BETWEEN l.lane AND l.lane AND NOT EXISTS (
    SELECT 1 FROM hf.wait AS w WHERE w.lane = f.id AND w.state = 2 AND (w.due_ms, w.id) < (l.due_ms, l.id)
      AND (w.due_ms, w.id) >= (f.floor_ms, f.floor_id) OFFSET 0
  );
END $$;

-- Take jobs from lanes that no gate rules, so many from each.
CREATE OR REPLACE FUNCTION hf.take_plain_1(
  INOUT t hf.taking, p_lanes bigint[], p_counts integer[], OUT ids bytea[], OUT lanes bigint[], OUT dues bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
  v_got record;
  p hf.popped;
  v_short bigint[]; -- lanes that gave less than they were asked for
  v_few bigint[]; -- those, and lanes that were asked for little: one look spares another visit
  v_seen bytea[];
  v_empty bigint[];
  v_held bigint[];
BEGIN
  p := hf.pop_1(p_lanes, p_counts, t.now);
  v_seen := p.ids;
  SELECT array_agg(l.id) FILTER (WHERE l.got < l.n), array_agg(l.id) FILTER (WHERE l.got < l.n OR l.n < 4) INTO v_short, v_few
  FROM (
    SELECT a.id, a.n, coalesce(cardinality(array_positions(p.lanes, a.id)), 0) AS got FROM unnest(p_lanes, p_counts) AS a (id, n)
  ) AS l;
  IF p.odd THEN
    SELECT * INTO v_got FROM hf.sort_out_1(t, p);
    t := v_got.t;
    p := v_got.p;
  END IF;
  IF p.ids IS NOT NULL THEN
    t := hf.start_all_1(t, p, NULL);
    INSERT INTO hf.tally (lane, whats, ns)
    SELECT l.lane, '{2,3}', ARRAY[-count(*), count(*)] FROM unnest(p.lanes) AS l (lane) GROUP BY l.lane;
    t.left_n := t.left_n - cardinality(p.ids);
    IF p.odd THEN
      t.slots := t.slots - (SELECT count(*) FROM unnest(p.losts) AS lost WHERE lost > 0)::integer;
    END IF;
    IF random() < 0.1 THEN
      PERFORM hf.raise_floors_1(p.lanes, p.dues, p.ids);
    END IF;
  END IF;
  IF v_few IS NOT NULL THEN
    v_empty := ARRAY(SELECT l FROM unnest(v_few) AS l WHERE NOT EXISTS (SELECT 1 FROM hf.wait AS w WHERE w.lane = l AND w.state = 2 OFFSET 0));
    PERFORM hf.rest_all_1(v_empty);
  END IF;
  IF v_short IS NOT NULL THEN
    t.skipped_lanes := t.skipped_lanes || v_short;
    -- What is left there and was not seen is held by somebody else, or lies before a floor that is too high.
    v_held := ARRAY(SELECT l FROM unnest(v_short) AS l WHERE NOT l = ANY (v_empty) AND EXISTS (
      SELECT 1 FROM hf.wait AS w WHERE w.lane = l AND w.state = 2 AND NOT coalesce(w.id = ANY (v_seen), false) OFFSET 0
    ));
    IF v_held <> '{}' THEN
      UPDATE hf.lane_now SET floor_ms = 0, floor_id = '\x' WHERE id = ANY (v_held) AND floor_ms > 0;
      t.reopening := least(t.reopening, t.now + 500); -- a caller's transaction may hold it for long
    END IF;
  END IF;
  ids := coalesce(p.ids, '{}');
  lanes := p.lanes;
  dues := p.dues;
END $$;

-- Take up to `p_count` jobs from the front of a lane that gates rule.
CREATE OR REPLACE FUNCTION hf.take_gated_1(
  INOUT t hf.taking, p_lane bigint, p_count integer, OUT ids bytea[], OUT lanes bigint[], OUT dues bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
  v_got record;
  v_lane hf.lane;
  v_gates hf.gate[];
  v_must boolean;
  v_free bigint;
  v_asked integer;
  v_n integer;
  p hf.popped;
BEGIN
  ids := '{}';
  SELECT * INTO v_lane FROM hf.lane WHERE id = p_lane;
  v_gates := hf.gates_for_1(v_lane);
  IF v_gates IS NULL THEN
    t.skipped_lanes := t.skipped_lanes || p_lane;
    t.again := true;
    RETURN;
  END IF;
  SELECT coalesce(min(hf.gate_room_1(g, t.now)), 1 << 30), v_lane.limited OR coalesce(bool_or(
    g.key = ANY (v_lane.class_gates) AND (g.concurrency IS NOT NULL OR g.interval_us IS NOT NULL)
  ), false) INTO v_free, v_must FROM unnest(v_gates) AS g;
  IF v_free <= 0 THEN
    t := hf.stop_lane_1(t, v_lane, v_gates);
    RETURN;
  END IF;
  v_asked := least(p_count, v_free, CASE WHEN v_must THEN t.slots END);
  IF v_asked <= 0 THEN -- no slot is left for it: that says nothing about what the lane holds
    t.skipped_lanes := t.skipped_lanes || p_lane;
    RETURN;
  END IF;
  p := hf.pop_1(ARRAY[p_lane], ARRAY[v_asked], t.now);
  IF p.ids IS NULL THEN
    t := hf.found_empty_1(t, v_lane);
    RETURN;
  END IF;
  IF p.odd THEN
    SELECT * INTO v_got FROM hf.sort_out_1(t, p);
    t := v_got.t;
    p := v_got.p;
    IF p.ids IS NULL THEN
      RETURN;
    END IF;
  END IF;
  SELECT least(cardinality(p.ids), min(hf.gate_admits_1(g, p.costs, t.now)), CASE WHEN v_must THEN t.slots END)
  INTO v_n FROM unnest(v_gates) AS g;
  IF v_n <= 0 THEN
    t.skipped_lanes := t.skipped_lanes || p_lane;
    RETURN;
  END IF;
  p := ROW (
    p.places[:v_n], p.ids[:v_n], p.lanes[:v_n], p.dues[:v_n], p.costs[:v_n], p.losts[:v_n], p.expires[:v_n], p.hards[:v_n], p.odd
  );
  ids := p.ids;
  lanes := p.lanes;
  dues := p.dues;
  -- A half-open breaker remembers the token of its probe: the one that the first job here is going to have.
  SELECT * INTO v_got FROM hf.token_for_1(t, p.hards[1], p.losts[1] > 0);
  t := hf.start_all_1(t, p, hf.charge_1(v_gates, p.costs, v_got.token, t.now));
  PERFORM hf.count_1(p_lane, 2, -v_n, 3, v_n);
  IF random() < 0.1 THEN
    PERFORM hf.raise_floors_1(lanes, dues, ids);
  END IF;
  t.left_n := t.left_n - v_n;
  t.slots := t.slots - CASE WHEN v_must THEN v_n ELSE (SELECT count(*) FROM unnest(p.losts) AS lost WHERE lost > 0)::integer END;
END $$;
