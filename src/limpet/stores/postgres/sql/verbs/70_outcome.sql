-- Promise: what becomes of running jobs whose tokens were compared: the one way in which a job leaves `running`.
-- Inputs: heads (rows of `running` that the caller has locked FOR UPDATE or deleted, in the order of their ids) and what
-- was asked for each. Answer: where they are now. Relies on the primary keys.
-- Locks, in this order: the graph (only where somebody waits for one of them), rows of `wait`, leases, gates by key. So
-- several jobs go through one call of end_running, never through several calls of end_one_running.

-- One more dead job of its origin; under which cause.
CREATE OR REPLACE FUNCTION lp.bury(p_id bytea, p_lane bigint, p_cause text, p_type text, p_message text, p_now bigint)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  v_lane lp.lane;
  v_cause text := coalesce(nullif(p_cause, ''), p_type);
BEGIN
  SELECT l.* INTO v_lane FROM lp.lane AS l WHERE l.id = p_lane;
  IF NOT EXISTS (SELECT FROM lp.cause AS c WHERE c.cause = v_cause AND c.queue = v_lane.queue AND c.task = v_lane.task)
    AND EXISTS (SELECT FROM lp.cause OFFSET 10000)
  THEN
    v_cause := p_type; -- too many origins to tell apart: the kind of error is still known
  END IF;
  INSERT INTO lp.cause_tally (cause, queue, task, n, type, message, at_ms, sample)
  VALUES (v_cause, coalesce(v_lane.queue, ''), coalesce(v_lane.task, ''), 1, p_type, p_message, p_now, p_id);
  RETURN v_cause;
END $$;

-- One dead job less of this origin: its row has n = -1 and says nothing else.
CREATE OR REPLACE FUNCTION lp.unbury(p_id bytea, p_lane bigint, p_cause text, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lp.cause_tally (cause, queue, task, n, type, message, at_ms, sample)
  SELECT p_cause, coalesce(max(l.queue), ''), coalesce(max(l.task), ''), -1, '', '', p_now, p_id
  FROM lp.lane AS l WHERE l.id = p_lane;
END $$;

-- The attempt of this fate is kept, with an error or a message.
CREATE OR REPLACE FUNCTION lp.note_attempt(p_fate lp.fate, p_how text, p_outcome lp.outcome, p_message text)
RETURNS lp.fate LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  p_fate.a_how := p_how;
  IF p_outcome.f_type IS NULL THEN
    p_fate.a_type := '';
    p_fate.a_message := p_message;
    p_fate.a_traceback := '';
    p_fate.a_cause := '';
  ELSE
    p_fate.a_kind := p_outcome.f_kind;
    p_fate.a_type := p_outcome.f_type;
    p_fate.a_message := p_outcome.f_message;
    p_fate.a_traceback := p_outcome.f_traceback;
    p_fate.a_cause := coalesce(nullif(p_outcome.f_cause, ''), p_outcome.f_type);
  END IF;
  RETURN p_fate;
END $$;

-- Dead: for a person to look at.
CREATE OR REPLACE FUNCTION lp.resolve_dead(p_fate lp.fate, p_outcome lp.outcome, p_now bigint)
RETURNS lp.fate LANGUAGE plpgsql AS $$
BEGIN
  p_fate := lp.note_attempt(p_fate, 'dead', p_outcome, '');
  p_fate.state := :DEAD;
  p_fate.reason := p_outcome.f_message;
  p_fate.error_type := p_outcome.f_type;
  p_fate.cause := lp.bury(p_fate.id, p_fate.lane, p_outcome.f_cause, p_outcome.f_type, p_outcome.f_message, p_now);
  RETURN p_fate;
END $$;

-- A lost lease: back to the front with one more loss, or to the dead letters as poison. The attempt is refunded.
CREATE OR REPLACE FUNCTION lp.resolve_lost(p_fate lp.fate, p_outcome lp.outcome, p_now bigint)
RETURNS lp.fate LANGUAGE plpgsql AS $$
DECLARE
  v_reason text := coalesce(nullif(p_outcome.reason, ''), 'its worker died');
  v_max_lost integer;
BEGIN
  SELECT p.max_lost INTO v_max_lost FROM lp.policy AS p
  WHERE p.id = (SELECT j.policy FROM lp.job AS j WHERE j.id = p_fate.id);
  p_fate.was_lost := true;
  p_fate.lost := p_fate.lost + 1;
  p_fate.attempt := p_fate.attempt - 1;
  p_outcome.f_kind := 'lost';
  p_outcome.f_traceback := '';
  IF p_outcome.proven OR p_fate.lost >= coalesce(v_max_lost, 10) THEN
    p_outcome.f_type := 'limpet.Poison';
    p_outcome.f_cause := 'poison';
    p_outcome.f_message := v_reason || '; '
      || CASE WHEN p_outcome.proven THEN 'proven alone in its process' ELSE 'lost ' || p_fate.lost || ' times' END;
    RETURN lp.resolve_dead(p_fate, p_outcome, p_now);
  END IF;
  p_outcome.f_type := 'limpet.LeaseLost';
  p_outcome.f_cause := '';
  p_outcome.f_message := v_reason;
  p_fate := lp.note_attempt(p_fate, 'lost', p_outcome, '');
  p_fate.state := :READY;
  p_fate.reason := v_reason;
  RETURN p_fate;
END $$;

-- Put back without having spent its attempt: to wait until a time (p_later), or to the front. Counted apart.
CREATE OR REPLACE FUNCTION lp.resolve_held(p_fate lp.fate, p_how text, p_outcome lp.outcome, p_later boolean, p_now bigint)
RETURNS lp.fate LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  p_fate := lp.note_attempt(p_fate, p_how, p_outcome, p_outcome.reason);
  p_fate.attempt := p_fate.attempt - 1;
  p_fate.reason := p_outcome.reason;
  p_fate.held := p_fate.held + 1;
  p_fate.held_since_ms := coalesce(p_fate.held_since_ms, p_now);
  p_fate.state := CASE WHEN p_later THEN :SCHEDULED ELSE :READY END;
  IF p_later THEN
    p_fate.due_ms := p_now + p_outcome.delay_ms;
  END IF;
  RETURN p_fate;
END $$;

-- Suspended: until a time, until one of some events (which p_outcome has as its gate, a JSON array), or until whichever
-- comes first. Its row of `running` is gone: an event that this does not find is one whose signal finds it in `wait`
-- (76_notes).
CREATE OR REPLACE FUNCTION lp.resolve_suspended(p_fate lp.fate, p_outcome lp.outcome, p_now bigint)
RETURNS lp.fate LANGUAGE plpgsql AS $$
DECLARE
  v_events text[] := ARRAY(SELECT jsonb_array_elements_text(p_outcome.gate::jsonb));
BEGIN
  p_fate.attempt := p_fate.attempt - 1;
  p_fate.held := 0; -- it got as far as this
  p_fate.held_since_ms := NULL;
  p_fate.reason := NULL;
  p_fate.due_ms := least(p_now + p_outcome.delay_ms, :FOREVER_MS);
  IF p_fate.flags & :NOTES <> 0 THEN
    DELETE FROM lp.note AS n WHERE n.job = p_fate.id AND n.kind = 'waiting';
    IF EXISTS (SELECT FROM lp.note AS n WHERE n.job = p_fate.id AND n.kind = 'event' AND n.name = ANY (v_events)) THEN
      p_fate.due_ms := p_now;
      v_events := '{}';
    END IF;
  END IF;
  IF cardinality(v_events) > 0 THEN
    INSERT INTO lp.note (job, kind, name, body)
    SELECT p_fate.id, 'waiting', e.name, convert_to(p_fate.due_ms::text, 'UTF8') FROM unnest(v_events) AS e (name);
    p_fate.flags := p_fate.flags | :NOTES;
  END IF;
  p_fate.state := CASE WHEN p_fate.due_ms > p_now THEN :SCHEDULED ELSE :READY END;
  RETURN p_fate;
END $$;

-- Cancelled by its handler, or on request whatever else it had to say.
CREATE OR REPLACE FUNCTION lp.resolve_cancelled(p_fate lp.fate, p_outcome lp.outcome, p_reason text)
RETURNS lp.fate LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF p_outcome.kind = :LOSE THEN
    p_fate.was_lost := true;
    p_fate.lost := p_fate.lost + 1;
    p_fate.attempt := p_fate.attempt - 1;
  END IF;
  p_fate := lp.note_attempt(p_fate, 'cancelled', p_outcome, p_reason);
  p_fate.state := :CANCELLED;
  p_fate.reason := p_reason;
  RETURN p_fate;
END $$;

-- What becomes of one running job.
CREATE OR REPLACE FUNCTION lp.resolve_transition(p_head lp.running, p_outcome lp.outcome, p_now bigint) RETURNS lp.fate LANGUAGE plpgsql AS $$
DECLARE
  v_fate lp.fate;
  v_own boolean;
BEGIN
  v_fate := ROW(
    p_head.id, p_head.lane, NULL, p_head.due_ms, p_head.claimed_ms, p_head.expires_ms, p_head.held_since_ms,
    p_head.attempt, p_head.lost, p_head.held, p_head.cost, p_head.priority, p_head.flags,
    p_head.reason, p_head.cause, p_head.error_type, NULL,
    p_head.token, p_head.charged, 'neutral', false, NULL, NULL, false, NULL, p_head.attempt, NULL, NULL, NULL, NULL, NULL
  );
  IF p_outcome.kind IN (:RETRY_AFTER, :BURY) AND p_outcome.f_kind IN ('transient', 'timeout') THEN
    v_fate.verdict := 'failed';
  END IF;
  v_fate.unstarted := p_outcome.kind = :RELEASE AND NOT p_outcome.started;
  IF p_outcome.kind = :SUCCEED THEN
    v_fate.verdict := 'ok';
    v_fate.state := :SUCCEEDED;
    v_fate.reason := NULL;
    v_fate.cause := NULL;
    v_fate.error_type := NULL;
    v_fate.result := nullif(p_outcome.result, '\x6e756c6c'); -- null
    IF p_head.attempt > 1 OR p_head.lost > 0 THEN -- a clean first-try success writes no attempt
      v_fate := lp.note_attempt(v_fate, 'succeeded', p_outcome, '');
    END IF;
    RETURN v_fate;
  END IF;
  IF p_outcome.kind IN (:HOLD, :TRIP) THEN -- what it was told of a key counts for the others, should it stop or not
    v_fate.hold_gate := p_outcome.gate;
    v_fate.hold_until := least(p_now + p_outcome.delay_ms, :FOREVER_MS);
  END IF;
  IF p_head.flags & :CANCELLING <> 0 THEN
    RETURN lp.resolve_cancelled(v_fate, p_outcome, coalesce(nullif(p_head.reason, ''), 'cancelled'));
  END IF;
  CASE p_outcome.kind
  WHEN :RETRY_AFTER THEN
    v_fate := lp.note_attempt(v_fate, 'retried', p_outcome, '');
    v_fate.state := CASE WHEN p_outcome.delay_ms > 0 THEN :SCHEDULED ELSE :READY END;
    v_fate.due_ms := p_now + p_outcome.delay_ms;
    v_fate.reason := p_outcome.f_message;
    v_fate.cause := p_outcome.f_cause;
    v_fate.error_type := p_outcome.f_type;
  WHEN :BURY THEN
    v_fate := lp.resolve_dead(v_fate, p_outcome, p_now);
  WHEN :DROP THEN
    v_fate := lp.resolve_cancelled(v_fate, p_outcome, p_outcome.reason);
  WHEN :RELEASE THEN
    IF p_outcome.started THEN
      v_fate := lp.note_attempt(v_fate, 'released', p_outcome, '');
    END IF;
    v_fate.attempt := p_head.attempt - 1;
    v_fate.state := :READY;
  WHEN :SNOOZE THEN
    v_fate := lp.resolve_held(v_fate, 'snoozed', p_outcome, true, p_now);
  WHEN :HOLD, :TRIP THEN
    v_own := EXISTS (SELECT FROM lp.lane AS l WHERE l.id = p_head.lane AND p_outcome.gate = ANY (l.class_gates || l.lane_gates));
    -- A gate that holds others, not this job: without a wait of its own it would come back at once.
    v_fate := lp.resolve_held(v_fate, 'held', p_outcome, NOT v_own, p_now);
  WHEN :LOSE THEN
    v_fate := lp.resolve_lost(v_fate, p_outcome, p_now);
  WHEN :SUSPEND THEN
    v_fate := lp.resolve_suspended(v_fate, p_outcome, p_now);
  END CASE;
  IF v_fate.state < :RUNNING AND NOT v_fate.unstarted THEN
    v_fate.expires_ms := NULL; -- who was started once is not cancelled any more for starting late
  END IF;
  RETURN v_fate;
END $$;
