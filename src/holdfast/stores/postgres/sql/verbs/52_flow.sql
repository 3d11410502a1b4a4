-- Promise: the verbs of 50_enqueue for jobs of which some belong to flows: those that are stored are found by it.
-- Inputs: the same, and the flow of each job (NULL: none). Answer: the same. It only inserts, too.

CREATE OR REPLACE FUNCTION hf.enqueue_flow_1(
  p_batch hf.batch, p_now bigint, p_flows bytea[],
  OUT ids bytea[], OUT existing boolean[], OUT states smallint[],
  OUT w_lanes bigint[], OUT w_ns integer[], OUT w_dues bigint[], OUT w_gates text[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  SELECT * INTO ids, existing, states, w_lanes, w_ns, w_dues, w_gates FROM hf.enqueue_1(p_batch, p_now);
  INSERT INTO hf.flow_job (id, flow)
  SELECT j.id, j.flow FROM unnest(p_batch.ids, p_flows, existing) AS j (id, flow, existing)
  WHERE j.flow IS NOT NULL AND j.existing IS NOT TRUE;
END $$;

-- The same inside a transaction of the caller's own, as enqueue_on_1.
CREATE OR REPLACE FUNCTION hf.enqueue_flow_on_1(
  p_batch hf.batch, p_now bigint, p_flows bytea[],
  OUT ids bytea[], OUT existing boolean[], OUT states smallint[], OUT refused text, OUT message text, OUT hint text
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  SELECT s.ids, s.existing, s.states INTO ids, existing, states FROM hf.enqueue_flow_1(p_batch, p_now, p_flows) AS s;
  PERFORM pg_notify(hf.channel_1(), CASE WHEN 3 >= ANY (p_batch.priorities) THEN 'pu' ELSE 'p' END);
EXCEPTION WHEN SQLSTATE 'HF001' OR SQLSTATE 'HF002' THEN
  GET STACKED DIAGNOSTICS refused = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
END $$;

-- The same for outboxes, as relay_1.
CREATE OR REPLACE FUNCTION hf.relay_flow_1(
  p_source text, p_number bigint, p_batch hf.batch, p_now bigint, p_flows bytea[],
  OUT moved boolean, OUT ids bytea[], OUT existing boolean[], OUT states smallint[],
  OUT w_lanes bigint[], OUT w_ns integer[], OUT w_dues bigint[], OUT w_gates text[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  moved := hf.move_mark_1(p_source, p_number);
  IF moved THEN
    SELECT * INTO ids, existing, states, w_lanes, w_ns, w_dues, w_gates FROM hf.enqueue_flow_1(p_batch, p_now, p_flows);
  END IF;
END $$;
