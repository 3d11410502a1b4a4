-- Promise: what handlers note while they run: save, and settle_on inside a transaction of the handler's own; whatever ends the
-- lease finds what that one has committed. Inputs: ids and tokens. Answer: as each says. Relies on the primary keys.

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

-- Finish jobs whose handlers have settled them in their own transactions a minute ago and whose workers said nothing
-- since: they had given them up while the transaction was open. How many.
CREATE OR REPLACE FUNCTION lp.finish_settled(p_limit integer, p_now bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  v_heads lp.running[];
BEGIN
  IF NOT EXISTS (SELECT FROM lp.settled) THEN
    RETURN 0;
  END IF;
  v_heads := ARRAY(
    SELECT r FROM lp.settled AS s JOIN lp.running AS r ON r.id BETWEEN s.id AND s.id AND r.token + 0 = s.token
    WHERE s.at_ms <= p_now - 60000 ORDER BY s.id LIMIT p_limit FOR UPDATE OF r SKIP LOCKED
  );
  IF v_heads <> '{}' THEN
    PERFORM lp.end_running(v_heads, lp.to_effect(:EFFECT_SUCCESS), '', p_now);
  END IF;
  RETURN cardinality(v_heads);
END $$;
