-- Promise: new jobs are refused where more would wait than may: in a queue, or of one tenant in it.
-- Inputs: lp.batch. Answer: as named; LP006 with the facts of core.limits.depth.queue_full as JSON when they do not fit.
-- Relies on depth_place, the keys of `count` and `gate`, and post_lane. A call that counts a place again holds lock DEPTH.
--
-- How many wait is counted by rows that are only inserted and folded later, so to know it exactly all of them are read. An
-- enqueue mostly need not know: `depth` holds what waited or ran at the last count, and what has been added since. While
-- that has room there is room. What leaves the queue is never taken off there: when it looks full, it is counted again.

-- What `depth` calls a queue (p_tenant NULL), or a tenant in it.
CREATE OR REPLACE FUNCTION lp.depth_place(p_queue text, p_tenant text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN p_tenant IS NULL THEN 'q' || p_queue ELSE 't' || length(p_queue) || ':' || p_queue || p_tenant END
$$;

-- How many jobs may wait in a queue, and of each tenant in it: an operator's word, else what the call declares, else what
-- was declared.
CREATE OR REPLACE FUNCTION lp.depths_of(p_batch lp.batch, p_key text, OUT depth bigint, OUT tenant_depth bigint) LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_declared boolean;
  v_rule jsonb := (SELECT r.rule FROM jsonb_array_elements(p_batch.rules) AS r (rule) WHERE r.rule ->> 'key' = p_key LIMIT 1);
BEGIN
  SELECT g.depth, g.tenant_depth, g.declared INTO depth, tenant_depth, v_declared FROM lp.gate AS g WHERE g.key = p_key;
  IF v_rule IS NOT NULL AND v_declared IS NOT FALSE THEN
    depth := (v_rule ->> 'depth')::bigint;
    tenant_depth := (v_rule ->> 'tenant_depth')::bigint;
  END IF;
END $$;

-- The places with a depth that jobs of this call would wait in, and how many of them. p_old: by job, whether it was there
-- before; NULL: none was.
CREATE OR REPLACE FUNCTION lp.bounded_places(p_batch lp.batch, p_old boolean[])
RETURNS TABLE (queue text, tenant text, most bigint, brought bigint) LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
  WITH new AS (
    SELECT j.lane, count(*) AS n FROM unnest(p_batch.lane_of) WITH ORDINALITY AS j (lane, at)
    WHERE p_old[j.at] IS NOT TRUE GROUP BY j.lane
  ), lane AS (
    SELECT b.body ->> 'queue' AS queue, b.body ->> 'tenant' AS tenant, n.n
    FROM new AS n CROSS JOIN LATERAL (SELECT convert_from(p_batch.bodies[n.lane], 'UTF8')::jsonb AS body) AS b
  ), ruled AS (
    SELECT q.queue, d.depth, d.tenant_depth FROM (SELECT DISTINCT l.queue FROM lane AS l) AS q
    CROSS JOIN LATERAL lp.depths_of(p_batch, 'queue:' || q.queue) AS d
  )
  SELECT l.queue, NULL::text, r.depth, sum(l.n)::bigint FROM lane AS l JOIN ruled AS r ON r.queue = l.queue
  WHERE r.depth IS NOT NULL GROUP BY l.queue, r.depth
  UNION ALL
  SELECT l.queue, l.tenant, r.tenant_depth, sum(l.n)::bigint FROM lane AS l JOIN ruled AS r ON r.queue = l.queue
  WHERE r.tenant_depth IS NOT NULL AND l.tenant IS NOT NULL GROUP BY l.queue, l.tenant, r.tenant_depth;
END $$;

-- How many jobs wait or run there at most, and when that was counted; NULL: it never was.
CREATE OR REPLACE FUNCTION lp.noted_depth(p_place text, OUT n bigint, OUT counted_at timestamptz, OUT rows bigint) LANGUAGE plpgsql AS $$
BEGIN
  SELECT sum(d.n), max(d.counted_at), count(*) INTO n, counted_at, rows FROM lp.depth AS d WHERE d.place = p_place;
END $$;

-- Exactly how many jobs wait, and how many run, of a queue (p_tenant NULL) or of a tenant in it. One look: what is folded
-- meanwhile is not counted twice.
CREATE OR REPLACE FUNCTION lp.count_waiting(p_queue text, p_tenant text, OUT waiting bigint, OUT running bigint) LANGUAGE plpgsql STABLE AS $$
BEGIN
  SELECT coalesce(sum(x.n) FILTER (WHERE x.what <> :RUNNING), 0), coalesce(sum(x.n) FILTER (WHERE x.what = :RUNNING), 0) INTO waiting, running FROM (
    SELECT CASE c.what WHEN :TENANT_RUNNING THEN :RUNNING ELSE c.what END AS what, c.n FROM lp.count AS c
    WHERE c.queue = p_queue AND CASE WHEN p_tenant IS NULL THEN c.what <= :RUNNING ELSE c.task = p_tenant AND c.what IN (:TENANT_WAITING, :TENANT_RUNNING) END
    UNION ALL
    SELECT t.what, t.n FROM (
      SELECT d.lane, u.what, sum(u.n) AS n FROM lp.tally AS d CROSS JOIN LATERAL unnest(d.whats, d.ns) AS u (what, n)
      WHERE u.what <= :RUNNING GROUP BY d.lane, u.what HAVING sum(u.n) <> 0
    ) AS t CROSS JOIN LATERAL (
      SELECT l.queue, l.tenant FROM lp.lane AS l WHERE l.id = t.lane
      UNION ALL
      SELECT p.body ->> 'queue', p.body ->> 'tenant' FROM (
        SELECT convert_from(p.body, 'UTF8')::jsonb AS body FROM lp.post AS p
        WHERE p.lane = t.lane AND p.body IS NOT NULL AND p.kind = :POST_LANE LIMIT 1
      ) AS p
      LIMIT 1
    ) AS l WHERE l.queue = p_queue AND (p_tenant IS NULL OR l.tenant = p_tenant)
  ) AS x;
END $$;

-- True when jobs of this call may not fit, or it was not counted yet: then the checked path is taken.
CREATE OR REPLACE FUNCTION lp.may_not_fit(p_batch lp.batch) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN EXISTS (
    SELECT 1 FROM lp.bounded_places(p_batch, NULL) AS c CROSS JOIN LATERAL lp.noted_depth(lp.depth_place(c.queue, c.tenant)) AS d
    WHERE d.counted_at IS NULL OR d.n + c.brought > c.most
  );
END $$;

-- How many wait in a place that seems to have no room. One counts at a time, and those whose call began before that use
-- what it found. A caller's own transaction counts for itself and holds nothing.
CREATE OR REPLACE FUNCTION lp.recount_depth(p_queue text, p_tenant text, p_guest boolean) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_place text := lp.depth_place(p_queue, p_tenant);
  v_waiting bigint;
BEGIN
  IF p_guest THEN
    RETURN (SELECT w.waiting FROM lp.count_waiting(p_queue, p_tenant) AS w);
  END IF;
  PERFORM lp.lock(:DEPTH);
  SELECT d.waiting + coalesce((SELECT sum(a.n) FROM lp.depth AS a WHERE a.place = v_place AND a.counted_at IS NULL), 0)
  INTO v_waiting FROM lp.depth AS d WHERE d.place = v_place AND d.counted_at >= now();
  IF FOUND THEN
    RETURN v_waiting;
  END IF;
  WITH gone AS (
    DELETE FROM lp.depth WHERE place = v_place
  )
  INSERT INTO lp.depth (place, n, waiting, counted_at)
  SELECT v_place, w.waiting + w.running, w.waiting, clock_timestamp() FROM lp.count_waiting(p_queue, p_tenant) AS w
  RETURNING waiting INTO v_waiting;
  RETURN v_waiting;
END $$;

-- Count the places again where jobs of this call may not fit.
CREATE OR REPLACE FUNCTION lp.recount_depths(p_batch lp.batch) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM lp.recount_depth(c.queue, c.tenant, false) FROM lp.bounded_places(p_batch, NULL) AS c
  CROSS JOIN LATERAL lp.noted_depth(lp.depth_place(c.queue, c.tenant)) AS d
  WHERE d.counted_at IS NULL OR d.n + c.brought > c.most;
END $$;

-- Refuse new jobs that do not fit. p_old: as in bounded_places.
CREATE OR REPLACE FUNCTION lp.refuse_full(p_batch lp.batch, p_old boolean[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_crowd record;
  v_depth record;
  v_waiting bigint;
BEGIN
  FOR v_crowd IN SELECT c.* FROM lp.bounded_places(p_batch, p_old) AS c ORDER BY c.queue, c.tenant NULLS FIRST LOOP
    v_depth := lp.noted_depth(lp.depth_place(v_crowd.queue, v_crowd.tenant));
    IF v_depth.counted_at IS NULL OR v_depth.n + v_crowd.brought > v_crowd.most THEN
      v_waiting := lp.recount_depth(v_crowd.queue, v_crowd.tenant, p_batch.guest);
      IF v_waiting + v_crowd.brought > v_crowd.most THEN
        RAISE EXCEPTION '%', json_build_object(
          'queue', v_crowd.queue, 'tenant', v_crowd.tenant, 'waiting', v_waiting, 'most', v_crowd.most, 'brought', v_crowd.brought
        ) USING ERRCODE = 'LP006';
      END IF;
    END IF;
  END LOOP;
END $$;

-- New jobs were stored: they are added where a depth bounds them. p_old: as in bounded_places.
CREATE OR REPLACE FUNCTION lp.add_depths(p_batch lp.batch, p_old boolean[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_place text;
BEGIN
  INSERT INTO lp.depth (place, n) SELECT lp.depth_place(c.queue, c.tenant), c.brought FROM lp.bounded_places(p_batch, p_old) AS c;
  IF p_batch.guest THEN
    RETURN;
  END IF;
  FOR v_place IN
    SELECT lp.depth_place(c.queue, c.tenant) FROM lp.bounded_places(p_batch, p_old) AS c
    WHERE (lp.noted_depth(lp.depth_place(c.queue, c.tenant))).rows > 64
  LOOP
    PERFORM lp.sum_depth(v_place);
  END LOOP;
END $$;

-- The depths of a queue are others from now on. While it had none, no call added anything, so the notes count no more.
-- A count that runs at this moment stays: it is later than anything that could be missed.
CREATE OR REPLACE FUNCTION lp.forget_depths(p_queue text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_tenants text := 't' || length(p_queue) || ':' || p_queue;
BEGIN
  DELETE FROM lp.depth WHERE ctid = ANY (ARRAY(
    SELECT d.ctid FROM lp.depth AS d
    WHERE d.place = lp.depth_place(p_queue, NULL) OR d.place >= v_tenants AND starts_with(d.place, v_tenants) FOR UPDATE SKIP LOCKED
  ));
END $$;

-- Forget places that were counted long ago, as tenants come and go, and those that callers' own transactions have added very
-- much to, which sum up nothing. The next call there counts again. Answer: how many rows went.
CREATE OR REPLACE FUNCTION lp.prune_depths(p_limit integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  v_removed integer;
BEGIN
  IF NOT lp.try_lock(:DEPTH) THEN
    RETURN 0;
  END IF;
  DELETE FROM lp.depth WHERE place = ANY (ARRAY(
    SELECT d.place FROM lp.depth AS d GROUP BY d.place
    HAVING max(d.counted_at) < clock_timestamp() - interval '1 hour' OR count(*) > 1000 LIMIT p_limit
  ));
  GET DIAGNOSTICS v_removed = ROW_COUNT;
  RETURN v_removed;
END $$;

-- Sum up what was added to a place, unless another transaction does it. Which of it a count has found stays known.
CREATE OR REPLACE FUNCTION lp.sum_depth(p_place text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF NOT lp.try_lock(:DEPTH) THEN
    RETURN;
  END IF;
  WITH gone AS (
    DELETE FROM lp.depth WHERE place = p_place AND counted_at IS NULL RETURNING n
  )
  INSERT INTO lp.depth (place, n) SELECT p_place, sum(g.n) FROM gone AS g HAVING count(*) > 0;
END $$;

-- A job that had ended waits again here, or one came over from another queue: it is never refused, and it counts.
CREATE OR REPLACE FUNCTION lp.note_depth(p_queue text, p_tenant text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lp.depth (place, n)
  SELECT p.place, 1 FROM unnest(ARRAY[lp.depth_place(p_queue, NULL), CASE WHEN p_tenant IS NOT NULL THEN lp.depth_place(p_queue, p_tenant) END]) AS p (place)
  WHERE EXISTS (SELECT 1 FROM lp.depth AS d WHERE d.place = p.place OFFSET 0);
END $$;

-- The same for a job that waits again in this lane, which is stored, or only posted.
CREATE OR REPLACE FUNCTION lp.note_depth_of(p_lane bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM lp.note_depth(x.queue, x.tenant) FROM (
    SELECT l.queue, l.tenant FROM lp.lane AS l WHERE l.id = p_lane
    UNION ALL
    SELECT p.body ->> 'queue', p.body ->> 'tenant' FROM (
      SELECT convert_from(q.body, 'UTF8')::jsonb AS body FROM lp.post AS q
      WHERE q.lane = p_lane AND q.body IS NOT NULL AND q.kind = :POST_LANE LIMIT 1
    ) AS p
    LIMIT 1
  ) AS x;
END $$;
