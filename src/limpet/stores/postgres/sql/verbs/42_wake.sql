-- Promise: a sleeping worker is woken for work it asked for; a busy worker is told of urgent work without a sleeper.
-- Inputs: what a step posted, after that step has committed: a sleeper lies down in its claim's commit and looks for
-- posts once more after it, so one of the two always sees the other. Answer: how many were told.
-- Relies on sleeper being short. A missed wake-up costs a worker one beat, never a job.

-- A lane's definition, stored or only posted.
CREATE OR REPLACE FUNCTION lp.lane_definition(p_lane bigint, OUT queue text, OUT task text, OUT needs text[], OUT limited boolean, OUT priority smallint)
LANGUAGE plpgsql AS $$
DECLARE
  v_body jsonb;
BEGIN
  SELECT l.queue, l.task, l.needs, l.limited, l.priority INTO queue, task, needs, limited, priority
  FROM lp.lane AS l WHERE l.id = p_lane;
  IF FOUND THEN
    RETURN;
  END IF;
  SELECT convert_from(p.body, 'UTF8')::jsonb INTO v_body FROM lp.post AS p
  WHERE p.lane = p_lane AND p.body IS NOT NULL AND p.kind = :POST_LANE LIMIT 1;
  queue := v_body ->> 'queue';
  task := v_body ->> 'task';
  needs := ARRAY(SELECT jsonb_array_elements_text(v_body -> 'needs'));
  limited := v_body ->> 'breaker' IS NOT NULL OR jsonb_array_length(v_body -> 'limits') + jsonb_array_length(v_body -> 'keys') > 0;
  priority := (v_body ->> 'priority')::smallint;
END $$;

-- Rouse up to `p_n` sleepers that asked for such jobs; how many it was.
CREATE OR REPLACE FUNCTION lp.wake_sleepers(p_queue text, p_task text, p_needs text[], p_limited boolean, p_n integer)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  v_told integer;
BEGIN
  WITH able AS (
    SELECT s.session FROM lp.sleeper AS s
    WHERE (s.queues IS NULL OR p_queue = ANY (s.queues)) AND (s.tasks IS NULL OR p_task = ANY (s.tasks))
      AND s.capabilities @> p_needs AND (s.slots > 0 OR NOT p_limited)
    ORDER BY s.slots = 0 LIMIT p_n FOR UPDATE SKIP LOCKED
  ), up AS (
    DELETE FROM lp.sleeper AS s USING able WHERE s.session = able.session RETURNING s.session, s.channel
  )
  SELECT count(lp.notify(up.channel, 'w', up.session)) INTO v_told FROM up;
  RETURN v_told;
END $$;

-- A worker that sleeps until a later instant must hear of an earlier one; one of them is enough.
CREATE OR REPLACE FUNCTION lp.wake_for_timer(p_queue text, p_task text, p_needs text[], p_limited boolean, p_due bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_told integer;
BEGIN
  WITH able AS (
    SELECT s.session FROM lp.sleeper AS s
    WHERE (s.queues IS NULL OR p_queue = ANY (s.queues)) AND (s.tasks IS NULL OR p_task = ANY (s.tasks))
      AND s.capabilities @> p_needs AND (s.slots > 0 OR NOT p_limited) AND (s.next_ms IS NULL OR s.next_ms > p_due)
    ORDER BY s.slots = 0 LIMIT 1 FOR UPDATE SKIP LOCKED
  ), told AS (
    UPDATE lp.sleeper AS s SET next_ms = p_due FROM able WHERE s.session = able.session RETURNING s.session, s.channel
  )
  SELECT count(lp.notify(told.channel, 'w', told.session)) INTO v_told FROM told;
END $$;

-- No worker sleeps for urgent jobs: tell busy workers, which keep slots for them.
CREATE OR REPLACE FUNCTION lp.hint_to_busy(p_queue text, p_task text, p_needs text[], p_n integer, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM lp.notify(s.channel, 'u', s.id) FROM (
    SELECT b.channel, b.id FROM lp.session AS b
    WHERE b.deadline_ms > p_now AND (b.queues IS NULL OR p_queue = ANY (b.queues)) AND (b.tasks IS NULL OR p_task = ANY (b.tasks))
      AND b.capabilities @> p_needs AND b.channel IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM lp.sleeper AS s WHERE s.session = b.id OFFSET 0)
    ORDER BY b.id LIMIT least(p_n, 256)
  ) AS s;
END $$;

-- After a commit: wake workers that can run what it posted.
CREATE OR REPLACE FUNCTION lp.wake_1(p_lanes bigint[], p_ns integer[], p_dues bigint[], p_gates text[], p_now bigint)
RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint;
  v_each record;
  v_told integer := 0;
  v_asleep boolean;
BEGIN
  IF NOT EXISTS (SELECT 1 FROM lp.session) THEN
    RETURN;
  END IF;
  v_asleep := EXISTS (SELECT 1 FROM lp.sleeper);
  PERFORM set_config('synchronous_commit', 'off', true); -- a wake-up that a crash takes back does no harm
  v_now := lp.now_1(p_now);
  FOR v_each IN
    SELECT l.*, w.n, w.due FROM unnest(p_lanes, p_ns, p_dues) AS w (lane, n, due)
    CROSS JOIN LATERAL lp.lane_definition(w.lane) AS l WHERE l.queue IS NOT NULL ORDER BY l.priority
  LOOP
    IF v_each.n > 0 THEN
      IF v_asleep THEN
        v_told := lp.wake_sleepers(v_each.queue, v_each.task, v_each.needs, v_each.limited, v_each.n);
      END IF;
      IF v_told < v_each.n AND v_each.priority <= :URGENT THEN
        PERFORM lp.hint_to_busy(v_each.queue, v_each.task, v_each.needs, v_each.n - v_told, v_now);
      END IF;
    END IF;
    IF v_asleep AND v_each.due IS NOT NULL THEN
      PERFORM lp.wake_for_timer(v_each.queue, v_each.task, v_each.needs, v_each.limited, v_each.due);
    END IF;
  END LOOP;
  IF p_gates <> '{}' THEN
    PERFORM lp.wake_for_gates(p_gates, v_now);
  END IF;
END $$;

-- Classes that these gates stop, each with how many jobs may start now and, if none, when one may: by a lane that waits at one
-- of them, or by the class as a whole.
CREATE OR REPLACE FUNCTION lp.classes_at_gates(p_gates text[], p_now bigint)
RETURNS TABLE (queue text, task text, needs text[], limited boolean, free integer, opens bigint) LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY
  SELECT DISTINCT ON (l.class) l.queue, l.task, l.needs, l.limited,
    greatest(0, least(lp.gate_room(g, p_now), 64))::integer AS free, lp.gate_opens_at(g, p_now) AS opens
  FROM unnest(p_gates) AS k (key)
  CROSS JOIN LATERAL (SELECT x.* FROM lp.gate AS x WHERE x.key = k.key OFFSET 0) AS g
  CROSS JOIN LATERAL ( -- one lane of each class that waits there
    WITH RECURSIVE step (class, id) AS (
      (SELECT w.class, w.id FROM lp.lane_now AS w WHERE w.gate = k.key AND w.state = :WAITING ORDER BY w.class LIMIT 1)
      UNION ALL
      SELECT n.class, n.id FROM step CROSS JOIN LATERAL (
        SELECT w.class, w.id FROM lp.lane_now AS w WHERE w.gate = k.key AND w.state = :WAITING AND w.class > step.class
        ORDER BY w.class LIMIT 1
      ) AS n
    )
    SELECT step.id FROM step
  ) AS w
  CROSS JOIN LATERAL (SELECT x.* FROM lp.lane AS x WHERE x.id = w.id OFFSET 0) AS l
  ORDER BY l.class, 5 DESC, 6;
  RETURN QUERY
  WITH RECURSIVE step (class, lane) AS (
    (SELECT s.class, s.lane FROM lp.seat AS s ORDER BY s.class LIMIT 1)
    UNION ALL
    SELECT s.class, s.lane FROM step CROSS JOIN LATERAL (
      SELECT n.class, n.lane FROM lp.seat AS n WHERE n.class > step.class ORDER BY n.class LIMIT 1
    ) AS s
  )
  SELECT l.queue, l.task, l.needs, l.limited, g.free, g.opens
  FROM step CROSS JOIN LATERAL (SELECT x.* FROM lp.lane AS x WHERE x.id = step.lane OFFSET 0) AS l
  CROSS JOIN LATERAL (
    SELECT greatest(0, min(least(lp.gate_room(x, p_now), 64)))::integer AS free,
      CASE WHEN bool_and(lp.gate_opens_at(x, p_now) IS NOT NULL) FILTER (WHERE lp.gate_room(x, p_now) <= 0)
        THEN max(lp.gate_opens_at(x, p_now)) FILTER (WHERE lp.gate_room(x, p_now) <= 0) END AS opens
    FROM lp.gate AS x WHERE x.key = ANY (l.class_gates)
  ) AS g
  WHERE l.class_gates && p_gates;
END $$;

-- Gates have room, or will have it sooner: sessions that sleep for classes which such a gate stops, or for lanes that wait at
-- it, should ask again.
CREATE OR REPLACE FUNCTION lp.wake_for_gates(p_gates text[], p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_each record;
BEGIN
  FOR v_each IN SELECT c.* FROM lp.classes_at_gates(p_gates, p_now) AS c LOOP
    IF v_each.free > 0 THEN
      PERFORM lp.wake_sleepers(v_each.queue, v_each.task, v_each.needs, v_each.limited, v_each.free);
    ELSIF v_each.opens IS NOT NULL THEN
      PERFORM lp.wake_for_timer(v_each.queue, v_each.task, v_each.needs, v_each.limited, v_each.opens);
    END IF;
  END LOOP;
END $$;

-- Whether anything waits to be filed: asked by a claimer that found nothing, after its commit. What it could only post
-- again (children and events with n = 1) it looks at after a while.
CREATE OR REPLACE FUNCTION lp.posted_since_1() RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
  RETURN (
    SELECT CASE
      WHEN f.pass IS NOT NULL THEN true
      WHEN pg_snapshot_xmin(f.filed) < pg_snapshot_xmax(f.filed) THEN EXISTS (
        SELECT 1 FROM lp.unfiled_posts(256) AS p WHERE NOT (p.kind IN (:POST_CHILD, :POST_EVENT) AND p.n = 1)
      )
      ELSE EXISTS (SELECT 1 FROM lp.post AS p WHERE p.xid >= pg_snapshot_xmax(f.filed) AND NOT (p.kind IN (:POST_CHILD, :POST_EVENT) AND p.n = 1))
    END FROM lp.floor AS f
  );
END $$;

-- Definitions by id, stored or only posted. Answer: arrays of ids and bodies; what is nowhere is left out.
CREATE OR REPLACE FUNCTION lp.definitions_1(
  p_lanes bigint[], p_policies bigint[],
  OUT lanes bigint[], OUT lane_bodies bytea[], OUT policies bigint[], OUT policy_bodies bytea[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  SELECT array_agg(d.id), array_agg(d.body) INTO lanes, lane_bodies FROM (
    SELECT DISTINCT ON (w.id) w.id, coalesce(l.body, p.body) AS body FROM unnest(p_lanes) AS w (id)
    LEFT JOIN LATERAL (SELECT x.id, x.body FROM lp.lane AS x WHERE x.id = w.id OFFSET 0) AS l ON true LEFT JOIN LATERAL (
      SELECT body FROM lp.post WHERE lane = w.id AND body IS NOT NULL AND kind = :POST_LANE LIMIT 1
    ) AS p ON l.id IS NULL
    ORDER BY w.id
  ) AS d WHERE d.body IS NOT NULL;
  SELECT array_agg(d.id), array_agg(d.body) INTO policies, policy_bodies FROM (
    SELECT DISTINCT ON (w.id) w.id, coalesce(l.body, p.body) AS body FROM unnest(p_policies) AS w (id)
    LEFT JOIN LATERAL (SELECT x.id, x.body FROM lp.policy AS x WHERE x.id = w.id OFFSET 0) AS l ON true LEFT JOIN LATERAL (
      SELECT body FROM lp.post WHERE lane = w.id AND body IS NOT NULL AND kind = :POST_POLICY LIMIT 1
    ) AS p ON l.id IS NULL
    ORDER BY w.id
  ) AS d WHERE d.body IS NOT NULL;
END $$;

-- Verb: from now on the end of this job is told to a channel. Answer: its state; NULL when it is gone.
-- A step that ends a job holds its row and looks for watchers after that: a watcher keeps it from ending meanwhile.
CREATE OR REPLACE FUNCTION lp.watch_1(p_id bytea, p_channel text) RETURNS smallint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_state smallint;
BEGIN
  LOOP
    v_state := lp.state_of(p_id);
    IF v_state IS NULL OR v_state >= :SUCCEEDED OR p_channel IS NULL THEN -- one who hears nothing looks by itself
      RETURN v_state;
    ELSIF v_state = :RUNNING THEN
      PERFORM FROM lp.running WHERE id = p_id FOR KEY SHARE;
    ELSE
      PERFORM FROM lp.wait WHERE id = p_id FOR KEY SHARE;
    END IF;
    IF FOUND THEN
      INSERT INTO lp.watch (job, channel) VALUES (p_id, p_channel) ON CONFLICT DO NOTHING;
      RETURN v_state;
    END IF;
  END LOOP;
END $$;
