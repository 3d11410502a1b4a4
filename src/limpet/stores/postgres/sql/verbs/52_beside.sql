-- Promise: the verbs of 50_enqueue for jobs of which some have what few jobs have: a flow by which they are found, or costs
-- of other units than the plain one. Inputs: the same; the flow of each job, and what it costs by unit ({unit: how much} or
-- null, by position), both NULL where no job has such. Answer: the same. It only inserts, too.

CREATE OR REPLACE FUNCTION lp.enqueue_beside_1(
  p_batch lp.batch, p_now bigint, p_flows bytea[], p_costs jsonb,
  OUT ids bytea[], OUT existing boolean[], OUT states smallint[],
  OUT w_lanes bigint[], OUT w_ns integer[], OUT w_dues bigint[], OUT w_gates text[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  IF p_flows IS NOT NULL AND p_batch.on_duplicate IS NOT NULL THEN
    p_batch.on_duplicate := ARRAY(
      SELECT CASE WHEN j.flow IS NOT NULL AND j.how > 0 THEN j.how + 2 ELSE j.how END
      FROM unnest(p_batch.on_duplicate, p_flows) WITH ORDINALITY AS j (how, flow, at) ORDER BY j.at
    );
  END IF;
  SELECT * INTO ids, existing, states, w_lanes, w_ns, w_dues, w_gates FROM lp.enqueue_1(p_batch, p_now);
  IF p_flows IS NOT NULL THEN
    INSERT INTO lp.flow_job (id, flow)
    SELECT j.id, j.flow FROM unnest(p_batch.ids, p_flows, existing) AS j (id, flow, existing)
    WHERE j.flow IS NOT NULL AND j.existing IS NOT TRUE;
  END IF;
  IF p_costs IS NOT NULL THEN
    INSERT INTO lp.cost_job (id, costs)
    SELECT j.id, p_costs -> (j.at - 1)::integer FROM unnest(p_batch.ids, existing) WITH ORDINALITY AS j (id, existing, at)
    WHERE jsonb_typeof(p_costs -> (j.at - 1)::integer) = 'object' AND j.existing IS NOT TRUE;
    IF 0 < ANY (p_batch.on_duplicate) THEN -- those whose words the waiting job has taken are told by these
      INSERT INTO lp.cost_job (id, costs)
      SELECT DISTINCT ON (j.target) j.target, p_costs -> (j.at - 1)::integer
      FROM unnest(ids, existing, p_batch.on_duplicate, p_batch.extras) WITH ORDINALITY AS j (target, existing, how, extra, at)
      CROSS JOIN LATERAL (SELECT FROM lp.job AS x WHERE x.id = j.target AND x.extra = j.extra OFFSET 0) AS x
      WHERE j.existing AND j.how IN (1, 2) AND jsonb_typeof(p_costs -> (j.at - 1)::integer) = 'object'
      ORDER BY j.target, j.at DESC
      ON CONFLICT (id) DO UPDATE SET costs = excluded.costs;
    END IF;
  END IF;
END $$;

-- The same inside a transaction of the caller's own, as enqueue_on_1.
CREATE OR REPLACE FUNCTION lp.enqueue_beside_on_1(
  p_batch lp.batch, p_now bigint, p_flows bytea[], p_costs jsonb,
  OUT ids bytea[], OUT existing boolean[], OUT states smallint[], OUT refused text, OUT message text, OUT hint text
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  SELECT s.ids, s.existing, s.states INTO ids, existing, states FROM lp.enqueue_beside_1(p_batch, p_now, p_flows, p_costs) AS s;
  PERFORM pg_notify(lp.channel_1(), CASE WHEN 3 >= ANY (p_batch.priorities) THEN 'pu' ELSE 'p' END);
EXCEPTION WHEN SQLSTATE 'LP001' OR SQLSTATE 'LP002' THEN
  GET STACKED DIAGNOSTICS refused = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
END $$;

-- The same for outboxes, as relay_1.
CREATE OR REPLACE FUNCTION lp.relay_beside_1(
  p_source text, p_number bigint, p_batch lp.batch, p_now bigint, p_flows bytea[], p_costs jsonb,
  OUT moved boolean, OUT ids bytea[], OUT existing boolean[], OUT states smallint[],
  OUT w_lanes bigint[], OUT w_ns integer[], OUT w_dues bigint[], OUT w_gates text[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  moved := lp.move_mark_1(p_source, p_number);
  IF moved THEN
    SELECT * INTO ids, existing, states, w_lanes, w_ns, w_dues, w_gates FROM lp.enqueue_beside_1(p_batch, p_now, p_flows, p_costs);
  END IF;
END $$;
