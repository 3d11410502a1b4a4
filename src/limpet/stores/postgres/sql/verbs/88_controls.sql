-- Promise: named records are written over the version that the caller saw; the two logs are in order; a call that is
-- repeated since its answer was lost happened once.
-- Inputs: as named. Answer: OUT columns or rows. Relies on log_by and the primary keys.

-- What a call of this name has answered before; NULL: this is the first time. Waits for one that is still under way.
-- A call without a name is always the first.
CREATE OR REPLACE FUNCTION lp.answered_before(p_call text, p_now bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
  IF p_call IS NULL THEN
    RETURN NULL;
  END IF;
  INSERT INTO lp.receipt (session, claimer, seq, at_ms) VALUES ('', p_call, 0, p_now) ON CONFLICT (session, claimer) DO NOTHING;
  IF FOUND THEN
    RETURN NULL;
  END IF;
  RETURN (SELECT coalesce(r.tokens, '{}') FROM lp.receipt AS r WHERE r.session = '' AND r.claimer = p_call);
END $$;

-- What this call answers, should it be repeated.
CREATE OR REPLACE FUNCTION lp.note_answer(p_call text, p_answer bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE lp.receipt SET tokens = p_answer WHERE session = '' AND claimer = p_call;
END $$;

-- Verb: write a named record. p_expect: the version that must be there (0 = none); NULL = any. p_weight: for a weight,
-- what it says. p_hook: for a hook that is for some state, see put_hook. Answer: the new version; NULL when another is there.
CREATE OR REPLACE FUNCTION lp.put_control_1(
  p_call text, p_kind text, p_name text, p_value bytea, p_expect bigint, p_weight integer, p_hook jsonb
) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_answered bigint[];
  v_version bigint;
BEGIN
  IF p_weight IS NOT NULL THEN
    PERFORM lp.lock(:FLOOR); -- turns lie on the floor
  END IF;
  v_answered := lp.answered_before(p_call, lp.now_1(NULL));
  IF v_answered IS NOT NULL THEN
    RETURN v_answered[1];
  END IF;
  LOOP
    SELECT c.version INTO v_version FROM lp.control AS c WHERE c.kind = p_kind AND c.name = p_name FOR UPDATE;
    IF p_expect <> coalesce(v_version, 0) THEN
      RETURN NULL;
    END IF;
    IF v_version IS NOT NULL THEN
      UPDATE lp.control SET version = v_version + 1, value = p_value WHERE kind = p_kind AND name = p_name;
      EXIT;
    END IF;
    INSERT INTO lp.control (kind, name, version, value) VALUES (p_kind, p_name, 1, p_value) ON CONFLICT (kind, name) DO NOTHING;
    EXIT WHEN FOUND;
  END LOOP;
  v_version := coalesce(v_version, 0) + 1;
  IF p_weight IS NOT NULL THEN
    UPDATE lp.turn SET weight = p_weight, left_n = least(left_n, p_weight) WHERE name = p_name;
  END IF;
  IF p_kind = 'hook' THEN
    PERFORM lp.put_hook(p_name, p_hook);
  END IF;
  PERFORM lp.note_answer(p_call, ARRAY[v_version]);
  RETURN v_version;
END $$;

-- Verb: all records of a kind, by name.
CREATE OR REPLACE FUNCTION lp.controls_1(p_kind text) RETURNS TABLE (name text, value bytea, version bigint) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  RETURN QUERY SELECT c.name, c.value, c.version FROM lp.control AS c WHERE c.kind = p_kind ORDER BY c.name COLLATE "C";
END $$;

-- Verb: add lines to the logs they name. One at a time (lock LOG), so that a reader of a line has seen all lines before it.
CREATE OR REPLACE FUNCTION lp.append_1(
  p_call text, p_logs text[], p_ats bigint[], p_kinds text[], p_actors text[], p_jobs bytea[], p_reasons text[], p_datas bytea[]
) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  IF lp.answered_before(p_call, lp.now_1(NULL)) IS NOT NULL THEN
    RETURN;
  END IF;
  PERFORM lp.lock(:LOG);
  INSERT INTO lp.log (log, at_ms, kind, actor, job, reason, data)
  SELECT e.log, e.at_ms, e.kind, e.actor, e.job, e.reason, e.data
  FROM unnest(p_logs, p_ats, p_kinds, p_actors, p_jobs, p_reasons, p_datas) WITH ORDINALITY
    AS e (log, at_ms, kind, actor, job, reason, data, at) ORDER BY e.at;
END $$;

-- Verb: lines of a log that come after one, oldest first: the first of them, or the newest.
CREATE OR REPLACE FUNCTION lp.read_1(p_log text, p_after bigint, p_limit integer, p_newest boolean) RETURNS TABLE (
  at_ms bigint, kind text, actor text, job bytea, reason text, data bytea, seq bigint
) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  IF p_newest THEN
    RETURN QUERY SELECT n.* FROM (
      SELECT l.at_ms, l.kind, l.actor, l.job, l.reason, l.data, l.seq FROM lp.log AS l
      WHERE l.log = p_log AND l.seq > p_after ORDER BY l.seq DESC LIMIT p_limit
    ) AS n ORDER BY n.seq;
    RETURN;
  END IF;
  RETURN QUERY SELECT l.at_ms, l.kind, l.actor, l.job, l.reason, l.data, l.seq FROM lp.log AS l
  WHERE l.log = p_log AND l.seq > p_after ORDER BY l.seq LIMIT p_limit;
END $$;
