-- Promise: finished jobs go for good, with every trace but their ids: an enqueue repeated soon after is still the same job.
-- Inputs: as named. Answer: how many went.
-- Relies on the primary keys, dep_waiting. Whoever erases holds the rows of `done` FOR UPDATE: nobody becomes a child of what
-- is going, and those who still wait for it are cancelled (or released, if it succeeded).

-- Erase jobs that ended in `p_state`, whose rows of `done` are locked; those that went. p_since: from when on each id is
-- remembered; NULL: from its end on. Those with dependents stay while somebody else is at the graph.
CREATE OR REPLACE FUNCTION lp.erase(p_done lp.done[], p_state smallint, p_since bigint, p_now bigint) RETURNS lp.done[] LANGUAGE plpgsql AS $$
DECLARE
  v_ids bytea[] := ARRAY(SELECT d.id FROM unnest(p_done) AS d);
  v_stay bytea[] := lp.orphan(v_ids, array_fill(p_state, ARRAY[cardinality(v_ids)]), p_now);
  v_gone lp.done[] := p_done;
BEGIN
  IF v_stay <> '{}' THEN
    v_gone := ARRAY(SELECT d FROM unnest(p_done) AS d WHERE d.id <> ALL (v_stay));
    v_ids := ARRAY(SELECT d.id FROM unnest(v_gone) AS d);
  END IF;
  PERFORM lp.unique_release(v_ids, p_now);
  DELETE FROM lp.done WHERE id = ANY (v_ids);
  DELETE FROM lp.job WHERE id = ANY (v_ids);
  DELETE FROM lp.result WHERE id = ANY (v_ids);
  DELETE FROM lp.note WHERE job = ANY (v_ids);
  DELETE FROM lp.attempt WHERE job = ANY (v_ids);
  DELETE FROM lp.dep WHERE child = ANY (v_ids);
  DELETE FROM lp.dep_far WHERE child = ANY (v_ids);
  DELETE FROM lp.flow_job WHERE id = ANY (v_ids);
  DELETE FROM lp.cost_job WHERE id = ANY (v_ids);
  DELETE FROM lp.watch WHERE job = ANY (v_ids);
  INSERT INTO lp.gone (id, state, until_ms)
  SELECT d.id, p_state, coalesce(p_since, d.finished_ms) + 600000 FROM unnest(v_gone) AS d
  WHERE coalesce(p_since, d.finished_ms) + 600000 > p_now
  ON CONFLICT (id) DO UPDATE SET state = excluded.state, until_ms = excluded.until_ms;
  INSERT INTO lp.tally (lane, whats, ns)
  SELECT d.lane, ARRAY[p_state, :ERASED], ARRAY[-count(*), count(*)] FROM unnest(v_gone) AS d GROUP BY d.lane;
  RETURN v_gone;
END $$;

-- Remove dead jobs, whose rows of `done` are locked: the causes they died of have so many fewer.
CREATE OR REPLACE FUNCTION lp.erase_dead(p_dead lp.done[], p_now bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  v_gone lp.done[] := lp.erase(p_dead, :DEAD::smallint, p_now, p_now);
BEGIN
  PERFORM lp.unbury(d.id, d.lane, d.cause, p_now) FROM unnest(v_gone) AS d;
  INSERT INTO lp.tally (lane, whats, ns) SELECT d.lane, '{:DISCARDED}', ARRAY[count(*)] FROM unnest(v_gone) AS d GROUP BY d.lane;
  RETURN cardinality(v_gone);
END $$;

-- Verb: dead jobs are removed for good. p_call names this call, for one that is repeated since its answer was lost.
CREATE OR REPLACE FUNCTION lp.discard_1(
  p_call text, p_ids bytea[], p_now bigint, OUT gone bigint,
  OUT w_lanes bigint[], OUT w_ns integer[], OUT w_dues bigint[], OUT w_gates text[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan SET lock_timeout = '1s' AS $$
DECLARE
  v_now bigint := lp.now_1(p_now);
  v_answered bigint[] := lp.answered_before(p_call, v_now);
BEGIN
  gone := v_answered[1];
  IF v_answered IS NOT NULL THEN
    RETURN;
  END IF;
  PERFORM lp.lock_keys(p_ids, false);
  PERFORM lp.lock(:GRAPH);
  gone := lp.erase_dead(ARRAY(
    SELECT d FROM lp.done AS d WHERE d.id = ANY (p_ids) AND d.state = :DEAD ORDER BY d.id FOR UPDATE
  ), v_now);
  PERFORM lp.note_answer(p_call, ARRAY[gone]);
  SELECT * INTO w_lanes, w_ns, w_dues, w_gates FROM lp.posted();
END $$;
