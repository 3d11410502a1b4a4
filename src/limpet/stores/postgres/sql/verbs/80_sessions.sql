-- Promise: who is alive: beats open and keep sessions, leaving gives back what one holds.
-- Inputs: as named. Answer: OUT columns or rows.
-- Relies on lease_session, running_token and the primary keys. A session's row is locked before rows of `running`: a claim
-- holds it FOR KEY SHARE, which a beat does not disturb; a step that closes it holds it FOR UPDATE, so no claim in flight
-- can lease jobs to a session that is gone.

-- Whether the control that names an instant names one to come.
CREATE OR REPLACE FUNCTION lp.is_listened(p_kind text, p_name text, p_now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN EXISTS (
    SELECT 1 FROM lp.control AS c
    WHERE c.kind = p_kind AND c.name = p_name AND convert_from(c.value, 'UTF8')::bigint > p_now
  );
END $$;

-- Verb: open or keep a session and take the notes that ride on the beat. p_call names this call: one that is repeated
-- since its answer was lost says again that it opened the session; p_kind and p_reader name the control that says until
-- when there is a reader. Answer: also which jobs a person wants cancelled, the store's own name, the newest token that it
-- gave out, and whether live events have a reader.
CREATE OR REPLACE FUNCTION lp.beat_1(
  p_session text, p_ttl bigint, p_queues text[], p_tasks text[], p_capabilities text[], p_serves bytea, p_info bytea,
  p_channel text, p_call bigint,
  p_ids bytea[], p_tokens bigint[], p_kinds text[], p_names text[], p_bodies bytea[],
  p_kind text, p_reader text, p_now bigint,
  OUT fresh boolean, OUT ids bytea[], OUT tokens bigint[], OUT store text, OUT token bigint, OUT listened boolean
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint := lp.now_1(p_now);
BEGIN
  store := obj_description('lp.home'::regclass, 'pg_class');
  token := (SELECT k.last_value FROM lp.tokens AS k);
  listened := lp.is_listened(p_kind, p_reader, v_now);
  LOOP
    -- One that is past its deadline but not yet swept still holds its leases: the beat saves them.
    UPDATE lp.session SET beat_ms = v_now, deadline_ms = v_now + p_ttl, queues = p_queues, tasks = p_tasks,
      capabilities = p_capabilities, channel = p_channel, serves = p_serves, info = p_info
    WHERE id = p_session;
    fresh := NOT FOUND;
    EXIT WHEN NOT fresh;
    INSERT INTO lp.session (id, started_ms, beat_ms, deadline_ms, queues, tasks, capabilities, channel, serves, info)
    VALUES (p_session, v_now, v_now, v_now + p_ttl, p_queues, p_tasks, p_capabilities, p_channel, p_serves, p_info)
    ON CONFLICT (id) DO NOTHING;
    EXIT WHEN FOUND;
  END LOOP;
  IF fresh THEN
    INSERT INTO lp.receipt (session, claimer, seq, at_ms) VALUES (p_session, 'beat', p_call, v_now)
    ON CONFLICT (session, claimer) DO UPDATE SET seq = excluded.seq, at_ms = excluded.at_ms;
  ELSE
    fresh := EXISTS (SELECT 1 FROM lp.receipt WHERE session = p_session AND claimer = 'beat' AND seq = p_call);
    SELECT array_agg(r.id), array_agg(r.token) INTO ids, tokens
    FROM lp.lease AS l
    CROSS JOIN LATERAL (SELECT x.id, x.token, x.flags FROM lp.running AS x WHERE x.token = l.token OFFSET 0) AS r
    WHERE l.session = p_session AND r.flags & :CANCELLING <> 0;
  END IF;
  FOR v_at IN 1 .. coalesce(cardinality(p_ids), 0) LOOP
    PERFORM lp.save_1(p_ids[v_at], p_tokens[v_at], p_kinds[v_at], p_names[v_at], p_bodies[v_at], v_now);
  END LOOP;
END $$;

-- Lock and answer what these sessions hold, at most p_limit jobs, by id. What an open transaction of a handler has settled
-- is left to it. With p_wait it waits for steps that end such a job just now; else it skips those jobs.
CREATE OR REPLACE FUNCTION lp.lock_held(p_sessions text[], p_limit bigint, p_wait boolean) RETURNS lp.running[] LANGUAGE plpgsql AS $$
DECLARE
  v_tokens bigint[] := ARRAY(SELECT l.token FROM lp.lease AS l WHERE l.session = ANY (p_sessions));
  v_ids bytea[] := ARRAY(SELECT r.id FROM lp.running AS r WHERE r.token = ANY (v_tokens));
BEGIN
  IF p_wait THEN
    PERFORM FROM lp.running AS r WHERE r.id = ANY (v_ids) AND r.token = ANY (v_tokens) ORDER BY r.id FOR NO KEY UPDATE;
  END IF;
  RETURN ARRAY(
    SELECT r FROM lp.running AS r WHERE r.id = ANY (v_ids) AND r.token = ANY (v_tokens)
    ORDER BY r.id LIMIT p_limit FOR UPDATE SKIP LOCKED
  );
END $$;

-- Remove those of these sessions, all of them locked, that hold nothing.
CREATE OR REPLACE FUNCTION lp.forget_sessions(p_sessions text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_gone text[] := ARRAY(
    SELECT s.id FROM unnest(p_sessions) AS s (id) WHERE NOT EXISTS (
      SELECT 1 FROM lp.lease AS l
      WHERE l.session = s.id AND EXISTS (SELECT 1 FROM lp.running AS r WHERE r.token = l.token OFFSET 0) OFFSET 0
    )
  );
BEGIN
  DELETE FROM lp.lease WHERE session = ANY (v_gone);
  DELETE FROM lp.sleeper WHERE session = ANY (v_gone);
  DELETE FROM lp.receipt WHERE session = ANY (v_gone);
  DELETE FROM lp.session WHERE id = ANY (v_gone);
END $$;

-- Verb: close a session; what it still holds is released unspent. What an open transaction of one of its handlers has
-- settled stays with it, and the session stays, silent, until that transaction is over: the sweep does the rest.
CREATE OR REPLACE FUNCTION lp.leave_1(
  p_session text, p_now bigint, OUT released integer,
  OUT w_lanes bigint[], OUT w_ns integer[], OUT w_dues bigint[], OUT w_gates text[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint := lp.now_1(p_now);
  v_heads lp.running[];
BEGIN
  PERFORM FROM lp.session WHERE id = p_session FOR UPDATE;
  v_heads := lp.lock_held(ARRAY[p_session], NULL, true);
  released := cardinality(v_heads);
  IF released > 0 THEN
    PERFORM lp.end_running(v_heads, lp.to_effect(:EFFECT_LEFT), p_session, v_now);
  END IF;
  PERFORM lp.forget_sessions(ARRAY[p_session]);
  UPDATE lp.session SET deadline_ms = least(deadline_ms, v_now) WHERE id = p_session;
  SELECT * INTO w_lanes, w_ns, w_dues, w_gates FROM lp.posted();
END $$;

-- Verb: what a session holds now.
CREATE OR REPLACE FUNCTION lp.held_1(p_session text, OUT ids bytea[], OUT tokens bigint[], OUT losts integer[]) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  SELECT array_agg(r.id), array_agg(r.token), array_agg(r.lost) INTO ids, tokens, losts
  FROM lp.lease AS l
  CROSS JOIN LATERAL (SELECT x.id, x.token, x.lost FROM lp.running AS x WHERE x.token = l.token OFFSET 0) AS r
  WHERE l.session = p_session;
END $$;

-- Verb: the sessions that are alive, by name, at most 10,000.
CREATE OR REPLACE FUNCTION lp.sessions_1(p_now bigint) RETURNS TABLE (
  session text, serves bytea, info bytea, started_ms bigint, beat_ms bigint, deadline_ms bigint, idle boolean, running bigint
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint := lp.now_1(p_now);
BEGIN
  RETURN QUERY
  SELECT s.id, s.serves, s.info, s.started_ms, s.beat_ms, s.deadline_ms,
    EXISTS (SELECT 1 FROM lp.sleeper AS z WHERE z.session = s.id),
    (SELECT coalesce(sum(l.left_n), 0) FROM lp.lease AS l WHERE l.session = s.id)::bigint
  FROM lp.session AS s WHERE s.deadline_ms > v_now ORDER BY s.id COLLATE "C" LIMIT 10000;
END $$;
