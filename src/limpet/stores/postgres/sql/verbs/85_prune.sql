-- Promise: finished jobs that have outlived their time go, with every trace but their ids (an enqueue repeated soon after is
-- still the same job), and so do ids, keys, receipts and lines of logs; in small steps that block no other call.
-- Inputs: as named. Answer: how many rows went.
-- Relies on the primary keys, dep_waiting, done_finished, gone_until, unique_key_orphan, receipt_at, log_by. A step that erases
-- holds the rows of `done` FOR UPDATE: no job becomes a child of an erased one, and jobs that still wait for it are cancelled
-- (or released, if it succeeded). Locked rows are left for the next time. One prunes at a time (lock PRUNE).

-- Erase jobs that ended in `p_state`, whose rows of `done` are locked; those that went. p_since: from when on each id is
-- remembered; NULL: from its end on. Jobs with dependents stay while another transaction holds the graph.
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

-- Remove dead jobs, whose rows of `done` are locked: the counts of their causes fall.
CREATE OR REPLACE FUNCTION lp.erase_dead(p_dead lp.done[], p_now bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  v_gone lp.done[] := lp.erase(p_dead, :DEAD::smallint, p_now, p_now);
BEGIN
  PERFORM lp.unbury(d.id, d.lane, d.cause, p_now) FROM unnest(v_gone) AS d;
  INSERT INTO lp.tally (lane, whats, ns) SELECT d.lane, '{:DISCARDED}', ARRAY[count(*)] FROM unnest(v_gone) AS d GROUP BY d.lane;
  RETURN cardinality(v_gone);
END $$;

-- Finished jobs of a state that ended at `p_until` or before, `p_from` or after, the oldest first.
CREATE OR REPLACE FUNCTION lp.lock_outlived(p_state smallint, p_from bigint, p_until bigint, p_limit integer) RETURNS lp.done[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN ARRAY(
    SELECT d FROM lp.done AS d WHERE d.state = p_state AND d.finished_ms >= p_from AND d.finished_ms <= p_until
    ORDER BY d.finished_ms, d.id LIMIT p_limit FOR UPDATE SKIP LOCKED
  );
END $$;

-- Those of these jobs, locked, that may go: a step that takes a key over, in a transaction that may be open for
-- long, holds the key. The keys of the others are locked.
CREATE OR REPLACE FUNCTION lp.with_free_keys(p_done lp.done[]) RETURNS lp.done[] LANGUAGE plpgsql AS $$
DECLARE
  v_keys bytea[];
  v_ids bytea[];
  v_free bytea[];
BEGIN
  SELECT array_agg(j.unique_key), array_agg(j.id) INTO v_keys, v_ids FROM lp.job AS j
  WHERE j.id = ANY (ARRAY(SELECT d.id FROM unnest(p_done) AS d)) AND j.unique_key IS NOT NULL;
  IF v_keys IS NULL THEN
    RETURN p_done;
  END IF;
  v_free := ARRAY(SELECT u.job FROM lp.unique_key AS u WHERE u.key = ANY (v_keys) AND u.job = ANY (v_ids) FOR UPDATE SKIP LOCKED);
  RETURN ARRAY(
    SELECT d FROM unnest(p_done) AS d WHERE d.id <> ALL (ARRAY(
      SELECT u.job FROM lp.unique_key AS u WHERE u.key = ANY (v_keys) AND u.job = ANY (v_ids) AND u.job <> ALL (v_free)
    ))
  );
END $$;

-- Erase these finished jobs of a state; how many went.
CREATE OR REPLACE FUNCTION lp.erase_old(p_done lp.done[], p_state smallint, p_now bigint) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
  IF p_state = :DEAD THEN
    RETURN lp.erase_dead(p_done, p_now);
  END IF;
  RETURN cardinality(lp.erase(p_done, p_state, NULL, p_now));
END $$;

-- Verb: finished jobs of a state go when they ended `p_keep` ms ago.
CREATE OR REPLACE FUNCTION lp.prune_jobs_1(
  p_state smallint, p_keep bigint, p_limit integer, p_now bigint, OUT removed integer,
  OUT w_lanes bigint[], OUT w_ns integer[], OUT w_dues bigint[], OUT w_gates text[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan SET lock_timeout = '1s' AS $$
DECLARE
  v_now bigint := lp.now_1(p_now);
  v_from bigint;
  v_old lp.done[];
BEGIN
  removed := 0;
  IF NOT lp.try_lock(:PRUNE) THEN
    RETURN;
  END IF;
  SELECT at_ms INTO v_from FROM lp.pruned WHERE what = p_state::text;
  v_old := lp.lock_outlived(p_state, v_from, v_now - p_keep, p_limit);
  IF cardinality(v_old) < p_limit AND v_from > 0 THEN
    v_old := lp.lock_outlived(p_state, 0, v_now - p_keep, p_limit); -- what was held, or ended by another clock
  END IF;
  IF v_old = '{}' THEN
    RETURN;
  END IF;
  UPDATE lp.pruned SET at_ms = (v_old[cardinality(v_old)]).finished_ms WHERE what = p_state::text;
  v_old := lp.with_free_keys(v_old);
  removed := lp.erase_old(v_old, p_state, v_now);
  SELECT * INTO w_lanes, w_ns, w_dues, w_gates FROM lp.posted();
END $$;

-- Begin a walk of this name, or continue it. Once a day it begins again, for jobs that were locked or ended by another clock.
CREATE OR REPLACE FUNCTION lp.go_on_walking(p_name text, p_now bigint) RETURNS lp.walked LANGUAGE plpgsql AS $$
DECLARE
  v_walk lp.walked;
BEGIN
  INSERT INTO lp.walked (name, since_ms) VALUES (p_name, p_now) ON CONFLICT (name) DO NOTHING;
  UPDATE lp.walked SET at_ms = -1, id = '', since_ms = p_now
  WHERE name = p_name AND NOT p_now - since_ms BETWEEN 0 AND 86399999;
  SELECT w.* INTO v_walk FROM lp.walked AS w WHERE w.name = p_name;
  RETURN v_walk;
END $$;

-- Verb: the same for the jobs of one queue, or (p_queue NULL) of all queues but these. It continues where the walk of
-- that name stopped, over jobs that stay too, `p_looked` of them at most: the index knows no queues. `ended`: nothing is left
-- to look at for now.
CREATE OR REPLACE FUNCTION lp.prune_walk_1(
  p_name text, p_state smallint, p_keep bigint, p_queue text, p_others text[], p_limit integer, p_looked integer, p_now bigint,
  OUT removed integer, OUT ended boolean,
  OUT w_lanes bigint[], OUT w_ns integer[], OUT w_dues bigint[], OUT w_gates text[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan SET lock_timeout = '1s' AS $$
DECLARE
  v_now bigint := lp.now_1(p_now);
  v_walk lp.walked;
  v_at_ms bigint[];
  v_ids bytea[];
  v_ours boolean[];
  v_last integer;
  v_old lp.done[];
BEGIN
  removed := 0;
  ended := true;
  IF NOT lp.try_lock(:PRUNE) THEN
    RETURN;
  END IF;
  v_walk := lp.go_on_walking(p_name, v_now);
  SELECT array_agg(f.finished_ms ORDER BY f.finished_ms, f.id), array_agg(f.id ORDER BY f.finished_ms, f.id),
    array_agg(f.ours ORDER BY f.finished_ms, f.id)
  INTO v_at_ms, v_ids, v_ours FROM (
    SELECT d.finished_ms, d.id, CASE WHEN p_queue IS NULL THEN l.queue <> ALL (p_others) ELSE l.queue = p_queue END AS ours
    FROM (
      SELECT o.finished_ms, o.id, o.lane FROM lp.done AS o
      WHERE o.state = p_state AND (o.finished_ms, o.id) > (v_walk.at_ms, v_walk.id) AND o.finished_ms <= v_now - p_keep
      ORDER BY o.finished_ms, o.id LIMIT p_looked
    ) AS d CROSS JOIN LATERAL (SELECT n.queue FROM lp.lane AS n WHERE n.id = d.lane OFFSET 0) AS l
  ) AS f;
  IF v_ids IS NULL THEN
    RETURN;
  END IF;
  v_last := coalesce((
    SELECT o.at FROM (
      SELECT u.at, row_number() OVER (ORDER BY u.at) AS number FROM unnest(v_ours) WITH ORDINALITY AS u (ours, at) WHERE u.ours
    ) AS o WHERE o.number = p_limit
  ), cardinality(v_ids));
  ended := v_last = cardinality(v_ids) AND cardinality(v_ids) < p_looked;
  UPDATE lp.walked SET at_ms = v_at_ms[v_last], id = v_ids[v_last] WHERE name = p_name;
  v_old := lp.with_free_keys(ARRAY(
    SELECT d FROM lp.done AS d WHERE d.id = ANY (ARRAY(
      SELECT u.id FROM unnest(v_ids[:v_last], v_ours[:v_last]) AS u (id, ours) WHERE u.ours
    )) AND d.state = p_state FOR UPDATE SKIP LOCKED
  ));
  IF v_old = '{}' THEN
    RETURN;
  END IF;
  removed := lp.erase_old(v_old, p_state, v_now);
  SELECT * INTO w_lanes, w_ns, w_dues, w_gates FROM lp.posted();
END $$;

-- Lines of a log, among the oldest `p_limit`, that were written at `p_until` or before.
CREATE OR REPLACE FUNCTION lp.prune_log(p_log text, p_until bigint, p_limit integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  v_removed integer;
BEGIN
  DELETE FROM lp.log WHERE seq = ANY (ARRAY(
    SELECT f.seq FROM (SELECT l.seq, l.at_ms FROM lp.log AS l WHERE l.log = p_log ORDER BY l.seq LIMIT p_limit) AS f
    WHERE f.at_ms <= p_until
  ));
  GET DIAGNOSTICS v_removed = ROW_COUNT;
  RETURN v_removed;
END $$;

-- The oldest events beyond their number.
CREATE OR REPLACE FUNCTION lp.prune_events(p_keep integer, p_limit integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  v_removed integer;
BEGIN
  DELETE FROM lp.log WHERE seq = ANY (ARRAY(
    SELECT l.seq FROM lp.log AS l WHERE l.log = 'event' AND l.seq <= (
      SELECT e.seq FROM lp.log AS e WHERE e.log = 'event' ORDER BY e.seq DESC LIMIT 1 OFFSET p_keep
    ) ORDER BY l.seq LIMIT p_limit
  ));
  GET DIAGNOSTICS v_removed = ROW_COUNT;
  RETURN v_removed;
END $$;

-- Ids that were remembered long enough.
CREATE OR REPLACE FUNCTION lp.prune_gone(p_limit integer, p_now bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  v_from bigint := (SELECT at_ms FROM lp.pruned WHERE what = 'gone');
  v_ids bytea[];
  v_last bigint;
BEGIN
  LOOP
    SELECT array_agg(g.id), max(g.until_ms) INTO v_ids, v_last FROM (
      SELECT id, until_ms FROM lp.gone WHERE until_ms <= p_now AND until_ms >= v_from
      ORDER BY until_ms LIMIT p_limit FOR UPDATE SKIP LOCKED
    ) AS g;
    EXIT WHEN v_from = 0 OR cardinality(v_ids) = p_limit;
    v_from := 0;
  END LOOP;
  IF v_ids IS NULL THEN
    RETURN 0;
  END IF;
  DELETE FROM lp.gone WHERE id = ANY (v_ids);
  UPDATE lp.pruned SET at_ms = v_last WHERE what = 'gone';
  RETURN cardinality(v_ids);
END $$;

-- Keys of erased jobs whose windows are over, and receipts of callers who are not alive.
CREATE OR REPLACE FUNCTION lp.prune_small(p_limit integer, p_now bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  v_keys integer;
  v_receipts integer;
BEGIN
  DELETE FROM lp.unique_key WHERE key = ANY (ARRAY(
    SELECT u.key FROM lp.unique_key AS u WHERE u.states = 0 AND u.until_ms <= p_now LIMIT p_limit FOR UPDATE SKIP LOCKED
  ));
  GET DIAGNOSTICS v_keys = ROW_COUNT;
  DELETE FROM lp.receipt AS r USING (
    SELECT o.session, o.claimer FROM lp.receipt AS o
    WHERE o.at_ms <= p_now - 3600000 AND NOT EXISTS (SELECT FROM lp.session AS s WHERE s.id = o.session OFFSET 0)
    LIMIT p_limit FOR UPDATE SKIP LOCKED
  ) AS old WHERE r.session = ANY (ARRAY[old.session]) AND r.claimer = ANY (ARRAY[old.claimer]);
  GET DIAGNOSTICS v_receipts = ROW_COUNT;
  RETURN v_keys + v_receipts;
END $$;

-- Breakers are counted again: of those that failures made, some are gone.
CREATE OR REPLACE FUNCTION lp.count_breakers() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM setval('lp.breakers', (SELECT count(*) FROM lp.gate AS g WHERE g.key >= 'breaker:' AND g.key < 'breaker;'));
END $$;

-- Verb: all that is not a job. How long lines of the two logs stay: NULL = for ever.
CREATE OR REPLACE FUNCTION lp.prune_rest_1(
  p_audit bigint, p_event bigint, p_events integer, p_limit integer, p_now bigint
) RETURNS integer LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint := lp.now_1(p_now);
  v_removed integer;
BEGIN
  IF NOT lp.try_lock(:PRUNE) THEN
    RETURN 0;
  END IF;
  PERFORM lp.count_breakers();
  v_removed := lp.prune_gone(p_limit, v_now) + lp.prune_small(p_limit, v_now);
  IF p_audit IS NOT NULL THEN
    v_removed := v_removed + lp.prune_log('audit', v_now - p_audit, p_limit);
  END IF;
  IF p_event IS NOT NULL THEN
    v_removed := v_removed + lp.prune_log('event', v_now - p_event, p_limit);
  END IF;
  RETURN v_removed + lp.prune_depths(p_limit) + lp.prune_events(p_events, p_limit);
END $$;
