-- Promise: each transition whose token still holds its job is applied; the others change nothing. The same (session,
-- seq) again gets the same answers again and changes nothing, even while the first is under way.
-- Inputs: by position, ids and tokens; results (NULL: there are none); effects as JSON, without a result (NULL: a success, or
-- all are); the actual cost of each job, {unit: how much} (NULL: not reported). Answer: codes, one per transition: its state when
-- done, SETTLE_STALE + its state when stale, SETTLE_GONE when there is no such job; NULL when all of them have succeeded. And of
-- the gates at which they failed, or that they held, those that are shut now: [[position, [key...]]...] as JSON.
-- Fences: a row of `running` is deleted by the statement that compares its token, or was locked by the one that compares
-- it. What others added before that (a dependent, a watcher, a handler's own settlement) is looked for in later ones.
-- Relies on the primary keys. Locks: rows of `running` by id, then as 70_effect.

-- Successes leave `running`. First tries that were charged nothing and have no hooks are all done here (ids, tokens,
-- positions); the others are answered as heads with their positions. p_not: positions that do not count.
CREATE OR REPLACE FUNCTION lp.take_successes(
  p_ids bytea[], p_tokens bigint[], p_effects jsonb[], p_not integer[], p_now bigint,
  OUT ids bytea[], OUT tokens bigint[], OUT ats integer[], OUT heads lp.running[], OUT head_ats integer[]
) LANGUAGE plpgsql AS $$
BEGIN
  WITH gone AS (
    DELETE FROM lp.running AS r USING (
      SELECT a.id, a.token, a.at FROM unnest(p_ids, p_tokens, p_effects) WITH ORDINALITY AS a (id, token, effect, at)
      WHERE a.effect IS NULL AND (p_not IS NULL OR a.at <> ALL (p_not)) ORDER BY a.id, a.at
    ) AS a WHERE r.id BETWEEN a.id AND a.id AND r.token + 0 = a.token
    RETURNING r.*, a.at, r.charged IS NULL AND r.attempt = 1 AND r.lost = 0
      AND NOT EXISTS (SELECT FROM lp.hook AS h WHERE :SUCCEEDED = ANY (h.states)) AS plain
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

-- Those successes with their effect and results.
CREATE OR REPLACE FUNCTION lp.successes(p_heads lp.running[], p_ats integer[], p_results bytea[], p_spent jsonb[])
RETURNS lp.leaving[] LANGUAGE plpgsql AS $$
DECLARE
  v_success lp.effect := lp.to_effect(:EFFECT_SUCCESS);
BEGIN
  RETURN ARRAY(
    SELECT ROW(p_ats[i], p_heads[i], v_success, p_results[p_ats[i]], p_spent[p_ats[i]])::lp.leaving
    FROM generate_subscripts(p_heads, 1) AS i
  );
END $$;

-- One running job; a short lock of its row is waited for. None when it is gone, or when that takes long: then a
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

-- The jobs of transitions that are no Succeed leave `running`, with their effects. They are locked without waiting, since
-- other rows are locked already; a locked one is waited for a moment. p_not: positions that do not count.
CREATE OR REPLACE FUNCTION lp.take_rest(
  p_ids bytea[], p_tokens bigint[], p_results bytea[], p_effects jsonb[], p_spent jsonb[], p_not integer[]
) RETURNS lp.leaving[] LANGUAGE plpgsql AS $$
DECLARE
  v_blank lp.effect := lp.to_effect('{}');
  v_taken lp.leaving[] := ARRAY(
    SELECT ROW(o.at, r, jsonb_populate_record(v_blank, o.effect), p_results[o.at], p_spent[o.at])::lp.leaving
    FROM unnest(p_ids, p_tokens, p_effects) WITH ORDINALITY AS o (id, token, effect, at)
    JOIN lp.running AS r ON r.id BETWEEN o.id AND o.id AND r.token + 0 = o.token
    WHERE o.effect IS NOT NULL AND o.at <> ALL (p_not) FOR UPDATE OF r SKIP LOCKED
  );
  v_late record;
  v_head lp.running;
  v_patient boolean := true;
BEGIN
  FOR v_late IN
    SELECT o.id, o.token, o.effect, o.at::integer FROM unnest(p_ids, p_tokens, p_effects) WITH ORDINALITY AS o (id, token, effect, at)
    JOIN lp.running AS r ON r.id BETWEEN o.id AND o.id AND r.token + 0 = o.token
    WHERE o.effect IS NOT NULL AND o.at <> ALL (p_not) AND o.at <> ALL (ARRAY(SELECT l.at FROM unnest(v_taken) AS l))
  LOOP
    v_head := lp.take_late(v_late.id, v_late.token, v_patient);
    IF v_head.id IS NULL THEN
      v_patient := false; -- once is enough for one call
    ELSE
      v_taken := v_taken
        || ROW(v_late.at, v_head, jsonb_populate_record(v_blank, v_late.effect), p_results[v_late.at], p_spent[v_late.at])::lp.leaving;
    END IF;
  END LOOP;
  DELETE FROM lp.running AS r WHERE r.id = ANY (ARRAY(SELECT (l.head).id FROM unnest(v_taken) AS l));
  RETURN v_taken;
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

-- The codes of a call as far as they are known: plain successes (p_plain: their positions) and the others.
CREATE OR REPLACE FUNCTION lp.codes(p_n integer, p_plain integer[], p_left lp.leaving[], p_states smallint[])
RETURNS smallint[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  v_codes smallint[] := array_fill(NULL::smallint, ARRAY[p_n]);
  v_at integer;
BEGIN
  FOREACH v_at IN ARRAY coalesce(p_plain, '{}') LOOP
    v_codes[v_at] := :SUCCEEDED;
  END LOOP;
  FOR v_at IN 1 .. coalesce(cardinality(p_left), 0) LOOP
    v_codes[(p_left[v_at]).at] := p_states[v_at];
  END LOOP;
  RETURN v_codes;
END $$;

-- The codes of a call with those of transitions that were not applied; p_codes has those of the others. Stale ones are counted.
CREATE OR REPLACE FUNCTION lp.refuse(p_ids bytea[], p_codes smallint[]) RETURNS smallint[] LANGUAGE plpgsql AS $$
DECLARE
  v_applied bytea[] := ARRAY(SELECT a.id FROM unnest(p_ids, p_codes) AS a (id, code) WHERE a.code IS NOT NULL);
  v_state smallint;
  v_lanes bigint[] := '{}';
BEGIN
  IF array_position(p_codes, NULL) IS NULL THEN
    RETURN p_codes;
  END IF;
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

-- True when a dependent or a watcher waits for one of these plain successes, which have left `running`. What their handlers
-- noted in their own transactions is put in place of their results.
CREATE OR REPLACE FUNCTION lp.are_awaited(p_ids bytea[], p_tokens bigint[]) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_noted boolean;
  v_awaited boolean;
BEGIN
  SELECT EXISTS (SELECT FROM lp.settled AS s WHERE s.id = ANY (p_ids)),
    EXISTS (SELECT FROM lp.dep AS d WHERE d.parent = ANY (p_ids) AND NOT d.done)
    OR EXISTS (SELECT FROM lp.watch AS w WHERE w.job = ANY (p_ids))
  INTO v_noted, v_awaited;
  IF v_noted THEN
    PERFORM lp.prefer_settled(p_ids, p_tokens);
  END IF;
  RETURN v_awaited;
END $$;

-- Verb: see the head of this file.
CREATE OR REPLACE FUNCTION lp.settle_1(
  p_session text, p_seq bigint, p_ids bytea[], p_tokens bigint[], p_results bytea[], p_effects jsonb[], p_spent jsonb[], p_now bigint,
  OUT codes smallint[], OUT shut text, OUT w_lanes bigint[], OUT w_ns integer[], OUT w_dues bigint[], OUT w_gates text[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint;
  -- Positions of transitions that repeat an earlier one.
  v_again integer[] := CASE WHEN p_effects IS NOT NULL THEN lp.repeated(p_ids, p_tokens) END;
  v_plain record;
  v_leaving lp.leaving[];
  v_awaited boolean;
  v_shuts boolean; -- a gate that was not shut
BEGIN
  -- The same call twice at once: the second waits here for what the first has to say.
  PERFORM pg_advisory_xact_lock(hashtextextended(p_session, 'lp.floor'::regclass::oid::bigint));
  SELECT r.answers, r.shut INTO codes, shut FROM lp.receipt AS r WHERE r.session = p_session AND r.claimer = 'settle' AND r.seq = p_seq;
  IF FOUND THEN
    RETURN;
  END IF;
  v_now := lp.now_1(p_now);
  SELECT t.* INTO v_plain FROM lp.take_successes(p_ids, p_tokens, p_effects, v_again, v_now) AS t;
  IF v_plain.heads IS NOT NULL THEN
    v_leaving := lp.successes(v_plain.heads, v_plain.head_ats, p_results, p_spent);
  END IF;
  IF p_effects IS NOT NULL THEN
    v_leaving := ARRAY(
      SELECT l FROM unnest(v_leaving || lp.take_rest(p_ids, p_tokens, p_results, p_effects, p_spent, v_again)) AS l ORDER BY l.at
    );
  END IF;
  IF p_results IS NOT NULL AND v_plain.ids IS NOT NULL THEN
    INSERT INTO lp.result (id, body)
    SELECT a.id, a.result FROM unnest(p_ids, p_results) WITH ORDINALITY AS a (id, result, at)
    WHERE a.result IS NOT NULL AND a.at = ANY (v_plain.ats) ON CONFLICT (id) DO UPDATE SET body = excluded.body;
  END IF;
  IF v_plain.ids IS NOT NULL THEN
    v_awaited := lp.are_awaited(v_plain.ids, v_plain.tokens);
  END IF;
  IF v_leaving <> '{}' THEN
    SELECT a.states, a.shuts, a.shut INTO codes, v_shuts, shut
    FROM lp.apply_effects(v_leaving, coalesce(v_plain.ids, '{}'), coalesce(v_plain.tokens, '{}'), p_session, true, v_now) AS a;
    v_awaited := true;
  ELSIF v_plain.ids IS NOT NULL THEN
    IF v_awaited THEN
      PERFORM lp.after_end(v_plain.ids, array_fill(:SUCCEEDED::smallint, ARRAY[cardinality(v_plain.ids)]), v_now);
    END IF;
    PERFORM lp.lease_less(v_plain.tokens);
  END IF;
  IF cardinality(v_plain.ids) IS DISTINCT FROM cardinality(p_ids) THEN
    codes := lp.refuse(p_ids, lp.codes(cardinality(p_ids), v_plain.ats, v_leaving, codes));
  END IF;
  INSERT INTO lp.receipt AS r (session, claimer, seq, at_ms, answers, shut) VALUES (p_session, 'settle', p_seq, v_now, codes, shut)
  ON CONFLICT (session, claimer) DO UPDATE SET seq = excluded.seq, answers = excluded.answers, shut = excluded.shut,
    at_ms = CASE WHEN abs(excluded.at_ms - r.at_ms) < 300000 THEN r.at_ms ELSE excluded.at_ms END; -- its index stays as it is
  IF v_awaited THEN
    SELECT p.lanes, p.ns, p.dues, p.gates INTO w_lanes, w_ns, w_dues, w_gates FROM lp.posted() AS p;
  END IF;
  IF v_shuts THEN
    PERFORM lp.lock(:DOOR); -- the last of all: claims wait for no more than this commit
  END IF;
END $$;
