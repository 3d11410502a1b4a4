-- Promise: the verbs of whoever holds a lease: settle (see 74_taking), save, and settle_on inside a transaction of the
-- handler's own. Inputs: the lease's session, ids and tokens. Answer: what became of each; and of the gates at which they
-- failed, or that they held, those that are shut now: [[position, [key...]]...] as JSON. Relies on the primary keys.

-- What became of running jobs. p_spent: what each cost in truth, {unit: how much} or null by position (NULL: nobody said).
CREATE OR REPLACE FUNCTION lp.settle_1(
  p_session text, p_seq bigint, p_ids bytea[], p_tokens bigint[], p_results bytea[], p_rest jsonb, p_spent jsonb, p_now bigint,
  OUT codes smallint[], OUT shut text, OUT w_lanes bigint[], OUT w_ns integer[], OUT w_dues bigint[], OUT w_gates text[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint;
  v_not integer[]; -- positions of transitions that are no Succeed, or repeat an earlier one
  v_plain record;
  v_heads lp.running[];
  v_outcomes lp.outcome[];
  v_ats integer[];
  v_settled boolean;
  v_awaited boolean;
  v_shuts boolean; -- a gate that was not shut
  v_shut jsonb;
BEGIN
  -- The same call twice at once: the second waits here for what the first has to say.
  PERFORM pg_advisory_xact_lock(hashtextextended(p_session, 'lp.floor'::regclass::oid::bigint));
  SELECT r.answers, r.shut INTO codes, shut FROM lp.receipt AS r WHERE r.session = p_session AND r.claimer = 'settle' AND r.seq = p_seq;
  IF FOUND THEN
    RETURN;
  END IF;
  v_now := lp.now_1(p_now);
  IF p_rest IS NULL THEN
    SELECT t.* INTO v_plain FROM lp.take_successes(p_ids, p_tokens, NULL, v_now) AS t;
  ELSE
    v_not := lp.repeated(p_ids, p_tokens);
    SELECT t.* INTO v_plain FROM lp.take_successes(
      p_ids, p_tokens, v_not || ARRAY(SELECT (o ->> 'at')::integer FROM jsonb_array_elements(p_rest) AS o), v_now
    ) AS t;
    SELECT t.heads, t.outcomes, t.ats INTO v_heads, v_outcomes, v_ats FROM lp.take_rest(p_ids, p_tokens, p_rest, v_not) AS t;
  END IF;
  IF p_results IS NOT NULL AND v_plain.ids IS NOT NULL THEN
    INSERT INTO lp.result (id, body)
    SELECT a.id, a.result FROM unnest(p_ids, p_results) WITH ORDINALITY AS a (id, result, at)
    WHERE a.result IS NOT NULL AND a.at = ANY (v_plain.ats) ON CONFLICT (id) DO UPDATE SET body = excluded.body;
  END IF;
  SELECT EXISTS (SELECT FROM lp.settled AS s WHERE s.id = ANY (v_plain.ids)),
    EXISTS (SELECT FROM lp.dep AS d WHERE d.parent = ANY (v_plain.ids) AND NOT d.done)
    OR EXISTS (SELECT FROM lp.watch AS w WHERE w.job = ANY (v_plain.ids))
  INTO v_settled, v_awaited;
  IF v_settled THEN
    PERFORM lp.prefer_settled(v_plain.ids, v_plain.tokens);
  END IF;
  IF v_plain.heads IS NOT NULL OR v_heads IS NOT NULL THEN
    IF v_plain.heads IS NOT NULL THEN
      SELECT t.heads, t.outcomes, t.ats INTO v_heads, v_outcomes, v_ats
      FROM lp.all_taken(v_plain.heads, v_plain.head_ats, p_results, v_heads, v_outcomes, v_ats) AS t;
    END IF;
    SELECT m.states, m.shuts, m.shut INTO codes, v_shuts, v_shut FROM lp.apply_fates(
      v_heads, v_outcomes, CASE WHEN p_spent IS NOT NULL THEN
        ARRAY(SELECT p_spent -> (a.at - 1) FROM unnest(v_ats) WITH ORDINALITY AS a (at, n) ORDER BY a.n)
      END, coalesce(v_plain.ids, '{}'), coalesce(v_plain.tokens, '{}'), p_session, true, v_now
    ) AS m;
    IF v_shut IS NOT NULL THEN
      shut := (SELECT jsonb_agg(jsonb_build_array(v_ats[(s ->> 0)::integer], s -> 1)) FROM jsonb_array_elements(v_shut) AS s);
    END IF;
    v_awaited := true;
  ELSIF v_plain.ids IS NOT NULL THEN
    IF v_awaited THEN
      PERFORM lp.after_end(v_plain.ids, array_fill(:SUCCEEDED::smallint, ARRAY[cardinality(v_plain.ids)]), v_now);
    END IF;
    PERFORM lp.lease_less(v_plain.tokens);
  END IF;
  IF cardinality(v_plain.ids) IS DISTINCT FROM cardinality(p_ids) THEN
    codes := lp.codes(cardinality(p_ids), v_plain.ats, v_ats, codes);
    IF array_position(codes, NULL) IS NOT NULL THEN
      codes := lp.refuse(p_ids, codes);
    END IF;
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

-- Write a note of a running job while its token holds; false when it does not.
CREATE OR REPLACE FUNCTION lp.save_1(p_id bytea, p_token bigint, p_kind text, p_name text, p_body bytea, p_now bigint)
RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_flags smallint;
BEGIN
  -- It cannot leave its lease before the note is there; an open transaction of its handler (FOR KEY SHARE) is no hindrance.
  SELECT r.flags INTO v_flags FROM lp.running AS r WHERE r.id = p_id AND r.token = p_token FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    PERFORM lp.count_jobs(0, :STALE, 1);
    RETURN false;
  END IF;
  IF v_flags & :NOTES = 0 THEN
    UPDATE lp.running AS r SET flags = r.flags | :NOTES WHERE r.id = p_id;
  END IF;
  INSERT INTO lp.note (job, kind, name, body) VALUES (p_id, p_kind, p_name, p_body)
  ON CONFLICT (job, kind, name) DO UPDATE SET body = excluded.body;
  RETURN true;
END $$;

-- A handler says in its own transaction that its job has succeeded: if and when that commits, whatever ends the lease
-- finds it. Until then the lease cannot end. False when the token is stale. Said twice, the last result counts.
CREATE OR REPLACE FUNCTION lp.settle_on_1(p_id bytea, p_token bigint, p_result bytea, p_now bigint)
RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  PERFORM FROM lp.running AS r WHERE r.id = p_id AND r.token = p_token FOR KEY SHARE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  INSERT INTO lp.settled (id, token, at_ms, result) VALUES (p_id, p_token, lp.now_1(p_now), p_result)
  ON CONFLICT (id, token) DO UPDATE SET at_ms = excluded.at_ms, result = excluded.result;
  RETURN true;
END $$;

-- Finish jobs whose handlers have settled them in their own transactions a minute ago and whose workers said nothing
-- since: they had given them up while the transaction was open. How many.
CREATE OR REPLACE FUNCTION lp.finish_settled(p_limit integer, p_now bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  v_heads lp.running[];
  v_outcome lp.outcome;
BEGIN
  IF NOT EXISTS (SELECT FROM lp.settled) THEN
    RETURN 0;
  END IF;
  v_heads := ARRAY(
    SELECT r FROM lp.settled AS s JOIN lp.running AS r ON r.id BETWEEN s.id AND s.id AND r.token + 0 = s.token
    WHERE s.at_ms <= p_now - 60000 ORDER BY s.id LIMIT p_limit FOR UPDATE OF r SKIP LOCKED
  );
  v_outcome.kind := :SUCCEED;
  IF v_heads <> '{}' THEN
    PERFORM lp.end_running(v_heads, array_fill(v_outcome, ARRAY[cardinality(v_heads)]), '', p_now);
  END IF;
  RETURN cardinality(v_heads);
END $$;
