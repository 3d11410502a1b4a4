-- Promise: the careful way of storing jobs: ids, unique keys and parents are looked up first; one bad item refuses all.
-- Inputs: hf.batch. Answer: as store_1. Locks, in order: keys in their order, parents that run (by id, FOR KEY SHARE:
-- they cannot end meanwhile), the graph, parents that wait; a caller's own transaction locks no parent: its children are
-- looked at when it has committed (post 2).

-- Which job stands for each of the call: itself, the one with its id, or the holder of its key.
CREATE FUNCTION hf.stand_ins_1(p_batch hf.batch, p_known smallint[], p_now bigint) RETURNS bytea[] LANGUAGE plpgsql AS $$
DECLARE
  v_targets bytea[] := p_batch.ids;
  v_at integer;
  v_key bytea;
  v_same integer[];
  v_target bytea;
BEGIN
  IF p_batch.unique_keys IS NULL THEN
    RETURN v_targets;
  END IF;
  FOR v_key, v_same IN
    SELECT k.key, array_agg(k.at ORDER BY k.at) FROM unnest(p_batch.unique_keys, p_known) WITH ORDINALITY AS k (key, known, at)
    WHERE k.key IS NOT NULL AND k.known IS NULL GROUP BY k.key ORDER BY k.key
  LOOP
    v_at := v_same[1];
    v_target := hf.unique_take_1(
      v_key, p_batch.ids[v_at], p_batch.unique_states[v_at], p_now + p_batch.unique_for[v_at], p_now
    );
    FOREACH v_at IN ARRAY v_same LOOP
      v_targets[v_at] := v_target;
    END LOOP;
  END LOOP;
  RETURN v_targets;
END $$;

-- Refuse new jobs of a queue or task that is draining.
CREATE FUNCTION hf.refuse_draining_1(p_batch hf.batch, p_new boolean[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_draining text[] := ARRAY(SELECT key FROM hf.gate WHERE key = ANY (p_batch.places) AND draining);
  v_body jsonb;
  v_place text;
BEGIN
  IF v_draining = '{}' THEN
    RETURN;
  END IF;
  FOR v_at IN 1 .. cardinality(p_batch.ids) LOOP
    IF p_new[v_at] THEN
      v_body := convert_from(p_batch.bodies[p_batch.lane_of[v_at]], 'UTF8')::jsonb;
      FOREACH v_place IN ARRAY ARRAY['all', 'queue:' || (v_body ->> 'queue'), 'task:' || (v_body ->> 'task')] LOOP
        IF v_place = ANY (v_draining) THEN
          RAISE EXCEPTION '% is draining and takes no new jobs (item %)', v_place, p_batch.positions[v_at]
          USING ERRCODE = 'HF002', HINT = 'holdfast resume ' || regexp_replace(v_place, '^queue:', '');
        END IF;
      END LOOP;
    END IF;
  END LOOP;
END $$;

-- Share the graph, and keep parents from ending while their children are stored: in whichever place they are. One that
-- moved meanwhile into somebody else's hands needs a new attempt: whoever has the graph waits for no job that runs.
CREATE FUNCTION hf.keep_parents_1(p_parents bytea[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_kept bytea[] := ARRAY(SELECT id FROM hf.running WHERE id = ANY (p_parents) ORDER BY id FOR KEY SHARE);
BEGIN
  PERFORM hf.share_graph_1();
  v_kept := v_kept || ARRAY(SELECT id FROM hf.wait WHERE id = ANY (p_parents) ORDER BY id FOR KEY SHARE);
  v_kept := v_kept || ARRAY(
    SELECT id FROM hf.running WHERE id = ANY (p_parents) AND id <> ALL (v_kept) FOR KEY SHARE SKIP LOCKED
  );
  IF EXISTS (
    SELECT id FROM hf.running WHERE id = ANY (p_parents) AND id <> ALL (v_kept)
    UNION ALL SELECT id FROM hf.wait WHERE id = ANY (p_parents) AND id <> ALL (v_kept)
  ) THEN
    RAISE EXCEPTION 'a parent moved while its child was stored' USING ERRCODE = 'serialization_failure';
  END IF;
END $$;

-- When a job may run: at the instant it names, or after its delay.
CREATE FUNCTION hf.due_1(p_batch hf.batch, p_at integer, p_from bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  IF p_batch.dues[p_at] IS NULL THEN
    RETURN p_from + p_batch.delays[p_at];
  END IF;
  RETURN greatest(p_batch.dues[p_at], 0);
END $$;

-- Store one job of the call; where it is then.
CREATE FUNCTION hf.insert_one_1(p_batch hf.batch, p_at integer, p_targets bytea[], p_now bigint) RETURNS smallint LANGUAGE plpgsql AS $$
DECLARE
  v_id bytea := p_batch.ids[p_at];
  v_lane integer := p_batch.lane_of[p_at];
  v_due bigint := hf.due_1(p_batch, p_at, p_now);
  v_state smallint := CASE WHEN v_due > p_now THEN 1 ELSE 2 END;
  v_parents bytea[];
  v_waits boolean := false;
  v_fate text;
  v_dep record;
BEGIN
  IF p_batch.children IS NOT NULL THEN
    SELECT array_agg(DISTINCT coalesce(p_targets[array_position(p_batch.ids, d.parent)], d.parent)) INTO v_parents
    FROM unnest(p_batch.children, p_batch.parents) AS d (child, parent) WHERE d.child = p_at;
  END IF;
  INSERT INTO hf.job (id, lane, policy, enqueued_ms, unique_key, unique_states, args, extra) VALUES (
    v_id, p_batch.lanes[v_lane], p_batch.policies[p_batch.policy_of[p_at]], p_now,
    p_batch.unique_keys[p_at], p_batch.unique_states[p_at], p_batch.args[p_at], p_batch.extras[p_at]
  ) ON CONFLICT (id) DO UPDATE SET unique_key = excluded.unique_key, unique_states = excluded.unique_states;
  IF v_parents IS NOT NULL AND p_batch.guest THEN
    INSERT INTO hf.dep (child, parent, mode) SELECT v_id, parent, p_batch.modes[p_at] FROM unnest(v_parents) AS parent;
    INSERT INTO hf.post (kind, id) VALUES (2, v_id);
    v_waits := true;
  ELSIF v_parents IS NOT NULL THEN
    FOR v_at IN 1 .. cardinality(v_parents) LOOP
      SELECT * INTO v_dep
      FROM hf.dep_at_enqueue_1(v_id, v_parents[v_at], hf.state_of_1(v_parents[v_at]), p_batch.modes[p_at], p_now);
      v_waits := v_waits OR v_dep.waits;
      v_fate := coalesce(v_fate, v_dep.cancelled);
    END LOOP;
  END IF;
  IF v_waits THEN
    v_state := 0;
  END IF;
  INSERT INTO hf.wait (id, lane, due_ms, expires_ms, cost, state, priority, flags) VALUES (
    v_id, p_batch.lanes[v_lane], v_due, p_now + p_batch.expires[p_at], p_batch.costs[p_at], v_state,
    p_batch.priorities[v_lane], CASE WHEN v_parents IS NULL THEN 0 ELSE 16 END
  );
  PERFORM hf.post_lanes_1(p_batch, ARRAY[v_lane], ARRAY[v_state], ARRAY[v_due]);
  IF v_fate IS NOT NULL THEN -- written as waiting first, so that its fate is one ordinary change of state
    PERFORM hf.doom_1(v_id, v_fate, p_now);
    RETURN 6;
  END IF;
  RETURN v_state;
END $$;

-- A waiting job takes new arguments, priority and time; a running or finished one stays as it is. `replace` counts
-- the delay from the first enqueue, `debounce` starts it anew.
CREATE FUNCTION hf.replace_1(p_target bytea, p_batch hf.batch, p_at integer, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_old hf.wait;
  v_lane integer := p_batch.lane_of[p_at];
  v_base bigint;
  v_due bigint;
  v_state smallint;
BEGIN
  SELECT * INTO v_old FROM hf.wait WHERE id = p_target FOR UPDATE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  v_base := CASE WHEN p_batch.on_duplicate[p_at] = 2 THEN p_now ELSE (SELECT enqueued_ms FROM hf.job WHERE id = p_target) END;
  v_due := hf.due_1(p_batch, p_at, v_base);
  v_state := CASE WHEN v_old.state = 0 THEN 0 WHEN v_due > p_now THEN 1 ELSE 2 END;
  UPDATE hf.wait SET state = v_state, lane = p_batch.lanes[v_lane], priority = p_batch.priorities[v_lane], due_ms = v_due,
    expires_ms = p_now + p_batch.expires[p_at], attempt = 0, held = 0, held_since_ms = NULL WHERE id = p_target;
  UPDATE hf.job SET lane = p_batch.lanes[v_lane], policy = p_batch.policies[p_batch.policy_of[p_at]],
    args = p_batch.args[p_at] WHERE id = p_target;
  PERFORM hf.count_1(v_old.lane, v_old.state::integer, -1, 20, 1);
  PERFORM hf.post_lanes_1(p_batch, ARRAY[v_lane], ARRAY[v_state], ARRAY[v_due]);
  PERFORM hf.count_1(p_batch.lanes[v_lane], 10, -1, 21, 1); -- it was enqueued before
END $$;

-- Where each of these is, or was when it went; NULL: it was never stored, or long ago.
CREATE FUNCTION hf.known_1(p_ids bytea[]) RETURNS smallint[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN ARRAY(
    SELECT coalesce(hf.state_of_1(j.id), (SELECT g.state FROM hf.gone AS g WHERE g.id = j.id))
    FROM unnest(p_ids) WITH ORDINALITY AS j (id, at) ORDER BY j.at
  );
END $$;

-- Check everything, then write everything.
CREATE FUNCTION hf.insert_checked_1(
  p_batch hf.batch, p_now bigint, OUT ids bytea[], OUT existing boolean[], OUT states smallint[]
) LANGUAGE plpgsql AS $$
DECLARE
  v_n integer := cardinality(p_batch.ids);
  v_known smallint[] := hf.known_1(p_batch.ids);
  v_new boolean[];
  v_parent record;
BEGIN
  -- A key may be in the hands of a caller's transaction for as long as that likes: nothing else is held meanwhile.
  ids := hf.stand_ins_1(p_batch, v_known, p_now);
  IF p_batch.unique_keys IS NOT NULL THEN
    v_known := hf.known_1(p_batch.ids); -- the same call, made twice, may have come first
  END IF;
  IF p_batch.children IS NOT NULL AND NOT p_batch.guest THEN
    -- A parent of this call may stand for one that is stored: that one must hold still, too.
    PERFORM hf.keep_parents_1(
      p_batch.parents || ARRAY(SELECT id FROM unnest(ids) AS id EXCEPT SELECT id FROM unnest(p_batch.ids) AS id)
    );
  END IF;
  SELECT array_agg(s.known IS NULL AND s.target = s.id AND s.first ORDER BY s.at) INTO v_new FROM (
    SELECT t.*, row_number() OVER (PARTITION BY t.id ORDER BY t.at) = 1 AS first
    FROM unnest(p_batch.ids, ids, v_known) WITH ORDINALITY AS t (id, target, known, at)
  ) AS s;
  PERFORM hf.refuse_draining_1(p_batch, v_new);
  FOR v_parent IN
    SELECT d.child, d.parent FROM unnest(p_batch.children, p_batch.parents) WITH ORDINALITY AS d (child, parent, at)
    WHERE v_new[d.child] AND array_position(p_batch.ids, d.parent) IS NULL AND hf.state_of_1(d.parent) IS NULL
    ORDER BY d.at LIMIT 1
  LOOP
    RAISE EXCEPTION 'item % waits for job %, which is not stored', p_batch.positions[v_parent.child], encode(v_parent.parent, 'hex')::uuid
    USING ERRCODE = 'HF001', HINT = 'enqueue the parent first, or in the same call';
  END LOOP;
  FOR v_at IN 1 .. v_n LOOP
    IF v_new[v_at] THEN
      states[v_at] := hf.insert_one_1(p_batch, v_at, ids, p_now);
    END IF;
  END LOOP;
  FOR v_at IN 1 .. v_n LOOP
    IF NOT v_new[v_at] AND v_known[v_at] IS NULL AND ids[v_at] <> p_batch.ids[v_at] AND p_batch.on_duplicate[v_at] > 0 THEN
      PERFORM hf.replace_1(ids[v_at], p_batch, v_at, p_now); -- what it replaces may be of this very call
    END IF;
  END LOOP;
  FOR v_at IN 1 .. v_n LOOP
    -- Pruned before its key's window was over: only a job that succeeded holds a key so long.
    states[v_at] := coalesce(hf.state_of_1(ids[v_at]), v_known[v_at], 4);
    existing[v_at] := NOT v_new[v_at];
  END LOOP;
END $$;
