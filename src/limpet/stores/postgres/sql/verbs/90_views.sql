-- Promise: jobs as people see them, by id; changes nothing. Inputs: ids, or the end of one. Answer: rows.
-- Relies on the primary keys. Each answer is one statement, so one snapshot: a job that moves meanwhile is there once.

-- Everything about these jobs, in no order; those that are not there are missing.
CREATE OR REPLACE FUNCTION lp.jobs_1(p_ids bytea[]) RETURNS TABLE (
  id bytea, state smallint, lane bigint, policy bigint, args bytea, attempt integer, lost integer, enqueued_ms bigint,
  due_ms bigint, claimed_ms bigint, finished_ms bigint, expires_ms bigint, token bigint, session text, flags smallint,
  reason text, cause text, error_type text, result bytea, extra bytea, held integer,
  note_kinds text[], note_names text[], note_bodies bytea[]
) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  RETURN QUERY
  SELECT j.id, p.state, p.lane, j.policy, j.args, p.attempt, p.lost, j.enqueued_ms, p.due_ms, p.claimed_ms,
    p.finished_ms, p.expires_ms, p.token, (SELECT e.session FROM lp.lease AS e WHERE e.token = p.token), p.flags,
    p.reason, p.cause, p.error_type,
    CASE WHEN p.state = :SUCCEEDED THEN (SELECT r.body FROM lp.result AS r WHERE r.id = j.id) END, j.extra, p.held,
    n.kinds, n.names, n.bodies
  FROM unnest(p_ids) AS asked (id)
  JOIN lp.job AS j ON j.id = asked.id
  CROSS JOIN LATERAL (
    SELECT w.state, w.lane, w.attempt, w.lost, w.due_ms, NULL::bigint AS claimed_ms, NULL::bigint AS finished_ms,
      w.expires_ms, NULL::bigint AS token, w.flags, w.reason, w.cause, w.error_type, w.held
    FROM lp.wait AS w WHERE w.id = j.id
    UNION ALL
    SELECT :RUNNING::smallint, r.lane, r.attempt, r.lost, r.due_ms, r.claimed_ms, NULL, r.expires_ms, r.token, r.flags,
      r.reason, r.cause, r.error_type, r.held
    FROM lp.running AS r WHERE r.id = j.id
    UNION ALL
    SELECT d.state, d.lane, d.attempt, d.lost, d.due_ms, d.claimed_ms, d.finished_ms, d.expires_ms, NULL, d.flags,
      d.reason, d.cause, d.error_type, d.held
    FROM lp.done AS d WHERE d.id = j.id
  ) AS p
  LEFT JOIN LATERAL (
    SELECT array_agg(o.kind) AS kinds, array_agg(o.name) AS names, array_agg(o.body) AS bodies FROM (
      SELECT m.kind, m.name, m.body FROM lp.note AS m WHERE p.flags & :NOTES <> 0 AND m.job = j.id
      ORDER BY m.kind COLLATE "C", m.name COLLATE "C"
    ) AS o
  ) AS n ON true;
END $$;

-- Up to three ids that end in these bytes (and before them in this half byte, unless it is NULL), newest first.
CREATE OR REPLACE FUNCTION lp.resolve_1(p_end bytea, p_half integer, p_look integer) RETURNS SETOF bytea LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_at integer := 16 - length(p_end); -- where the end begins, counted from 0
BEGIN
  IF v_at = 0 THEN
    RETURN QUERY SELECT j.id FROM lp.job AS j WHERE j.id = p_end;
    RETURN;
  END IF;
  RETURN QUERY
  SELECT newest.id FROM (SELECT j.id FROM lp.job AS j ORDER BY j.id DESC LIMIT p_look) AS newest
  WHERE length(newest.id) = 16 AND substring(newest.id FROM v_at + 1) = p_end
    AND (p_half IS NULL OR get_byte(newest.id, v_at - 1) & 15 = p_half)
  LIMIT 3;
END $$;

-- Every recorded attempt of a job, oldest first.
CREATE OR REPLACE FUNCTION lp.attempts_1(p_id bytea) RETURNS TABLE (
  number integer, outcome text, started_ms bigint, finished_ms bigint, session text, kind text, type text,
  message text, traceback text, cause text
) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  RETURN QUERY
  SELECT a.number, a.outcome, a.started_ms, a.finished_ms, a.session, a.kind, a.type, a.message, a.traceback, a.cause
  FROM lp.attempt AS a WHERE a.job = p_id ORDER BY a.seq;
END $$;
