-- Promise: the careful way of storing jobs: ids, unique keys and parents are looked up first; one bad item refuses all.
-- Inputs: lp.batch. Answer: as enqueue_1. Locks, in order: keys in their order, depths, parents that run (by id, FOR KEY SHARE:
-- they cannot end meanwhile), the graph, parents that wait; a caller's own transaction locks no parent: its children are
-- looked at when it has committed (POST_CHILD).

-- Which job stands for each of the call: itself, the one with its id, or the holder of its key. Keys are taken in their
-- order, each by the first job that has it.
CREATE OR REPLACE FUNCTION lp.stand_ins(p_batch lp.batch, p_known smallint[], p_now bigint) RETURNS bytea[] LANGUAGE plpgsql AS $$
BEGIN
  IF p_batch.unique_keys IS NULL THEN
    RETURN p_batch.ids;
  END IF;
  RETURN ARRAY(
    SELECT CASE WHEN w.asks THEN w.target ELSE w.id END FROM (
      SELECT k.at, k.id, k.asks, first_value(k.taken) OVER (PARTITION BY k.asks, k.key ORDER BY k.at) AS target FROM (
        SELECT o.*, CASE WHEN o.asks AND o.number = 1
          THEN lp.unique_take(o.key, o.id, o.states, p_now + o.for_ms, p_now) END AS taken
        FROM (
          SELECT u.*, u.key IS NOT NULL AND u.known IS NULL AS asks,
            row_number() OVER (PARTITION BY u.key, u.known IS NULL ORDER BY u.at) AS number
          FROM unnest(p_batch.unique_keys, p_batch.unique_states, p_batch.unique_for, p_batch.ids, p_known)
            WITH ORDINALITY AS u (key, states, for_ms, id, known, at)
          ORDER BY u.key, u.at OFFSET 0
        ) AS o OFFSET 0
      ) AS k
    ) AS w ORDER BY w.at
  );
END $$;

-- Refuse new jobs of a queue or task that is draining.
CREATE OR REPLACE FUNCTION lp.refuse_draining(p_batch lp.batch, p_new boolean[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_draining text[] := ARRAY(SELECT key FROM lp.gate WHERE key = ANY (p_batch.places) AND draining);
  v_places text[]; -- by lane: what of it is draining
  v_at integer;
BEGIN
  IF v_draining = '{}' THEN
    RETURN;
  END IF;
  v_places := ARRAY(
    SELECT (
      SELECT k.place FROM unnest(ARRAY[
        'all', 'queue:' || (l.body ->> 'queue'), 'task:' || coalesce(l.body ->> 'scope', l.body ->> 'task')
      ])
        WITH ORDINALITY AS k (place, at)
      WHERE k.place = ANY (v_draining) ORDER BY k.at LIMIT 1
    ) FROM (SELECT convert_from(u.body, 'UTF8')::jsonb AS body, u.at FROM unnest(p_batch.bodies) WITH ORDINALITY AS u (body, at)) AS l
    ORDER BY l.at
  );
  v_at := (
    SELECT j.at FROM unnest(p_batch.lane_of, p_new) WITH ORDINALITY AS j (lane, new, at)
    WHERE j.new AND v_places[j.lane] IS NOT NULL ORDER BY j.at LIMIT 1
  );
  IF v_at IS NOT NULL THEN
    RAISE EXCEPTION '% is draining and takes no new jobs%',
      CASE v_places[p_batch.lane_of[v_at]] WHEN 'all' THEN 'everything' ELSE regexp_replace(v_places[p_batch.lane_of[v_at]], ':', ' ') END,
      CASE WHEN cardinality(p_batch.lane_of) > 1 THEN format(' (item %s)', p_batch.positions[v_at]) ELSE '' END
    USING ERRCODE = 'LP002', HINT = 'limpet resume ' || CASE
      WHEN v_places[p_batch.lane_of[v_at]] = 'all' THEN '--all'
      ELSE regexp_replace(regexp_replace(v_places[p_batch.lane_of[v_at]], '^queue:', ''), '^task:', '--task ')
    END;
  END IF;
END $$;

-- Refuse new jobs that wait for one that is neither stored nor of this call. `p_outer`: parents that are not of it.
CREATE OR REPLACE FUNCTION lp.refuse_unknown(p_batch lp.batch, p_new boolean[], p_outer bytea[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_missing bytea[] := ARRAY(SELECT o FROM unnest(p_outer) AS o WHERE lp.state_of(o) IS NULL);
  v_pair record;
BEGIN
  IF v_missing = '{}' THEN
    RETURN;
  END IF;
  FOR v_pair IN
    SELECT array_position(p_batch.ids, d.child) AS at, d.parent
    FROM unnest(p_batch.children, p_batch.parents) WITH ORDINALITY AS d (child, parent, at)
    WHERE d.parent = ANY (v_missing) ORDER BY d.at
  LOOP
    IF p_new[v_pair.at] THEN
      RAISE EXCEPTION 'item % waits for job %, which is not stored', p_batch.positions[v_pair.at], encode(v_pair.parent, 'hex')::uuid
      USING ERRCODE = 'LP001', HINT = 'enqueue the parent first, or in the same call';
    END IF;
  END LOOP;
END $$;

-- Share the graph, and keep parents from ending while their children are stored: in whichever place they are. One that
-- moved meanwhile and is held by another transaction needs a new attempt: a step that has the graph waits for no running job.
CREATE OR REPLACE FUNCTION lp.hold_parents(p_parents bytea[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_kept bytea[] := ARRAY(SELECT id FROM lp.running WHERE id = ANY (p_parents) ORDER BY id FOR KEY SHARE);
  v_rest bytea[]; -- to look for one of many in an array of many is dear
BEGIN
  PERFORM lp.share_graph();
  v_kept := v_kept || ARRAY(SELECT id FROM lp.wait WHERE id = ANY (p_parents) ORDER BY id FOR KEY SHARE);
  v_rest := ARRAY(SELECT p FROM unnest(p_parents) AS p EXCEPT SELECT k FROM unnest(v_kept) AS k);
  v_kept := ARRAY(SELECT id FROM lp.running WHERE id = ANY (v_rest) FOR KEY SHARE SKIP LOCKED);
  v_rest := ARRAY(SELECT r FROM unnest(v_rest) AS r EXCEPT SELECT k FROM unnest(v_kept) AS k);
  IF EXISTS (
    SELECT id FROM lp.running WHERE id = ANY (v_rest) UNION ALL SELECT id FROM lp.wait WHERE id = ANY (v_rest)
  ) THEN
    RAISE EXCEPTION 'a parent moved while its child was stored' USING ERRCODE = 'serialization_failure';
  END IF;
END $$;

-- Each of these, or what stands for it: what `p_to` has where `p_from` first has it. One sort, where a search through an
-- array of many would be made for each of many; so it is with among.
CREATE OR REPLACE FUNCTION lp.stood_for(p_ids bytea[], p_from bytea[], p_to bytea[]) RETURNS bytea[] LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN ARRAY(
    SELECT coalesce(m.stands, m.id) FROM (
      SELECT u.id, u.at, first_value(u.stands) OVER (PARTITION BY u.id ORDER BY u.place) AS stands FROM (
        SELECT f.id, NULL::bigint AS at, f.stands, f.place FROM unnest(p_from, p_to) WITH ORDINALITY AS f (id, stands, place)
        UNION ALL SELECT i.id, i.at, NULL, NULL FROM unnest(p_ids) WITH ORDINALITY AS i (id, at)
      ) AS u
    ) AS m WHERE m.at IS NOT NULL ORDER BY m.at
  );
END $$;

-- Of each of these, whether it is among those.
CREATE OR REPLACE FUNCTION lp.among(p_ids bytea[], p_those bytea[]) RETURNS boolean[] LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN ARRAY(
    SELECT m.is_there FROM (
      SELECT u.at, bool_or(u.at IS NULL) OVER (PARTITION BY u.id) AS is_there FROM (
        SELECT i.id, i.at FROM unnest(p_ids) WITH ORDINALITY AS i (id, at)
        UNION ALL SELECT t, NULL FROM unnest(p_those) AS t
      ) AS u
    ) AS m WHERE m.at IS NOT NULL ORDER BY m.at
  );
END $$;

-- Store the dependencies. Live parents (they are locked) and parents of this call are waited for; the state of
-- the others decides now. Answer: children that must not run, and why. In a caller's own transaction all are waited for,
-- and looked at when it has committed.
CREATE OR REPLACE FUNCTION lp.store_deps(
  p_batch lp.batch, p_targets bytea[], p_new bytea[], p_now bigint, OUT doomed bytea[], OUT whys text[]
) LANGUAGE plpgsql AS $$
DECLARE
  v_parents bytea[] := p_batch.parents;
  v_new boolean[]; -- by pair: whether its child is new; NULL: all are
  v_ended bytea[] := '{}';
  v_over boolean[]; -- by pair: whether its parent has ended; NULL: none has
BEGIN
  doomed := '{}';
  whys := '{}';
  IF cardinality(p_new) <> cardinality(p_batch.ids) THEN
    v_new := lp.among(p_batch.children, p_new);
  END IF;
  IF p_targets <> p_batch.ids THEN -- some parents of this call are stood for by others
    v_parents := lp.stood_for(v_parents, p_batch.ids, p_targets);
    -- The arguments of a child refer to its parents as it named them.
    INSERT INTO lp.note (job, kind, name, body)
    SELECT d.child, 'stands_for', encode(d.named, 'hex')::uuid::text, convert_to('"' || encode(d.parent, 'hex')::uuid::text || '"', 'UTF8')
    FROM unnest(p_batch.children, p_batch.parents, v_parents) WITH ORDINALITY AS d (child, named, parent, at)
    WHERE d.named <> d.parent AND v_new[d.at] IS NOT FALSE ON CONFLICT DO NOTHING;
  END IF;
  IF NOT p_batch.guest THEN
    v_ended := ARRAY(
      SELECT o.id FROM (SELECT p AS id FROM unnest(v_parents) AS p EXCEPT SELECT n FROM unnest(p_new) AS n) AS o
      WHERE coalesce(lp.state_of(o.id), :REMOVED) > :RUNNING
    );
  END IF;
  IF v_ended <> '{}' THEN
    v_over := lp.among(v_parents, v_ended);
  END IF;
  INSERT INTO lp.dep (child, parent, mode)
  SELECT d.child, d.parent, d.mode FROM unnest(p_batch.children, v_parents, p_batch.modes) WITH ORDINALITY AS d (child, parent, mode, at)
  WHERE v_new[d.at] IS NOT FALSE AND v_over[d.at] IS NOT TRUE ON CONFLICT DO NOTHING;
  IF v_ended <> '{}' THEN
    SELECT coalesce(array_agg(f.child), '{}'), coalesce(array_agg(f.why), '{}') INTO doomed, whys FROM (
      SELECT DISTINCT ON (d.child) d.child, d.why FROM (
        SELECT u.child, u.at, (lp.dep_at_enqueue(u.child, u.parent, lp.state_of(u.parent), u.mode, p_now)).cancelled AS why
        FROM unnest(p_batch.children, v_parents, p_batch.modes) WITH ORDINALITY AS u (child, parent, mode, at)
        WHERE v_new[u.at] IS NOT FALSE AND v_over[u.at] ORDER BY u.at OFFSET 0
      ) AS d WHERE d.why IS NOT NULL ORDER BY d.child, d.at
    ) AS f;
  END IF;
  IF p_batch.guest THEN
    INSERT INTO lp.post (kind, id)
    SELECT DISTINCT :POST_CHILD, c.id FROM unnest(p_batch.children) WITH ORDINALITY AS c (id, at) WHERE v_new[c.at] IS NOT FALSE;
  END IF;
END $$;

-- The bodies of the new jobs of the call, and what few of them have: keys, flows, costs of other units.
CREATE OR REPLACE FUNCTION lp.store_bodies(p_batch lp.batch, p_new boolean[], p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lp.job (id, lane, policy, enqueued_ms, unique_key, unique_states, args, extra)
  SELECT j.id, p_batch.lanes[j.lane], p_batch.policies[j.policy], p_now, j.key, j.states, j.args, j.extra
  FROM unnest(
    p_batch.ids, p_batch.lane_of, p_batch.policy_of, p_batch.unique_keys, p_batch.unique_states, p_batch.args, p_batch.extras
  ) WITH ORDINALITY AS j (id, lane, policy, key, states, args, extra, at) WHERE p_new[j.at]
  ON CONFLICT (id) DO UPDATE SET unique_key = excluded.unique_key, unique_states = excluded.unique_states;
  IF p_batch.unique_keys IS NOT NULL THEN
    INSERT INTO lp.key_job (key, id)
    SELECT lp.bare_key(j.key), j.id FROM unnest(p_batch.ids, p_batch.unique_keys) WITH ORDINALITY AS j (id, key, at)
    WHERE p_new[j.at] AND j.key IS NOT NULL;
  END IF;
  IF p_batch.flows IS NOT NULL OR p_batch.unit_costs IS NOT NULL THEN
    PERFORM lp.store_flows_and_costs(p_batch, p_new);
  END IF;
END $$;

-- Store the new jobs of the call.
CREATE OR REPLACE FUNCTION lp.store_new(p_batch lp.batch, p_targets bytea[], p_new boolean[], p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_ids bytea[];
  v_lanes integer[];
  v_dues bigint[];
  v_expires bigint[];
  v_costs integer[];
  v_states smallint[];
  v_waits boolean := p_batch.children IS NOT NULL;
  v_stood boolean := p_batch.children IS NOT NULL AND p_targets <> p_batch.ids; -- others stand for some parents
  v_got record;
BEGIN
  PERFORM lp.store_bodies(p_batch, p_new, p_now);
  SELECT array_agg(j.id), array_agg(j.lane), array_agg(j.due), array_agg(p_now + j.expires), array_agg(coalesce(j.cost, 1))
  INTO v_ids, v_lanes, v_dues, v_expires, v_costs FROM (
    SELECT u.*, CASE WHEN u.due_at IS NULL THEN p_now + coalesce(u.delay, 0) ELSE greatest(u.due_at, 0) END AS due
    FROM unnest(p_batch.ids, p_batch.lane_of, p_batch.delays, p_batch.dues, p_batch.expires, p_batch.costs)
      WITH ORDINALITY AS u (id, lane, delay, due_at, expires, cost, at)
    WHERE p_new[u.at] ORDER BY u.at
  ) AS j;
  IF v_ids IS NULL THEN
    RETURN;
  END IF;
  IF v_waits THEN
    v_got := lp.store_deps(p_batch, p_targets, v_ids, p_now);
  END IF;
  v_states := ARRAY(
    SELECT CASE
      WHEN v_waits AND EXISTS (SELECT 1 FROM lp.dep AS d WHERE d.child = j.id AND d.done::integer = 0 OFFSET 0) THEN :BLOCKED
      WHEN j.due > p_now THEN :SCHEDULED ELSE :READY
    END
    FROM unnest(v_ids, v_dues) WITH ORDINALITY AS j (id, due, at) ORDER BY j.at
  );
  INSERT INTO lp.wait (id, lane, due_ms, expires_ms, cost, state, priority, flags)
  SELECT j.id, p_batch.lanes[j.lane], j.due, j.expires, j.cost, j.state, p_batch.priorities[j.lane],
    CASE WHEN v_waits AND EXISTS (SELECT 1 FROM lp.dep AS d WHERE d.child = j.id OFFSET 0) THEN :INPUTS ELSE 0 END
      | CASE WHEN v_stood AND EXISTS (SELECT 1 FROM lp.note AS n WHERE n.job = j.id OFFSET 0) THEN :NOTES ELSE 0 END
  FROM unnest(v_ids, v_lanes, v_dues, v_expires, v_costs, v_states) AS j (id, lane, due, expires, cost, state);
  PERFORM lp.post_lanes(p_batch, v_lanes, v_states, v_dues);
  IF v_waits THEN -- written as waiting first, so that a fate is one ordinary change of state
    PERFORM lp.doom(f.child, f.why, p_now) FROM unnest(v_got.doomed, v_got.whys) AS f (child, why);
  END IF;
END $$;

-- A waiting job takes new arguments, priority, time and cost; one that runs, has ended, or remembers what it has done
-- (steps, a checkpoint) stays as it is. REPLACE counts the delay from the first enqueue, DEBOUNCE restarts it;
-- where one of the two jobs is part of a flow, it costs what it did.
CREATE OR REPLACE FUNCTION lp.replace_job(p_target bytea, p_batch lp.batch, p_at integer, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_old lp.wait;
  v_lane integer := p_batch.lane_of[p_at];
  v_base bigint;
  v_due bigint;
  v_state smallint;
  v_alone boolean;
BEGIN
  SELECT * INTO v_old FROM lp.wait WHERE id = p_target FOR UPDATE;
  IF NOT FOUND OR v_old.flags & :NOTES <> 0 AND EXISTS (
    SELECT FROM lp.note AS n WHERE n.job = p_target AND n.kind IN ('step', 'checkpoint')
  ) THEN
    RETURN;
  END IF;
  v_alone := p_batch.flows[p_at] IS NULL AND NOT coalesce(p_batch.ids[p_at] = ANY (p_batch.children), false)
    AND NOT EXISTS (SELECT FROM lp.flow_job AS f WHERE f.id = p_target)
    AND NOT EXISTS (SELECT FROM lp.dep AS d WHERE d.child = p_target);
  IF v_old.state = :READY THEN
    PERFORM lp.leave_line(ARRAY[p_target], ARRAY[v_old.lane], ARRAY[v_old.cost], true, p_now);
  END IF;
  v_base := CASE WHEN p_batch.on_duplicate[p_at] = :DEBOUNCE THEN p_now ELSE (SELECT enqueued_ms FROM lp.job WHERE id = p_target) END;
  v_due := CASE
    WHEN p_batch.dues[p_at] IS NULL THEN v_base + coalesce(p_batch.delays[p_at], 0) ELSE greatest(p_batch.dues[p_at], 0)
  END;
  v_state := CASE WHEN v_old.state = :BLOCKED THEN :BLOCKED WHEN v_due > p_now THEN :SCHEDULED ELSE :READY END;
  UPDATE lp.wait SET state = v_state, lane = p_batch.lanes[v_lane], priority = p_batch.priorities[v_lane], due_ms = v_due,
    expires_ms = p_now + p_batch.expires[p_at], attempt = 0, held = 0, held_since_ms = NULL,
    cost = CASE WHEN v_alone THEN coalesce(p_batch.costs[p_at], 1) ELSE cost END WHERE id = p_target;
  UPDATE lp.job SET lane = p_batch.lanes[v_lane], policy = p_batch.policies[p_batch.policy_of[p_at]],
    args = p_batch.args[p_at], extra = CASE WHEN v_alone THEN p_batch.extras[p_at] ELSE extra END WHERE id = p_target;
  IF v_alone THEN
    DELETE FROM lp.cost_job WHERE id = p_target;
    IF jsonb_typeof(p_batch.unit_costs -> (p_at - 1)) = 'object' THEN
      INSERT INTO lp.cost_job (id, costs) VALUES (p_target, p_batch.unit_costs -> (p_at - 1));
    END IF;
  END IF;
  PERFORM lp.count_jobs(v_old.lane, v_old.state::integer, -1, :ERASED, 1);
  PERFORM lp.post_lanes(p_batch, ARRAY[v_lane], ARRAY[v_state], ARRAY[v_due]);
  PERFORM lp.count_jobs(p_batch.lanes[v_lane], :ENQUEUED, -1, :MOVED, 1); -- it was enqueued before
  PERFORM lp.note_depth(l.body ->> 'queue', l.body ->> 'tenant')
  FROM (SELECT convert_from(p_batch.bodies[v_lane], 'UTF8')::jsonb AS body) AS l;
END $$;

-- Where each of these is, or was when it went; NULL: it was never stored, or long ago.
CREATE OR REPLACE FUNCTION lp.states_of(p_ids bytea[]) RETURNS smallint[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN ARRAY(
    SELECT coalesce(lp.state_of(j.id), (SELECT g.state FROM lp.gone AS g WHERE g.id = j.id))
    FROM unnest(p_ids) WITH ORDINALITY AS j (id, at) ORDER BY j.at
  );
END $$;

-- Check everything, then write everything. p_bounded: a depth bounds how many may wait where some of these would.
CREATE OR REPLACE FUNCTION lp.insert_checked(
  p_batch lp.batch, p_now bigint, p_bounded boolean, OUT ids bytea[], OUT existing boolean[], OUT states smallint[]
) LANGUAGE plpgsql AS $$
DECLARE
  v_known smallint[] := lp.states_of(p_batch.ids);
  v_new boolean[];
  v_at integer;
BEGIN
  -- A key may be in the hands of a caller's transaction for as long as that likes: nothing else is held meanwhile.
  ids := lp.stand_ins(p_batch, v_known, p_now);
  IF p_batch.unique_keys IS NOT NULL THEN
    v_known := lp.states_of(p_batch.ids); -- the same call, made twice, may have come first
  END IF;
  SELECT array_agg(s.known IS NULL AND s.target = s.id AND s.first ORDER BY s.at) INTO v_new FROM (
    SELECT t.*, row_number() OVER (PARTITION BY t.id ORDER BY t.at) = 1 AS first
    FROM unnest(p_batch.ids, ids, v_known) WITH ORDINALITY AS t (id, target, known, at)
  ) AS s;
  IF p_bounded THEN
    PERFORM lp.refuse_full(p_batch, ARRAY(SELECT NOT n.new FROM unnest(v_new) WITH ORDINALITY AS n (new, at) ORDER BY n.at));
  END IF;
  IF p_batch.children IS NOT NULL AND NOT p_batch.guest THEN
    -- A parent of this call may stand for one that is stored: that one must hold still, too.
    PERFORM lp.hold_parents(
      ARRAY(SELECT DISTINCT p FROM unnest(p_batch.parents) AS p)
      || ARRAY(SELECT id FROM unnest(ids) AS id EXCEPT SELECT id FROM unnest(p_batch.ids) AS id)
    );
  END IF;
  PERFORM lp.refuse_draining(p_batch, v_new);
  IF p_batch.children IS NOT NULL THEN
    PERFORM lp.refuse_unknown(
      p_batch, v_new, ARRAY(SELECT p FROM unnest(p_batch.parents) AS p EXCEPT SELECT i FROM unnest(p_batch.ids) AS i)
    );
  END IF;
  PERFORM lp.store_new(p_batch, ids, v_new, p_now);
  FOR v_at IN
    SELECT t.at FROM unnest(p_batch.ids, ids, v_known, p_batch.on_duplicate) WITH ORDINALITY AS t (id, target, known, way, at)
    WHERE t.known IS NULL AND t.target <> t.id AND t.way <> :EXISTING ORDER BY t.at
  LOOP
    PERFORM lp.replace_job(ids[v_at], p_batch, v_at, p_now); -- what it replaces may be of this very call
  END LOOP;
  -- Pruned before its key's window was over: only a job that succeeded holds a key so long.
  SELECT array_agg(coalesce(lp.state_of(t.target), t.known, :SUCCEEDED) ORDER BY t.at), array_agg(NOT t.new ORDER BY t.at)
  INTO states, existing FROM unnest(ids, v_known, v_new) WITH ORDINALITY AS t (target, known, new, at);
END $$;
