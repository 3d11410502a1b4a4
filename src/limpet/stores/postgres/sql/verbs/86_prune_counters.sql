-- Promise: what was counted by rows that are only inserted is summed up; every sum stays what it was.
-- Inputs: how many rows at most. Answer: how many were folded.
-- Relies on the primary keys. One folds at a time (lock FOLD). The floor is held only while the lanes' own numbers are written.

-- Sum up the dead by origin. Type and first instant are those of the first that died, message and sample of the last.
CREATE OR REPLACE FUNCTION lp.sum_causes(p_limit integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  v_rows lp.cause_tally[];
BEGIN
  WITH taken AS (
    DELETE FROM lp.cause_tally WHERE ctid = ANY (ARRAY(SELECT ctid FROM lp.cause_tally LIMIT p_limit)) RETURNING cause_tally AS t
  )
  SELECT array_agg(t) INTO v_rows FROM taken;
  IF v_rows IS NULL THEN
    RETURN 0;
  END IF;
  INSERT INTO lp.cause AS c (cause, queue, task, n, type, message, first_ms, last_ms, sample)
  SELECT x.cause, x.queue, x.task, sum(x.n), (array_agg(x.type ORDER BY x.n <= 0, x.at_ms))[1],
    (array_agg(x.message ORDER BY x.n <= 0, x.at_ms DESC))[1], coalesce(min(x.at_ms) FILTER (WHERE x.n > 0), max(x.at_ms)),
    coalesce(max(x.at_ms) FILTER (WHERE x.n > 0), 0), (array_agg(x.sample ORDER BY x.n <= 0, x.at_ms DESC))[1]
  FROM unnest(v_rows) AS x GROUP BY x.cause, x.queue, x.task ORDER BY x.cause, x.queue, x.task
  ON CONFLICT (cause, queue, task) DO UPDATE SET n = c.n + excluded.n,
    type = CASE WHEN excluded.first_ms < c.first_ms THEN excluded.type ELSE c.type END,
    first_ms = least(c.first_ms, excluded.first_ms),
    message = CASE WHEN excluded.last_ms >= c.last_ms THEN excluded.message ELSE c.message END,
    sample = CASE WHEN excluded.last_ms >= c.last_ms THEN excluded.sample ELSE c.sample END,
    last_ms = greatest(c.last_ms, excluded.last_ms);
  DELETE FROM lp.cause AS c USING (SELECT DISTINCT x.cause, x.queue, x.task FROM unnest(v_rows) AS x) AS f
  WHERE c.cause = ANY (ARRAY[f.cause]) AND c.queue = ANY (ARRAY[f.queue]) AND c.task = ANY (ARRAY[f.task]) AND c.n = 0;
  RETURN cardinality(v_rows);
END $$;

-- Sum up to `p_limit` tallies by queue and task; what concerns the number of jobs that lanes store is answered by lane.
-- Tallies of a lane that is only posted stay: its names are not known here.
CREATE OR REPLACE FUNCTION lp.sum_tallies(p_limit integer, OUT folded integer, OUT lanes bigint[], OUT ns bigint[]) LANGUAGE plpgsql AS $$
DECLARE
  v_lanes bigint[];
  v_whats smallint[];
  v_ns bigint[];
BEGIN
  WITH taken AS (
    DELETE FROM lp.tally WHERE ctid = ANY (ARRAY(
      SELECT t.ctid FROM lp.tally AS t LEFT JOIN lp.lane AS l ON l.id = t.lane
      WHERE l.id IS NOT NULL OR NOT t.whats && '{:BLOCKED,:SCHEDULED,:READY,:RUNNING,:SUCCEEDED,:DEAD,:CANCELLED,:ENQUEUED,:ERASED,:MOVED}' LIMIT p_limit
    )) RETURNING tally.lane, tally.whats, tally.ns
  ), summed AS (
    SELECT t.lane, u.what, sum(u.n) AS n FROM taken AS t CROSS JOIN LATERAL unnest(t.whats, t.ns) AS u (what, n)
    GROUP BY t.lane, u.what HAVING sum(u.n) <> 0
  )
  SELECT array_agg(s.lane), array_agg(s.what), array_agg(s.n), (SELECT count(*) FROM taken)
  INTO v_lanes, v_whats, v_ns, folded FROM summed AS s;
  INSERT INTO lp.count AS c (queue, task, what, n)
  SELECT x.queue, x.task, x.what, sum(x.n) FROM (
    SELECT CASE WHEN s.what <= :CANCELLED THEN l.queue ELSE '' END AS queue, CASE WHEN s.what <= :CANCELLED THEN l.task ELSE '' END AS task,
      s.what, s.n
    FROM unnest(v_lanes, v_whats, v_ns) AS s (lane, what, n) LEFT JOIN lp.lane AS l ON l.id = s.lane WHERE s.what <= :STALE
    UNION ALL
    SELECT l.queue, l.tenant, CASE s.what WHEN :RUNNING THEN :TENANT_RUNNING ELSE :TENANT_WAITING END, s.n
    FROM unnest(v_lanes, v_whats, v_ns) AS s (lane, what, n) JOIN lp.lane AS l ON l.id = s.lane
    WHERE s.what <= :RUNNING AND l.tenant IS NOT NULL
  ) AS x GROUP BY x.queue, x.task, x.what ORDER BY x.queue, x.task, x.what
  ON CONFLICT (queue, task, what) DO UPDATE SET n = c.n + excluded.n;
  DELETE FROM lp.count AS c USING (
    SELECT l.queue, l.task FROM lp.lane AS l WHERE l.id = ANY (v_lanes)
    UNION SELECT l.queue, l.tenant FROM lp.lane AS l WHERE l.id = ANY (v_lanes) AND l.tenant IS NOT NULL
  ) AS f WHERE c.queue = f.queue AND c.task = f.task AND c.n = 0;
  SELECT array_agg(x.lane), array_agg(x.n) INTO lanes, ns FROM (
    SELECT s.lane, sum(CASE s.what WHEN :ERASED THEN -s.n ELSE s.n END)::bigint AS n
    FROM unnest(v_lanes, v_whats, v_ns) AS s (lane, what, n) WHERE s.what IN (:ENQUEUED, :ERASED, :MOVED)
    GROUP BY s.lane HAVING sum(CASE s.what WHEN :ERASED THEN -s.n ELSE s.n END) <> 0
  ) AS x;
END $$;

-- Verb: sum up what was counted: `p_limit` rows of the dead by origin, and as many of the others. Fewer than `p_limit`
-- folded: of neither there was more.
CREATE OR REPLACE FUNCTION lp.fold_1(p_limit integer) RETURNS integer LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_causes integer;
  v_folded integer;
  v_lanes bigint[];
  v_ns bigint[];
BEGIN
  IF NOT lp.try_lock(:FOLD) THEN
    RETURN 0;
  END IF;
  v_causes := lp.sum_causes(p_limit);
  SELECT f.folded, f.lanes, f.ns INTO v_folded, v_lanes, v_ns FROM lp.sum_tallies(p_limit) AS f;
  IF v_lanes IS NOT NULL THEN
    PERFORM lp.lock(:FLOOR); -- last, and for this alone
    UPDATE lp.lane_now AS l SET jobs = l.jobs + f.n FROM unnest(v_lanes, v_ns) AS f (lane, n)
    WHERE l.id BETWEEN f.lane AND f.lane;
  END IF;
  RETURN greatest(v_causes, v_folded);
END $$;
