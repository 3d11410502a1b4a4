-- Promise: which job holds an idempotency key; whether it still holds is read off the job itself, so settling costs
-- nothing. Inputs: keys as bytes (task, a zero byte, key). Answer: the job that holds a key. Relies on the primary keys. Keys are locked in their order.

-- A key without its task.
CREATE OR REPLACE FUNCTION lp.bare_key(p_key bytea) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
  SELECT substring(p_key FROM position('\x00'::bytea IN p_key) + 1)
$$;

-- The job that holds a key now: it is in one of the key's states, or its window is not over.
CREATE OR REPLACE FUNCTION lp.unique_holder(p_key bytea, p_now bigint) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE
  v_held lp.unique_key;
  v_state smallint;
  v_in_window boolean;
BEGIN
  SELECT * INTO v_held FROM lp.unique_key WHERE key = p_key;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  v_state := lp.state_of(v_held.job);
  v_in_window := coalesce(v_held.until_ms > p_now, false);
  IF v_state IS NULL THEN -- pruned: only the window can hold
    RETURN CASE WHEN v_in_window THEN v_held.job END;
  END IF;
  IF (v_held.states >> v_state) & 1 = 1 OR (v_in_window AND v_state NOT IN (:DEAD, :CANCELLED)) THEN
    RETURN v_held.job;
  END IF;
  RETURN NULL;
END $$;

-- Take a key for a job, or answer its holder. A call that finds it held locks nothing: a duplicate in a caller's open
-- transaction blocks no other call. Waits for another enqueue of the same key: only its end can tell.
CREATE OR REPLACE FUNCTION lp.unique_take(p_key bytea, p_id bytea, p_states smallint, p_until bigint, p_now bigint)
RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE
  v_holder bytea := lp.unique_holder(p_key, p_now);
BEGIN
  WHILE v_holder IS NULL LOOP
    INSERT INTO lp.unique_key (key, job, states, until_ms) VALUES (p_key, p_id, p_states, p_until)
    ON CONFLICT (key) DO NOTHING;
    IF FOUND THEN
      RETURN p_id;
    END IF;
    PERFORM 1 FROM lp.unique_key WHERE key = p_key FOR UPDATE;
    IF FOUND THEN
      v_holder := lp.unique_holder(p_key, p_now);
      IF v_holder IS NULL THEN
        UPDATE lp.unique_key SET job = p_id, states = p_states, until_ms = p_until WHERE key = p_key;
        RETURN p_id;
      END IF;
    END IF;
  END LOOP;
  RETURN v_holder;
END $$;

-- A finished job is to live again: its key is its own again, unless another job holds it by now, or is about to: the
-- caller holds the graph, and must not wait for transactions of others that take their time.
CREATE OR REPLACE FUNCTION lp.unique_reclaim(p_id bytea, p_now bigint) RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '250ms' AS $$
DECLARE
  v_key bytea;
  v_states smallint;
BEGIN
  SELECT unique_key, unique_states INTO v_key, v_states FROM lp.job WHERE id = p_id;
  IF v_key IS NULL THEN
    RETURN true;
  END IF;
  PERFORM 1 FROM lp.unique_key WHERE key = v_key AND job = p_id FOR UPDATE;
  IF FOUND THEN -- it was free in between: its states and window are still its own
    RETURN true;
  END IF;
  RETURN lp.unique_take(v_key, p_id, v_states, NULL, p_now) = p_id;
EXCEPTION WHEN lock_not_available THEN
  RETURN false;
END $$;

-- Jobs are being erased: their keys go with them, or stay for the rest of their window.
CREATE OR REPLACE FUNCTION lp.unique_release(p_ids bytea[], p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_key bytea;
  v_id bytea;
BEGIN
  FOR v_key, v_id IN
    SELECT j.unique_key, gone.id FROM unnest(p_ids) AS gone (id)
    CROSS JOIN LATERAL (SELECT x.unique_key FROM lp.job AS x WHERE x.id = gone.id OFFSET 0) AS j
    WHERE j.unique_key IS NOT NULL ORDER BY j.unique_key
  LOOP
    DELETE FROM lp.key_job AS k WHERE k.key = lp.bare_key(v_key) AND k.id = v_id;
    DELETE FROM lp.unique_key AS u WHERE u.key = v_key AND u.job = v_id AND coalesce(u.until_ms <= p_now, true);
    IF NOT FOUND THEN
      UPDATE lp.unique_key AS u SET states = 0 WHERE u.key = v_key AND u.job = v_id;
    END IF;
  END LOOP;
END $$;
