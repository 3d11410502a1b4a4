-- Promise: where counters, slots, leases and lanes differ from the stored jobs, and functions that set them by the jobs.
-- Inputs: as named. Answer: as each says. Reads whole tables, in one snapshot, which blocks no call.
-- A counter and the jobs it counts move in one transaction, so every snapshot shows the same difference between them,
-- whatever others do meanwhile: what is found is added to the number as it is then, in one statement.

-- Every job that has a place, and its state.
CREATE OR REPLACE FUNCTION lp.all_places() RETURNS TABLE (id bytea, lane bigint, state smallint, cause text) LANGUAGE sql STABLE AS $$
  SELECT w.id, w.lane, w.state, NULL FROM lp.wait AS w
  UNION ALL SELECT r.id, r.lane, :RUNNING::smallint, NULL FROM lp.running AS r
  UNION ALL SELECT d.id, d.lane, d.state, d.cause FROM lp.done AS d
$$;

-- Queue, task and tenant of every lane, stored or only posted.
CREATE OR REPLACE FUNCTION lp.named_lanes() RETURNS TABLE (id bigint, queue text, task text, tenant text) LANGUAGE sql STABLE AS $$
  SELECT l.id, l.queue, l.task, l.tenant FROM lp.lane AS l
  UNION
  SELECT p.lane, b.body ->> 'queue', b.body ->> 'task', b.body ->> 'tenant' FROM lp.post AS p
  CROSS JOIN LATERAL (SELECT convert_from(p.body, 'UTF8')::jsonb AS body) AS b WHERE p.kind = :POST_LANE AND p.body IS NOT NULL
$$;

-- Counters of states that differ from the jobs.
CREATE OR REPLACE FUNCTION lp.wrong_counts() RETURNS TABLE (queue text, task text, what smallint, counted bigint, jobs bigint)
LANGUAGE sql STABLE AS $$
  SELECT x.queue, x.task, x.what, sum(x.n)::bigint, sum(x.jobs)::bigint FROM (
    SELECT c.queue, c.task, c.what, c.n, 0 AS jobs FROM lp.counts_1() AS c WHERE c.what <= :CANCELLED
    UNION ALL
    SELECT l.queue, l.task, p.state, 0, count(*) FROM lp.all_places() AS p JOIN lp.named_lanes() AS l ON l.id = p.lane
    GROUP BY l.queue, l.task, p.state
  ) AS x GROUP BY x.queue, x.task, x.what HAVING sum(x.n) <> sum(x.jobs)
$$;

-- Counters of tenants that differ from the jobs: those that wait in a queue, and those that run.
CREATE OR REPLACE FUNCTION lp.wrong_tenants() RETURNS TABLE (queue text, tenant text, what smallint, counted bigint, jobs bigint)
LANGUAGE sql STABLE AS $$
  SELECT x.queue, x.tenant, x.what::smallint, sum(x.n)::bigint, sum(x.jobs)::bigint FROM (
    SELECT c.queue, c.task AS tenant, c.what::integer AS what, c.n, 0 AS jobs FROM lp.count AS c WHERE c.what IN (:TENANT_WAITING, :TENANT_RUNNING)
    UNION ALL
    SELECT l.queue, l.tenant, CASE u.what WHEN :RUNNING THEN :TENANT_RUNNING ELSE :TENANT_WAITING END, u.n, 0 FROM lp.tally AS t
    CROSS JOIN LATERAL unnest(t.whats, t.ns) AS u (what, n) JOIN lp.named_lanes() AS l ON l.id = t.lane
    WHERE u.what <= :RUNNING AND l.tenant IS NOT NULL
    UNION ALL
    SELECT l.queue, l.tenant, CASE p.state WHEN :RUNNING THEN :TENANT_RUNNING ELSE :TENANT_WAITING END, 0, count(*) FROM lp.all_places() AS p
    JOIN lp.named_lanes() AS l ON l.id = p.lane WHERE p.state <= :RUNNING AND l.tenant IS NOT NULL GROUP BY 1, 2, 3
  ) AS x GROUP BY x.queue, x.tenant, x.what HAVING sum(x.n) <> sum(x.jobs)
$$;

-- How many jobs lanes count too few (below zero: too many).
CREATE OR REPLACE FUNCTION lp.wrong_lanes() RETURNS TABLE (lane bigint, more bigint) LANGUAGE sql STABLE AS $$
  SELECT n.id, (coalesce(j.n, 0) - n.jobs - coalesce(t.n, 0))::bigint FROM lp.lane_now AS n
  LEFT JOIN (SELECT lane, count(*) AS n FROM lp.job GROUP BY lane) AS j ON j.lane = n.id
  LEFT JOIN (
    SELECT y.lane, sum(CASE u.what WHEN :ERASED THEN -u.n ELSE u.n END) AS n FROM lp.tally AS y
    CROSS JOIN LATERAL unnest(y.whats, y.ns) AS u (what, n) WHERE u.what IN (:ENQUEUED, :ERASED, :MOVED) GROUP BY y.lane
  ) AS t ON t.lane = n.id WHERE n.jobs + coalesce(t.n, 0) <> coalesce(j.n, 0)
$$;

-- How many dead jobs origins count too few, with one of them.
CREATE OR REPLACE FUNCTION lp.wrong_causes()
RETURNS TABLE (cause text, queue text, task text, more bigint, sample bytea) LANGUAGE sql STABLE AS $$
  SELECT x.cause, x.queue, x.task, (sum(x.dead) - sum(x.n))::bigint, (array_agg(x.sample) FILTER (WHERE x.dead > 0))[1] FROM (
    SELECT c.cause, c.queue, c.task, c.n, 0 AS dead, NULL::bytea AS sample FROM lp.cause AS c
    UNION ALL SELECT c.cause, c.queue, c.task, c.n, 0, NULL FROM lp.cause_tally AS c
    UNION ALL
    SELECT p.cause, l.queue, l.task, 0, 1, p.id FROM lp.all_places() AS p JOIN lp.named_lanes() AS l ON l.id = p.lane WHERE p.state = :DEAD
  ) AS x GROUP BY x.cause, x.queue, x.task HAVING sum(x.n) <> sum(x.dead)
$$;

-- Gates that count more slots than running jobs hold (below zero: fewer), or wait for a probe that no job is.
CREATE OR REPLACE FUNCTION lp.wrong_gates() RETURNS TABLE (key text, used bigint, held bigint, probe bigint) LANGUAGE sql STABLE AS $$
  SELECT g.key, g.used, coalesce(c.slots, 0)::bigint, g.probe_token FROM lp.gate AS g LEFT JOIN (
    SELECT u.charge ->> :CHARGE_GATE AS key, count(*) FILTER (WHERE (u.charge -> :CHARGE_SLOT)::boolean) AS slots,
      array_agg(r.token) FILTER (WHERE (u.charge -> :CHARGE_PROBE)::boolean) AS probes
    FROM lp.running AS r CROSS JOIN LATERAL jsonb_array_elements(r.charged) AS u (charge) GROUP BY 1
  ) AS c ON c.key = g.key
  WHERE g.used <> coalesce(c.slots, 0) OR g.probe_token <> 0 AND g.probe_token <> ALL (coalesce(c.probes, '{}'))
$$;

-- Leases that count more jobs than run under them (below zero: fewer), that are not there, or are of no session and have no
-- end.
CREATE OR REPLACE FUNCTION lp.wrong_leases(p_now bigint) RETURNS TABLE (token bigint, more bigint) LANGUAGE sql STABLE AS $$
  SELECT coalesce(l.token, r.token), coalesce(r.n, 0) - coalesce(l.left_n, 0) FROM lp.lease AS l
  FULL JOIN (SELECT token, count(*) AS n FROM lp.running GROUP BY token) AS r ON r.token = l.token
  WHERE l.left_n IS DISTINCT FROM r.n
    OR coalesce(l.hard_until_ms > p_now, true) AND NOT EXISTS (SELECT FROM lp.session AS s WHERE s.id = l.session)
$$;

-- Lanes with ready jobs that no claim sees: idle, active without a seat, or with jobs before their floor; and the first job.
CREATE OR REPLACE FUNCTION lp.unseen_lanes() RETURNS TABLE (lane bigint, due_ms bigint, id bytea, n bigint, idle boolean)
LANGUAGE sql STABLE AS $$
  SELECT f.lane, f.due_ms, f.id, f.n, s.class IS NULL FROM (
    SELECT DISTINCT ON (w.lane) w.lane, w.due_ms, w.id, count(*) OVER (PARTITION BY w.lane) AS n FROM lp.wait AS w
    WHERE w.state = :READY ORDER BY w.lane, w.due_ms, w.id
  ) AS f JOIN lp.lane_now AS l ON l.id = f.lane
  LEFT JOIN lp.seat AS s ON s.class = l.class AND s.priority = l.priority AND s.member = l.member
  WHERE (l.state = :IDLE OR l.state = :ACTIVE AND s.class IS NULL OR (f.due_ms, f.id) < (l.floor_ms, l.floor_id))
    AND NOT EXISTS (
      SELECT FROM lp.post AS p WHERE p.kind = :POST_LANE AND p.lane = f.lane AND p.n > 0 AND (p.due_ms, p.id) <= (f.due_ms, f.id)
    )
$$;

-- What is left of jobs that are not whole: 1 a body without a place, 2 a place without a body, 3 something beside neither.
CREATE OR REPLACE FUNCTION lp.wrecks() RETURNS TABLE (id bytea, part integer) LANGUAGE sql STABLE AS $$
  SELECT j.id, :ONLY_BODY FROM lp.job AS j WHERE NOT EXISTS (SELECT FROM lp.wait AS w WHERE w.id = j.id)
    AND NOT EXISTS (SELECT FROM lp.running AS r WHERE r.id = j.id) AND NOT EXISTS (SELECT FROM lp.done AS d WHERE d.id = j.id)
  UNION ALL
  SELECT p.id, :ONLY_PLACE FROM lp.all_places() AS p WHERE NOT EXISTS (SELECT FROM lp.job AS j WHERE j.id = p.id)
  UNION ALL
  SELECT x.id, :ONLY_TRACES FROM (
    SELECT id FROM lp.result UNION SELECT job FROM lp.note UNION SELECT job FROM lp.attempt UNION SELECT child FROM lp.dep
    UNION SELECT job FROM lp.watch UNION SELECT id FROM lp.settled UNION SELECT id FROM lp.flow_job UNION SELECT id FROM lp.key_job
    UNION SELECT id FROM lp.cost_job UNION SELECT job FROM lp.unique_key WHERE states <> 0
    UNION SELECT d.parent FROM lp.dep AS d JOIN lp.wait AS w ON w.id = d.child AND w.state = :BLOCKED WHERE NOT d.done
  ) AS x WHERE NOT EXISTS (SELECT FROM lp.job AS j WHERE j.id = x.id) AND NOT EXISTS (SELECT FROM lp.gone AS g WHERE g.id = x.id)
    AND NOT EXISTS (SELECT FROM lp.all_places() AS p WHERE p.id = x.id)
$$;

-- Blocked jobs that wait for no parent.
CREATE OR REPLACE FUNCTION lp.unblocked() RETURNS TABLE (id bytea) LANGUAGE sql STABLE AS $$
  SELECT w.id FROM lp.wait AS w WHERE w.state = :BLOCKED AND NOT EXISTS (SELECT FROM lp.dep AS d WHERE d.child = w.id AND NOT d.done)
$$;

-- Unfinished jobs whose key has no holder.
CREATE OR REPLACE FUNCTION lp.keyless() RETURNS TABLE (id bytea) LANGUAGE sql STABLE AS $$
  SELECT j.id FROM lp.job AS j JOIN lp.all_places() AS p ON p.id = j.id
  WHERE j.unique_key IS NOT NULL AND p.state < :SUCCEEDED AND j.unique_states & (1 << p.state) <> 0
    AND NOT EXISTS (SELECT FROM lp.unique_key AS u WHERE u.key = j.unique_key)
$$;

-- Jobs of lanes that nothing is known of.
CREATE OR REPLACE FUNCTION lp.laneless() RETURNS TABLE (id bytea) LANGUAGE sql STABLE AS $$
  SELECT p.id FROM lp.all_places() AS p WHERE NOT EXISTS (SELECT FROM lp.named_lanes() AS l WHERE l.id = p.lane)
$$;

-- Verb: all differences. `place` is [queue, task, state] or [queue, tenant, what] of a counter, or [key] of a gate; the others say
-- how many and which.
CREATE OR REPLACE FUNCTION lp.differences_1(p_now bigint)
RETURNS TABLE (kind text, place text[], found bigint, rightly bigint, ids bytea[]) LANGUAGE plpgsql STABLE SET jit = off AS $$
DECLARE
  v_now bigint := lp.now_1(p_now);
BEGIN
  RETURN QUERY SELECT 'laneless', '{}'::text[], count(*), 0::bigint, array_agg(x.id) FROM lp.laneless() AS x;
  RETURN QUERY SELECT 'wrecks', '{}'::text[], count(*), 0::bigint, array_agg(x.id) FROM (SELECT DISTINCT w.id FROM lp.wrecks() AS w) AS x;
  RETURN QUERY SELECT 'unblocked', '{}'::text[], count(*), 0::bigint, array_agg(x.id) FROM lp.unblocked() AS x;
  RETURN QUERY SELECT 'keys', '{}'::text[], count(*), 0::bigint, array_agg(x.id) FROM lp.keyless() AS x;
  RETURN QUERY SELECT 'leases', '{}'::text[], count(*), 0::bigint, NULL::bytea[] FROM lp.wrong_leases(v_now) AS x;
  RETURN QUERY SELECT 'slots', ARRAY[x.key], x.used, x.held, NULL::bytea[] FROM lp.wrong_gates() AS x WHERE x.used <> x.held ORDER BY x.key;
  RETURN QUERY SELECT 'probe', ARRAY[x.key], 1::bigint, 0::bigint, NULL::bytea[] FROM lp.wrong_gates() AS x WHERE x.used = x.held ORDER BY x.key;
  RETURN QUERY SELECT 'unseen', '{}'::text[], count(*), 0::bigint, NULL::bytea[] FROM lp.unseen_lanes() AS x;
  RETURN QUERY SELECT 'lanes', '{}'::text[], count(*), 0::bigint, NULL::bytea[] FROM lp.wrong_lanes() AS x;
  RETURN QUERY SELECT 'causes', '{}'::text[], count(*), 0::bigint, NULL::bytea[] FROM lp.wrong_causes() AS x;
  RETURN QUERY SELECT 'count', ARRAY[x.queue, x.task, x.what::text], x.counted, x.jobs, NULL::bytea[] FROM lp.wrong_counts() AS x
    ORDER BY x.queue, x.task, x.what;
  RETURN QUERY SELECT 'tenant', ARRAY[x.queue, x.tenant, x.what::text], x.counted, x.jobs, NULL::bytea[] FROM lp.wrong_tenants() AS x
    ORDER BY x.queue, x.tenant, x.what;
  RETURN QUERY SELECT 'stored', ARRAY[x.state::text], count(*), 0::bigint, NULL::bytea[] FROM lp.all_places() AS x GROUP BY x.state;
  RETURN QUERY SELECT 'total', ARRAY[x.what::text], x.n, 0::bigint, NULL::bytea[] FROM lp.counts_1() AS x WHERE x.what BETWEEN :ENQUEUED AND :DISCARDED;
END $$;

-- A body without a place goes to the dead letters; the lane is one that is known.
CREATE OR REPLACE FUNCTION lp.bury_wrecks(p_ids bytea[], p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_effect lp.effect := lp.to_effect(:EFFECT_UNREADABLE);
  v_failure lp.failure := v_effect.failure;
BEGIN
  INSERT INTO lp.done (id, lane, finished_ms, due_ms, attempt, lost, held, cost, state, priority, flags, reason, cause, error_type)
  SELECT j.id, j.lane, p_now, j.enqueued_ms, 0, 0, 0, 1, :DEAD, coalesce(l.priority, 5),
    CASE WHEN EXISTS (SELECT FROM lp.note AS n WHERE n.job = j.id) THEN :NOTES ELSE 0 END,
    v_failure.message, v_failure.type, v_failure.type
  FROM lp.job AS j LEFT JOIN lp.lane AS l ON l.id = j.lane WHERE j.id = ANY (p_ids) ON CONFLICT DO NOTHING;
  INSERT INTO lp.attempt (job, seq, number, started_ms, finished_ms, outcome, session, kind, type, message, cause)
  SELECT j.id, 1 + coalesce((SELECT max(a.seq) FROM lp.attempt AS a WHERE a.job = j.id), 0), 0, p_now, p_now, v_effect.word, '',
    v_failure.kind, v_failure.type, v_failure.message, v_failure.type
  FROM lp.job AS j WHERE j.id = ANY (p_ids);
  IF lp.has_kids(p_ids) THEN
    PERFORM lp.fail_children(p_ids, 'is dead', true, p_now);
  END IF;
  PERFORM lp.tell_finished(p_ids);
  PERFORM lp.follow(p_ids, NULL, p_now);
END $$;

-- All that is left of these jobs goes; jobs that wait for them are cancelled.
CREATE OR REPLACE FUNCTION lp.erase_traces(p_ids bytea[], p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM lp.orphan(p_ids, array_fill(:CANCELLED::smallint, ARRAY[cardinality(p_ids)]), p_now);
  DELETE FROM lp.wait WHERE id = ANY (p_ids);
  DELETE FROM lp.running WHERE id = ANY (p_ids);
  DELETE FROM lp.done WHERE id = ANY (p_ids);
  DELETE FROM lp.result WHERE id = ANY (p_ids);
  DELETE FROM lp.note WHERE job = ANY (p_ids);
  DELETE FROM lp.attempt WHERE job = ANY (p_ids);
  DELETE FROM lp.dep WHERE child = ANY (p_ids);
  DELETE FROM lp.dep_far WHERE child = ANY (p_ids);
  DELETE FROM lp.flow_job WHERE id = ANY (p_ids);
  DELETE FROM lp.key_job WHERE id = ANY (p_ids);
  DELETE FROM lp.cost_job WHERE id = ANY (p_ids);
  DELETE FROM lp.watch WHERE job = ANY (p_ids);
  DELETE FROM lp.settled WHERE id = ANY (p_ids);
  DELETE FROM lp.unique_key WHERE job = ANY (p_ids) AND states <> 0;
END $$;

-- Verb: jobs that are not whole, at most the given number: jobs with a body go to the dead letters, the others are removed; jobs that wait for
-- them are cancelled. Blocked jobs without an open parent are released; keys without a holder are taken. Answer: how many there were.
CREATE OR REPLACE FUNCTION lp.repair_jobs_1(
  p_limit integer, p_now bigint, OUT mended bigint, OUT w_lanes bigint[], OUT w_ns integer[], OUT w_dues bigint[], OUT w_gates text[]
) LANGUAGE plpgsql SET jit = off SET lock_timeout = '1s' AS $$
DECLARE
  v_now bigint := lp.now_1(p_now);
  v_bodies bytea[];
  v_ids bytea[];
  v_free bytea[];
  v_keys bytea[];
BEGIN
  PERFORM lp.lock(:GRAPH);
  SELECT coalesce(array_agg(x.id) FILTER (WHERE x.part = :ONLY_BODY), '{}'), coalesce(array_agg(x.id) FILTER (WHERE x.part > :ONLY_BODY), '{}')
  INTO v_bodies, v_ids FROM (SELECT w.id, w.part FROM lp.wrecks() AS w LIMIT p_limit) AS x;
  IF v_bodies <> '{}' THEN
    PERFORM lp.bury_wrecks(v_bodies, v_now);
  END IF;
  IF v_ids <> '{}' THEN
    PERFORM lp.erase_traces(v_ids, v_now);
  END IF;
  v_free := ARRAY(SELECT u.id FROM lp.unblocked() AS u LIMIT p_limit);
  IF v_free <> '{}' THEN
    PERFORM lp.free_children(v_free, v_now);
  END IF;
  v_keys := ARRAY(SELECT k.id FROM lp.keyless() AS k LIMIT p_limit);
  PERFORM lp.unique_reclaim(k, v_now) FROM unnest(v_keys) AS k;
  mended := cardinality(v_bodies) + cardinality(v_ids) + cardinality(v_free) + cardinality(v_keys);
  SELECT * INTO w_lanes, w_ns, w_dues, w_gates FROM lp.posted();
END $$;

-- Verb: jobs of lanes that nothing is known of go to the dead letters, in a lane that is given whole; those that have ended
-- only to that lane.
CREATE OR REPLACE FUNCTION lp.repair_lanes_1(
  p_lane bigint, p_class bigint, p_member bigint, p_ring bigint, p_body bytea, p_limit integer, p_now bigint, OUT mended bigint,
  OUT w_lanes bigint[], OUT w_ns integer[], OUT w_dues bigint[], OUT w_gates text[]
) LANGUAGE plpgsql SET jit = off SET lock_timeout = '1s' AS $$
DECLARE
  v_now bigint := lp.now_1(p_now);
  v_ids bytea[];
BEGIN
  PERFORM lp.lock(:GRAPH);
  v_ids := ARRAY(SELECT x.id FROM lp.laneless() AS x LIMIT p_limit);
  mended := cardinality(v_ids);
  IF mended > 0 THEN
    INSERT INTO lp.post (kind, lane, class, member, ring, body) VALUES (:POST_LANE, p_lane, p_class, p_member, p_ring, p_body);
    UPDATE lp.job SET lane = p_lane WHERE id = ANY (v_ids);
    UPDATE lp.done SET lane = p_lane WHERE id = ANY (v_ids); -- what has ended stays as it is
    v_ids := ARRAY(SELECT i FROM unnest(v_ids) AS i WHERE NOT EXISTS (SELECT FROM lp.done AS d WHERE d.id = i));
    DELETE FROM lp.wait WHERE id = ANY (v_ids);
    DELETE FROM lp.running WHERE id = ANY (v_ids);
    PERFORM lp.bury_wrecks(v_ids, v_now);
  END IF;
  SELECT * INTO w_lanes, w_ns, w_dues, w_gates FROM lp.posted();
END $$;

-- Verb: leases, slots and lanes are set by the running and the ready jobs.
CREATE OR REPLACE FUNCTION lp.repair_holds_1(
  p_now bigint, OUT mended bigint, OUT w_lanes bigint[], OUT w_ns integer[], OUT w_dues bigint[], OUT w_gates text[]
) LANGUAGE plpgsql SET jit = off SET lock_timeout = '1s' AS $$
DECLARE
  v_now bigint := lp.now_1(p_now);
BEGIN
  PERFORM lp.lock(:FLOOR); -- the floor: lanes and seats are its own
  UPDATE lp.lane_now AS l SET state = :IDLE, gate = NULL FROM lp.unseen_lanes() AS u WHERE l.id = u.lane AND u.idle AND l.state = :ACTIVE;
  INSERT INTO lp.post (kind, lane, due_ms, id, n) SELECT :POST_LANE, u.lane, u.due_ms, u.id, u.n FROM lp.unseen_lanes() AS u;
  DELETE FROM lp.seat AS s WHERE NOT EXISTS (
    SELECT FROM lp.lane_now AS l WHERE l.state = :ACTIVE AND l.class = s.class AND l.priority = s.priority AND l.member = s.member);
  INSERT INTO lp.post (kind, gate) SELECT DISTINCT :POST_GATE, l.gate FROM lp.lane_now AS l WHERE l.state = :WAITING
    AND NOT EXISTS (SELECT FROM lp.gate AS g WHERE g.key = l.gate);
  -- One that no session holds is over: the next sweep takes its jobs back.
  INSERT INTO lp.lease AS l (token, session, hard_until_ms, left_n) SELECT w.token, '', v_now, w.more FROM lp.wrong_leases(v_now) AS w
  ORDER BY w.token
  ON CONFLICT (token) DO UPDATE SET left_n = l.left_n + excluded.left_n, hard_until_ms = CASE
    WHEN EXISTS (SELECT FROM lp.session AS s WHERE s.id = l.session) THEN l.hard_until_ms ELSE v_now END;
  DELETE FROM lp.lease AS l WHERE l.left_n <= 0;
  INSERT INTO lp.post (kind, gate) SELECT :POST_GATE, w.key FROM lp.wrong_gates() AS w;
  UPDATE lp.gate AS g SET used = greatest(0, g.used + w.held - w.used),
    probe_token = CASE WHEN g.probe_token = w.probe AND w.used = w.held THEN 0 ELSE g.probe_token END
  FROM lp.wrong_gates() AS w WHERE g.key = w.key;
  GET DIAGNOSTICS mended = ROW_COUNT;
  SELECT * INTO w_lanes, w_ns, w_dues, w_gates FROM lp.posted();
END $$;

-- Verb: counters are set by the jobs, and one total by the sum that all must make. No other step sums up meanwhile.
CREATE OR REPLACE FUNCTION lp.repair_counts_1() RETURNS void LANGUAGE plpgsql SET jit = off SET lock_timeout = '5s' AS $$
BEGIN
  PERFORM lp.lock(:FOLD);
  INSERT INTO lp.count AS c (queue, task, what, n)
  SELECT w.queue, w.task, w.what, w.jobs - w.counted FROM lp.wrong_counts() AS w
  UNION ALL
  SELECT w.queue, w.tenant, w.what, w.jobs - w.counted FROM lp.wrong_tenants() AS w
  ON CONFLICT (queue, task, what) DO UPDATE SET n = c.n + excluded.n;
  INSERT INTO lp.count AS c (queue, task, what, n)
  SELECT '', '', CASE WHEN s.missing > 0 THEN :DISCARDED ELSE :ENQUEUED END, abs(s.missing) FROM (
    SELECT coalesce((SELECT sum(CASE t.what WHEN :ENQUEUED THEN t.n ELSE -t.n END) FROM lp.counts_1() AS t WHERE t.what BETWEEN :ENQUEUED AND :DISCARDED), 0)
      - (SELECT count(*) FROM lp.all_places() AS p WHERE p.state NOT IN (:SUCCEEDED, :CANCELLED)) AS missing
  ) AS s WHERE s.missing <> 0 ON CONFLICT (queue, task, what) DO UPDATE SET n = c.n + excluded.n;
  INSERT INTO lp.cause AS c (cause, queue, task, n, type, message, first_ms, last_ms, sample)
  SELECT w.cause, w.queue, w.task, w.more, coalesce(d.error_type, ''), coalesce(d.reason, ''), coalesce(d.finished_ms, 0),
    coalesce(d.finished_ms, 0), coalesce(w.sample, '\x')
  FROM lp.wrong_causes() AS w LEFT JOIN lp.done AS d ON d.id = w.sample
  ON CONFLICT (cause, queue, task) DO UPDATE SET n = c.n + excluded.n;
  PERFORM lp.lock(:FLOOR); -- last, and for this alone
  UPDATE lp.lane_now AS l SET jobs = l.jobs + w.more FROM lp.wrong_lanes() AS w WHERE l.id = w.lane;
END $$;

-- Verb: what is noted of bounded queues is forgotten: the next enqueue to each counts it again. It is an upper bound, so that
-- nothing tells whether it is right. What others forget at this moment is left to them.
CREATE OR REPLACE FUNCTION lp.repair_depths_1() RETURNS void LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
BEGIN
  PERFORM lp.lock(:DEPTH);
  DELETE FROM lp.depth WHERE ctid = ANY (ARRAY(SELECT d.ctid FROM lp.depth AS d FOR UPDATE SKIP LOCKED));
END $$;
