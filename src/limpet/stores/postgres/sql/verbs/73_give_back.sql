-- Promise: gives back to gates what running jobs took, and holds the gates that jobs were told to leave alone.
-- Inputs: jobs that have left `running` (lp.leaving), with their effects: see 70_effect, as are the locks. Answer: as each says.

-- What a job cost at a gate, if that is not what it was charged there.
CREATE OR REPLACE FUNCTION lp.actual_cost(p_gate lp.gate, p_spent jsonb, p_refund text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT lp.gate_reported_cost(p_gate, p_spent, p_refund = 'all', p_refund = 'unsaid')
$$;

-- True when this end gives a gate its place back at most: it teaches no breaker, and returns neither a probe nor what was
-- counted. p_actual: the actual cost of the job there (NULL: as it was charged).
CREATE OR REPLACE FUNCTION lp.is_plain_end(p_gate lp.gate, p_taken jsonb, p_verdict text, p_actual bigint)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT NOT (p_taken -> :CHARGE_PROBE)::boolean AND (p_actual IS NULL OR p_actual = (p_taken -> :CHARGE_COST)::bigint)
    AND (
      (p_gate).breaker_failures IS NULL OR p_verdict = 'neutral'
      OR (p_verdict = 'ok' AND (p_gate).breaker_rate IS NULL AND (p_gate).failed_at_ms = '{}')
    )
$$;

-- The gate when p_n more places were taken.
CREATE OR REPLACE FUNCTION lp.gate_fuller(p_gate lp.gate, p_n integer) RETURNS lp.gate LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  p_gate.used := p_gate.used + p_n;
  RETURN p_gate;
END $$;

-- Places are free again at these gates, whose rows are held. Lanes that wait there, and workers that sleep since there was no
-- room, look again (as gate_post_change says of one).
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

-- Of breakers by key that have no record, those that get none: nothing is to be noted of them, or there are as many as there
-- may be. What happens at these counts at their tasks' own breakers.
CREATE OR REPLACE FUNCTION lp.keys_without_record(p_left lp.leaving[]) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  v_new text[];
  v_others text[];
  v_room integer := :MOST_BREAKERS - (SELECT b.last_value FROM lp.breakers AS b);
BEGIN
  SELECT array_agg(k.key ORDER BY k.key) FILTER (WHERE k.news), array_agg(k.key) FILTER (WHERE NOT k.news) INTO v_new, v_others FROM (
    SELECT (t.taken ->> :CHARGE_GATE) COLLATE "C" AS key,
      bool_or((l.effect).verdict = 'failed' OR (l.effect).verdict = 'ok' AND o.breaker_rate IS NOT NULL) AS news
    FROM unnest(p_left) AS l CROSS JOIN LATERAL jsonb_array_elements((l.head).charged) AS t (taken)
    CROSS JOIN LATERAL (
      SELECT x.breaker_rate, x.failed_at_ms FROM lp.gate AS x WHERE x.key = t.taken ->> :CHARGE_OWN AND x.breaker_failures IS NOT NULL OFFSET 0
    ) AS o
    WHERE t.taken ->> :CHARGE_OWN <> ''
      AND ((l.effect).verdict = 'failed' OR (l.effect).verdict = 'ok' AND (o.breaker_rate IS NOT NULL OR o.failed_at_ms <> '{}'))
      AND NOT EXISTS (SELECT 1 FROM lp.gate AS x WHERE x.key = t.taken ->> :CHARGE_GATE OFFSET 0)
    GROUP BY 1
  ) AS k;
  PERFORM nextval('lp.breakers') FROM unnest(v_new[:v_room]);
  RETURN v_others || v_new[v_room + 1:];
END $$;

-- The same jobs, each charged at the gate where its end counts: see keys_without_record.
CREATE OR REPLACE FUNCTION lp.count_by_key(p_left lp.leaving[]) RETURNS lp.leaving[] LANGUAGE plpgsql AS $$
DECLARE
  v_without text[];
BEGIN
  IF NOT EXISTS (
    SELECT 1 FROM unnest(p_left) AS l WHERE jsonb_path_exists((l.head).charged, '$[*][:CHARGE_OWN] ? (@ != "")') OFFSET 0
  ) THEN
    RETURN p_left;
  END IF;
  v_without := lp.keys_without_record(p_left);
  FOR i IN 1 .. CASE WHEN v_without <> '{}' THEN cardinality(p_left) ELSE 0 END LOOP
    p_left[i].head.charged := (
      SELECT jsonb_agg(CASE
        WHEN t.taken ->> :CHARGE_OWN <> '' AND t.taken ->> :CHARGE_GATE = ANY (v_without)
        THEN jsonb_build_array(t.taken -> :CHARGE_OWN, false, 0, false, '', NULL) ELSE t.taken
      END ORDER BY t.at)
      FROM jsonb_array_elements(p_left[i].head.charged) WITH ORDINALITY AS t (taken, at)
    );
  END LOOP;
  RETURN p_left;
END $$;

-- Write what a gate has learnt, its row is held; true when it is shut now and was not.
CREATE OR REPLACE FUNCTION lp.put_learnt(p_before lp.gate, p_gate lp.gate, p_last boolean, p_now bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM lp.put_gate(p_before, p_gate, p_now), lp.log_gate_events(p_before, p_gate, p_last, p_now);
  RETURN lp.gate_is_shut(p_gate, p_now) AND lp.gate_is_shut(p_before, p_now) IS NOT TRUE; -- NULL: it was not there
END $$;

-- The gate that an effect names admits no job for a while, and opens as a breaker does if the effect says so.
CREATE OR REPLACE FUNCTION lp.hold_gate(p_gate lp.gate, p_effect lp.effect, p_token bigint, p_now bigint) RETURNS lp.gate
LANGUAGE plpgsql AS $$
DECLARE
  v_until bigint := least(p_now + p_effect.gate_ms, :FOREVER_MS);
BEGIN
  IF p_effect.trips THEN
    RETURN lp.gate_cut_off(p_gate, v_until, p_token, p_now);
  END IF;
  RETURN lp.gate_push_back(p_gate, v_until, p_token, p_now);
END $$;

-- What ends mean to gates that learn from them, one after the other; gates that are to hold their jobs back do, and go
-- slower after that, or are opened as breakers. True when one of them is shut now and was not.
CREATE OR REPLACE FUNCTION lp.learn_ends(p_keys text[], p_left lp.leaving[], p_last boolean, p_now bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_end record;
  v_gate lp.gate;
  v_before lp.gate;
  v_ats bigint[]; -- what has come back to its rate: when it was charged, and for how long (us)
  v_returned bigint[];
  v_set_off bigint; -- and how much of it the rate has got
  v_back bigint;
  v_claimed bigint;
  v_actual bigint;
  v_place integer;
  v_shuts boolean := false;
BEGIN
  FOR v_end IN
    SELECT t.taken ->> :CHARGE_GATE AS key, l.at, t.taken, l.head, l.effect, l.spent
    FROM unnest(p_left) AS l CROSS JOIN LATERAL jsonb_array_elements((l.head).charged) AS t (taken)
    JOIN unnest(p_keys) AS k (key) ON k.key = t.taken ->> :CHARGE_GATE
    UNION ALL
    SELECT (l.effect).gate, l.at, NULL, l.head, l.effect, NULL FROM unnest(p_left) AS l WHERE (l.effect).gate <> ''
    ORDER BY key, at, taken NULLS FIRST
  LOOP
    IF v_end.key IS DISTINCT FROM v_gate.key THEN
      IF v_gate.key IS NOT NULL THEN
        v_shuts := lp.put_learnt(v_before, v_gate, p_last, p_now) OR v_shuts;
      END IF;
      SELECT g.* INTO v_gate FROM lp.gate AS g WHERE g.key = v_end.key;
      v_before := v_gate;
      IF v_end.taken ->> :CHARGE_OWN <> '' THEN
        v_gate := lp.gate_under_own(v_gate, g) FROM lp.gate AS g WHERE g.key = v_end.taken ->> :CHARGE_OWN;
      END IF;
      v_ats := '{}';
      v_returned := '{}';
      v_set_off := 0;
    END IF;
    IF v_end.taken IS NULL THEN
      v_gate := lp.hold_gate(v_gate, v_end.effect, (v_end.head).token, p_now);
      CONTINUE;
    END IF;
    v_claimed := (v_end.head).claimed_ms;
    v_actual := lp.actual_cost(v_gate, v_end.spent, (v_end.effect).refund);
    v_back := lp.gate_returned(v_gate, v_end.taken, v_actual, v_claimed);
    IF v_back > 0 THEN
      v_place := coalesce(array_position(v_ats, v_claimed), cardinality(v_ats) + 1);
      v_ats[v_place] := v_claimed;
      v_returned[v_place] := least(coalesce(v_returned[v_place], 0) + v_back, :MOST);
      v_back := lp.refundable_us(v_ats, v_returned, p_now) - v_set_off;
      v_set_off := v_set_off + v_back;
    END IF;
    v_gate := lp.gate_give_back(
      v_gate, v_end.taken, (v_end.head).token, (v_end.effect).verdict, v_actual, p_now, v_claimed, v_back
    );
  END LOOP;
  RETURN lp.put_learnt(v_before, v_gate, p_last, p_now) OR v_shuts;
END $$;

-- The breakers by key of which something is to be noted, so that they are made if they are not there.
CREATE OR REPLACE FUNCTION lp.keys_with_news(p_ends lp.charge_end[]) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN ARRAY(
    SELECT DISTINCT e.gate FROM unnest(p_ends) AS e CROSS JOIN LATERAL (
      SELECT x.breaker_rate FROM lp.gate AS x WHERE x.key = e.taken ->> :CHARGE_OWN AND x.breaker_failures IS NOT NULL OFFSET 0
    ) AS o
    WHERE e.taken ->> :CHARGE_OWN <> '' AND (e.verdict = 'failed' OR e.verdict = 'ok' AND o.breaker_rate IS NOT NULL)
  );
END $$;

-- What these jobs took is given back to their gates, and gates that are to hold their jobs back do. p_last: this step
-- locks nothing any more but the door, which it must when the answer is true: a gate is shut now and was not.
CREATE OR REPLACE FUNCTION lp.give_back(p_left lp.leaving[], p_last boolean, p_now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_holds text[] := ARRAY(SELECT (l.effect).gate FROM unnest(p_left) AS l WHERE (l.effect).gate <> '');
  v_ends lp.charge_end[] := ARRAY(
    SELECT ROW(t.taken ->> :CHARGE_GATE, t.taken, (l.effect).verdict, (l.effect).refund, l.spent, count(*))::lp.charge_end
    FROM unnest(p_left) AS l CROSS JOIN LATERAL jsonb_array_elements((l.head).charged) AS t (taken)
    GROUP BY t.taken, (l.effect).verdict, (l.effect).refund, l.spent
  );
  v_made text[] := lp.keys_with_news(v_ends);
  v_moved text[];
  v_free text[];
  v_places integer[];
  v_learning text[];
BEGIN
  v_moved := ARRAY(
    SELECT e.gate FROM unnest(v_ends) AS e WHERE (e.taken -> :CHARGE_SLOT)::boolean OR EXISTS (
      SELECT 1 FROM lp.gate AS g WHERE g.key = e.gate
        AND NOT lp.is_plain_end(g, e.taken, e.verdict, lp.actual_cost(g, e.spent, e.refund)) OFFSET 0
    )
  );
  IF v_holds <> '{}' OR v_made <> '{}' THEN
    -- One that is to hold its jobs back is made if it is not there.
    PERFORM FROM lp.gate_take(v_holds || v_made || ARRAY(SELECT g.key FROM lp.gate AS g WHERE g.key = ANY (v_moved)));
  ELSIF v_moved = '{}' THEN
    RETURN false; -- all look the same as before, and are not locked: most ends under a rate or a breaker
  END IF;
  SELECT array_agg(m.key) FILTER (WHERE m.plain), array_agg(m.n) FILTER (WHERE m.plain), array_agg(m.key) FILTER (WHERE NOT m.plain)
  INTO v_free, v_places, v_learning FROM (
    SELECT g.key, sum(CASE WHEN (e.taken -> :CHARGE_SLOT)::boolean THEN e.n ELSE 0 END)::integer AS n,
      bool_and(lp.is_plain_end(g, e.taken, e.verdict, lp.actual_cost(g, e.spent, e.refund))) AND NOT g.key = ANY (v_holds || v_made) AS plain
    FROM lp.gate_lock(v_moved || v_made) AS g JOIN unnest(v_ends) AS e ON e.gate = g.key GROUP BY g.key
  ) AS m;
  IF v_free IS NOT NULL THEN
    PERFORM lp.free_places(v_free, v_places, p_now);
  END IF;
  IF v_learning IS NOT NULL OR v_holds <> '{}' THEN
    RETURN lp.learn_ends(v_learning, p_left, p_last, p_now);
  END IF;
  RETURN false;
END $$;

-- Of the gates at which these jobs failed, or that they held, those that are shut: [[place of the job, [key...]]...] as
-- JSON, NULL when there is none.
CREATE OR REPLACE FUNCTION lp.shut_by(p_left lp.leaving[], p_now bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  RETURN (
    SELECT jsonb_agg(jsonb_build_array(s.at, s.keys) ORDER BY s.at) FROM (
      SELECT e.at, jsonb_agg(e.key) AS keys FROM (
        SELECT l.at, (l.effect).gate AS key, true AS counts FROM unnest(p_left) AS l WHERE (l.effect).gate <> ''
        UNION ALL
        SELECT l.at, t.taken ->> :CHARGE_GATE, (t.taken -> :CHARGE_PROBE)::boolean FROM unnest(p_left) AS l
        CROSS JOIN LATERAL jsonb_array_elements((l.head).charged) AS t (taken) WHERE (l.effect).verdict = 'failed'
      ) AS e
      CROSS JOIN LATERAL (
        SELECT FROM lp.gate AS x
        WHERE x.key = e.key AND (e.counts OR x.breaker_failures IS NOT NULL) AND lp.gate_is_shut(x, p_now) OFFSET 0
      ) AS g
      GROUP BY e.at
    ) AS s
  );
END $$;
