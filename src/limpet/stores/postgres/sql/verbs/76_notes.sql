-- Promise: an event is kept with a job that is not finished, the first of each name, and a job that waits for it is ready.
-- Inputs: as named. Answer: one code per signal, in order: SIGNAL_WOKEN, SIGNAL_KEPT, SIGNAL_ALREADY (it was there),
-- SIGNAL_FINISHED, SIGNAL_GONE (there is no such job), SIGNAL_FULL (the job keeps as many as it may).
-- Locks, in order: rows of `running` by id, rows of `wait` by id. A step that only keeps a job from ending (FOR KEY SHARE: a
-- child that comes, a handler's own transaction) is not in the way. One who suspends a job deletes its row of `running`
-- and looks for the event after that, so either it finds the event, or the signal has waited for that row and finds the
-- job in `wait`. Relies on the primary keys.

-- Hold those of these jobs that are not finished where they are. One that began to run between the two looks needs a new
-- attempt of the whole step: a step that holds rows of `wait` waits for none of `running`.
CREATE OR REPLACE FUNCTION lp.hold_still(p_ids bytea[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_still bytea[] := ARRAY(SELECT r.id FROM lp.running AS r WHERE r.id = ANY (p_ids) ORDER BY r.id FOR NO KEY UPDATE);
BEGIN
  v_still := v_still || ARRAY(SELECT w.id FROM lp.wait AS w WHERE w.id = ANY (p_ids) ORDER BY w.id FOR NO KEY UPDATE);
  IF EXISTS (
    SELECT FROM (SELECT i FROM unnest(p_ids) AS i EXCEPT SELECT s FROM unnest(v_still) AS s) AS o (id)
    WHERE lp.state_of(o.id) < :SUCCEEDED
  ) THEN
    RAISE EXCEPTION 'a job moved while an event was signalled to it' USING ERRCODE = 'serialization_failure';
  END IF;
END $$;

-- If this event is one of those that a job, held, waits for just now, it is ready and waits for none; else false. A note that does not name the time at
-- which the job is due is about a wait that is over.
CREATE OR REPLACE FUNCTION lp.end_wait(p_id bytea, p_event text, p_now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM lp.note AS n WHERE n.job = p_id AND n.kind = 'waiting' AND n.name = p_event AND n.body = (
    SELECT convert_to(w.due_ms::text, 'UTF8') FROM lp.wait AS w WHERE w.id = p_id AND w.state = :SCHEDULED
  );
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  DELETE FROM lp.note AS n WHERE n.job = p_id AND n.kind = 'waiting';
  RETURN lp.retry_scheduled(p_id, 0, NULL, p_now);
END $$;

-- True when one of these events has been signalled to a job that leaves `running`. Its row there is gone: an event that this
-- does not find is one whose signal finds the job in `wait`.
CREATE OR REPLACE FUNCTION lp.has_event(p_head lp.running, p_events text[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN p_head.flags & :NOTES <> 0 AND EXISTS (
    SELECT FROM lp.note AS n WHERE n.job = p_head.id AND n.kind = 'event' AND n.name = ANY (p_events)
  );
END $$;

-- A job that still waits until it is due now waits for exactly these events; its flags.
CREATE OR REPLACE FUNCTION lp.wait_for(p_head lp.running, p_events text[]) RETURNS smallint LANGUAGE plpgsql AS $$
BEGIN
  IF p_head.flags & :NOTES <> 0 THEN
    DELETE FROM lp.note AS n WHERE n.job = p_head.id AND n.kind = 'waiting';
  END IF;
  IF p_events = '{}' THEN
    RETURN p_head.flags;
  END IF;
  INSERT INTO lp.note (job, kind, name, body)
  SELECT p_head.id, 'waiting', e.name, convert_to(p_head.due_ms::text, 'UTF8') FROM unnest(p_events) AS e (name);
  RETURN p_head.flags | :NOTES;
END $$;

-- Keep an event with a job, held. Codes as above: kept, there already, or full.
CREATE OR REPLACE FUNCTION lp.keep_event(p_id bytea, p_event text, p_value bytea) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_most CONSTANT integer := :MAX_EVENTS; -- events of one job, and bytes of their values: as on every engine
  v_bytes CONSTANT bigint := :MAX_EVENTS_BYTES;
  v_kept bigint;
  v_size bigint;
BEGIN
  IF EXISTS (SELECT FROM lp.note AS n WHERE n.job = p_id AND n.kind = 'event' AND n.name = p_event) THEN
    RETURN :SIGNAL_ALREADY;
  END IF;
  SELECT count(*), coalesce(sum(octet_length(n.body)), 0) INTO v_kept, v_size
  FROM lp.note AS n WHERE n.job = p_id AND n.kind = 'event';
  IF v_kept >= v_most OR v_size + octet_length(p_value) > v_bytes THEN
    RETURN :SIGNAL_FULL;
  END IF;
  INSERT INTO lp.note (job, kind, name, body) VALUES (p_id, 'event', p_event, p_value);
  RETURN :SIGNAL_KEPT;
END $$;

-- Verb: see the head of this file. p_call names this call, for one that is repeated since its answer was lost. It holds
-- what runs for no longer than a settlement waits for it (take_late): what an open transaction has, it asks for
-- again.
CREATE OR REPLACE FUNCTION lp.signal_1(
  p_call text, p_ids bytea[], p_events text[], p_values bytea[], p_now bigint, OUT answers bigint[],
  OUT w_lanes bigint[], OUT w_ns integer[], OUT w_dues bigint[], OUT w_gates text[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan SET lock_timeout = '250ms' AS $$
DECLARE
  v_now bigint := lp.now_1(p_now);
  v_states smallint[];
BEGIN
  answers := lp.answered_before(p_call, v_now);
  IF answers IS NOT NULL THEN
    RETURN;
  END IF;
  PERFORM lp.hold_still(p_ids);
  v_states := ARRAY(SELECT lp.state_of(i.id) FROM unnest(p_ids) WITH ORDINALITY AS i (id, at) ORDER BY i.at);
  FOR v_at IN 1 .. cardinality(p_ids) LOOP
    IF v_states[v_at] IS NULL OR v_states[v_at] > :RUNNING THEN
      answers[v_at] := CASE WHEN v_states[v_at] > :RUNNING THEN :SIGNAL_FINISHED ELSE :SIGNAL_GONE END;
      CONTINUE;
    END IF;
    answers[v_at] := lp.keep_event(p_ids[v_at], p_events[v_at], p_values[v_at]);
    IF answers[v_at] = :SIGNAL_KEPT AND lp.end_wait(p_ids[v_at], p_events[v_at], v_now) THEN
      answers[v_at] := :SIGNAL_WOKEN;
    END IF;
  END LOOP;
  UPDATE lp.running AS r SET flags = r.flags | :NOTES WHERE r.id = ANY (p_ids) AND r.flags & :NOTES = 0;
  UPDATE lp.wait AS w SET flags = w.flags | :NOTES WHERE w.id = ANY (p_ids) AND w.flags & :NOTES = 0;
  PERFORM lp.note_answer(p_call, answers);
  SELECT * INTO w_lanes, w_ns, w_dues, w_gates FROM lp.posted();
END $$;
