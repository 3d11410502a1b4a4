-- Promise: new jobs are stored, all of a call or none; duplicates by id or unique key answer the job that is there.
-- It only inserts: it locks no lane, no gate and no parent's lane, so any number of callers' transactions can hold it
-- open side by side. Inputs: lanes and policies once each, jobs as parallel arrays that index them from 1, parents
-- before their children; extras, costs, delays, dues, expires, flows and unit_costs are NULL where every job is as most
-- are. Answer: ids, existing, states in order; ids NULL = all are new and as given. Usage errors are raised as LP001
-- (unknown parent), LP002 (draining) and, for guests, LP006 (full). Others hear of a full queue by `refused`: an error would
-- undo the count, and the next who is refused would have to count again. Relies on the primary keys.

-- Post the lanes of jobs that were just stored, once each, and count the jobs.
CREATE OR REPLACE FUNCTION lp.post_lanes(p_batch lp.batch, p_lane_of integer[], p_states smallint[], p_dues bigint[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WITH each AS (
    SELECT j.lane AS at, count(*) FILTER (WHERE j.state = :READY) AS ready, count(*) FILTER (WHERE j.state = :SCHEDULED) AS scheduled,
      count(*) FILTER (WHERE j.state = :BLOCKED) AS blocked, min(j.due) FILTER (WHERE j.state = :READY) AS first,
      min(j.due) FILTER (WHERE j.state = :SCHEDULED) AS timer
    FROM unnest(p_lane_of, p_states, p_dues) AS j (lane, state, due) GROUP BY j.lane
  ), timers AS (
    INSERT INTO lp.post (kind, lane, due_ms, class, member, ring, body)
    SELECT :POST_LANE, p_batch.lanes[at], timer, p_batch.classes[at], p_batch.members[at], p_batch.rings[at], p_batch.bodies[at]
    FROM each WHERE ready = 0 OR scheduled > 0 ORDER BY at
  ), ready AS (
    INSERT INTO lp.post (kind, lane, n, due_ms, id, class, member, ring, body)
    SELECT :POST_LANE, p_batch.lanes[at], ready, first, '\x', p_batch.classes[at], p_batch.members[at], p_batch.rings[at],
      p_batch.bodies[at]
    FROM each WHERE ready > 0 ORDER BY at
  )
  INSERT INTO lp.tally (lane, whats, ns)
  SELECT p_batch.lanes[at], '{:ENQUEUED,:READY,:SCHEDULED,:BLOCKED}', ARRAY[ready + scheduled + blocked, ready, scheduled, blocked] FROM each;
END $$;

-- Policies that are not stored yet: by the engine's own calls at once, by callers' transactions as a post.
CREATE OR REPLACE FUNCTION lp.store_policies(p_batch lp.batch) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_at integer;
BEGIN
  FOR v_at IN
    SELECT p.at FROM unnest(p_batch.policies) WITH ORDINALITY AS p (id, at)
    WHERE NOT EXISTS (SELECT 1 FROM lp.policy AS k WHERE k.id = p.id OFFSET 0) ORDER BY p.id
  LOOP
    IF p_batch.guest THEN
      INSERT INTO lp.post (kind, lane, body) VALUES (:POST_POLICY, p_batch.policies[v_at], p_batch.policy_bodies[v_at]);
    ELSE
      PERFORM lp.define_policy(p_batch.policies[v_at], p_batch.policy_bodies[v_at]);
    END IF;
  END LOOP;
END $$;

-- Limits and breakers that the jobs name: declared at once, or posted by callers' transactions.
CREATE OR REPLACE FUNCTION lp.store_rules(p_batch lp.batch, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_batch.rules IS NULL THEN
    RETURN;
  END IF;
  IF NOT p_batch.guest THEN
    PERFORM lp.declare(p_batch.rules, p_now);
    RETURN;
  END IF;
  INSERT INTO lp.post (kind, gate, body)
  SELECT :POST_RULE, r.rule ->> 'key', convert_to(r.rule::text, 'UTF8') FROM jsonb_array_elements(p_batch.rules) AS r (rule)
  LEFT JOIN lp.gate AS g ON g.key = ANY (ARRAY[r.rule ->> 'key'])
  WHERE g.key IS NULL OR g.declared AND lp.gate_rule(g, r.rule) IS DISTINCT FROM g;
END $$;

-- The flows of new jobs, and what they cost of other units than the plain one. p_new: by job; NULL: all are.
CREATE OR REPLACE FUNCTION lp.store_flows_and_costs(p_batch lp.batch, p_new boolean[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_batch.flows IS NOT NULL THEN
    INSERT INTO lp.flow_job (id, flow)
    SELECT j.id, j.flow FROM unnest(p_batch.ids, p_batch.flows, p_new) AS j (id, flow, new)
    WHERE j.flow IS NOT NULL AND j.new IS NOT FALSE;
  END IF;
  IF p_batch.unit_costs IS NOT NULL THEN
    INSERT INTO lp.cost_job (id, costs)
    SELECT j.id, p_batch.unit_costs -> (j.at - 1)::integer FROM unnest(p_batch.ids, p_new) WITH ORDINALITY AS j (id, new, at)
    WHERE jsonb_typeof(p_batch.unit_costs -> (j.at - 1)::integer) = 'object' AND j.new IS NOT FALSE;
  END IF;
END $$;

-- Jobs of one lane, which were just stored, are ready: as most are. p_expires and p_costs: by job, NULL where all are as most
-- are. p_lane: its definition as a post has it. (Not of lp.batch as a whole: to hand that on costs more than all of this.)
CREATE OR REPLACE FUNCTION lp.ready_in_one_lane(
  p_ids bytea[], p_expires bigint[], p_costs integer[], p_priority smallint,
  p_lane bigint, p_class bigint, p_member bigint, p_ring bigint, p_body bytea, p_now bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_count integer := cardinality(p_ids);
BEGIN
  INSERT INTO lp.wait (id, lane, due_ms, expires_ms, cost, state, priority)
  SELECT j.id, p_lane, p_now, p_now + j.expires, coalesce(j.cost, 1), :READY, p_priority FROM (
    SELECT unnest(p_ids) AS id, unnest(p_expires) AS expires, unnest(p_costs) AS cost
  ) AS j;
  INSERT INTO lp.post (kind, lane, n, due_ms, id, class, member, ring, body)
  VALUES (:POST_LANE, p_lane, v_count, p_now, '\x', p_class, p_member, p_ring, p_body);
  INSERT INTO lp.tally (lane, whats, ns) VALUES (p_lane, '{:ENQUEUED,:READY}', ARRAY[v_count, v_count]);
END $$;

-- The same for jobs of several lanes, or of which some are due later; where they are now.
CREATE OR REPLACE FUNCTION lp.wait_in_lanes(p_batch lp.batch, p_now bigint) RETURNS smallint[] LANGUAGE plpgsql AS $$
DECLARE
  v_dues bigint[];
  v_states smallint[];
BEGIN
  SELECT array_agg(d.due ORDER BY d.at), array_agg(CASE WHEN d.due > p_now THEN :SCHEDULED ELSE :READY END ORDER BY d.at)
  INTO v_dues, v_states FROM (
    SELECT CASE WHEN t.due IS NULL THEN p_now + coalesce(t.delay, 0) ELSE greatest(t.due, 0) END AS due, t.at
    FROM unnest(p_batch.ids, p_batch.delays, p_batch.dues) WITH ORDINALITY AS t (id, delay, due, at)
  ) AS d;
  INSERT INTO lp.wait (id, lane, due_ms, expires_ms, cost, state, priority)
  SELECT j.id, p_batch.lanes[j.lane], j.due, p_now + j.expires, coalesce(j.cost, 1), j.state, p_batch.priorities[j.lane] FROM (
    SELECT unnest(p_batch.ids) AS id, unnest(p_batch.lane_of) AS lane, unnest(v_dues) AS due,
      unnest(p_batch.expires) AS expires, unnest(p_batch.costs) AS cost, unnest(v_states) AS state
  ) AS j;
  PERFORM lp.post_lanes(p_batch, p_batch.lane_of, v_states, v_dues);
  RETURN v_states;
END $$;

-- The full path (51_enqueue_checked). p_tight: the jobs may not fit where a depth bounds them. What is `refused` then is an
-- answer and no error: an error would undo the count.
CREATE OR REPLACE FUNCTION lp.enqueue_checked(
  p_batch lp.batch, p_now bigint, p_bounded boolean, p_tight boolean,
  OUT ids bytea[], OUT existing boolean[], OUT states smallint[], OUT refused text
) LANGUAGE plpgsql AS $$
BEGIN
  IF NOT p_tight OR p_batch.guest THEN
    SELECT c.ids, c.existing, c.states INTO ids, existing, states FROM lp.insert_checked(p_batch, p_now, p_bounded) AS c;
    RETURN;
  END IF;
  IF p_batch.unique_keys IS NULL THEN -- who may wait for a key counts with it in hand
    PERFORM lp.recount_depths(p_batch);
  END IF;
  BEGIN
    SELECT c.ids, c.existing, c.states INTO ids, existing, states FROM lp.insert_checked(p_batch, p_now, true) AS c;
  EXCEPTION WHEN SQLSTATE 'LP006' THEN
    GET STACKED DIAGNOSTICS refused = MESSAGE_TEXT;
  END;
END $$;

-- What few jobs have: flows and costs of other units, a depth that bounds them, definitions that are not stored yet.
-- p_existing: by job, whether it was there before; NULL: none was.
CREATE OR REPLACE FUNCTION lp.store_what_few_have(p_batch lp.batch, p_existing boolean[], p_bounded boolean, p_unknown boolean, p_now bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_existing IS NULL AND (p_batch.flows IS NOT NULL OR p_batch.unit_costs IS NOT NULL) THEN -- the careful way has stored them
    PERFORM lp.store_flows_and_costs(p_batch, NULL);
  END IF;
  IF p_bounded THEN
    PERFORM lp.add_depths(p_batch, p_existing);
  END IF;
  -- Last: a claim that files the same must not wait for one who waits for a job or a key of a caller's transaction.
  IF p_unknown THEN
    PERFORM lp.store_policies(p_batch);
  END IF;
  IF p_batch.rules IS NOT NULL THEN
    PERFORM lp.store_rules(p_batch, p_now);
  END IF;
END $$;

-- The verb. The fast path, by far the most common: nothing is looked up but what could stand against it, and jobs are
-- expected to be new. When one of them was there, nothing has a place yet, and enqueue_checked finds out which.
CREATE OR REPLACE FUNCTION lp.enqueue_1(
  p_batch lp.batch, p_now bigint,
  OUT ids bytea[], OUT existing boolean[], OUT states smallint[], OUT store bigint, OUT refused text,
  OUT w_lanes bigint[], OUT w_ns integer[], OUT w_dues bigint[], OUT w_gates text[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint := lp.now_1(p_now);
  v_count integer := cardinality(p_batch.ids);
  v_new integer;
  v_careful boolean;
  v_bounded boolean; -- a depth bounds how many may wait where some of these would
  v_tight boolean := false; -- and they may not fit
  v_unknown boolean; -- a policy of theirs is not stored
BEGIN
  store := 'lp.home'::regclass::oid::bigint; -- a schema that is created again has another; known without a look
  SELECT p_batch.unique_keys IS NOT NULL OR p_batch.children IS NOT NULL
    OR g.draining IS TRUE OR EXISTS (SELECT 1 FROM lp.gone WHERE id = ANY (p_batch.ids)),
    g.bounded IS TRUE OR p_batch.rules IS NOT NULL AND p_batch.rules @? '$[*] ? (@.depth != null || @.tenant_depth != null)',
    EXISTS (
      SELECT 1 FROM unnest(p_batch.policies) AS p (id) WHERE NOT EXISTS (SELECT 1 FROM lp.policy AS k WHERE k.id = p.id OFFSET 0)
    )
  INTO v_careful, v_bounded, v_unknown FROM (
    SELECT bool_or(draining) AS draining, bool_or(depth IS NOT NULL OR tenant_depth IS NOT NULL) AS bounded
    FROM lp.gate WHERE key = ANY (p_batch.places)
  ) AS g;
  IF v_bounded AND NOT p_batch.always THEN
    v_tight := lp.may_not_fit(p_batch);
  END IF;
  IF NOT v_careful AND NOT v_tight THEN
    INSERT INTO lp.job (id, lane, policy, enqueued_ms, args, extra)
    SELECT j.id, p_batch.lanes[j.lane], p_batch.policies[j.policy], v_now, j.args, j.extra FROM ( -- faster than FROM unnest(…)
      SELECT unnest(p_batch.ids) AS id, unnest(p_batch.lane_of) AS lane, unnest(p_batch.policy_of) AS policy,
        unnest(p_batch.args) AS args, unnest(p_batch.extras) AS extra
    ) AS j ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS v_new = ROW_COUNT;
  END IF;
  IF v_new IS DISTINCT FROM v_count THEN
    SELECT c.* INTO ids, existing, states, refused
    FROM lp.enqueue_checked(p_batch, v_now, v_bounded AND NOT p_batch.always, v_tight) AS c;
    IF refused IS NOT NULL THEN
      RETURN;
    END IF;
  ELSIF cardinality(p_batch.lanes) = 1 AND p_batch.dues IS NULL AND p_batch.delays IS NULL THEN
    states := array_fill(:READY::smallint, ARRAY[v_count]);
    PERFORM lp.ready_in_one_lane(p_batch.ids, p_batch.expires, p_batch.costs, p_batch.priorities[1],
      p_batch.lanes[1], p_batch.classes[1], p_batch.members[1], p_batch.rings[1], p_batch.bodies[1], v_now);
    w_lanes := p_batch.lanes;
    w_ns := ARRAY[v_count];
    w_dues := ARRAY[NULL::bigint];
  ELSE
    states := lp.wait_in_lanes(p_batch, v_now);
  END IF;
  IF v_unknown OR v_bounded OR p_batch.rules IS NOT NULL OR p_batch.flows IS NOT NULL OR p_batch.unit_costs IS NOT NULL THEN
    PERFORM lp.store_what_few_have(p_batch, existing, v_bounded, v_unknown, v_now);
  END IF;
  IF NOT p_batch.guest AND (w_lanes IS NULL OR p_batch.rules IS NOT NULL) THEN -- reading would clash with other guests' posts
    SELECT p.lanes, p.ns, p.dues, p.gates INTO w_lanes, w_ns, w_dues, w_gates FROM lp.posted() AS p;
  END IF;
END $$;

-- The same inside a transaction of the caller's own. A refusal is a value: an error would end that transaction.
CREATE OR REPLACE FUNCTION lp.enqueue_on_1(
  p_batch lp.batch, p_now bigint,
  OUT ids bytea[], OUT existing boolean[], OUT states smallint[], OUT refused text, OUT message text, OUT hint text
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  SELECT s.ids, s.existing, s.states INTO ids, existing, states FROM lp.enqueue_1(p_batch, p_now) AS s;
  PERFORM pg_notify(lp.channel_1(), CASE WHEN :URGENT >= ANY (p_batch.priorities) THEN 'pu' ELSE 'p' END);
EXCEPTION WHEN SQLSTATE 'LP001' OR SQLSTATE 'LP002' OR SQLSTATE 'LP006' THEN
  GET STACKED DIAGNOSTICS refused = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
END $$;

-- The mark of an outbox moves to this batch; false when it was there before.
CREATE OR REPLACE FUNCTION lp.move_mark(p_source text, p_number bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lp.control AS c (kind, name, version, value) VALUES ('outbox', p_source, 1, convert_to(p_number::text, 'UTF8'))
  ON CONFLICT (kind, name) DO UPDATE SET version = c.version + 1, value = excluded.value
  WHERE convert_from(c.value, 'UTF8')::bigint < p_number;
  RETURN FOUND;
END $$;

-- The verb for outboxes: the same, and the mark of its source moves with it; `moved` false when it was there before.
CREATE OR REPLACE FUNCTION lp.relay_1(
  p_source text, p_number bigint, p_batch lp.batch, p_now bigint,
  OUT moved boolean, OUT ids bytea[], OUT existing boolean[], OUT states smallint[],
  OUT w_lanes bigint[], OUT w_ns integer[], OUT w_dues bigint[], OUT w_gates text[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_refused text;
BEGIN
  moved := lp.move_mark(p_source, p_number);
  IF NOT moved THEN
    RETURN;
  END IF;
  states := '{}';
  IF p_batch.ids <> '{}' THEN
    SELECT s.ids, s.existing, s.states, s.refused, s.w_lanes, s.w_ns, s.w_dues, s.w_gates
    INTO ids, existing, states, v_refused, w_lanes, w_ns, w_dues, w_gates FROM lp.enqueue_1(p_batch, p_now) AS s;
  END IF;
  IF v_refused IS NOT NULL THEN
    RAISE EXCEPTION '%', v_refused USING ERRCODE = 'LP006'; -- the mark stays where it was
  END IF;
END $$;
