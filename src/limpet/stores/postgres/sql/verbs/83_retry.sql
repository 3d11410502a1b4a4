-- Promise: dead jobs run again with fresh attempts under their ids, and revive dependents that their death cancelled;
-- scheduled ones run now, or after the delay. Steps that are named are forgotten.
-- Inputs: as named. Answer: one code per id, in order: RETRY_RETRIED, RETRY_UNIQUE_HELD (another job holds its
-- unique key), RETRY_NOT_DEAD, RETRY_GONE (there is no such job).
-- Locks, in order: unique keys (as whoever enqueues: key by key, before the graph), the graph, rows of `done` by id. It holds
-- the graph for no longer than a moment: what somebody's open transaction has, it asks for again (lock_timeout).

-- Lock the unique keys of these jobs, in order. p_below: and those of the dependents that still wait for them.
CREATE OR REPLACE FUNCTION lp.lock_keys(p_ids bytea[], p_below boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_ids bytea[] := p_ids;
BEGIN
  IF p_below AND lp.has_kids(p_ids) THEN
    v_ids := ARRAY(
      WITH RECURSIVE below (id) AS (
        SELECT i FROM unnest(p_ids) AS i
        UNION SELECT d.child FROM below CROSS JOIN LATERAL (
          SELECT k.child FROM lp.dep AS k WHERE k.parent = below.id AND NOT k.done OFFSET 0
        ) AS d
      )
      SELECT id FROM below
    );
  END IF;
  PERFORM FROM lp.unique_key AS u WHERE u.key = ANY (ARRAY(
    SELECT j.unique_key FROM lp.job AS j WHERE j.id = ANY (v_ids) AND j.unique_key IS NOT NULL
  )) ORDER BY u.key FOR UPDATE;
END $$;

-- A dead job, locked, lives again; its dependents are for the caller to revive. False when another job holds its unique key.
CREATE OR REPLACE FUNCTION lp.retry_dead(p_id bytea, p_delay bigint, p_args bytea, p_now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_old lp.done;
  v_state integer := CASE WHEN p_delay > 0 THEN :SCHEDULED ELSE :READY END;
  v_due bigint := p_now + p_delay;
BEGIN
  IF NOT lp.unique_reclaim(p_id, p_now) THEN
    RETURN false;
  END IF;
  DELETE FROM lp.done WHERE id = p_id RETURNING * INTO v_old;
  INSERT INTO lp.wait (id, lane, due_ms, cost, state, priority, flags)
  VALUES (p_id, v_old.lane, v_due, v_old.cost, v_state, v_old.priority, v_old.flags & ~:CANCELLING);
  PERFORM lp.unbury(p_id, v_old.lane, v_old.cause, p_now);
  PERFORM lp.count_jobs(v_old.lane, :DEAD, -1, v_state, 1);
  PERFORM lp.note_depth(l.queue, l.grp) FROM lp.lane AS l WHERE l.id = v_old.lane;
  PERFORM lp.post_retry(p_id, v_old.lane, v_due, v_state, p_args);
  RETURN true;
END $$;

-- A scheduled job is told to run now. False when it is not scheduled.
CREATE OR REPLACE FUNCTION lp.retry_scheduled(p_id bytea, p_delay bigint, p_args bytea, p_now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_lane bigint;
  v_state integer := CASE WHEN p_delay > 0 THEN :SCHEDULED ELSE :READY END;
  v_due bigint := p_now + p_delay;
BEGIN
  UPDATE lp.wait SET state = v_state, due_ms = v_due WHERE id = p_id AND state = :SCHEDULED RETURNING lane INTO v_lane;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  IF v_state = :READY THEN
    PERFORM lp.count_jobs(v_lane, :SCHEDULED, -1, :READY, 1);
  END IF;
  PERFORM lp.post_retry(p_id, v_lane, v_due, v_state, p_args);
  RETURN true;
END $$;

-- A job has a new place in its lane or a new time: the floor hears of it. p_args: edited arguments, or NULL.
CREATE OR REPLACE FUNCTION lp.post_retry(p_id bytea, p_lane bigint, p_due bigint, p_state integer, p_args bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_args IS NOT NULL THEN
    UPDATE lp.job SET args = p_args WHERE id = p_id;
  END IF;
  IF p_state = :READY THEN
    PERFORM lp.post_ready(p_lane, p_due, p_id, 1);
  ELSE
    PERFORM lp.post_timer(p_lane, p_due);
  END IF;
END $$;

-- One job; it is looked at until it holds still.
CREATE OR REPLACE FUNCTION lp.retry_one(p_id bytea, p_delay bigint, p_args bytea, p_now bigint) RETURNS smallint LANGUAGE plpgsql AS $$
DECLARE
  v_state smallint;
BEGIN
  LOOP
    PERFORM FROM lp.done WHERE id = p_id AND state = :DEAD FOR UPDATE;
    IF FOUND THEN
      RETURN CASE WHEN lp.retry_dead(p_id, p_delay, p_args, p_now) THEN :RETRY_RETRIED ELSE :RETRY_UNIQUE_HELD END;
    ELSIF lp.retry_scheduled(p_id, p_delay, p_args, p_now) THEN
      RETURN :RETRY_RETRIED;
    END IF;
    v_state := lp.state_of(p_id);
    IF v_state IS NULL THEN
      RETURN :RETRY_GONE;
    ELSIF v_state NOT IN (:SCHEDULED, :DEAD) THEN
      RETURN :RETRY_NOT_DEAD;
    END IF;
  END LOOP;
END $$;

-- Verb: see the head of this file. p_call names this call, for one that is repeated since its answer was lost. p_forget:
-- recorded steps that those who are retried shall run again, by name; * is all of them.
CREATE OR REPLACE FUNCTION lp.retry_1(
  p_call text, p_ids bytea[], p_delay bigint, p_args bytea, p_forget text[], p_now bigint, OUT answers bigint[],
  OUT w_lanes bigint[], OUT w_ns integer[], OUT w_dues bigint[], OUT w_gates text[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan SET lock_timeout = '1s' AS $$
DECLARE
  v_now bigint := lp.now_1(p_now);
  v_at bigint;
  v_retried bytea[] := '{}';
BEGIN
  answers := lp.answered_before(p_call, v_now);
  IF answers IS NOT NULL THEN
    RETURN;
  END IF;
  PERFORM lp.lock_keys(p_ids, true);
  PERFORM lp.lock(:GRAPH); -- nobody becomes a child of a dead job meanwhile
  PERFORM FROM lp.done WHERE id = ANY (p_ids) ORDER BY id FOR UPDATE;
  FOR v_at IN
    SELECT i.at FROM unnest(p_ids) WITH ORDINALITY AS i (id, at)
    LEFT JOIN LATERAL (SELECT x.unique_key FROM lp.job AS x WHERE x.id = i.id OFFSET 0) AS j ON true
    ORDER BY j.unique_key NULLS FIRST, i.at
  LOOP
    answers[v_at] := lp.retry_one(p_ids[v_at], p_delay, p_args, v_now);
    IF answers[v_at] = :RETRY_RETRIED THEN
      v_retried := v_retried || p_ids[v_at];
    END IF;
  END LOOP;
  -- Of all at once: a child of very many is looked at once and not once for each.
  PERFORM lp.revive_children(v_retried, v_now);
  IF p_forget <> '{}' THEN
    DELETE FROM lp.note AS n WHERE n.job = ANY (v_retried) AND n.kind = 'step' AND (n.name = ANY (p_forget) OR '*' = ANY (p_forget));
  END IF;
  answers := coalesce(answers, '{}');
  PERFORM lp.note_answer(p_call, answers);
  SELECT * INTO w_lanes, w_ns, w_dues, w_gates FROM lp.posted();
END $$;
