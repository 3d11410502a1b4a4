-- Promise: what else happens down the graph: a child meets parents that have ended, failures take dependents with them,
-- a retry brings them back, an erased parent leaves no child waiting. Inputs: as named. Answer: as each says.
-- Locks: a step that walks holds the graph (lock GRAPH), which comes before any row of `wait`; see 71_graph.

-- Ready jobs go without having run: where a budget is shut for one of them, others may start. Waits for no lock: a
-- locked gate is posted, and done with the next claim; so is all of it where p_posted says so.
CREATE OR REPLACE FUNCTION lp.leave_line(p_ids bytea[], p_lanes bigint[], p_costs integer[], p_posted boolean, p_now bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_each record;
  v_gate lp.gate;
  v_after lp.gate;
BEGIN
  FOR v_each IN
    SELECT DISTINCT g.key, g.reserved_for FROM unnest(p_ids, p_lanes, p_costs) AS j (id, lane, cost)
    CROSS JOIN LATERAL (SELECT x.class_gates, x.lane_gates FROM lp.lane AS x WHERE x.id = j.lane AND x.limited OFFSET 0) AS l
    CROSS JOIN LATERAL unnest(l.class_gates || l.lane_gates) AS k (key)
    CROSS JOIN LATERAL (SELECT x.key, x.unit, x.reserved_for FROM lp.gate AS x WHERE x.key = k.key AND x.reserved_for > 0 OFFSET 0) AS g
    WHERE g.reserved_for = greatest(1, lp.cost_in(g.unit, j.cost, (SELECT c.costs FROM lp.cost_job AS c WHERE c.id = j.id)))
    ORDER BY g.key
  LOOP
    v_gate := NULL;
    IF NOT p_posted THEN
      SELECT x.* INTO v_gate FROM lp.gate AS x WHERE x.key = v_each.key AND x.reserved_for = v_each.reserved_for FOR UPDATE SKIP LOCKED;
    END IF;
    IF v_gate.key IS NULL THEN
      INSERT INTO lp.post (kind, gate, due_ms) VALUES (:POST_GATE, v_each.key, v_each.reserved_for);
      CONTINUE;
    END IF;
    UPDATE lp.gate AS x SET reserved_for = 0 WHERE x.key = v_each.key RETURNING x.* INTO v_after;
    PERFORM lp.gate_post_change(v_gate, v_after, p_now);
  END LOOP;
END $$;

-- Jobs that wait end as cancelled, each for its own reason; those of them that did wait.
CREATE OR REPLACE FUNCTION lp.cancel_rows(p_ids bytea[], p_reasons text[], p_by_parent boolean, p_now bigint)
RETURNS bytea[] LANGUAGE plpgsql AS $$
DECLARE
  v_gone bytea[];
  v_ready bytea[]; -- of them
  v_lanes bigint[];
  v_costs integer[];
  v_hooked boolean; -- there are hooks
BEGIN
  PERFORM FROM lp.wait AS w WHERE w.id = ANY (p_ids) ORDER BY w.id FOR UPDATE;
  WITH gone AS (
    DELETE FROM lp.wait AS w USING unnest(p_ids, p_reasons) AS c (id, why)
    WHERE w.id BETWEEN c.id AND c.id RETURNING w.*, c.why
  ), put AS (
    INSERT INTO lp.done (
      id, lane, finished_ms, due_ms, expires_ms, attempt, lost, held, cost, state, priority, flags, reason, cause, error_type
    )
    SELECT g.id, g.lane, p_now, g.due_ms, g.expires_ms, g.attempt, g.lost, g.held, g.cost, :CANCELLED, g.priority,
      CASE WHEN p_by_parent THEN g.flags | :BY_PARENT ELSE g.flags END, g.why, g.cause, g.error_type
    FROM gone AS g
  ), counted AS (
    INSERT INTO lp.tally (lane, whats, ns)
    SELECT g.lane, '{:BLOCKED,:SCHEDULED,:READY,:CANCELLED,:EVER_CANCELLED}', ARRAY[
      -count(*) FILTER (WHERE g.state = :BLOCKED), -count(*) FILTER (WHERE g.state = :SCHEDULED), -count(*) FILTER (WHERE g.state = :READY),
      count(*), count(*)
    ] FROM gone AS g GROUP BY g.lane
  )
  SELECT array_agg(g.id), array_agg(g.id) FILTER (WHERE g.state = :READY), array_agg(g.lane) FILTER (WHERE g.state = :READY),
    array_agg(g.cost) FILTER (WHERE g.state = :READY), EXISTS (SELECT FROM lp.hook)
  INTO v_gone, v_ready, v_lanes, v_costs, v_hooked FROM gone AS g;
  IF v_ready IS NOT NULL THEN
    PERFORM lp.leave_line(v_ready, v_lanes, v_costs, false, p_now);
  END IF;
  IF v_gone IS NOT NULL THEN
    PERFORM lp.tell_finished(v_gone);
    PERFORM lp.follow(v_gone, NULL, p_now) WHERE v_hooked;
  END IF;
  RETURN v_gone;
END $$;

-- Children that run although these parents have failed: they do not wait for them any more, and are told why. Answer: those.
CREATE OR REPLACE FUNCTION lp.close_failed(p_parents bytea[], p_causes text[], p_word text) RETURNS bytea[] LANGUAGE plpgsql AS $$
DECLARE
  v_children bytea[];
  v_of bytea[]; -- by child: the parent
  v_reasons text[];
BEGIN
  SELECT array_agg(d.child), array_agg(d.parent), array_agg(lp.because(d.parent, p_word, p.cause))
  INTO v_children, v_of, v_reasons FROM unnest(p_parents, p_causes) AS p (id, cause)
  CROSS JOIN LATERAL (
    SELECT c.child, c.parent FROM lp.dep AS c WHERE c.parent = p.id AND NOT c.done AND c.mode = :IF_FAILED_RUN OFFSET 0
  ) AS d;
  IF v_children IS NOT NULL THEN
    UPDATE lp.dep AS d SET done = true, failed = k.why FROM (
      SELECT o.place, u.why FROM unnest(v_children, v_of, v_reasons) AS u (child, parent, why) CROSS JOIN LATERAL (
        SELECT x.ctid AS place FROM lp.dep AS x WHERE x.child = u.child AND x.parent = u.parent AND NOT x.done OFFSET 0
      ) AS o
    ) AS k WHERE d.ctid = k.place;
  END IF;
  RETURN v_children;
END $$;

-- Parents are dead or cancelled (p_word says which, their rows say why): each child goes by its own mode, and so on, level
-- by level. All below a parent are told its cause.
CREATE OR REPLACE FUNCTION lp.fail_children(p_parents bytea[], p_word text, p_revivable boolean, p_now bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_parents bytea[] := p_parents;
  v_causes text[] := lp.causes_of(p_parents);
  v_word text := p_word;
  v_children bytea[];
  v_reasons text[];
  v_told text[]; -- by child: the cause that it is told
  v_freed bytea[] := '{}';
  v_ours bytea[];
  v_is_ours boolean[]; -- by child
BEGIN
  LOOP
    v_freed := v_freed || lp.close_failed(v_parents, v_causes, v_word);
    SELECT array_agg(k.child), array_agg(k.why), array_agg(k.cause) INTO v_children, v_reasons, v_told FROM (
      SELECT DISTINCT ON (d.child) d.child, lp.because(d.parent, v_word, d.cause) AS why, d.cause
      FROM unnest(v_parents, v_causes) AS p (id, cause)
      CROSS JOIN LATERAL (
        SELECT c.child, c.parent, p.cause FROM lp.dep AS c WHERE c.parent = p.id AND NOT c.done AND c.mode = :IF_FAILED_CANCEL OFFSET 0
      ) AS d ORDER BY d.child
    ) AS k;
    EXIT WHEN v_children IS NULL;
    v_ours := lp.hold_children(v_children, true);
    IF cardinality(v_ours) < cardinality(v_children) THEN -- the others have ended, or are locked
      v_is_ours := lp.among(v_children, v_ours);
      SELECT array_agg(k.child), array_agg(k.why), array_agg(k.cause) INTO v_children, v_reasons, v_told
      FROM unnest(v_children, v_reasons, v_told) WITH ORDINALITY AS k (child, why, cause, at) WHERE v_is_ours[k.at];
      EXIT WHEN v_children IS NULL;
    END IF;
    PERFORM lp.cancel_rows(v_children, v_reasons, p_revivable, p_now);
    v_parents := v_children;
    v_causes := v_told;
    v_word := 'is cancelled';
  END LOOP;
  IF v_freed <> '{}' THEN
    PERFORM lp.free_children(lp.hold_children(v_freed, false), p_now);
  END IF;
END $$;

-- Cancel jobs that wait and, level by level, all that depend on them; those of them that did wait.
CREATE OR REPLACE FUNCTION lp.cancel_all(p_ids bytea[], p_reason text, p_now bigint) RETURNS bytea[] LANGUAGE plpgsql AS $$
DECLARE
  v_gone bytea[] := lp.cancel_rows(p_ids, array_fill(p_reason, ARRAY[cardinality(p_ids)]), false, p_now);
BEGIN
  IF v_gone IS NOT NULL THEN
    PERFORM lp.fail_children(v_gone, 'is cancelled', false, p_now);
  END IF;
  RETURN v_gone;
END $$;

-- Cancel one job that waits, with all that depend on it; false when it does not wait.
CREATE OR REPLACE FUNCTION lp.cancel_waiting(p_id bytea, p_reason text, p_now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN lp.cancel_all(ARRAY[p_id], p_reason, p_now) IS NOT NULL;
END $$;

-- Cancel the dependents of a running job that was asked to stop, in the same step as the request.
CREATE OR REPLACE FUNCTION lp.cancel_children(p_parent bytea, p_reason text, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM lp.cancel_all(
    ARRAY(SELECT d.child FROM lp.dep AS d WHERE d.parent = p_parent AND NOT d.done AND d.mode = :IF_FAILED_CANCEL),
    lp.because(p_parent, 'was asked to stop', p_reason), p_now
  );
END $$;

-- True when a replay revives a job that is cancelled for this reason: its parent is dead, or was itself cancelled by the
-- death of one above it.
CREATE OR REPLACE FUNCTION lp.is_revivable(p_why text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_parent text := substring(p_why FROM '^parent ([-0-9a-f]{36}) is cancelled');
BEGIN
  RETURN p_why ~ '^parent [-0-9a-f]{36} is dead'
    OR v_parent IS NOT NULL AND EXISTS (
      SELECT FROM lp.done AS o WHERE o.id = decode(replace(v_parent, '-', ''), 'hex') AND o.state = :CANCELLED AND o.flags & :BY_PARENT <> 0
    );
END $$;

-- Cancel a child whose parent had failed before it came; a replay of a dead parent revives it, and all below it. A child
-- that only this transaction knows has no dependents of others yet, so that its enqueue needs no lock here.
CREATE OR REPLACE FUNCTION lp.doom(p_child bytea, p_why text, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_revivable boolean := lp.is_revivable(p_why);
BEGIN
  IF lp.cancel_rows(ARRAY[p_child], ARRAY[p_why], v_revivable, p_now) IS NOT NULL THEN
    PERFORM lp.fail_children(ARRAY[p_child], 'is cancelled', v_revivable, p_now);
  END IF;
END $$;

-- Remember that `p_child` depends on `p_parent`, which is in this state (NULL: it is stored no more): whether it must
-- wait, and why it must not run. The caller keeps a parent that lives from ending (FOR KEY SHARE); one that has ended
-- is kept here from being erased or tried again; should it be retried just now, the whole step must be repeated.
CREATE OR REPLACE FUNCTION lp.dep_at_enqueue(
  p_child bytea, p_parent bytea, p_parent_state smallint, p_mode smallint, p_now bigint, OUT waits boolean, OUT cancelled text
) LANGUAGE plpgsql AS $$
DECLARE
  v_state smallint := p_parent_state;
  v_gone boolean := p_parent_state IS NULL;
  v_failed text;
BEGIN
  IF v_state > :RUNNING THEN
    PERFORM FROM lp.done AS d WHERE d.id = p_parent FOR KEY SHARE;
    v_gone := NOT FOUND;
    IF v_gone AND lp.state_of(p_parent) IS NOT NULL THEN
      RAISE EXCEPTION 'a parent came back to life' USING ERRCODE = 'serialization_failure';
    END IF;
  END IF;
  IF v_gone THEN
    v_state := coalesce((SELECT g.state FROM lp.gone AS g WHERE g.id = p_parent), :REMOVED);
  END IF;
  v_failed := lp.because(
    p_parent, CASE v_state WHEN :DEAD THEN 'is dead' WHEN :CANCELLED THEN 'is cancelled' WHEN :REMOVED THEN 'was removed' END,
    (SELECT lp.root_cause(o.reason, o.flags) FROM lp.done AS o WHERE o.id = p_parent)
  );
  waits := v_state <> :SUCCEEDED AND (v_failed IS NULL OR p_mode <> :IF_FAILED_RUN);
  -- A child that shall be cancelled waits for its parent in name, so that a replay can revive it. One that would wait
  -- for a replay waits in vain when the parent is stored no more.
  IF p_mode = :IF_FAILED_CANCEL THEN
    cancelled := v_failed;
  ELSIF p_mode = :IF_FAILED_WAIT AND v_gone AND waits THEN
    cancelled := lp.because(p_parent, 'was removed', NULL);
  END IF;
  INSERT INTO lp.dep (child, parent, mode, done, result, failed) VALUES (
    p_child, p_parent, p_mode, NOT waits, CASE v_state WHEN :SUCCEEDED THEN (SELECT r.body FROM lp.result AS r WHERE r.id = p_parent) END,
    CASE WHEN NOT waits THEN v_failed END
  ) ON CONFLICT DO NOTHING;
END $$;

-- Keep the parents that a child still waits for from ending before this is committed: one that ends later sees the child.
-- False when one of them is locked. It waits for no lock.
CREATE OR REPLACE FUNCTION lp.hold_open_parents(p_child bytea) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_parents bytea[] := ARRAY(SELECT d.parent FROM lp.dep AS d WHERE d.child = p_child AND d.done::integer = 0);
  v_held bytea[];
BEGIN
  v_held := ARRAY(SELECT r.id FROM lp.running AS r WHERE r.id = ANY (v_parents) ORDER BY r.id FOR KEY SHARE SKIP LOCKED)
    || ARRAY(SELECT w.id FROM lp.wait AS w WHERE w.id = ANY (v_parents) ORDER BY w.id FOR KEY SHARE SKIP LOCKED)
    || ARRAY(SELECT o.id FROM lp.done AS o WHERE o.id = ANY (v_parents) ORDER BY o.id FOR KEY SHARE SKIP LOCKED);
  RETURN NOT EXISTS (
    SELECT FROM (SELECT p FROM unnest(v_parents) AS p EXCEPT SELECT h FROM unnest(v_held) AS h) AS o (id)
    WHERE lp.state_of(o.id) IS NOT NULL
  );
END $$;

-- What the parents of a child that came in a caller's own transaction have become meanwhile: it is released or cancelled
-- now, or waits like any other. False when one of them is locked: to be tried again. It waits for no lock.
CREATE OR REPLACE FUNCTION lp.apply_child_post(p_child bytea, p_now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_dep record;
  v_doom text;
BEGIN
  IF NOT lp.try_lock(:GRAPH) THEN
    RETURN false;
  END IF;
  PERFORM FROM lp.wait AS w WHERE w.id = p_child AND w.state = :BLOCKED FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN NOT EXISTS (SELECT FROM lp.wait AS w WHERE w.id = p_child AND w.state = :BLOCKED);
  END IF;
  IF NOT lp.hold_open_parents(p_child) THEN
    RETURN false;
  END IF;
  FOR v_dep IN
    SELECT d.parent, d.mode, coalesce(o.state, g.state, :REMOVED) AS state, o.id IS NULL AS is_gone,
      lp.because(d.parent, CASE o.state WHEN :DEAD THEN 'is dead' ELSE 'is cancelled' END, o.cause) AS why
    FROM lp.dep AS d
    LEFT JOIN LATERAL (SELECT x.id, x.state, lp.root_cause(x.reason, x.flags) AS cause FROM lp.done AS x WHERE x.id = d.parent OFFSET 0) AS o ON true
    LEFT JOIN LATERAL (SELECT x.state FROM lp.gone AS x WHERE x.id = d.parent OFFSET 0) AS g ON o.id IS NULL
    WHERE d.child = p_child AND d.done::integer = 0
      AND NOT EXISTS (SELECT FROM lp.wait AS w WHERE w.id = d.parent OFFSET 0)
      AND NOT EXISTS (SELECT FROM lp.running AS r WHERE r.id = d.parent OFFSET 0)
    ORDER BY d.parent
  LOOP
    IF v_dep.state = :SUCCEEDED THEN
      UPDATE lp.dep AS d SET done = true, result = (SELECT r.body FROM lp.result AS r WHERE r.id = d.parent)
      WHERE d.child = p_child AND d.parent = v_dep.parent;
    ELSIF v_dep.is_gone THEN
      v_doom := coalesce(v_doom, lp.because(v_dep.parent, 'was removed', NULL));
    ELSIF v_dep.mode = :IF_FAILED_RUN THEN
      UPDATE lp.dep AS d SET done = true, failed = v_dep.why
      WHERE d.child = p_child AND d.parent = v_dep.parent;
    ELSIF v_dep.mode = :IF_FAILED_CANCEL THEN
      v_doom := coalesce(v_doom, v_dep.why);
    END IF;
  END LOOP;
  IF v_doom IS NOT NULL THEN
    PERFORM lp.doom(p_child, v_doom, p_now);
  ELSE
    PERFORM lp.free_children(ARRAY[p_child], p_now);
  END IF;
  RETURN true;
END $$;

-- Parents are tried again: dependents that their deaths cancelled wait for them again. The caller holds the graph.
CREATE OR REPLACE FUNCTION lp.revive_children(p_parents bytea[], p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_parents bytea[] := p_parents;
  v_next bytea[];
  v_child bytea;
BEGIN
  WHILE v_parents <> '{}' LOOP
    v_next := '{}';
    FOR v_child IN
      SELECT o.id FROM lp.dep AS d
      CROSS JOIN LATERAL (SELECT e.id, e.state, e.flags FROM lp.done AS e WHERE e.id = d.child OFFSET 0) AS o
      WHERE d.parent = ANY (v_parents) AND NOT d.done AND o.state = :CANCELLED AND o.flags & :BY_PARENT <> 0
      GROUP BY o.id ORDER BY o.id
    LOOP
      IF lp.revive(v_child, p_now) THEN
        v_next := v_next || v_child;
      END IF;
    END LOOP;
    v_parents := v_next;
  END LOOP;
END $$;

-- One that was cancelled by its parent's death waits again; false when it cannot: another parent of it is dead or gone,
-- so that it would wait for ever, or another job has its key by now.
CREATE OR REPLACE FUNCTION lp.revive(p_id bytea, p_now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_old lp.done;
BEGIN
  SELECT o.* INTO v_old FROM lp.done AS o WHERE o.id = p_id AND o.state = :CANCELLED FOR UPDATE;
  IF NOT FOUND OR EXISTS (
    SELECT FROM lp.dep AS d WHERE d.child = p_id AND d.done::integer = 0
      AND NOT EXISTS (SELECT FROM lp.wait AS w WHERE w.id = d.parent OFFSET 0)
      AND NOT EXISTS (SELECT FROM lp.running AS r WHERE r.id = d.parent OFFSET 0)
      AND NOT EXISTS (SELECT FROM lp.done AS s WHERE s.id = d.parent AND s.state = :SUCCEEDED OFFSET 0) -- it still hands on
  ) OR NOT lp.unique_reclaim(p_id, p_now) THEN
    RETURN false;
  END IF;
  DELETE FROM lp.done AS o WHERE o.id = p_id;
  INSERT INTO lp.wait (id, lane, due_ms, expires_ms, attempt, lost, held, cost, state, priority, flags, cause, error_type)
  VALUES (
    p_id, v_old.lane, v_old.due_ms, v_old.expires_ms, v_old.attempt, v_old.lost, v_old.held, v_old.cost, :BLOCKED,
    v_old.priority, v_old.flags & ~:BY_PARENT, v_old.cause, v_old.error_type
  );
  PERFORM lp.count_jobs(v_old.lane, :CANCELLED, -1, :BLOCKED, 1, :EVER_CANCELLED, -1);
  PERFORM lp.note_depth_of(v_old.lane);
  RETURN true;
END $$;

-- Finished jobs are about to be erased (states in parallel): no job waits for them any more. Answer: jobs that must stay for
-- now, since another transaction holds the graph; none when the caller holds it. The caller holds their rows of `done`.
CREATE OR REPLACE FUNCTION lp.orphan(p_ids bytea[], p_states smallint[], p_now bigint) RETURNS bytea[] LANGUAGE plpgsql AS $$
DECLARE
  v_parent record;
  v_stay bytea[] := '{}';
BEGIN
  IF NOT lp.has_kids(p_ids) THEN
    RETURN v_stay;
  END IF;
  FOR v_parent IN
    SELECT p.id, p.state FROM unnest(p_ids, p_states) AS p (id, state) WHERE lp.has_kids(ARRAY[p.id]) ORDER BY p.id
  LOOP
    IF NOT lp.try_lock(:GRAPH) THEN
      v_stay := v_stay || v_parent.id;
    ELSIF v_parent.state = :SUCCEEDED THEN
      FOR v_round IN 1 .. 100 LOOP
        EXIT WHEN NOT lp.has_kids(ARRAY[v_parent.id]);
        PERFORM lp.release_children(ARRAY[v_parent.id], p_now);
      END LOOP;
      IF lp.has_kids(ARRAY[v_parent.id]) THEN -- one of them is locked
        v_stay := v_stay || v_parent.id;
      ELSE
        DELETE FROM lp.fan AS f WHERE f.parent = v_parent.id;
      END IF;
    ELSE
      PERFORM lp.cancel_all(
        ARRAY(SELECT d.child FROM lp.dep AS d WHERE d.parent = v_parent.id AND NOT d.done),
        lp.because(v_parent.id, 'was removed', NULL), p_now
      );
    END IF;
  END LOOP;
  RETURN v_stay;
END $$;

-- What everyone who waits for jobs that have ended must hear: dependents and watchers.
CREATE OR REPLACE FUNCTION lp.after_end(p_ids bytea[], p_states smallint[], p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_succeeded bytea[];
  v_dead bytea[];
  v_cancelled bytea[];
BEGIN
  IF EXISTS (SELECT FROM lp.watch AS w WHERE w.job = ANY (p_ids)) THEN
    PERFORM lp.tell_finished(p_ids);
  END IF;
  IF NOT lp.has_kids(p_ids) THEN
    RETURN;
  END IF;
  SELECT array_agg(e.id) FILTER (WHERE e.state = :SUCCEEDED), array_agg(e.id) FILTER (WHERE e.state = :DEAD),
    array_agg(e.id) FILTER (WHERE e.state = :CANCELLED) INTO v_succeeded, v_dead, v_cancelled
  FROM unnest(p_ids, p_states) AS e (id, state) WHERE lp.has_kids(ARRAY[e.id]);
  IF v_dead IS NULL AND v_cancelled IS NULL THEN
    PERFORM lp.share_graph();
  ELSE
    PERFORM lp.lock(:GRAPH);
  END IF;
  IF v_succeeded IS NOT NULL THEN
    PERFORM lp.release_children(v_succeeded, p_now);
  END IF;
  IF v_dead IS NOT NULL THEN
    PERFORM lp.fail_children(v_dead, 'is dead', true, p_now);
  END IF;
  IF v_cancelled IS NOT NULL THEN
    PERFORM lp.fail_children(v_cancelled, 'is cancelled', false, p_now);
  END IF;
END $$;
