-- Promise: dependencies between jobs: dependents are released by their last parent, cancelled with a failed one, revived with
-- it. Inputs: as named. Answer: as each says. A dependency stays open in `dep` until its parent succeeded, or failed and does not matter.
-- Relies on dep_waiting, dep_open, dep_parent and the primary keys.
--
-- The graph lock (2) has two modes. Shared: parents that succeeded hand on; each locks its children's rows of `wait` by
-- id before it closes their dependencies and looks in a later statement whether any is left open, so of two last parents
-- the second sees the first (FOR NO KEY UPDATE: a step that keeps such a child from ending is not in the way). Exclusive: everything else that walks down the graph (cancel, failures, revival, erasing).
-- Neither is taken for a job without open dependents: one look into an index tells.

CREATE OR REPLACE FUNCTION lp.share_graph() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(:LOCKS + :GRAPH, ('lp.floor'::regclass::oid::bigint - 2147483648)::integer);
END $$;

CREATE OR REPLACE FUNCTION lp.try_share_graph() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN pg_try_advisory_xact_lock_shared(:LOCKS + :GRAPH, ('lp.floor'::regclass::oid::bigint - 2147483648)::integer);
END $$;

-- Why a child will not run, with the cause of it, as far as one is known; thousands of dependents may be told it, so it is
-- cut. Texts are the same on every engine: people search for them.
CREATE OR REPLACE FUNCTION lp.because(p_parent bytea, p_word text, p_cause text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT 'parent ' || encode(p_parent, 'hex')::uuid::text || ' ' || p_word || coalesce(': ' || left(nullif(p_cause, ''), 200), '')
$$;

-- What the dependents of a job that has failed are told of its reason: what the job itself was told when a parent of it
-- died (flag BY_PARENT), without the way that this came.
CREATE OR REPLACE FUNCTION lp.root_cause(p_reason text, p_flags smallint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN p_flags & :BY_PARENT <> 0 THEN regexp_replace(p_reason, '^parent [-0-9a-f]{36} is \w+(: )?', '') ELSE p_reason END
$$;

-- What jobs that have failed say of it, in order.
CREATE OR REPLACE FUNCTION lp.causes_of(p_ids bytea[]) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN ARRAY(
    SELECT (SELECT lp.root_cause(o.reason, o.flags) FROM lp.done AS o WHERE o.id = j.id OFFSET 0) FROM unnest(p_ids) WITH ORDINALITY AS j (id, at)
    ORDER BY j.at
  );
END $$;

-- True when one of these jobs has dependents that still wait for it.
CREATE OR REPLACE FUNCTION lp.has_kids(p_ids bytea[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN EXISTS (SELECT FROM lp.dep AS d WHERE d.parent = ANY (p_ids) AND NOT d.done);
END $$;

-- Wake the callers that wait for the ends of these jobs.
CREATE OR REPLACE FUNCTION lp.tell_finished(p_ids bytea[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_watch lp.watch;
BEGIN
  FOR v_watch IN DELETE FROM lp.watch AS w WHERE w.job = ANY (p_ids) RETURNING w.* LOOP
    PERFORM lp.notify(v_watch.channel, 'f', encode(v_watch.job, 'hex'));
  END LOOP;
END $$;

-- Whether a job with very many parents still waits for one of them, of which the 16 with the largest ids are none. What is
-- closed stays closed, so a look that goes far notes how far, and the next begins there: all looks together walk over each
-- dependency a few times, in whatever order parents end, even while an old snapshot keeps what the closing left.
CREATE OR REPLACE FUNCTION lp.waits_far(p_child bytea) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_from bytea := (SELECT f.parent FROM lp.dep_far AS f WHERE f.child = p_child);
  v_far boolean := false;
  v_parents bytea[];
  v_open boolean;
BEGIN
  v_from := coalesce(v_from, '\xffffffffffffffffffffffffffffffffff');
  LOOP
    SELECT array_agg(p.parent), bool_or(NOT p.done) INTO v_parents, v_open FROM (
      SELECT d.parent, d.done FROM lp.dep AS d WHERE d.child = p_child AND d.parent < v_from ORDER BY d.parent DESC LIMIT 32
    ) AS p;
    EXIT WHEN v_open OR v_parents IS NULL;
    v_from := v_parents[cardinality(v_parents)];
    v_far := true;
  END LOOP;
  IF v_far AND v_open THEN
    INSERT INTO lp.dep_far AS f (child, parent) VALUES (p_child, v_from)
    ON CONFLICT (child) DO UPDATE SET parent = excluded.parent;
  END IF;
  RETURN v_open IS NOT NULL;
END $$;

-- Children without an open dependency become ready or scheduled. Of many parents those with the largest ids end last,
-- most often: that is where to look first.
CREATE OR REPLACE FUNCTION lp.free_children(p_children bytea[], p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WITH freed AS (
    UPDATE lp.wait AS w SET state = CASE WHEN w.due_ms > p_now THEN :SCHEDULED ELSE :READY END
    WHERE w.id = ANY (p_children) AND w.state = :BLOCKED AND NOT (
      SELECT CASE WHEN bool_or(NOT p.done) THEN true WHEN count(*) = 16 THEN lp.waits_far(w.id) ELSE false END FROM (
        SELECT d.done FROM lp.dep AS d WHERE d.child = w.id ORDER BY d.parent DESC LIMIT 16
      ) AS p
    )
    RETURNING w.id, w.lane, w.due_ms, w.state
  ), ready AS (
    INSERT INTO lp.post (kind, lane, n, due_ms, id)
    SELECT :POST_LANE, f.lane, count(*), min(f.due_ms), (array_agg(f.id ORDER BY f.due_ms, f.id))[1]
    FROM freed AS f WHERE f.state = :READY GROUP BY f.lane
  ), timers AS (
    INSERT INTO lp.post (kind, lane, due_ms) SELECT :POST_LANE, f.lane, min(f.due_ms) FROM freed AS f WHERE f.state = :SCHEDULED GROUP BY f.lane
  )
  INSERT INTO lp.tally (lane, whats, ns)
  SELECT f.lane, '{:BLOCKED,:SCHEDULED,:READY}', ARRAY[-count(*), count(*) FILTER (WHERE f.state = :SCHEDULED), count(*) FILTER (WHERE f.state = :READY)]
  FROM freed AS f GROUP BY f.lane;
END $$;

-- Of these children, those that wait and are not ours.
CREATE OR REPLACE FUNCTION lp.not_ours(p_children bytea[], p_ours bytea[]) RETURNS bytea[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN ARRAY(SELECT w.id FROM lp.wait AS w WHERE w.id = ANY (ARRAY(
    SELECT c FROM unnest(p_children) AS c EXCEPT SELECT o FROM unnest(p_ours) AS o
  )));
END $$;

-- Of jobs that others wait to hear about, those whose rows of `wait` are ours now, in the order of their ids. A caller's
-- own transaction may have replaced some and stay open for long: those are left to it, and looked at when it has ended
-- (POST_CHILD). p_ends: they are about to leave.
CREATE OR REPLACE FUNCTION lp.hold_children(p_children bytea[], p_ends boolean) RETURNS bytea[] LANGUAGE plpgsql
SET lock_timeout = '250ms' AS $$
DECLARE
  v_ours bytea[];
BEGIN
  BEGIN
    IF p_ends THEN
      v_ours := ARRAY(SELECT w.id FROM lp.wait AS w WHERE w.id = ANY (p_children) ORDER BY w.id FOR UPDATE);
    ELSE
      v_ours := ARRAY(SELECT w.id FROM lp.wait AS w WHERE w.id = ANY (p_children) ORDER BY w.id FOR NO KEY UPDATE);
    END IF;
    RETURN v_ours;
  EXCEPTION WHEN lock_not_available THEN
    NULL;
  END;
  v_ours := ARRAY(SELECT w.id FROM lp.wait AS w WHERE w.id = ANY (p_children) ORDER BY w.id FOR UPDATE SKIP LOCKED);
  INSERT INTO lp.post (kind, id) SELECT :POST_CHILD, o FROM unnest(lp.not_ours(p_children, v_ours)) AS o;
  RETURN v_ours;
END $$;

-- Hand the results of parents that succeeded on to the next 256 children of each; more than that follow with the next
-- claims. The caller shares the graph.
CREATE OR REPLACE FUNCTION lp.release_children(p_parents bytea[], p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_children bytea[];
  v_parents bytea[];
  v_ours bytea[];
  v_others bytea[] := '{}'; -- children that another transaction holds
BEGIN
  SELECT array_agg(k.child), array_agg(p.id) INTO v_children, v_parents FROM unnest(p_parents) AS p (id)
  CROSS JOIN LATERAL (
    SELECT d.child FROM lp.dep AS d WHERE d.parent = p.id AND NOT d.done ORDER BY d.child LIMIT 256
  ) AS k;
  IF v_children IS NULL THEN
    RETURN;
  END IF;
  INSERT INTO lp.fan (parent) SELECT p.id FROM unnest(v_parents) AS p (id) GROUP BY p.id HAVING count(*) = 256
  ON CONFLICT DO NOTHING;
  v_ours := lp.hold_children(v_children, false);
  IF (SELECT count(DISTINCT c) FROM unnest(v_children) AS c) > cardinality(v_ours) THEN
    v_others := lp.not_ours(v_children, v_ours);
  END IF;
  UPDATE lp.dep AS d SET done = true, result = (SELECT r.body FROM lp.result AS r WHERE r.id = d.parent)
  WHERE d.ctid = ANY (ARRAY(
    SELECT o.ctid FROM unnest(v_children, v_parents) AS k (child, parent) CROSS JOIN LATERAL (
      SELECT x.ctid FROM lp.dep AS x WHERE x.child = k.child AND x.parent = k.parent AND NOT x.done OFFSET 0
    ) AS o
    WHERE NOT k.child = ANY (v_others)
  ));
  PERFORM lp.free_children(v_ours, p_now);
END $$;

-- Release the next children of a parent that has very many; true when there may be more. It waits for no lock.
CREATE OR REPLACE FUNCTION lp.fan_out(p_now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_parent bytea;
  v_children bytea[];
  v_free bytea[];
BEGIN
  SELECT f.parent INTO v_parent FROM lp.fan AS f ORDER BY f.parent LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  IF NOT lp.try_share_graph() THEN
    RETURN true;
  END IF;
  v_children := ARRAY(
    SELECT d.child FROM lp.dep AS d WHERE d.parent = v_parent AND NOT d.done ORDER BY d.child LIMIT 256
  );
  -- One that is tried again meanwhile releases them when it succeeds.
  IF v_children = '{}' OR lp.state_of(v_parent) IS DISTINCT FROM :SUCCEEDED THEN
    DELETE FROM lp.fan AS f WHERE f.parent = v_parent;
    RETURN EXISTS (SELECT FROM lp.fan);
  END IF;
  -- Locked children keep their dependency open until the next claim; children that left `wait` do not matter.
  v_free := ARRAY(SELECT w.id FROM lp.wait AS w WHERE w.id = ANY (v_children) ORDER BY w.id FOR NO KEY UPDATE SKIP LOCKED);
  v_free := v_free || ARRAY(
    SELECT c.id FROM unnest(v_children) AS c (id) WHERE NOT EXISTS (SELECT FROM lp.wait AS w WHERE w.id = c.id OFFSET 0)
  );
  UPDATE lp.dep AS d SET done = true, result = (SELECT r.body FROM lp.result AS r WHERE r.id = v_parent)
  WHERE d.child = ANY (v_free) AND d.parent = v_parent AND NOT d.done;
  PERFORM lp.free_children(v_free, p_now);
  IF v_free = '{}' THEN -- all that it shows are held: others first
    DELETE FROM lp.fan AS f WHERE f.parent = v_parent;
    INSERT INTO lp.post (kind, id) SELECT :POST_CHILD, c.id FROM unnest(v_children) AS c (id);
  END IF;
  RETURN true;
END $$;
