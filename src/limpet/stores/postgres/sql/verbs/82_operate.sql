-- Promise: what people ask of jobs: cancel, retry, discard. Inputs: as named. Answer: one code per id, in order.
-- Locks, in order: what runs (by id), unique keys (by key), the graph, what waits and what has ended (by id). The graph is
-- held for a moment only: a job that an open transaction of another caller holds is asked for again (lock_timeout).

-- Cancel. Waiting jobs are cancelled with their dependents; running ones are asked to stop, or with force fenced off.
-- Codes: CANCEL_CANCELLED, CANCEL_CANCELLING (it was asked to stop), CANCEL_FINISHED (before), CANCEL_GONE (there is no such
-- job), CANCEL_BEFORE (it was cancelled before). Where a job begins to run between the look for those that run and the
-- look for those that wait, the whole step begins again. No step that holds the graph waits for a job that an open
-- transaction has replaced: the step is undone, and begins again when that transaction has ended.

-- Lock a running job for its end. NULL: an open transaction of its handler has settled it, and will hardly be over soon.
CREATE OR REPLACE FUNCTION lp.lock_running(p_id bytea) RETURNS lp.running LANGUAGE plpgsql SET lock_timeout = '250ms' AS $$
DECLARE
  v_head lp.running;
BEGIN
  SELECT * INTO v_head FROM lp.running WHERE id = p_id FOR UPDATE;
  RETURN v_head;
EXCEPTION WHEN lock_not_available THEN
  RETURN NULL;
END $$;

-- Lock those of these jobs that run. A step that only asks them to stop blocks no other one; force locks them for update.
CREATE OR REPLACE FUNCTION lp.lock_those_running(p_ids bytea[], p_force boolean) RETURNS bytea[] LANGUAGE plpgsql AS $$
DECLARE
  v_found bytea[] := ARRAY(SELECT r.id FROM lp.running AS r WHERE r.id = ANY (p_ids) ORDER BY r.id FOR NO KEY UPDATE);
BEGIN
  IF p_force THEN
    PERFORM lp.lock_running(f.id) FROM unnest(v_found) AS f (id) ORDER BY f.id;
  END IF;
  RETURN v_found;
END $$;

-- Tell the worker of a job that a cancel was requested.
CREATE OR REPLACE FUNCTION lp.tell_cancel(p_token bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM lp.notify(s.channel, 'c', s.id) FROM lp.lease AS l JOIN lp.session AS s ON s.id = l.session WHERE l.token = p_token;
END $$;

-- A running job, locked: asked to stop, or with force ended.
CREATE OR REPLACE FUNCTION lp.stop_running(p_id bytea, p_reason text, p_force boolean, p_now bigint) RETURNS smallint LANGUAGE plpgsql AS $$
DECLARE
  v_head lp.running;
  v_states smallint[];
BEGIN
  UPDATE lp.running SET flags = flags | :CANCELLING, reason = p_reason WHERE id = p_id RETURNING * INTO v_head;
  PERFORM lp.tell_cancel(v_head.token);
  IF p_force THEN
    v_states := lp.end_running(ARRAY[v_head], lp.to_effect(:EFFECT_FORCED), '', p_now);
    -- Settled in a transaction of its handler's, it has succeeded.
    RETURN CASE v_states[1] WHEN :SUCCEEDED THEN :CANCEL_FINISHED ELSE :CANCEL_CANCELLED END;
  END IF;
  IF lp.has_kids(ARRAY[p_id]) THEN
    PERFORM lp.cancel_children(p_id, p_reason, p_now);
  END IF;
  RETURN :CANCEL_CANCELLING;
END $$;

-- Lock those of these jobs that wait; LP005 when another transaction has one of them.
CREATE OR REPLACE FUNCTION lp.lock_waiting(p_ids bytea[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_ours bytea[] := ARRAY(SELECT w.id FROM lp.wait AS w WHERE w.id = ANY (p_ids) ORDER BY w.id FOR UPDATE SKIP LOCKED);
BEGIN
  IF lp.not_ours(p_ids, v_ours) <> '{}' THEN
    RAISE EXCEPTION 'another transaction holds a job that was to be cancelled' USING ERRCODE = 'LP005';
  END IF;
END $$;

-- Wait until no other transaction holds this job, if it waits, and do not hold it then. Raised when that takes long (LP004, for people).
CREATE OR REPLACE FUNCTION lp.wait_for_release(p_id bytea) RETURNS void LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
BEGIN
  PERFORM FROM lp.wait AS w WHERE w.id = p_id FOR UPDATE;
  RAISE EXCEPTION 'to let go of it' USING ERRCODE = 'LP005';
EXCEPTION
  WHEN SQLSTATE 'LP005' THEN
    NULL;
  WHEN lock_not_available THEN
    RAISE EXCEPTION 'job % was replaced by a transaction that is still open', encode(p_id, 'hex')::uuid USING ERRCODE = 'LP004';
END $$;

-- One attempt at the whole step; serialization_failure when a job moved in a way that only a new attempt can follow, LP005
-- when another transaction holds one.
CREATE OR REPLACE FUNCTION lp.cancel_step(p_ids bytea[], p_reason text, p_force boolean, p_now bigint) RETURNS smallint[] LANGUAGE plpgsql AS $$
DECLARE
  v_running bytea[] := lp.lock_those_running(p_ids, p_force);
  v_free bytea[]; -- of them, those that may be ended
  v_before smallint[]; -- who is taken down on the way was not finished before
  v_answers smallint[];
  v_id bytea;
  v_state smallint;
BEGIN
  PERFORM lp.lock(:GRAPH);
  PERFORM lp.lock_waiting(p_ids);
  v_free := ARRAY(SELECT r.id FROM lp.running AS r WHERE p_force AND r.id = ANY (v_running) FOR UPDATE SKIP LOCKED);
  PERFORM lp.lock_for_end(ARRAY(SELECT r FROM lp.running AS r WHERE r.id = ANY (v_free)));
  v_before := ARRAY(SELECT lp.state_of(i.id) FROM unnest(p_ids) WITH ORDINALITY AS i (id, at) ORDER BY i.at);
  FOR v_at IN 1 .. cardinality(p_ids) LOOP
    v_id := p_ids[v_at];
    v_state := lp.state_of(v_id);
    IF v_state IS NULL THEN
      v_answers[v_at] := :CANCEL_GONE;
    ELSIF v_state >= :SUCCEEDED THEN
      v_answers[v_at] := CASE WHEN v_state <> :CANCELLED THEN :CANCEL_FINISHED WHEN v_before[v_at] < :SUCCEEDED THEN :CANCEL_CANCELLED ELSE :CANCEL_BEFORE END;
    ELSIF v_state = :RUNNING AND v_id = ANY (v_running) THEN
      v_answers[v_at] := lp.stop_running(v_id, p_reason, v_id = ANY (v_free), p_now);
    ELSIF v_state < :RUNNING AND lp.cancel_waiting(v_id, p_reason, p_now) THEN
      v_answers[v_at] := :CANCEL_CANCELLED;
    ELSE
      RAISE EXCEPTION 'a job moved while it was to be cancelled' USING ERRCODE = 'serialization_failure';
    END IF;
  END LOOP;
  RETURN v_answers;
END $$;

-- Verb: see Cancel above. p_call names this call, for one that is repeated since its answer was lost.
CREATE OR REPLACE FUNCTION lp.cancel_1(
  p_call text, p_ids bytea[], p_reason text, p_force boolean, p_now bigint, OUT answers bigint[],
  OUT w_lanes bigint[], OUT w_ns integer[], OUT w_dues bigint[], OUT w_gates text[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan SET lock_timeout = '1s' AS $$
DECLARE
  v_now bigint := lp.now_1(p_now);
  v_tries integer := 0;
BEGIN
  answers := lp.answered_before(p_call, v_now);
  IF answers IS NOT NULL THEN
    RETURN;
  END IF;
  WHILE answers IS NULL LOOP
    v_tries := v_tries + 1;
    BEGIN
      answers := lp.cancel_step(p_ids, p_reason, p_force, v_now);
    EXCEPTION -- all that it locked is free again
      WHEN serialization_failure THEN
        IF v_tries >= 20 THEN
          RAISE;
        END IF;
      WHEN SQLSTATE 'LP005' THEN
        IF v_tries >= 20 THEN
          RAISE EXCEPTION 'jobs that were to be cancelled never held still' USING ERRCODE = 'serialization_failure';
        END IF;
        PERFORM lp.wait_for_release(w.id) FROM lp.wait AS w WHERE w.id = ANY (p_ids);
    END;
  END LOOP;
  PERFORM lp.note_answer(p_call, answers);
  SELECT * INTO w_lanes, w_ns, w_dues, w_gates FROM lp.posted();
END $$;

-- Verb: those of these jobs that are not finished.
CREATE OR REPLACE FUNCTION lp.unfinished_1(p_ids bytea[]) RETURNS bytea[] LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  RETURN ARRAY(
    SELECT w.id FROM lp.wait AS w WHERE w.id = ANY (p_ids)
    UNION ALL SELECT r.id FROM lp.running AS r WHERE r.id = ANY (p_ids)
  );
END $$;

-- Retry. Dead jobs run again with fresh attempts under their ids, and revive dependents that their death cancelled;
-- scheduled ones run now, or after the delay. Steps that are named are forgotten. Codes: RETRY_RETRIED, RETRY_UNIQUE_HELD
-- (another job holds its unique key), RETRY_NOT_DEAD, RETRY_GONE (there is no such job).

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
  PERFORM lp.note_depth_of(v_old.lane);
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

-- Verb: see Retry above. p_call names this call, for one that is repeated since its answer was lost. p_forget:
-- recorded steps that the retried jobs shall run again, by name; * is all of them.
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
  PERFORM lp.lock(:GRAPH); -- no job becomes a child of a dead job meanwhile
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

-- Discard. Dead jobs are removed for good (85_prune: erase_dead).

-- Verb: dead jobs are removed for good. p_call names this call, for one that is repeated since its answer was lost.
CREATE OR REPLACE FUNCTION lp.discard_1(
  p_call text, p_ids bytea[], p_now bigint, OUT gone bigint,
  OUT w_lanes bigint[], OUT w_ns integer[], OUT w_dues bigint[], OUT w_gates text[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan SET lock_timeout = '1s' AS $$
DECLARE
  v_now bigint := lp.now_1(p_now);
  v_answered bigint[] := lp.answered_before(p_call, v_now);
BEGIN
  gone := v_answered[1];
  IF v_answered IS NOT NULL THEN
    RETURN;
  END IF;
  PERFORM lp.lock_keys(p_ids, false);
  PERFORM lp.lock(:GRAPH);
  gone := lp.erase_dead(ARRAY(
    SELECT d FROM lp.done AS d WHERE d.id = ANY (p_ids) AND d.state = :DEAD ORDER BY d.id FOR UPDATE
  ), v_now);
  PERFORM lp.note_answer(p_call, ARRAY[gone]);
  SELECT * INTO w_lanes, w_ns, w_dues, w_gates FROM lp.posted();
END $$;
