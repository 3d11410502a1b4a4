-- Promise: takes back what silent sessions and leases past their hard deadline hold, unless the sweeps themselves had
-- been away (D6); cancels waiting jobs that were not started in time; a place that has drained ends paused.
-- Inputs: as named. Answer: how many jobs were taken back.
-- Relies on session_deadline, lease_session, lease_hard, running_token, wait_expires, gate_drains. One sweeps at a time
-- (lock SWEEP). It waits for no beat, settlement or open transaction: it skips locked rows, so that a beat
-- that arrives while it looks saves its session.

-- When silence counts as silence: sessions whose time was over at the answered instant may lose what they hold; NULL:
-- none may. `overdue`: leases may pass their hard deadlines, too.
CREATE OR REPLACE FUNCTION lp.note_sweep(p_now bigint, OUT since bigint, OUT overdue boolean) LANGUAGE plpgsql AS $$
DECLARE
  v_swept bigint;
  v_calm bigint;
  v_gap bigint;
BEGIN
  SELECT swept_at_ms, calm_until_ms INTO v_swept, v_calm FROM lp.sweep;
  v_gap := p_now - v_swept;
  IF v_swept IS NULL THEN
    v_calm := p_now + 15000; -- one lease time: it is unknown how long no worker swept
  ELSIF v_gap > 5000 THEN -- live workers may not have been able to beat
    v_calm := p_now + 15000;
    -- Time that passed while everything stood still does not count: a suspended machine must not make all jobs overdue.
    PERFORM 1 FROM lp.lease WHERE hard_until_ms IS NOT NULL ORDER BY token FOR UPDATE;
    UPDATE lp.lease SET hard_until_ms = hard_until_ms + v_gap WHERE hard_until_ms IS NOT NULL;
  END IF;
  IF v_swept IS NULL OR NOT v_gap BETWEEN 0 AND 1999 THEN -- an idle worker sweeps each second: it need not write as often
    UPDATE lp.sweep SET swept_at_ms = p_now, calm_until_ms = v_calm;
  END IF;
  overdue := p_now >= v_calm;
  IF overdue THEN
    since := p_now;
  ELSIF v_gap >= 15000 THEN
    -- Sweeps are rare here (agents only, no worker): who was silent at the last one has had its lease time.
    since := v_swept;
  END IF;
END $$;

-- Lock the sessions whose time was over, the longest silent first. A session that beats just now is skipped, and one that has
-- beaten since the look is no longer silent: the condition holds for the row as it is locked.
CREATE OR REPLACE FUNCTION lp.lock_silent(p_since bigint) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN ARRAY(
    SELECT id FROM lp.session WHERE deadline_ms <= p_since ORDER BY deadline_ms LIMIT 64 FOR UPDATE SKIP LOCKED
  );
END $$;

-- Lock jobs past their hard deadline, of any session, in addition to the jobs taken already. Leases that hold nothing go: they
-- must not stand before others.
CREATE OR REPLACE FUNCTION lp.lock_overdue(p_limit bigint, p_taken lp.running[], p_now bigint) RETURNS lp.running[] LANGUAGE plpgsql AS $$
DECLARE
  v_tokens bigint[];
BEGIN
  DELETE FROM lp.lease WHERE token = ANY (ARRAY(
    SELECT l.token FROM lp.lease AS l WHERE l.hard_until_ms <= p_now
      AND NOT EXISTS (SELECT FROM lp.running AS r WHERE r.token = l.token OFFSET 0) LIMIT 256 FOR UPDATE SKIP LOCKED
  ));
  v_tokens := ARRAY(
    SELECT l.token FROM lp.lease AS l WHERE l.hard_until_ms <= p_now ORDER BY l.hard_until_ms LIMIT p_limit + cardinality(p_taken)
  );
  RETURN ARRAY(
    SELECT h FROM (
      SELECT r AS h FROM lp.running AS r WHERE r.token = ANY (v_tokens)
        AND r.id <> ALL (ARRAY(SELECT t.id FROM unnest(p_taken) AS t)) LIMIT p_limit FOR UPDATE SKIP LOCKED
    ) AS f ORDER BY (h).id
  );
END $$;

-- Lock, in order, all that the ends of these running jobs may change, so that they may end in several parts. The jobs
-- themselves are locked.
CREATE OR REPLACE FUNCTION lp.lock_for_end(p_heads lp.running[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF lp.has_kids(ARRAY(SELECT h.id FROM unnest(p_heads) AS h)) THEN
    PERFORM lp.lock(:GRAPH);
  END IF;
  PERFORM FROM lp.lease WHERE token = ANY (ARRAY(SELECT h.token FROM unnest(p_heads) AS h)) ORDER BY token FOR UPDATE;
  PERFORM lp.gate_lock(ARRAY(
    SELECT DISTINCT c ->> 0 FROM unnest(p_heads) AS h CROSS JOIN LATERAL jsonb_array_elements(h.charged) AS c
  ));
END $$;

-- Lost leases. The first `p_silent` of them were held by silent sessions.
-- Answer: how many were lost; others had succeeded in a transaction of their handlers'.
CREATE OR REPLACE FUNCTION lp.take_back(p_heads lp.running[], p_silent integer, p_now bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  v_session text;
  v_heads lp.running[];
  v_states smallint[] := '{}';
BEGIN
  IF p_heads = '{}' THEN
    RETURN 0;
  END IF;
  PERFORM lp.lock_for_end(p_heads);
  FOR v_session, v_heads IN
    SELECT l.session, array_agg(h ORDER BY h.id) FROM unnest(p_heads[:p_silent]) AS h
    CROSS JOIN LATERAL (SELECT x.session FROM lp.lease AS x WHERE x.token = h.token OFFSET 0) AS l
    GROUP BY l.session ORDER BY l.session
  LOOP
    v_states := v_states || lp.end_running(v_heads, lp.silent_effect(v_session), v_session, p_now);
  END LOOP;
  v_heads := p_heads[p_silent + 1:];
  IF v_heads <> '{}' THEN
    v_states := v_states || lp.end_running(v_heads, lp.to_effect(:EFFECT_OVERDUE), '', p_now);
  END IF;
  RETURN cardinality(array_remove(v_states, :SUCCEEDED::smallint));
END $$;

-- Jobs that were not started in time are cancelled, whether or not a worker would claim them. The caller holds the graph.
-- A locked job waits for the next sweep; a locked dependent is looked at later (hold_children).
CREATE OR REPLACE FUNCTION lp.cancel_expired(p_limit integer, p_now bigint) RETURNS void LANGUAGE plpgsql SET lock_timeout = '100ms' AS $$
DECLARE
  v_ids bytea[] := ARRAY(
    SELECT w.id FROM lp.wait AS w WHERE w.expires_ms <= p_now ORDER BY w.expires_ms LIMIT p_limit FOR UPDATE SKIP LOCKED
  );
BEGIN
  IF v_ids <> '{}' THEN
    PERFORM lp.cancel_all(v_ids, 'expired', p_now);
  END IF;
EXCEPTION WHEN lock_not_available THEN
  NULL;
END $$;

-- Whether a gate is that of this task, which may have several names; its lanes are stored, or posted.
CREATE OR REPLACE FUNCTION lp.is_task_gate(p_gate text, p_queue text, p_task text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_scope text := substr(p_gate, 6);
BEGIN
  RETURN p_gate LIKE 'task:%' AND (
    EXISTS (SELECT FROM lp.lane AS l WHERE l.queue = p_queue AND l.task = p_task AND l.class_gates[3] = p_gate)
    OR EXISTS (
      SELECT FROM lp.post AS p CROSS JOIN LATERAL (SELECT convert_from(p.body, 'UTF8')::jsonb OFFSET 0) AS l (body)
      WHERE p.kind = :POST_LANE AND p.body IS NOT NULL
        AND (l.body ->> 'queue', l.body ->> 'task', l.body ->> 'scope') = (p_queue, p_task, v_scope)
    )
  );
END $$;

-- A draining queue, task or store with nothing left ends paused.
CREATE OR REPLACE FUNCTION lp.pause_drained(p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_keys text[] := ARRAY(
    SELECT g.key FROM lp.gate AS g WHERE g.draining AND g.paused_at_ms IS NULL AND g.key ~ '^(queue:|task:|all$)'
  );
  v_gate lp.gate;
BEGIN
  IF v_keys = '{}' THEN
    RETURN;
  END IF;
  FOR v_gate IN
    SELECT g.* FROM lp.gate AS g WHERE g.key = ANY (v_keys) AND NOT EXISTS (
      SELECT FROM lp.counts_1() AS c WHERE c.what <= :RUNNING AND c.n > 0 AND (
        g.key IN ('all', 'queue:' || c.queue, 'task:' || c.task)
        OR lp.is_task_gate(g.key, c.queue, c.task)
      )
    ) ORDER BY g.key COLLATE "C" || '' FOR UPDATE OF g
  LOOP
    IF v_gate.draining AND v_gate.paused_at_ms IS NULL THEN
      v_gate.paused_at_ms := p_now;
      v_gate.paused_by := 'drain';
      v_gate.paused_reason := 'drained';
      PERFORM lp.gate_write(v_gate);
    END IF;
  END LOOP;
END $$;

-- Verb: one sweep. `fold`: so much was counted that it should be folded now (fold_1).
CREATE OR REPLACE FUNCTION lp.expire_1(
  p_limit integer, p_now bigint, OUT taken integer, OUT fold boolean,
  OUT w_lanes bigint[], OUT w_ns integer[], OUT w_dues bigint[], OUT w_gates text[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint := lp.now_1(p_now);
  v_since bigint;
  v_overdue boolean;
  v_sessions text[] := '{}';
  v_heads lp.running[] := '{}';
  v_silent integer;
  v_late boolean;
BEGIN
  taken := 0;
  fold := false;
  IF NOT lp.try_lock(:SWEEP) THEN
    RETURN;
  END IF;
  SELECT s.since, s.overdue INTO v_since, v_overdue FROM lp.note_sweep(v_now) AS s;
  IF lp.finish_settled(p_limit, v_now) > 0 THEN -- the rest with the next sweep: one step ends jobs once, in order
    SELECT * INTO w_lanes, w_ns, w_dues, w_gates FROM lp.posted();
    RETURN;
  END IF;
  IF v_since IS NOT NULL THEN
    v_sessions := lp.lock_silent(v_since);
    v_heads := lp.lock_held(v_sessions, p_limit, false);
  END IF;
  v_silent := cardinality(v_heads);
  IF v_overdue THEN
    v_heads := v_heads || lp.lock_overdue(p_limit - v_silent, v_heads, v_now);
  END IF;
  v_late := EXISTS (SELECT FROM lp.wait AS w WHERE w.expires_ms <= v_now);
  IF v_late THEN
    PERFORM lp.lock(:GRAPH); -- before any gate
  END IF;
  taken := lp.take_back(v_heads, v_silent, v_now);
  PERFORM lp.forget_sessions(v_sessions);
  IF v_late THEN
    PERFORM lp.cancel_expired(p_limit, v_now);
  END IF;
  PERFORM lp.fan_out(v_now); -- what a step left over for a parent with very many children, in case no worker claims
  PERFORM lp.pause_drained(v_now);
  fold := (SELECT count(*) FROM (SELECT FROM lp.tally LIMIT 1000) AS t) = 1000
    OR (SELECT count(*) FROM (SELECT FROM lp.cause_tally LIMIT 1000) AS t) = 1000;
  SELECT * INTO w_lanes, w_ns, w_dues, w_gates FROM lp.posted();
END $$;
