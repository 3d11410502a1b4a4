-- Promise: what was decided about running jobs is written, told to those who wait for them, and given back to their
-- gates. Inputs: fates, see 70_outcome, as are the locks. Answer: none.

-- Those that go back to wait.
CREATE OR REPLACE FUNCTION lp.write_waiting(p_fates lp.fate[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lp.wait (
    id, lane, due_ms, expires_ms, held_since_ms, attempt, lost, held, cost, state, priority, flags, reason, cause, error_type
  )
  SELECT f.id, f.lane, f.due_ms, f.expires_ms, f.held_since_ms, f.attempt, f.lost, f.held, f.cost, f.state, f.priority,
    f.flags, f.reason, f.cause, f.error_type
  FROM unnest(p_fates) AS f WHERE f.state < :RUNNING;
  INSERT INTO lp.post (kind, lane, n, due_ms, id)
  SELECT :POST_LANE, f.lane, CASE f.state WHEN :READY THEN count(*) ELSE 0 END, min(f.due_ms),
    CASE f.state WHEN :READY THEN (array_agg(f.id ORDER BY f.due_ms, f.id))[1] END
  FROM unnest(p_fates) AS f WHERE f.state < :RUNNING GROUP BY f.lane, f.state;
END $$;

-- Those that have ended, with their results.
CREATE OR REPLACE FUNCTION lp.write_ended(p_fates lp.fate[], p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lp.done (
    id, lane, finished_ms, due_ms, claimed_ms, expires_ms, attempt, lost, held, cost, state, priority, flags, reason,
    cause, error_type
  )
  SELECT f.id, f.lane, p_now, f.due_ms, f.claimed_ms, f.expires_ms, f.attempt, f.lost, f.held, f.cost, f.state,
    f.priority, f.flags, f.reason, f.cause, f.error_type
  FROM unnest(p_fates) AS f WHERE f.state > :RUNNING;
  INSERT INTO lp.result (id, body) SELECT f.id, f.result FROM unnest(p_fates) AS f WHERE f.result IS NOT NULL
  ON CONFLICT (id) DO UPDATE SET body = excluded.body;
END $$;

-- The attempts that are kept.
CREATE OR REPLACE FUNCTION lp.write_attempts(p_fates lp.fate[], p_session text, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lp.attempt (
    job, seq, number, started_ms, finished_ms, outcome, session, kind, type, message, traceback, cause
  )
  SELECT f.id, 1 + coalesce((SELECT max(a.seq) FROM lp.attempt AS a WHERE a.job = f.id), 0), f.a_number, f.claimed_ms,
    p_now, f.a_how, p_session, f.a_kind, f.a_type, f.a_message, f.a_traceback, f.a_cause
  FROM unnest(p_fates) AS f WHERE f.a_how IS NOT NULL;
END $$;

-- All of them, lane by lane.
CREATE OR REPLACE FUNCTION lp.count_fates(p_fates lp.fate[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lp.tally (lane, whats, ns)
  SELECT f.lane, '{:RUNNING,:SCHEDULED,:READY,:SUCCEEDED,:EVER_SUCCEEDED,:DEAD,:CANCELLED,:EVER_CANCELLED,:EVER_LOST}', ARRAY[
    -count(*), count(*) FILTER (WHERE f.state = :SCHEDULED), count(*) FILTER (WHERE f.state = :READY),
    count(*) FILTER (WHERE f.state = :SUCCEEDED), count(*) FILTER (WHERE f.state = :SUCCEEDED), count(*) FILTER (WHERE f.state = :DEAD),
    count(*) FILTER (WHERE f.state = :CANCELLED), count(*) FILTER (WHERE f.state = :CANCELLED), count(*) FILTER (WHERE f.was_lost)
  ] FROM unnest(p_fates) AS f GROUP BY f.lane;
END $$;

-- What everyone who waits for jobs that have ended must hear: dependents and watchers.
CREATE OR REPLACE FUNCTION lp.after_end(p_ids bytea[], p_states smallint[], p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_succeeded bytea[];
  v_dead bytea[];
  v_cancelled bytea[];
BEGIN
  IF EXISTS (SELECT FROM lp.watch AS w WHERE w.job = ANY (p_ids)) THEN
    PERFORM lp.tell_finished(p_ids);
  END IF;
  IF NOT lp.has_kids(p_ids) THEN
    RETURN;
  END IF;
  SELECT array_agg(e.id) FILTER (WHERE e.state = :SUCCEEDED), array_agg(e.id) FILTER (WHERE e.state = :DEAD),
    array_agg(e.id) FILTER (WHERE e.state = :CANCELLED) INTO v_succeeded, v_dead, v_cancelled
  FROM unnest(p_ids, p_states) AS e (id, state) WHERE lp.has_kids(ARRAY[e.id]);
  IF v_dead IS NULL AND v_cancelled IS NULL THEN
    PERFORM lp.share_graph();
  ELSE
    PERFORM lp.lock(:GRAPH);
  END IF;
  IF v_succeeded IS NOT NULL THEN
    PERFORM lp.release_children(v_succeeded, p_now);
  END IF;
  IF v_dead IS NOT NULL THEN
    PERFORM lp.fail_children(v_dead, 'is dead', true, p_now);
  END IF;
  IF v_cancelled IS NOT NULL THEN
    PERFORM lp.fail_children(v_cancelled, 'is cancelled', false, p_now);
  END IF;
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

-- True when this end gives a gate its place back at most: it teaches no breaker, and returns neither a probe nor what was
-- counted. p_real: what the job cost there in truth (NULL: as it was charged).
CREATE OR REPLACE FUNCTION lp.is_plain_end(p_gate lp.gate, p_taken jsonb, p_verdict text, p_real bigint)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT NOT (p_taken -> :CHARGE_PROBE)::boolean AND (p_real IS NULL OR p_real = (p_taken -> :CHARGE_COST)::bigint)
    AND (
      (p_gate).breaker_failures IS NULL OR p_verdict = 'neutral'
      OR (p_verdict = 'ok' AND (p_gate).breaker_rate IS NULL AND (p_gate).failed_at_ms = '{}')
    )
$$;

-- The gate when so many places more were taken.
CREATE OR REPLACE FUNCTION lp.gate_fuller(p_gate lp.gate, p_n integer) RETURNS lp.gate LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  p_gate.used := p_gate.used + p_n;
  RETURN p_gate;
END $$;

-- So many places are free again at these gates, whose rows are held. Whoever waits there, or sleeps since there was no
-- room, looks again (as gate_post_change says of one).
CREATE OR REPLACE FUNCTION lp.free_places(p_keys text[], p_ns integer[], p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WITH freed AS (
    UPDATE lp.gate AS g SET used = greatest(0, g.used - f.n) FROM unnest(p_keys, p_ns) AS f (key, n)
    WHERE g.key = ANY (ARRAY[f.key])
    RETURNING g.key, CASE
      WHEN lp.gate_room(g, p_now) > 0 THEN g.used + f.n >= lp.gate_slots(g, p_now)
      ELSE lp.gate_opens_sooner(lp.gate_fuller(g, f.n), g, p_now)
    END AS opened
  )
  INSERT INTO lp.post (kind, gate)
  SELECT :POST_GATE, f.key FROM freed AS f
  WHERE f.opened OR EXISTS (SELECT 1 FROM lp.lane_now AS l WHERE l.gate = f.key AND l.state = :WAITING OFFSET 0);
END $$;

-- Write what a gate has learnt, its row is held; true when it is shut now and was not.
CREATE OR REPLACE FUNCTION lp.put_learnt(p_before lp.gate, p_gate lp.gate, p_last boolean, p_now bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM lp.put_gate(p_before, p_gate, p_now), lp.log_gate_events(p_before, p_gate, p_last, p_now);
  RETURN lp.gate_is_shut(p_gate, p_now) AND lp.gate_is_shut(p_before, p_now) IS NOT TRUE; -- NULL: it was not there
END $$;

-- What ends mean to gates that learn from them, one after the other; gates that are to hold their jobs back do, and go
-- slower after that, or are opened as breakers (TRIP). True when one of them is shut now and was not.
CREATE OR REPLACE FUNCTION lp.learn_ends(
  p_keys text[], p_fates lp.fate[], p_kinds smallint[], p_spent jsonb[], p_last boolean, p_now bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_end record;
  v_gate lp.gate;
  v_before lp.gate;
  v_ats bigint[]; -- what has come back to its rate: when it was charged, and for how long (us)
  v_returned bigint[];
  v_set_off bigint; -- and how much of it the rate has got
  v_back bigint;
  v_real bigint;
  v_place integer;
  v_shuts boolean := false;
BEGIN
  FOR v_end IN
    SELECT t.taken ->> :CHARGE_GATE AS key, f.ordinality AS at, t.taken, f.token, f.verdict, f.unstarted, f.claimed_ms, f.hold_until
    FROM unnest(p_fates) WITH ORDINALITY AS f CROSS JOIN LATERAL jsonb_array_elements(f.charged) AS t (taken)
    JOIN unnest(p_keys) AS k (key) ON k.key = t.taken ->> :CHARGE_GATE
    UNION ALL
    SELECT f.hold_gate, f.ordinality, NULL, f.token, NULL, NULL, NULL, f.hold_until FROM unnest(p_fates) WITH ORDINALITY AS f
    WHERE f.hold_gate IS NOT NULL
    ORDER BY key, at, taken NULLS FIRST
  LOOP
    IF v_end.key IS DISTINCT FROM v_gate.key THEN
      IF v_gate.key IS NOT NULL THEN
        v_shuts := lp.put_learnt(v_before, v_gate, p_last, p_now) OR v_shuts;
      END IF;
      SELECT g.* INTO v_gate FROM lp.gate AS g WHERE g.key = v_end.key;
      v_before := v_gate;
      v_ats := '{}';
      v_returned := '{}';
      v_set_off := 0;
    END IF;
    IF v_end.taken IS NULL THEN
      v_gate := CASE
        WHEN p_kinds[v_end.at] = :TRIP THEN lp.gate_cut_off(v_gate, v_end.hold_until, v_end.token, p_now)
        ELSE lp.gate_push_back(v_gate, v_end.hold_until, v_end.token, p_now)
      END;
      CONTINUE;
    END IF;
    v_real := lp.gate_reported_cost(v_gate, p_spent[v_end.at], v_end.unstarted, p_kinds[v_end.at] IN (:SNOOZE, :HOLD, :SUSPEND, :TRIP, :UNSTARTED));
    v_back := lp.gate_returned(v_gate, v_end.taken, v_real, v_end.claimed_ms);
    IF v_back > 0 THEN
      v_place := coalesce(array_position(v_ats, v_end.claimed_ms), cardinality(v_ats) + 1);
      v_ats[v_place] := v_end.claimed_ms;
      v_returned[v_place] := least(coalesce(v_returned[v_place], 0) + v_back, :MOST);
      v_back := lp.refundable_us(v_ats, v_returned, p_now) - v_set_off;
      v_set_off := v_set_off + v_back;
    END IF;
    v_gate := lp.gate_give_back(
      v_gate, v_end.taken, v_end.token, v_end.verdict, v_real, p_now, v_end.claimed_ms, v_back
    );
  END LOOP;
  RETURN lp.put_learnt(v_before, v_gate, p_last, p_now) OR v_shuts;
END $$;

-- What these jobs took is given back to their gates, and gates that are to hold their jobs back do. By job: the kind of
-- its outcome, and what it cost in truth (p_spent, NULL: nobody said). p_last: this step locks nothing any more but the
-- door, which it must when the answer is true: a gate is shut now and was not.
CREATE OR REPLACE FUNCTION lp.give_back(p_fates lp.fate[], p_kinds smallint[], p_spent jsonb[], p_last boolean, p_now bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_holds text[] := ARRAY(SELECT f.hold_gate FROM unnest(p_fates) AS f WHERE f.hold_gate IS NOT NULL);
  v_keys text[]; -- the gates of what was taken, by how many alike, and how that ended
  v_taken jsonb[];
  v_verdicts text[];
  v_unstarted boolean[];
  v_unfinished boolean[];
  v_spent jsonb[];
  v_ns integer[];
  v_moved text[];
  v_free text[];
  v_places integer[];
  v_learning text[];
BEGIN
  SELECT array_agg(e.taken ->> :CHARGE_GATE), array_agg(e.taken), array_agg(e.verdict), array_agg(e.unstarted), array_agg(e.unfinished),
    array_agg(e.spent), array_agg(e.n)
  INTO v_keys, v_taken, v_verdicts, v_unstarted, v_unfinished, v_spent, v_ns FROM (
    SELECT t.taken, f.verdict, f.unstarted, p_kinds[f.ordinality] IN (:SNOOZE, :HOLD, :SUSPEND, :TRIP, :UNSTARTED) AS unfinished, p_spent[f.ordinality] AS spent,
      count(*)::integer AS n
    FROM unnest(p_fates) WITH ORDINALITY AS f CROSS JOIN LATERAL jsonb_array_elements(f.charged) AS t (taken) GROUP BY 1, 2, 3, 4, 5
  ) AS e;
  v_moved := ARRAY(
    SELECT e.key FROM unnest(v_keys, v_taken, v_verdicts, v_unstarted, v_unfinished, v_spent)
      AS e (key, taken, verdict, unstarted, unfinished, spent)
    WHERE (e.taken -> :CHARGE_SLOT)::boolean OR EXISTS (
      SELECT 1 FROM lp.gate AS g WHERE g.key = e.key
        AND NOT lp.is_plain_end(g, e.taken, e.verdict, lp.gate_reported_cost(g, e.spent, e.unstarted, e.unfinished)) OFFSET 0
    )
  );
  IF v_holds <> '{}' THEN
    -- One that is to hold its jobs back is made if it is not there.
    PERFORM FROM lp.gate_take(v_holds || ARRAY(SELECT g.key FROM lp.gate AS g WHERE g.key = ANY (v_moved)));
  ELSIF v_moved = '{}' THEN
    RETURN false; -- all look the same as before, and are not locked: most ends under a rate or a breaker
  END IF;
  SELECT array_agg(l.key) FILTER (WHERE l.plain), array_agg(l.n) FILTER (WHERE l.plain), array_agg(l.key) FILTER (WHERE NOT l.plain)
  INTO v_free, v_places, v_learning FROM (
    SELECT g.key, sum(CASE WHEN (e.taken -> :CHARGE_SLOT)::boolean THEN e.n ELSE 0 END)::integer AS n,
      bool_and(lp.is_plain_end(g, e.taken, e.verdict, lp.gate_reported_cost(g, e.spent, e.unstarted, e.unfinished)))
        AND NOT g.key = ANY (v_holds) AS plain
    FROM lp.gate_lock(v_moved) AS g JOIN unnest(v_keys, v_taken, v_verdicts, v_unstarted, v_unfinished, v_spent, v_ns)
      AS e (key, taken, verdict, unstarted, unfinished, spent, n) ON e.key = g.key
    GROUP BY g.key
  ) AS l;
  IF v_free IS NOT NULL THEN
    PERFORM lp.free_places(v_free, v_places, p_now);
  END IF;
  IF v_learning IS NOT NULL OR v_holds <> '{}' THEN
    RETURN lp.learn_ends(v_learning, p_fates, p_kinds, p_spent, p_last, p_now);
  END IF;
  RETURN false;
END $$;

-- Of the gates at which these jobs failed, or that they held, those that are shut: [[which of the jobs, [key...]]...] as
-- JSON, NULL when there is none.
CREATE OR REPLACE FUNCTION lp.shut_by(p_fates lp.fate[], p_now bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  RETURN (
    SELECT jsonb_agg(jsonb_build_array(s.at, s.keys) ORDER BY s.at) FROM (
      SELECT e.at, jsonb_agg(e.key) AS keys FROM (
        SELECT f.ordinality AS at, f.hold_gate AS key, true AS counts FROM unnest(p_fates) WITH ORDINALITY AS f
        WHERE f.hold_gate IS NOT NULL
        UNION ALL
        SELECT f.ordinality, t.taken ->> :CHARGE_GATE, (t.taken -> :CHARGE_PROBE)::boolean FROM unnest(p_fates) WITH ORDINALITY AS f
        CROSS JOIN LATERAL jsonb_array_elements(f.charged) AS t (taken) WHERE f.verdict = 'failed'
      ) AS e
      CROSS JOIN LATERAL (
        SELECT FROM lp.gate AS x
        WHERE x.key = e.key AND (e.counts OR x.breaker_failures IS NOT NULL) AND lp.gate_is_shut(x, p_now) OFFSET 0
      ) AS g
      GROUP BY e.at
    ) AS s
  );
END $$;

-- Jobs that have left `running` (their rows are deleted) meet their fates; where they are now, in order. p_spent: what each
-- cost in truth (NULL: nobody said). p_ended and p_tokens: others that left it in the same step, as successes that are
-- written already. p_last: the step locks nothing after that but the door, if it `shuts` a gate. `shut`: see shut_by.
CREATE OR REPLACE FUNCTION lp.apply_fates(
  p_heads lp.running[], p_outcomes lp.outcome[], p_spent jsonb[], p_ended bytea[], p_tokens bigint[], p_session text,
  p_last boolean, p_now bigint, OUT states smallint[], OUT shuts boolean, OUT shut jsonb
) LANGUAGE plpgsql AS $$
DECLARE
  v_ids bytea[] := ARRAY(SELECT h.id FROM unnest(p_heads) AS h);
  v_settled lp.settled[];
  v_outcome lp.outcome;
  v_fate lp.fate;
  v_fates lp.fate[] := '{}';
  v_kinds smallint[] := '{}';
  v_ended bytea[] := p_ended;
  v_ended_as smallint[] := array_fill(:SUCCEEDED::smallint, ARRAY[cardinality(p_ended)]);
  v_noted boolean := false;
  v_charged boolean := false;
  v_stops boolean := false; -- it may have shut a gate
BEGIN
  states := '{}';
  -- What a handler noted in its own transaction is the truth, whatever is asked here.
  WITH found AS (DELETE FROM lp.settled AS s WHERE s.id = ANY (v_ids) RETURNING s.*)
  SELECT array_agg(f) INTO v_settled FROM found AS f;
  FOR v_at IN 1 .. cardinality(p_heads) LOOP
    v_outcome := p_outcomes[v_at];
    IF v_settled IS NOT NULL THEN
      SELECT :SUCCEED, s.result INTO v_outcome FROM unnest(v_settled) AS s
      WHERE s.id = v_ids[v_at] AND s.token = (p_heads[v_at]).token;
      IF NOT FOUND THEN
        v_outcome := p_outcomes[v_at];
      END IF;
    END IF;
    v_fate := lp.resolve_transition(p_heads[v_at], v_outcome, p_now);
    v_fates := v_fates || v_fate;
    v_kinds := v_kinds || CASE WHEN v_outcome.kind = :DROP AND v_outcome.started IS NOT TRUE THEN :UNSTARTED::smallint ELSE v_outcome.kind END;
    states := states || v_fate.state;
    IF v_fate.state > :RUNNING THEN
      v_ended := v_ended || v_fate.id;
      v_ended_as := v_ended_as || v_fate.state;
    END IF;
    v_noted := v_noted OR v_fate.a_how IS NOT NULL;
    v_charged := v_charged OR v_fate.charged IS NOT NULL OR v_fate.hold_gate IS NOT NULL;
    v_stops := v_stops OR (v_fate.verdict = 'failed' AND v_fate.charged IS NOT NULL) OR v_fate.hold_gate IS NOT NULL;
  END LOOP;
  IF :RUNNING > ANY (states) THEN
    PERFORM lp.write_waiting(v_fates);
  END IF;
  IF :RUNNING < ANY (states) THEN
    PERFORM lp.write_ended(v_fates, p_now);
  END IF;
  IF v_noted THEN
    PERFORM lp.write_attempts(v_fates, p_session, p_now);
  END IF;
  PERFORM lp.count_fates(v_fates);
  IF v_ended <> '{}' THEN
    PERFORM lp.after_end(v_ended, v_ended_as, p_now);
  END IF;
  PERFORM lp.lease_less(p_tokens || ARRAY(SELECT h.token FROM unnest(p_heads) AS h));
  IF v_charged THEN
    shuts := lp.give_back(v_fates, v_kinds, p_spent, p_last, p_now);
  END IF;
  IF v_stops THEN
    shut := lp.shut_by(v_fates, p_now);
  END IF;
END $$;

-- Running jobs leave their leases, each with its own outcome; where they are now, in order. Their rows are locked.
CREATE OR REPLACE FUNCTION lp.end_running(p_heads lp.running[], p_outcomes lp.outcome[], p_session text, p_now bigint)
RETURNS smallint[] LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM lp.running AS r WHERE r.id = ANY (ARRAY(SELECT h.id FROM unnest(p_heads) AS h));
  RETURN (SELECT m.states FROM lp.apply_fates(p_heads, p_outcomes, NULL, '{}', '{}', p_session, false, p_now) AS m);
END $$;

-- One running job leaves its lease; where it is now. Its row is locked.
CREATE OR REPLACE FUNCTION lp.end_one_running(p_head lp.running, p_outcome lp.outcome, p_session text, p_now bigint)
RETURNS smallint LANGUAGE plpgsql AS $$
BEGIN
  RETURN (lp.end_running(ARRAY[p_head], ARRAY[p_outcome], p_session, p_now))[1];
END $$;
