-- Promise: each transition whose token still holds its job is applied; the others change nothing. The same (session,
-- seq) again gets the same answers again and changes nothing, even while the first is under way.
-- Inputs: ids and tokens; results (NULL: none); the transitions that are no Succeed as JSON objects: their position (at)
-- and the fields of lp.outcome (NULL: there are none). Answer: codes, one per transition: its state when done, SETTLE_STALE +
-- its state when stale, SETTLE_GONE when there is no such job; NULL when all of them have succeeded.
-- Fences: a row of `running` is deleted by the statement that compares its token, or was locked by the one that compares
-- it. What others added before that (a dependent, a watcher, a handler's own settlement) is looked for in later ones.
-- Relies on the primary keys. Locks: rows of `running` by id, then as 70_outcome.

-- Successes leave `running`. First tries that were charged nothing are all done here (ids, tokens, positions); the others
-- are answered as heads with their positions.
CREATE OR REPLACE FUNCTION lp.take_successes(
  p_ids bytea[], p_tokens bigint[], p_not integer[], p_now bigint,
  OUT ids bytea[], OUT tokens bigint[], OUT ats integer[], OUT heads lp.running[], OUT head_ats integer[]
) LANGUAGE plpgsql AS $$
BEGIN
  WITH gone AS (
    DELETE FROM lp.running AS r USING (
      SELECT a.id, a.token, a.at FROM unnest(p_ids, p_tokens) WITH ORDINALITY AS a (id, token, at)
      WHERE p_not IS NULL OR a.at <> ALL (p_not) ORDER BY a.id, a.at
    ) AS a WHERE r.id BETWEEN a.id AND a.id AND r.token + 0 = a.token
    RETURNING r.*, r.charged IS NULL AND r.attempt = 1 AND r.lost = 0 AS plain, a.at
  ), put AS (
    INSERT INTO lp.done (
      id, lane, finished_ms, due_ms, claimed_ms, expires_ms, attempt, lost, held, cost, state, priority, flags
    )
    SELECT g.id, g.lane, p_now, g.due_ms, g.claimed_ms, g.expires_ms, 1, 0, g.held, g.cost, :SUCCEEDED, g.priority, g.flags
    FROM gone AS g WHERE g.plain
  ), counted AS (
    INSERT INTO lp.tally (lane, whats, ns)
    SELECT g.lane, '{:RUNNING,:SUCCEEDED,:EVER_SUCCEEDED}', ARRAY[-count(*), count(*), count(*)] FROM gone AS g WHERE g.plain GROUP BY g.lane
  )
  SELECT array_agg(g.id) FILTER (WHERE g.plain), array_agg(g.token) FILTER (WHERE g.plain),
    array_agg(g.at) FILTER (WHERE g.plain), array_agg(g.at ORDER BY g.at) FILTER (WHERE NOT g.plain), array_agg(ROW(
      g.id, g.token, g.lane, g.due_ms, g.claimed_ms, g.expires_ms, g.held_since_ms, g.attempt, g.lost, g.held, g.cost,
      g.priority, g.flags, g.charged, g.reason, g.cause, g.error_type
    )::lp.running ORDER BY g.at) FILTER (WHERE NOT g.plain)
  INTO ids, tokens, ats, head_ats, heads FROM gone AS g;
END $$;

-- One running job, taken from whoever holds its row for a moment. None when it is gone, or when that takes long: then a
-- transaction of its handler's own is about to settle it, and that one decides. An impatient one does not wait at all.
CREATE OR REPLACE FUNCTION lp.take_late(p_id bytea, p_token bigint, p_patient boolean) RETURNS lp.running LANGUAGE plpgsql
SET lock_timeout = '500ms' AS $$
DECLARE
  v_head lp.running;
BEGIN
  IF p_patient THEN
    SELECT r.* INTO v_head FROM lp.running AS r WHERE r.id = p_id AND r.token = p_token FOR UPDATE;
  ELSE
    SELECT r.* INTO v_head FROM lp.running AS r WHERE r.id = p_id AND r.token = p_token FOR UPDATE SKIP LOCKED;
  END IF;
  RETURN v_head;
EXCEPTION WHEN lock_not_available THEN
  RETURN NULL;
END $$;

-- The jobs of transitions that are no Succeed leave `running`; with what was asked, in the order of the call. They are
-- locked without waiting, since other rows are locked already; where somebody is at one of them, it is waited for a
-- moment. p_not: positions that do not count.
CREATE OR REPLACE FUNCTION lp.take_rest(
  p_ids bytea[], p_tokens bigint[], p_rest jsonb, p_not integer[],
  OUT heads lp.running[], OUT outcomes lp.outcome[], OUT ats integer[]
) LANGUAGE plpgsql AS $$
DECLARE
  v_item record;
  v_head lp.running;
  v_patient boolean := true;
BEGIN
  SELECT array_agg(t.head), array_agg(t.outcome), array_agg(t.at) INTO heads, outcomes, ats FROM (
    SELECT r AS head, jsonb_populate_record(NULL::lp.outcome, o.item) AS outcome, o.at
    FROM (SELECT i.item, (i.item ->> 'at')::integer AS at FROM jsonb_array_elements(p_rest) AS i (item)) AS o
    JOIN lp.running AS r ON r.id BETWEEN p_ids[o.at] AND p_ids[o.at] AND r.token + 0 = p_tokens[o.at]
    WHERE o.at <> ALL (p_not) FOR UPDATE OF r SKIP LOCKED
  ) AS t;
  FOR v_item IN
    SELECT r.id, r.token, o.item, o.at
    FROM (SELECT i.item, (i.item ->> 'at')::integer AS at FROM jsonb_array_elements(p_rest) AS i (item)) AS o
    JOIN lp.running AS r ON r.id BETWEEN p_ids[o.at] AND p_ids[o.at] AND r.token + 0 = p_tokens[o.at]
    WHERE o.at <> ALL (p_not) AND o.at <> ALL (coalesce(ats, '{}'))
  LOOP
    v_head := lp.take_late(v_item.id, v_item.token, v_patient);
    IF v_head.id IS NULL THEN
      v_patient := false; -- once is enough for one call
    ELSE
      heads := heads || v_head;
      outcomes := outcomes || jsonb_populate_record(NULL::lp.outcome, v_item.item);
      ats := ats || v_item.at;
    END IF;
  END LOOP;
  DELETE FROM lp.running AS r WHERE r.id = ANY (ARRAY(SELECT h.id FROM unnest(heads) AS h));
END $$;

-- Successes that have more to write than most, and the rest, as one: in the order of the call.
CREATE OR REPLACE FUNCTION lp.all_taken(
  p_heads lp.running[], p_ats integer[], p_results bytea[], p_rest_heads lp.running[], p_rest_outcomes lp.outcome[], p_rest_ats integer[],
  OUT heads lp.running[], OUT outcomes lp.outcome[], OUT ats integer[]
) LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  SELECT array_agg(m.head ORDER BY m.at), array_agg(m.outcome ORDER BY m.at), array_agg(m.at ORDER BY m.at)
  INTO heads, outcomes, ats FROM (
    SELECT p_heads[i] AS head, p_ats[i] AS at,
      ROW(:SUCCEED, p_results[p_ats[i]], NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::lp.outcome AS outcome
    FROM generate_subscripts(p_heads, 1) AS i
    UNION ALL
    SELECT p_rest_heads[i], p_rest_ats[i], p_rest_outcomes[i] FROM generate_subscripts(p_rest_heads, 1) AS i
  ) AS m;
END $$;

-- Positions of transitions that repeat an earlier one of the call: only the first can be applied.
CREATE OR REPLACE FUNCTION lp.repeated(p_ids bytea[], p_tokens bigint[]) RETURNS integer[] LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN ARRAY(
    SELECT r.at FROM (
      SELECT a.at, row_number() OVER (PARTITION BY a.id, a.token ORDER BY a.at) AS nth
      FROM unnest(p_ids, p_tokens) WITH ORDINALITY AS a (id, token, at)
    ) AS r WHERE r.nth > 1
  );
END $$;

-- The codes of a call as far as they are known: plain successes and the others, by their positions.
CREATE OR REPLACE FUNCTION lp.codes(p_n integer, p_plain integer[], p_ats integer[], p_states smallint[])
RETURNS smallint[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  v_codes smallint[] := array_fill(NULL::smallint, ARRAY[p_n]);
  v_at integer;
BEGIN
  FOREACH v_at IN ARRAY coalesce(p_plain, '{}') LOOP
    v_codes[v_at] := :SUCCEEDED;
  END LOOP;
  FOR v_at IN 1 .. coalesce(cardinality(p_ats), 0) LOOP
    v_codes[p_ats[v_at]] := p_states[v_at];
  END LOOP;
  RETURN v_codes;
END $$;

-- The codes of transitions that were not applied; p_codes has those of the others. Stale ones are counted.
CREATE OR REPLACE FUNCTION lp.refuse(p_ids bytea[], p_codes smallint[]) RETURNS smallint[] LANGUAGE plpgsql AS $$
DECLARE
  v_applied bytea[] := ARRAY(SELECT a.id FROM unnest(p_ids, p_codes) AS a (id, code) WHERE a.code IS NOT NULL);
  v_state smallint;
  v_lanes bigint[] := '{}';
BEGIN
  FOR v_at IN 1 .. cardinality(p_ids) LOOP
    IF p_codes[v_at] IS NULL THEN
      v_state := lp.state_of(p_ids[v_at]);
      IF p_ids[v_at] = ANY (v_applied) AND NOT EXISTS (
        SELECT FROM unnest(p_ids, p_codes) WITH ORDINALITY AS a (id, code, at)
        WHERE a.id = p_ids[v_at] AND a.code < :SETTLE_STALE AND a.at < v_at
      ) THEN
        v_state := :RUNNING; -- named again further on in this call, with the token that fits: until then it ran
      END IF;
      p_codes[v_at] := coalesce(:SETTLE_STALE + v_state, :SETTLE_GONE);
      IF v_state IS NOT NULL THEN
        v_lanes := v_lanes || coalesce((SELECT j.lane FROM lp.job AS j WHERE j.id = p_ids[v_at]), 0);
      END IF;
    END IF;
  END LOOP;
  INSERT INTO lp.tally (lane, whats, ns) SELECT l.lane, '{:STALE}', ARRAY[count(*)] FROM unnest(v_lanes) AS l (lane) GROUP BY l.lane;
  RETURN p_codes;
END $$;

-- What handlers noted in their own transactions is the truth about these jobs, whatever result was said here.
CREATE OR REPLACE FUNCTION lp.prefer_settled(p_ids bytea[], p_tokens bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_settled lp.settled;
BEGIN
  FOR v_settled IN DELETE FROM lp.settled AS s WHERE s.id = ANY (p_ids) RETURNING s.* LOOP
    IF v_settled.token = p_tokens[array_position(p_ids, v_settled.id)] THEN
      DELETE FROM lp.result AS r WHERE r.id = v_settled.id;
      INSERT INTO lp.result (id, body) SELECT v_settled.id, v_settled.result WHERE v_settled.result <> '\x6e756c6c'; -- null
    END IF;
  END LOOP;
END $$;
