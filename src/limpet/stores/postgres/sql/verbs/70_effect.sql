-- Promise: applies effects to running jobs whose tokens were compared: the one way in which a job leaves `running`.
-- Inputs: jobs with their effects (lp.leaving), whose rows of `running` the caller has deleted, or has locked FOR UPDATE in
-- the order of their ids. core/endings/effect.py names and explains the fields of an effect; :EFFECT_LEFT and the like are
-- effects that core has made beforehand. Answer: where the jobs are now. Relies on the primary keys.
-- Locks, in this order: the graph (only where a dependent waits for one of them), rows of `wait`, leases, gates by key. So
-- several jobs go through one call of end_running.

-- An effect as core says it: a field that is left out has the value that core gives it by default.
CREATE OR REPLACE FUNCTION lp.to_effect(p_said jsonb) RETURNS lp.effect LANGUAGE sql STABLE AS $$
  SELECT jsonb_populate_record(jsonb_populate_record(NULL::lp.effect, :EFFECT_BLANK), p_said)
$$;

-- The effect for what a silent session held: its texts have room for the name of the session.
CREATE OR REPLACE FUNCTION lp.silent_effect(p_session text) RETURNS lp.effect LANGUAGE sql STABLE AS $$
  SELECT lp.to_effect(replace(:EFFECT_SILENT, :SESSION, substr(s.quoted, 2, length(s.quoted) - 2))::jsonb)
  FROM (SELECT to_json(p_session)::text) AS s (quoted)
$$;

-- A text of core's with this in the last place that was left for it.
CREATE OR REPLACE FUNCTION lp.filled(p_text text, p_place text, p_value text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN t.after = 0 THEN p_text ELSE
    left(p_text, 1 - t.after - length(p_place)) || p_value || right(p_text, t.after - 1)
  END FROM (SELECT strpos(reverse(p_text), reverse(p_place))) AS t (after)
$$;

-- How often a job may be lost; of one whose policy is not stored, 10 times.
CREATE OR REPLACE FUNCTION lp.max_lost(p_id bytea) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
  RETURN coalesce((
    SELECT p.max_lost FROM lp.policy AS p WHERE p.id = (SELECT j.policy FROM lp.job AS j WHERE j.id = p_id)
  ), 10);
END $$;

-- Whether a gate rules the jobs of a lane.
CREATE OR REPLACE FUNCTION lp.is_own_gate(p_lane bigint, p_gate text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN EXISTS (SELECT FROM lp.lane AS l WHERE l.id = p_lane AND p_gate = ANY (l.class_gates || l.lane_gates));
END $$;

-- The effect with the answers to what only this step knows: the fields that are different then are laid over it.
CREATE OR REPLACE FUNCTION lp.resolved(p_head lp.running, p_effect lp.effect) RETURNS lp.effect LANGUAGE plpgsql AS $$
BEGIN
  IF p_head.flags & :CANCELLING <> 0 THEN
    RETURN jsonb_populate_record(p_effect, :EFFECTS_STOPPED::jsonb -> p_effect.if_cancelling);
  ELSIF p_effect.if_lost_too_often IS NOT NULL AND p_head.lost + 1 >= lp.max_lost(p_head.id) THEN
    p_effect := jsonb_populate_record(p_effect, p_effect.if_lost_too_often);
    p_effect.failure.message := lp.filled((p_effect.failure).message, :COUNT, (p_head.lost + 1)::text);
  ELSIF p_effect.if_foreign_gate IS NOT NULL AND NOT lp.is_own_gate(p_head.lane, p_effect.gate) THEN
    RETURN jsonb_populate_record(p_effect, p_effect.if_foreign_gate);
  ELSIF p_effect.if_signalled IS NOT NULL AND lp.has_event(p_head, p_effect.events) THEN
    RETURN jsonb_populate_record(p_effect, p_effect.if_signalled);
  END IF;
  RETURN p_effect;
END $$;

-- One more dead job of its origin; under which cause.
CREATE OR REPLACE FUNCTION lp.bury(p_id bytea, p_lane bigint, p_failure lp.failure, p_now bigint)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  v_lane lp.lane;
  v_cause text := coalesce(nullif(p_failure.cause, ''), p_failure.type);
BEGIN
  SELECT l.* INTO v_lane FROM lp.lane AS l WHERE l.id = p_lane;
  IF NOT EXISTS (SELECT FROM lp.cause AS c WHERE c.cause = v_cause AND c.queue = v_lane.queue AND c.task = v_lane.task)
    AND EXISTS (SELECT FROM lp.cause OFFSET 10000)
  THEN
    v_cause := p_failure.type; -- too many origins to tell apart: the kind of error is still known
  END IF;
  INSERT INTO lp.cause_tally (cause, queue, task, n, type, message, at_ms, sample)
  VALUES (v_cause, coalesce(v_lane.queue, ''), coalesce(v_lane.task, ''), 1, p_failure.type, p_failure.message, p_now, p_id);
  RETURN v_cause;
END $$;

-- One dead job less of this origin: its row has n = -1 and says nothing else.
CREATE OR REPLACE FUNCTION lp.unbury(p_id bytea, p_lane bigint, p_cause text, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lp.cause_tally (cause, queue, task, n, type, message, at_ms, sample)
  SELECT p_cause, coalesce(l.queue, ''), coalesce(l.task, ''), -1, '', '', p_now, p_id FROM lp.lane_names(p_lane) AS l;
END $$;

-- What an effect counts about a job.
CREATE OR REPLACE FUNCTION lp.counted(p_head lp.running, p_effect lp.effect, p_now bigint) RETURNS lp.running
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF p_effect.unspent THEN
    p_head.attempt := p_head.attempt - 1;
  END IF;
  IF p_effect.lost THEN
    p_head.lost := p_head.lost + 1;
  END IF;
  IF p_effect.held = 'more' THEN
    p_head.held := p_head.held + 1;
    p_head.held_since_ms := coalesce(p_head.held_since_ms, p_now);
  ELSIF p_effect.held = 'none' THEN
    p_head.held := 0;
    p_head.held_since_ms := NULL;
  END IF;
  RETURN p_head;
END $$;

-- A job that still waits. One that was started once is not cancelled any more for starting late.
CREATE OR REPLACE FUNCTION lp.waits_on(p_head lp.running, p_effect lp.effect, p_now bigint) RETURNS lp.running LANGUAGE plpgsql AS $$
BEGIN
  IF p_effect.delay_ms IS NOT NULL THEN
    p_head.due_ms := least(p_now + p_effect.delay_ms, :FOREVER_MS);
  END IF;
  IF NOT p_effect.unstarted THEN
    p_head.expires_ms := NULL;
  END IF;
  IF p_effect.events IS NOT NULL THEN
    p_head.flags := lp.wait_for(p_head, p_effect.events);
  END IF;
  RETURN p_head;
END $$;

-- A running job is in this lane from now on, which is posted with its definition; its queue, task and tenant are the same.
CREATE OR REPLACE FUNCTION lp.move_job(p_head lp.running, p_lane lp.new_lane) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lp.post (kind, lane, class, member, ring, body, n)
  VALUES (:POST_LANE, p_lane.id, p_lane.class, p_lane.member, p_lane.ring, convert_to(p_lane.body, 'UTF8'), 0);
  UPDATE lp.job SET lane = p_lane.id WHERE id = p_head.id;
  PERFORM lp.count_jobs(p_head.lane, :RUNNING, -1, :ERASED, 1);
  PERFORM lp.count_jobs(p_lane.id, :RUNNING, 1, :MOVED, 1);
  RETURN p_lane.id;
END $$;

-- Apply an effect to one job that leaves `running`: its row and the effect as they are to be written. Whether its attempt
-- is recorded is answered, too.
CREATE OR REPLACE FUNCTION lp.apply_effect(p_leaving lp.leaving, p_now bigint) RETURNS lp.leaving LANGUAGE plpgsql AS $$
DECLARE
  v_head lp.running := p_leaving.head;
  v_effect lp.effect := lp.resolved(p_leaving.head, p_leaving.effect);
  v_failure lp.failure := v_effect.failure;
BEGIN
  IF v_effect.record = 'again' THEN
    v_effect.record := CASE WHEN v_head.attempt > 1 OR v_head.lost > 0 THEN 'always' ELSE 'never' END;
  END IF;
  IF v_effect.unspent OR v_effect.lost OR v_effect.held <> 'same' THEN
    v_head := lp.counted(v_head, v_effect, p_now);
  END IF;
  IF v_effect.blame THEN
    v_head.reason := v_failure.message;
    v_head.cause := v_failure.cause;
    v_head.error_type := v_failure.type;
  ELSIF v_effect.reason IS NOT NULL AND NOT (v_effect.own_reason AND coalesce(v_head.reason, '') <> '') THEN
    v_head.reason := nullif(v_effect.reason, '');
  END IF;
  IF (v_effect.lane).id IS NOT NULL THEN
    v_head.lane := lp.move_job(v_head, v_effect.lane);
  END IF;
  IF v_effect.state < :RUNNING THEN
    v_head := lp.waits_on(v_head, v_effect, p_now);
  ELSIF v_effect.state = :DEAD THEN
    v_head.cause := lp.bury(v_head.id, (p_leaving.head).lane, v_failure, p_now);
  END IF;
  RETURN ROW(p_leaving.at, v_head, v_effect, p_leaving.result, p_leaving.spent)::lp.leaving;
END $$;

-- Jobs that go on waiting.
CREATE OR REPLACE FUNCTION lp.write_waiting(p_left lp.leaving[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lp.wait (
    id, lane, due_ms, expires_ms, held_since_ms, attempt, lost, held, cost, state, priority, flags, reason, cause, error_type
  )
  SELECT h.id, h.lane, h.due_ms, h.expires_ms, h.held_since_ms, h.attempt, h.lost, h.held, h.cost, (l.effect).state,
    h.priority, h.flags, h.reason, h.cause, h.error_type
  FROM unnest(p_left) AS l CROSS JOIN LATERAL (SELECT (l.head).*) AS h WHERE (l.effect).state < :RUNNING;
  INSERT INTO lp.post (kind, lane, n, due_ms, id)
  SELECT :POST_LANE, w.lane, CASE w.state WHEN :READY THEN count(*) ELSE 0 END, min(w.due_ms),
    CASE w.state WHEN :READY THEN (array_agg(w.id ORDER BY w.due_ms, w.id))[1] END
  FROM unnest(p_left) AS l CROSS JOIN LATERAL (SELECT (l.head).*, (l.effect).state) AS w
  WHERE w.state < :RUNNING GROUP BY w.lane, w.state;
END $$;

-- Jobs that have ended, with their results.
CREATE OR REPLACE FUNCTION lp.write_ended(p_left lp.leaving[], p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lp.done (
    id, lane, finished_ms, due_ms, claimed_ms, expires_ms, attempt, lost, held, cost, state, priority, flags, reason,
    cause, error_type
  )
  SELECT h.id, h.lane, p_now, h.due_ms, h.claimed_ms, h.expires_ms, h.attempt, h.lost, h.held, h.cost, (l.effect).state,
    h.priority, h.flags, h.reason, h.cause, h.error_type
  FROM unnest(p_left) AS l CROSS JOIN LATERAL (SELECT (l.head).*) AS h WHERE (l.effect).state > :RUNNING;
  INSERT INTO lp.result (id, body) SELECT (l.head).id, l.result FROM unnest(p_left) AS l WHERE l.result IS NOT NULL
  ON CONFLICT (id) DO UPDATE SET body = excluded.body;
END $$;

-- The records of attempts: each tells the failure or, without one, the reason that the effect gave.
CREATE OR REPLACE FUNCTION lp.write_attempts(p_left lp.leaving[], p_session text, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lp.attempt (
    job, seq, number, started_ms, finished_ms, outcome, session, kind, type, message, traceback, cause
  )
  SELECT (l.head).id, 1 + coalesce((SELECT max(a.seq) FROM lp.attempt AS a WHERE a.job = (l.head).id), 0),
    (l.head).attempt + e.unspent::integer, (l.head).claimed_ms, p_now, e.word, p_session, f.kind, coalesce(f.type, ''),
    coalesce(f.message, CASE WHEN e.reason IS NOT NULL THEN (l.head).reason END, ''), coalesce(f.traceback, ''),
    coalesce(nullif(f.cause, ''), f.type, '')
  FROM unnest(p_left) AS l CROSS JOIN LATERAL (SELECT (l.effect).*) AS e
  LEFT JOIN LATERAL (SELECT (e.failure).*) AS f ON NOT e.hides_failure
  WHERE e.record <> 'never';
END $$;

-- All of them, lane by lane.
CREATE OR REPLACE FUNCTION lp.count_left(p_left lp.leaving[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lp.tally (lane, whats, ns)
  SELECT l.lane, '{:RUNNING,:SCHEDULED,:READY,:SUCCEEDED,:EVER_SUCCEEDED,:DEAD,:CANCELLED,:EVER_CANCELLED,:EVER_LOST}', ARRAY[
    -count(*), count(*) FILTER (WHERE l.state = :SCHEDULED), count(*) FILTER (WHERE l.state = :READY),
    count(*) FILTER (WHERE l.state = :SUCCEEDED), count(*) FILTER (WHERE l.state = :SUCCEEDED), count(*) FILTER (WHERE l.state = :DEAD),
    count(*) FILTER (WHERE l.state = :CANCELLED), count(*) FILTER (WHERE l.state = :CANCELLED), count(*) FILTER (WHERE l.lost)
  ] FROM (SELECT (x.head).lane, (x.effect).state, (x.effect).lost FROM unnest(p_left) AS x) AS l GROUP BY l.lane;
END $$;

-- Jobs have left these leases, one for each time a token is named; a lease that has given up its last is over.
CREATE OR REPLACE FUNCTION lp.lease_less(p_tokens bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_tokens bigint[] := p_tokens[:1]; -- most often it is one for all
  v_token bigint;
  v_n integer;
  v_left integer;
BEGIN
  IF p_tokens[1] <> ANY (p_tokens) THEN
    v_tokens := ARRAY(SELECT DISTINCT t.token FROM unnest(p_tokens) AS t (token) ORDER BY 1);
  END IF;
  FOREACH v_token IN ARRAY v_tokens LOOP
    v_n := cardinality(array_positions(p_tokens, v_token));
    DELETE FROM lp.lease AS l WHERE l.token = v_token AND l.left_n <= v_n;
    IF NOT FOUND THEN
      UPDATE lp.lease AS l SET left_n = l.left_n - v_n WHERE l.token = v_token RETURNING l.left_n INTO v_left;
      IF v_left <= 0 THEN -- others left it since the look
        DELETE FROM lp.lease AS l WHERE l.token = v_token;
      END IF;
    END IF;
  END LOOP;
END $$;

-- What handlers noted in their own transactions is the truth about these jobs, whatever is asked here.
CREATE OR REPLACE FUNCTION lp.as_noted(p_leaving lp.leaving[]) RETURNS lp.leaving[] LANGUAGE plpgsql AS $$
DECLARE
  v_noted lp.settled[];
  v_success lp.effect;
BEGIN
  WITH noted AS (
    DELETE FROM lp.settled AS s WHERE s.id = ANY (ARRAY(SELECT (l.head).id FROM unnest(p_leaving) AS l)) RETURNING s.*
  )
  SELECT array_agg(n) INTO v_noted FROM noted AS n;
  IF v_noted IS NULL THEN
    RETURN p_leaving;
  END IF;
  v_success := lp.to_effect(:EFFECT_SUCCESS);
  RETURN ARRAY(
    SELECT coalesce((
      SELECT ROW(l.at, l.head, v_success, nullif(n.result, '\x6e756c6c'), l.spent)::lp.leaving -- null is none
      FROM unnest(v_noted) AS n WHERE n.id = (l.head).id AND n.token = (l.head).token
    ), l) FROM unnest(p_leaving) AS l
  );
END $$;

-- Apply effects to jobs that have left `running` (their rows are deleted); where they are now, in order. p_ended and
-- p_tokens: others that left it in the same step, as successes that are written already. p_last: the step locks nothing
-- after that but the door, if it `shuts` a gate. `shut`: see shut_by.
CREATE OR REPLACE FUNCTION lp.apply_effects(
  p_leaving lp.leaving[], p_ended bytea[], p_tokens bigint[], p_session text, p_last boolean, p_now bigint,
  OUT states smallint[], OUT shuts boolean, OUT shut jsonb
) LANGUAGE plpgsql AS $$
DECLARE
  v_left lp.leaving[] := ARRAY(SELECT lp.apply_effect(l, p_now) FROM unnest(lp.as_noted(p_leaving)) AS l);
  v_ended bytea[];
  v_ended_as smallint[];
  v_ended_under bigint[];
  v_hooked boolean; -- there are hooks
  v_tokens bigint[];
  v_recorded boolean;
  v_charged boolean;
  v_stops boolean; -- it may have shut a gate
BEGIN
  SELECT array_agg(l.state), array_agg(l.id) FILTER (WHERE l.state > :RUNNING), array_agg(l.state) FILTER (WHERE l.state > :RUNNING),
    array_agg(l.token) FILTER (WHERE l.state > :RUNNING), EXISTS (SELECT FROM lp.hook), array_agg(l.token),
    bool_or(l.record <> 'never'), bool_or(l.holds OR l.charged), bool_or(l.holds OR l.charged AND l.failed)
  INTO states, v_ended, v_ended_as, v_ended_under, v_hooked, v_tokens, v_recorded, v_charged, v_stops FROM (
    SELECT (x.head).id, (x.head).token, (x.effect).state, (x.effect).record, (x.effect).gate <> '' AS holds,
      (x.head).charged IS NOT NULL AS charged, (x.effect).verdict = 'failed' AS failed
    FROM unnest(v_left) AS x
  ) AS l;
  IF :RUNNING > ANY (states) THEN
    PERFORM lp.write_waiting(v_left);
  END IF;
  IF v_ended IS NOT NULL THEN
    PERFORM lp.write_ended(v_left, p_now);
    IF v_hooked THEN
      PERFORM lp.follow(v_ended, v_ended_under, p_now);
    END IF;
  END IF;
  IF v_recorded THEN
    PERFORM lp.write_attempts(v_left, p_session, p_now);
  END IF;
  PERFORM lp.count_left(v_left);
  IF v_ended IS NOT NULL OR p_ended <> '{}' THEN
    PERFORM lp.after_end(p_ended || v_ended, array_fill(:SUCCEEDED::smallint, ARRAY[cardinality(p_ended)]) || v_ended_as, p_now);
  END IF;
  PERFORM lp.lease_less(p_tokens || v_tokens);
  IF v_charged THEN
    v_left := lp.count_by_key(v_left);
    shuts := lp.give_back(v_left, p_last, p_now);
  END IF;
  IF v_stops THEN
    shut := lp.shut_by(v_left, p_now);
  END IF;
END $$;

-- Running jobs leave their leases, all with one effect; where they are now, in order. Their rows are locked.
CREATE OR REPLACE FUNCTION lp.end_running(p_heads lp.running[], p_effect lp.effect, p_session text, p_now bigint)
RETURNS smallint[] LANGUAGE plpgsql AS $$
DECLARE
  v_leaving lp.leaving[] := ARRAY(
    SELECT ROW(i, p_heads[i], p_effect, NULL, NULL)::lp.leaving FROM generate_subscripts(p_heads, 1) AS i
  );
BEGIN
  DELETE FROM lp.running AS r WHERE r.id = ANY (ARRAY(SELECT h.id FROM unnest(p_heads) AS h));
  RETURN (SELECT a.states FROM lp.apply_effects(v_leaving, '{}', '{}', p_session, false, p_now) AS a);
END $$;
