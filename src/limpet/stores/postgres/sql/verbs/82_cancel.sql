-- Promise: waiting jobs are cancelled with their dependents; running ones are asked to stop, or with force fenced off.
-- Inputs: as named. Answer: one code per id, in order: CANCEL_CANCELLED, CANCEL_CANCELLING (it was asked to stop),
-- CANCEL_FINISHED (before), CANCEL_GONE (there is no such job), CANCEL_BEFORE (it was cancelled before).
-- Locks, in order: what runs (by id), the graph, what waits (by id). Where a job begins to run between the look for those
-- that run and the look for those that wait, the whole step begins again. Nobody waits with the graph in hand for what
-- somebody's open transaction has replaced: the step is undone, and begins again when that transaction has ended.

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

-- Lock those of these jobs that run. Whoever only asks them to stop is in nobody's way; force needs them whole.
CREATE OR REPLACE FUNCTION lp.lock_those_running(p_ids bytea[], p_force boolean) RETURNS bytea[] LANGUAGE plpgsql AS $$
DECLARE
  v_found bytea[] := ARRAY(SELECT r.id FROM lp.running AS r WHERE r.id = ANY (p_ids) ORDER BY r.id FOR NO KEY UPDATE);
BEGIN
  IF p_force THEN
    PERFORM lp.lock_running(f.id) FROM unnest(v_found) AS f (id) ORDER BY f.id;
  END IF;
  RETURN v_found;
END $$;

-- Tell whoever runs a job that someone wants it cancelled.
CREATE OR REPLACE FUNCTION lp.tell_cancel(p_token bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM lp.notify(s.ear, 'c', s.id) FROM lp.lease AS l JOIN lp.session AS s ON s.id = l.session WHERE l.token = p_token;
END $$;

-- A running job, locked: asked to stop, or with force ended.
CREATE OR REPLACE FUNCTION lp.stop_running(p_id bytea, p_reason text, p_force boolean, p_now bigint) RETURNS smallint LANGUAGE plpgsql AS $$
DECLARE
  v_head lp.running;
  v_outcome lp.outcome;
BEGIN
  UPDATE lp.running SET flags = flags | :CANCELLING, reason = p_reason WHERE id = p_id RETURNING * INTO v_head;
  PERFORM lp.tell_cancel(v_head.token);
  IF p_force THEN
    v_outcome.kind := :DROP;
    v_outcome.reason := p_reason;
    v_outcome.started := true;
    -- Settled in a transaction of its handler's, it has succeeded.
    RETURN CASE lp.end_one_running(v_head, v_outcome, '', p_now) WHEN :SUCCEEDED THEN :CANCEL_FINISHED ELSE :CANCEL_CANCELLED END;
  END IF;
  IF lp.has_kids(ARRAY[p_id]) THEN
    PERFORM lp.cancel_children(p_id, p_reason, p_now);
  END IF;
  RETURN :CANCEL_CANCELLING;
END $$;

-- Lock those of these jobs that wait; LP005 when somebody else has one of them.
CREATE OR REPLACE FUNCTION lp.lock_waiting(p_ids bytea[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_ours bytea[] := ARRAY(SELECT w.id FROM lp.wait AS w WHERE w.id = ANY (p_ids) ORDER BY w.id FOR UPDATE SKIP LOCKED);
BEGIN
  IF lp.not_ours(p_ids, v_ours) <> '{}' THEN
    RAISE EXCEPTION 'somebody has a job that was to be cancelled' USING ERRCODE = 'LP005';
  END IF;
END $$;

-- Wait until nobody has this job, if it waits, and do not have it then. Raised when that takes long (LP004, for people).
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
-- when somebody has one.
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

-- Verb: see the head of this file. p_call names this call, for one that is repeated since its answer was lost.
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
