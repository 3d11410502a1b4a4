-- Promise: questions about the store as a whole, and where one job stands in it; changes nothing.
-- Inputs: as named. Answer: rows. Relies on lane_queue, post_lane, wait_ready, dep_open, session_deadline and the
-- primary keys. What is counted or posted but not yet folded or filed is part of every answer.

-- All counters: those of states by queue and task, the sums under empty names.
CREATE OR REPLACE FUNCTION lp.counts_1() RETURNS TABLE (queue text, task text, what smallint, n bigint) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  RETURN QUERY
  SELECT x.queue, x.task, x.what, sum(x.n)::bigint FROM (
    SELECT c.queue, c.task, c.what, c.n FROM lp.count AS c WHERE c.what <= :STALE
    UNION ALL
    SELECT names.queue, names.task, t.what, t.n FROM (
      SELECT d.lane, u.what, sum(u.n) AS n FROM lp.tally AS d CROSS JOIN LATERAL unnest(d.whats, d.ns) AS u (what, n)
      WHERE u.what <= :CANCELLED AND u.n <> 0 GROUP BY d.lane, u.what
    ) AS t CROSS JOIN LATERAL lp.lane_names(t.lane) AS names
    UNION ALL
    SELECT '', '', u.what, sum(u.n) FROM lp.tally AS d CROSS JOIN LATERAL unnest(d.whats, d.ns) AS u (what, n)
    WHERE u.what BETWEEN :ENQUEUED AND :STALE GROUP BY u.what
  ) AS x
  WHERE x.queue IS NOT NULL GROUP BY x.queue, x.task, x.what HAVING sum(x.n) <> 0;
END $$;

-- Dead jobs by origin, most frequent first. Type and first instant are those of the first that died, message and
-- sample those of the last.
CREATE OR REPLACE FUNCTION lp.causes_1(p_queue text, p_limit integer) RETURNS TABLE (
  cause text, n bigint, type text, message text, task text, queue text, first_ms bigint, last_ms bigint, sample bytea
) LANGUAGE plpgsql STABLE
SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  RETURN QUERY
  SELECT x.cause, sum(x.n)::bigint,
    (array_agg(x.type ORDER BY x.first_ms, x.place) FILTER (WHERE x.n > 0))[1],
    (array_agg(x.message ORDER BY x.last_ms DESC, x.place DESC) FILTER (WHERE x.n > 0))[1],
    x.task, x.queue, min(x.first_ms) FILTER (WHERE x.n > 0), max(x.last_ms) FILTER (WHERE x.n > 0),
    (array_agg(x.sample ORDER BY x.last_ms DESC, x.place DESC) FILTER (WHERE x.n > 0))[1]
  FROM (
    SELECT c.cause, c.queue, c.task, c.n, c.type, c.message, c.first_ms, c.last_ms, c.sample, '(0,0)'::tid AS place
    FROM lp.cause AS c WHERE p_queue IS NULL OR c.queue = p_queue
    UNION ALL
    SELECT d.cause, d.queue, d.task, d.n, d.type, d.message, d.at_ms, d.at_ms, d.sample, d.ctid
    FROM lp.cause_tally AS d WHERE p_queue IS NULL OR d.queue = p_queue
  ) AS x
  GROUP BY x.cause, x.queue, x.task HAVING sum(x.n) > 0
  ORDER BY 2 DESC, 8 DESC, x.cause LIMIT p_limit;
END $$;

-- Every queue that has lanes, stored or posted, and since when its oldest ready job is ready. Of a queue at most
-- `p_lanes` lanes are looked at, and at most `p_posts` posts.
CREATE OR REPLACE FUNCTION lp.queues_1(p_lanes integer, p_posts integer) RETURNS TABLE (queue text, oldest_ms bigint)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  RETURN QUERY
  WITH RECURSIVE
  name (queue) AS (
    (SELECT l.queue FROM lp.lane AS l ORDER BY l.queue LIMIT 1)
    UNION ALL
    SELECT (SELECT l.queue FROM lp.lane AS l WHERE l.queue > m.queue ORDER BY l.queue LIMIT 1)
    FROM name AS m WHERE m.queue IS NOT NULL
  ),
  -- Lanes whose definition is under way, each once.
  fresh (lane) AS (
    (SELECT p.lane FROM lp.post AS p WHERE p.body IS NOT NULL AND p.lane IS NOT NULL ORDER BY p.lane LIMIT 1)
    UNION ALL
    SELECT (SELECT p.lane FROM lp.post AS p WHERE p.body IS NOT NULL AND p.lane > f.lane ORDER BY p.lane LIMIT 1)
    FROM fresh AS f WHERE f.lane IS NOT NULL
  ),
  -- Jobs that became ready before their lane's floor, and were not filed yet.
  posted AS (
    SELECT DISTINCT ON (q.lane) q.lane, q.due_ms, q.id FROM (
      SELECT p.lane, p.due_ms, p.id, p.kind, p.n FROM lp.unfiled_posts(p_posts) AS p
      ORDER BY p.xid, p.seq LIMIT p_posts
    ) AS q WHERE q.kind = :POST_LANE AND q.n > 0 ORDER BY q.lane, q.due_ms, q.id
  ),
  -- (queue, lane, and from where its ready jobs are looked for).
  place AS (
    SELECT m.queue, l.id AS lane, coalesce(s.floor_ms, -9223372036854775808) AS due_ms, coalesce(s.floor_id, '\x') AS id
    FROM name AS m
    CROSS JOIN LATERAL (SELECT l.id FROM lp.lane AS l WHERE l.queue = m.queue LIMIT p_lanes) AS l
    LEFT JOIN lp.lane_now AS s ON s.id = l.id
    UNION ALL
    SELECT l.queue, q.lane, q.due_ms, coalesce(q.id, '\x') FROM posted AS q JOIN lp.lane AS l ON l.id = q.lane
    UNION ALL
    SELECT names.queue, f.lane, -9223372036854775808, '\x' FROM (SELECT g.lane FROM fresh AS g LIMIT p_lanes) AS f
    CROSS JOIN LATERAL lp.lane_names(f.lane) AS names
    WHERE f.lane IS NOT NULL AND names.queue IS NOT NULL AND NOT EXISTS (SELECT 1 FROM lp.lane AS l WHERE l.id = f.lane OFFSET 0)
  )
  SELECT x.queue, min((
    SELECT w.due_ms FROM lp.wait AS w WHERE w.lane = x.lane AND w.state = :READY AND (w.due_ms, w.id) >= (x.due_ms, x.id)
    ORDER BY w.due_ms, w.id LIMIT 1
  )) FROM place AS x WHERE x.queue IS NOT NULL GROUP BY x.queue;
END $$;

-- No ready job of the lane lies before this. `p_posts`: how many posts are looked at.
CREATE OR REPLACE FUNCTION lp.lane_front(p_lane bigint, p_posts integer, OUT due_ms bigint, OUT id bytea) LANGUAGE plpgsql STABLE AS $$
BEGIN
  SELECT s.floor_ms, s.floor_id INTO due_ms, id FROM lp.lane_now AS s WHERE s.id = p_lane;
  IF NOT FOUND THEN
    due_ms := -9223372036854775808;
    id := '\x';
    RETURN;
  END IF;
  SELECT x.due_ms, x.id INTO due_ms, id FROM (
    SELECT lane_front.due_ms, lane_front.id
    UNION ALL
    SELECT q.due_ms, coalesce(q.id, '\x') FROM (
      SELECT p.* FROM lp.unfiled_posts(p_posts) AS p
    ) AS q WHERE q.kind = :POST_LANE AND q.n > 0 AND q.lane = p_lane
  ) AS x ORDER BY x.due_ms, x.id LIMIT 1;
END $$;

-- Where a job stands: the state of its lane (IDLE, ACTIVE, WAITING at a gate), ready jobs before it, counted up to `p_ahead`,
-- parents that are stored and not satisfied, the gates of these keys, and what each live session serves. A lane that has ready jobs is active
-- from when they are posted.
CREATE OR REPLACE FUNCTION lp.standing_1(
  p_id bytea, p_lane bigint, p_due bigint, p_gates text[], p_ahead integer, p_posts integer, p_now bigint,
  OUT lane_state smallint, OUT ahead integer, OUT parents bytea[], OUT parent_states smallint[], OUT gates text,
  OUT serves bytea[]
) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint := lp.now_1(p_now);
  v_front record := lp.lane_front(p_lane, p_posts);
BEGIN
  SELECT s.state INTO lane_state FROM lp.lane_now AS s WHERE s.id = p_lane;
  IF coalesce(lane_state, :IDLE) = :IDLE THEN
    lane_state := EXISTS (
      SELECT 1 FROM lp.wait AS w WHERE w.lane = p_lane AND w.state = :READY AND (w.due_ms, w.id) >= (v_front.due_ms, v_front.id)
    )::integer;
  END IF;
  SELECT count(*) INTO ahead FROM (
    SELECT 1 FROM lp.wait AS w WHERE w.lane = p_lane AND w.state = :READY
      AND (w.due_ms, w.id) >= (v_front.due_ms, v_front.id) AND (w.due_ms, w.id) < (p_due, p_id) LIMIT p_ahead
  ) AS x;
  SELECT array_agg(x.parent), array_agg(x.state) INTO parents, parent_states FROM (
    SELECT d.parent, p.state FROM lp.dep AS d CROSS JOIN LATERAL (
      SELECT w.state FROM lp.wait AS w WHERE w.id = d.parent
      UNION ALL
      SELECT :RUNNING FROM lp.running AS r WHERE r.id = d.parent
      UNION ALL
      SELECT o.state FROM lp.done AS o WHERE o.id = d.parent
    ) AS p WHERE d.child = p_id AND d.done::integer = 0 ORDER BY d.parent
  ) AS x;
  SELECT json_agg(lp.gate_json(g) ORDER BY array_position(p_gates, g.key)) INTO gates FROM lp.gate AS g
  WHERE g.key = ANY (p_gates);
  SELECT array_agg(s.serves) INTO serves FROM lp.session AS s WHERE s.deadline_ms > v_now;
END $$;
