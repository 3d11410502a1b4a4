-- Promise: the next jobs of one index, in its order, from behind a position; changes nothing.
-- Inputs: the states that are asked for, the way to go, the position (a, b, id) of the last job seen (id NULL: begin),
-- how many, what the filter that follows needs to know, and the flow or unique key by which to look. Answer: one row of
-- arrays. Relies on wait_blocked, wait_scheduled, wait_ready, running_token, done_finished, flow_job_flow, and the primary
-- keys of key_job and of the places.
-- Positions stay where they are while jobs come and go, so they can be cursors. However few candidates fit a query, no
-- more than `p_limit` entries of an index are looked at.

-- The statement that walks one index: $1 $2 $3 are the position, $4 is how many. `p_a`, `p_b`: what orders it before
-- the id, if anything does. `p_at`: the instant of its state, which is when it is due, was claimed or has ended.
CREATE OR REPLACE FUNCTION lp.walk_statement(p_place text, p_state text, p_at text, p_where text, p_a text, p_b text, p_newest boolean)
RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  v_way text := CASE WHEN p_newest THEN ' DESC' ELSE ' ASC' END;
  v_order text := concat_ws(', ', p_a || v_way, p_b || v_way, 't.id' || v_way);
  v_keys text := concat_ws(', ', p_a, p_b, 't.id');
  v_last text := concat_ws(', ', CASE WHEN p_a IS NOT NULL THEN '$1' END, CASE WHEN p_b IS NOT NULL THEN '$2' END, '$3');
BEGIN
  RETURN 'SELECT ' || coalesce(p_a, '0') || '::bigint AS a, ' || coalesce(p_b, '0') || '::bigint AS b, t.id, '
    || p_state || '::smallint AS state, t.lane, t.attempt, t.lost, t.reason, t.cause, t.error_type, t.'
    || p_at || ' AS at_ms FROM ' || p_place || ' AS t WHERE ' || p_where || ' AND (' || v_keys || ') '
    || CASE WHEN p_newest THEN '<' ELSE '>' END || ' (' || v_last || ') ORDER BY ' || v_order || ' LIMIT $4';
END $$;

-- A single state goes by its own index; several go by id, through the places that can hold them.
CREATE OR REPLACE FUNCTION lp.statement_of_states(p_states smallint[], p_newest boolean) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  v_parts text[];
BEGIN
  IF cardinality(p_states) = 1 THEN
    RETURN CASE p_states[1]
      WHEN :BLOCKED THEN lp.walk_statement('lp.wait', 't.state', 'due_ms', 't.state = :BLOCKED', NULL, NULL, p_newest)
      WHEN :SCHEDULED THEN lp.walk_statement('lp.wait', 't.state', 'due_ms', 't.state = :SCHEDULED', 't.priority', 't.due_ms', p_newest)
      WHEN :READY THEN lp.walk_statement('lp.wait', 't.state', 'due_ms', 't.state = :READY', 't.lane', 't.due_ms', p_newest)
      WHEN :RUNNING THEN lp.walk_statement('lp.running', ':RUNNING', 'claimed_ms', 'true', 't.token', NULL, p_newest)
      ELSE lp.walk_statement('lp.done', 't.state', 'finished_ms', 't.state = ' || p_states[1], 't.finished_ms', NULL, p_newest)
    END;
  END IF;
  IF p_states && '{:BLOCKED,:SCHEDULED,:READY}' THEN
    v_parts := v_parts || lp.walk_statement('lp.wait', 't.state', 'due_ms', 'true', NULL, NULL, p_newest);
  END IF;
  IF p_states && '{:RUNNING}' THEN
    v_parts := v_parts || lp.walk_statement('lp.running', ':RUNNING', 'claimed_ms', 'true', NULL, NULL, p_newest);
  END IF;
  IF p_states && '{:SUCCEEDED,:DEAD,:CANCELLED}' THEN
    v_parts := v_parts || lp.walk_statement('lp.done', 't.state', 'finished_ms', 'true', NULL, NULL, p_newest);
  END IF;
  RETURN 'SELECT m.* FROM ((' || array_to_string(v_parts, ') UNION ALL (') || ')) AS m ORDER BY m.id '
    || CASE WHEN p_newest THEN 'DESC' ELSE 'ASC' END || ' LIMIT $4';
END $$;

-- The statement that walks the jobs of a flow, or those of a unique key, by id: $7 is the flow or the key.
CREATE OR REPLACE FUNCTION lp.statement_of_name(p_by_flow boolean, p_newest boolean) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  v_way text := CASE WHEN p_newest THEN ' DESC' ELSE ' ASC' END;
  v_behind text := CASE WHEN p_newest THEN ' < $3' ELSE ' > $3' END;
  v_named text := 'SELECT n.id FROM ' || CASE WHEN p_by_flow THEN 'lp.flow_job AS n WHERE n.flow' ELSE 'lp.key_job AS n WHERE n.key' END
    || ' = $7 AND n.id' || v_behind || ' ORDER BY n.id' || v_way || ' LIMIT $4';
BEGIN
  RETURN 'SELECT 0::bigint AS a, 0::bigint AS b, m.id, t.state, t.lane, t.attempt, t.lost, t.reason, t.cause, t.error_type, t.at_ms'
    || ' FROM (' || v_named || ') AS m CROSS JOIN LATERAL ('
    || 'SELECT w.state, w.lane, w.attempt, w.lost, w.reason, w.cause, w.error_type, w.due_ms AS at_ms FROM lp.wait AS w WHERE w.id = m.id'
    || ' UNION ALL SELECT :RUNNING::smallint, r.lane, r.attempt, r.lost, r.reason, r.cause, r.error_type, r.claimed_ms FROM lp.running AS r WHERE r.id = m.id'
    || ' UNION ALL SELECT d.state, d.lane, d.attempt, d.lost, d.reason, d.cause, d.error_type, d.finished_ms FROM lp.done AS d WHERE d.id = m.id'
    || ') AS t ORDER BY m.id' || v_way;
END $$;

-- Verb: see the head of this file. `p_flow`, `p_key`: by which to look, if by either; positions are ids then.
-- `p_job`: when the job was enqueued and its packed part are needed; `p_args`: its arguments too, at most `p_bytes` of
-- both in one answer. `seen` is how many the index had: fewer than asked for means that it ends there.
CREATE OR REPLACE FUNCTION lp.candidates_1(
  p_states smallint[], p_newest boolean, p_a bigint, p_b bigint, p_id bytea, p_limit integer,
  p_job boolean, p_args boolean, p_bytes bigint, p_flow bytea, p_key bytea,
  OUT seen integer, OUT a bigint[], OUT b bigint[], OUT ids bytea[], OUT states smallint[], OUT lanes bigint[],
  OUT attempts integer[], OUT losts integer[], OUT reasons text[], OUT causes text[], OUT error_types text[],
  OUT at_ms bigint[], OUT enqueued_ms bigint[], OUT extras bytea[], OUT args bytea[], OUT bytes bigint
) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off SET max_parallel_workers_per_gather = 0 SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_far bigint := CASE WHEN p_newest THEN 9223372036854775807 ELSE -9223372036854775808 END;
  v_far_id bytea := CASE WHEN p_newest THEN '\xffffffffffffffffffffffffffffffffff' ELSE '\x' END::bytea;
  v_a bigint := CASE WHEN p_id IS NULL THEN v_far ELSE p_a END;
  v_b bigint := CASE WHEN p_id IS NULL THEN v_far ELSE p_b END;
  v_id bytea := coalesce(p_id, v_far_id);
  v_name bytea := coalesce(p_flow, p_key);
  v_source text := CASE
    WHEN v_name IS NULL THEN lp.statement_of_states(p_states, p_newest) ELSE lp.statement_of_name(p_flow IS NOT NULL, p_newest)
  END;
  v_columns text := 'array_agg(x.a), array_agg(x.b), array_agg(x.id), array_agg(x.state), array_agg(x.lane),
    array_agg(x.attempt), array_agg(x.lost), array_agg(x.reason), array_agg(x.cause), array_agg(x.error_type), array_agg(x.at_ms)';
BEGIN
  bytes := 0;
  IF NOT p_job THEN
    EXECUTE 'SELECT count(*), ' || v_columns || ' FROM (' || v_source || ') AS x'
    INTO seen, a, b, ids, states, lanes, attempts, losts, reasons, causes, error_types, at_ms
    USING v_a, v_b, v_id, p_limit, p_args, p_bytes, v_name;
    RETURN;
  END IF;
  EXECUTE 'SELECT max(x.seen), ' || v_columns || ', array_agg(x.enqueued_ms), array_agg(x.extra), array_agg(x.args),
    max(x.upto)
  FROM (
    SELECT y.*, sum(y.bytes) OVER (ORDER BY y.n ROWS UNBOUNDED PRECEDING)::bigint AS upto, count(*) OVER () AS seen FROM (
      SELECT c.*, j.enqueued_ms, j.extra, CASE WHEN $5 THEN j.args END AS args,
        coalesce(octet_length(j.extra), 0) + CASE WHEN $5 THEN coalesce(octet_length(j.args), 0) ELSE 0 END AS bytes
      FROM (SELECT row_number() OVER () AS n, s.* FROM (' || v_source || ') AS s) AS c
      LEFT JOIN LATERAL (SELECT b.enqueued_ms, b.extra, b.args FROM lp.job AS b WHERE b.id = c.id OFFSET 0) AS j ON true
    ) AS y ORDER BY y.n
  ) AS x WHERE x.upto - x.bytes < $6'
  INTO seen, a, b, ids, states, lanes, attempts, losts, reasons, causes, error_types, at_ms, enqueued_ms, extras, args, bytes
  USING v_a, v_b, v_id, p_limit, p_args, p_bytes, v_name;
END $$;
