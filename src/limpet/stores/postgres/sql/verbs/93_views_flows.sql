-- Promise: flows in one look each; changes nothing. Inputs: as named. Answer: rows. Relies on flow_job_flow and the primary
-- keys. A flow is there while a job of it is stored.

-- Verb: the flows before one, newest first (p_before NULL: the newest of all).
CREATE OR REPLACE FUNCTION lp.flow_ids_1(p_before bytea, p_limit integer) RETURNS SETOF bytea LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  RETURN QUERY
  WITH RECURSIVE step (flow) AS ( -- from one to the next, over all jobs between them
    (SELECT f.flow FROM lp.flow_job AS f WHERE f.flow < coalesce(p_before, '\xffffffffffffffffffffffffffffffffff')
     ORDER BY f.flow DESC LIMIT 1)
    UNION ALL
    SELECT n.flow FROM step CROSS JOIN LATERAL (
      SELECT f.flow FROM lp.flow_job AS f WHERE f.flow < step.flow ORDER BY f.flow DESC LIMIT 1
    ) AS n
  )
  SELECT step.flow FROM step LIMIT p_limit;
END $$;

-- Verb: those of these flows that are there, in no order: how many jobs are in which state, and when the first was enqueued.
CREATE OR REPLACE FUNCTION lp.flows_1(p_flows bytea[]) RETURNS TABLE (flow bytea, states smallint[], ns bigint[], enqueued_ms bigint)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  RETURN QUERY
  SELECT asked.flow, c.states, c.ns, (
    SELECT j.enqueued_ms FROM lp.job AS j
    WHERE j.id = (SELECT f.id FROM lp.flow_job AS f WHERE f.flow = asked.flow ORDER BY f.id LIMIT 1)
  )
  FROM (SELECT DISTINCT u.flow FROM unnest(p_flows) AS u (flow)) AS asked
  CROSS JOIN LATERAL (
    SELECT array_agg(s.state) AS states, array_agg(s.n) AS ns FROM (
      SELECT p.state, count(*) AS n FROM lp.flow_job AS f CROSS JOIN LATERAL (
        SELECT coalesce(
          (SELECT d.state FROM lp.done AS d WHERE d.id = f.id), (SELECT w.state FROM lp.wait AS w WHERE w.id = f.id), :RUNNING::smallint
        ) AS state
      ) AS p WHERE f.flow = asked.flow GROUP BY p.state
    ) AS s
  ) AS c WHERE c.states IS NOT NULL;
END $$;
