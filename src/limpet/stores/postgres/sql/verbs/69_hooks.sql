-- Promise: the step that ends jobs also stores the jobs of their hooks. It only inserts: it locks nothing, and waits for no
-- other transaction. Inputs: as named. Answer: none. Relies on the primary keys, and on `hook` being short.

-- A hook is for the states that p_hook names from now on (the columns of `hook`, and its policy, as JSON); NULL: it was removed.
CREATE OR REPLACE FUNCTION lp.put_hook(p_name text, p_hook jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM lp.hook AS h WHERE h.name = p_name;
  IF p_hook IS NULL THEN
    RETURN;
  END IF;
  PERFORM lp.define_policy((p_hook ->> 'policy')::bigint, convert_to(p_hook ->> 'policy_body', 'UTF8'));
  INSERT INTO lp.hook SELECT (jsonb_populate_record(NULL::lp.hook, p_hook || jsonb_build_object('name', p_name))).*;
END $$;

-- What the job of a hook is told, as JSON: the fields of core's Ending. p_lane: the definition of the job's lane.
CREATE OR REPLACE FUNCTION lp.told(p_done lp.done, p_enqueued bigint, p_lane jsonb) RETURNS bytea LANGUAGE sql STABLE AS $$
  SELECT convert_to(json_build_object('ending', json_strip_nulls(json_build_object(
    'job', encode(p_done.id, 'hex')::uuid, 'task', p_lane ->> 'task', 'queue', p_lane ->> 'queue', 'tenant', p_lane ->> 'tenant',
    'priority', p_done.priority, 'state', :STATES::jsonb ->> p_done.state, 'attempt', p_done.attempt, 'enqueued_at_ms', p_enqueued,
    'at_ms', p_done.finished_ms, 'reason', p_done.reason, 'error_type', p_done.error_type
  )))::text, 'UTF8')
$$;

-- The id of that job, the same whenever one end is told: as core's hook_id, with the hash that every server has.
CREATE OR REPLACE FUNCTION lp.hook_id(p_hook text, p_done lp.done, p_token bigint) RETURNS bytea LANGUAGE sql STABLE AS $$
  SELECT substr(int8send(p_done.finished_ms), 3) || substr(sha256(
    p_done.id || convert_to(coalesce(p_token, 0)::text, 'UTF8') || '\x00' || convert_to(p_hook, 'UTF8')
  ), 1, 10)
$$;

-- These jobs have just ended: under these tokens (NULL: as they waited). Jobs of hooks have no hooks.
CREATE OR REPLACE FUNCTION lp.follow(p_ids bytea[], p_tokens bigint[], p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WITH made AS (
    SELECT h.lane, h.policy, lp.hook_id(h.name, d.row, e.token) AS id, lp.told(d.row, j.enqueued_ms, l.body) AS args
    FROM unnest(p_ids, p_tokens) AS e (id, token)
    CROSS JOIN LATERAL (SELECT x AS row FROM lp.done AS x WHERE x.id = e.id OFFSET 0) AS d
    CROSS JOIN LATERAL (SELECT x.enqueued_ms FROM lp.job AS x WHERE x.id = e.id OFFSET 0) AS j CROSS JOIN LATERAL (
      SELECT convert_from(x.body, 'UTF8')::jsonb AS body FROM (
        SELECT k.body FROM lp.lane AS k WHERE k.id = (d.row).lane
        UNION ALL SELECT p.body FROM lp.post AS p WHERE p.lane = (d.row).lane AND p.body IS NOT NULL AND p.kind = :POST_LANE
        UNION ALL SELECT '{"queue": "unreadable", "task": "unreadable"}' -- it is gone: see repair
      ) AS x LIMIT 1
    ) AS l JOIN lp.hook AS h ON (d.row).state = ANY (h.states) AND l.body ->> 'queue' <> 'limpet.hooks'
      AND (h.tasks = '{}' OR l.body ->> 'task' = ANY (h.tasks)) AND (h.queues = '{}' OR l.body ->> 'queue' = ANY (h.queues))
  ), stored AS (
    INSERT INTO lp.job (id, lane, policy, enqueued_ms, args) SELECT m.id, m.lane, m.policy, p_now, m.args FROM made AS m
    ON CONFLICT DO NOTHING RETURNING id, lane
  ), waiting AS (
    INSERT INTO lp.wait (id, lane, due_ms, state, priority)
    SELECT s.id, s.lane, p_now, :READY, h.priority FROM stored AS s JOIN lp.hook AS h ON h.lane = s.lane
  ), each AS (
    SELECT s.lane, count(*) AS n FROM stored AS s GROUP BY s.lane
  ), bounded AS (
    INSERT INTO lp.depth (place, n) SELECT p.place, sum(s.n) FROM each AS s, lp.depth_place('limpet.hooks', NULL) AS p (place)
    WHERE EXISTS (SELECT FROM lp.depth AS d WHERE d.place = p.place) GROUP BY p.place
  ), posted AS (
    INSERT INTO lp.post (kind, lane, n, due_ms, id, class, member, ring, body)
    SELECT :POST_LANE, h.lane, s.n, p_now, '\x', h.class, h.member, h.ring, h.body FROM each AS s JOIN lp.hook AS h ON h.lane = s.lane
    ORDER BY h.lane
  )
  INSERT INTO lp.tally (lane, whats, ns) SELECT s.lane, '{:ENQUEUED,:READY}', ARRAY[s.n, s.n] FROM each AS s;
END $$;
