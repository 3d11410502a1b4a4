-- Promise: what every verb begins with: locks, time, where a job is, and posts to the floor. Inputs: as named.
-- Answer: as each says. A function that Python calls ends in its version: a later release adds the next one beside it, so
-- workers of both can run.
--
-- Locks are taken in this order, and no step waits for an earlier one while it holds a later one:
--   the floor (claim alone) < unique keys < depths < rows of `running` by id < the graph < rows of `wait` and `done` by id
--   < leases < gates by key < the log < the door
-- A claim that holds the floor waits for no lock: it skips locked rows and says "again". Except for the door, which is the
-- last lock of every step that takes it, so that it is free again after one commit.

-- Take one of the advisory locks FLOOR, GRAPH, SWEEP, FOLD, LOG, DOOR, PRUNE and DEPTH. One of each per schema.
CREATE OR REPLACE FUNCTION lp.lock(p_which integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(:LOCKS + p_which, ('lp.floor'::regclass::oid::bigint - 2147483648)::integer);
END $$;

CREATE OR REPLACE FUNCTION lp.try_lock(p_which integer) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN pg_try_advisory_xact_lock(:LOCKS + p_which, ('lp.floor'::regclass::oid::bigint - 2147483648)::integer);
END $$;

-- The door is between steps that shut a gate (lock DOOR, at their end) and claims, which share it: a claim sees
-- the gate shut, or was committed before that was.
CREATE OR REPLACE FUNCTION lp.share_door() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(:LOCKS + :DOOR, ('lp.floor'::regclass::oid::bigint - 2147483648)::integer);
END $$;

-- The channel that every process of this namespace hears: callers' own transactions say on it that they have posted.
CREATE OR REPLACE FUNCTION lp.channel_1() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  RETURN 'limpet_' || 'lp.floor'::regclass::oid;
END $$;

-- The engine's time in ms: the caller's if it names one (tests), else this server's clock, never behind the last token.
CREATE OR REPLACE FUNCTION lp.now_1(p_now bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  IF p_now IS NOT NULL THEN
    RETURN p_now;
  END IF;
  RETURN greatest(
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint, (SELECT last_value / :TOKENS_PER_MS FROM lp.tokens)
  );
END $$;

-- The place behind which posts are younger than what was filed, or than what the pass under way has come to. One place and
-- not two conditions: of those an index scan begins with the one that it comes to first, at the remains of all that is filed.
CREATE OR REPLACE FUNCTION lp.filed_up_to(p_floor lp.floor, OUT xid xid8, OUT seq bigint) LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  xid := greatest(p_floor.at_xid, pg_snapshot_xmax(p_floor.filed));
  seq := CASE WHEN xid = p_floor.at_xid THEN p_floor.at_seq ELSE 0 END; -- numbers begin with 1
END $$;

-- Posts that are not filed yet, in order: of transactions that were still open at the last filing, and of later ones.
-- Those that are filed are not walked over again, even while an old snapshot keeps their remains.
CREATE OR REPLACE FUNCTION lp.unfiled_posts(p_limit integer) RETURNS SETOF lp.post LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_floor lp.floor;
  v_from record;
  v_open xid8[];
BEGIN
  SELECT * INTO v_floor FROM lp.floor;
  v_from := lp.filed_up_to(v_floor);
  v_open := ARRAY(SELECT pg_snapshot_xip(v_floor.filed));
  IF v_open = '{}' THEN
    RETURN QUERY SELECT p.* FROM lp.post AS p
      WHERE (p.xid, p.seq) > (v_from.xid, v_from.seq) ORDER BY p.xid, p.seq LIMIT p_limit;
  ELSE
    RETURN QUERY SELECT * FROM (
      (SELECT p.* FROM unnest(v_open) AS o (xid)
       CROSS JOIN LATERAL (SELECT x.* FROM lp.post AS x WHERE x.xid = o.xid OFFSET 0) AS p
       WHERE (p.xid, p.seq) > (v_floor.at_xid, v_floor.at_seq) ORDER BY p.xid, p.seq LIMIT p_limit)
      UNION ALL
      (SELECT p.* FROM lp.post AS p
       WHERE (p.xid, p.seq) > (v_from.xid, v_from.seq) ORDER BY p.xid, p.seq LIMIT p_limit)
    ) AS u ORDER BY u.xid, u.seq LIMIT p_limit;
  END IF;
END $$;

-- Asked for once by every process. A schema that came from another server, as a dump or a copy of its rows, speaks of
-- transactions of that one: all that is posted counts as unfiled then, and it has a new name of its own.
CREATE OR REPLACE FUNCTION lp.move_in_1() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_here bigint := (SELECT c.system_identifier FROM pg_control_system() AS c);
BEGIN
  IF EXISTS (
    SELECT 1 FROM lp.home AS h CROSS JOIN lp.floor AS f
    WHERE h.server = v_here AND pg_snapshot_xmax(f.filed) <= pg_snapshot_xmax(pg_current_snapshot())
  ) THEN
    RETURN;
  END IF;
  PERFORM lp.lock(:FLOOR);
  UPDATE lp.floor SET filed = '1:1:', pass = NULL, at_xid = '0', at_seq = 0;
  UPDATE lp.home SET server = v_here;
  BEGIN
    EXECUTE 'COMMENT ON TABLE lp.home IS ' || quote_literal(gen_random_uuid());
  EXCEPTION WHEN insufficient_privilege THEN
    NULL; -- only its owner may: it keeps the name that it came with
  END;
END $$;

-- Where a job is, in one look (it may be moving); NULL when it is nowhere.
CREATE OR REPLACE FUNCTION lp.state_of(p_id bytea) RETURNS smallint LANGUAGE plpgsql AS $$
BEGIN
  RETURN (
    SELECT state FROM lp.wait WHERE id = p_id
    UNION ALL SELECT :RUNNING FROM lp.running WHERE id = p_id
    UNION ALL SELECT state FROM lp.done WHERE id = p_id
    LIMIT 1
  );
END $$;

-- A lane that is stored has `p_n` more ready jobs, none before (due, id).
CREATE OR REPLACE FUNCTION lp.post_ready(p_lane bigint, p_due bigint, p_id bytea, p_n integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lp.post (kind, lane, due_ms, id, n) VALUES (:POST_LANE, p_lane, p_due, p_id, p_n);
END $$;

-- A lane that is stored will have a ready job at `p_due`.
CREATE OR REPLACE FUNCTION lp.post_timer(p_lane bigint, p_due bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lp.post (kind, lane, due_ms) VALUES (:POST_LANE, p_lane, p_due);
END $$;

-- Lanes that wait at this gate should look again. Posted by the step that changed the gate and still holds its row.
CREATE OR REPLACE FUNCTION lp.post_gate(p_gate text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lp.post (kind, gate) VALUES (:POST_GATE, p_gate);
END $$;

-- Jobs of a lane went from one state to another, and the like: pairs of what and how many, see the table.
CREATE OR REPLACE FUNCTION lp.count_jobs(p_lane bigint, VARIADIC p_pairs integer[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_whats smallint[];
  v_ns integer[];
BEGIN
  FOR i IN 1 .. cardinality(p_pairs) BY 2 LOOP
    v_whats := v_whats || p_pairs[i]::smallint;
    v_ns := v_ns || p_pairs[i + 1];
  END LOOP;
  INSERT INTO lp.tally (lane, whats, ns) VALUES (p_lane, v_whats, v_ns);
END $$;

-- What this step has posted so far, for the wake-ups that follow its commit (wake_1).
CREATE OR REPLACE FUNCTION lp.posted(OUT lanes bigint[], OUT ns integer[], OUT dues bigint[], OUT gates text[]) LANGUAGE plpgsql AS $$
BEGIN
  SELECT array_agg(p.lane) FILTER (WHERE p.kind = :POST_LANE), array_agg(p.n) FILTER (WHERE p.kind = :POST_LANE),
    array_agg(p.due) FILTER (WHERE p.kind = :POST_LANE), array_agg(p.gate) FILTER (WHERE p.kind = :POST_GATE)
  INTO lanes, ns, dues, gates FROM (
    SELECT kind, lane, gate, sum(n)::integer AS n, min(due_ms) FILTER (WHERE n = 0 AND due_ms < :FOREVER_MS) AS due FROM lp.post
    WHERE xid = pg_current_xact_id() AND (kind = :POST_GATE OR kind = :POST_LANE AND due_ms IS NOT NULL) GROUP BY kind, lane, gate
  ) AS p;
END $$;

-- Tell a process something: kind (w work, u urgent, c cancel, f finished) and the session or job it is about.
CREATE OR REPLACE FUNCTION lp.notify(p_channel text, p_kind text, p_name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_channel IS NOT NULL THEN
    PERFORM pg_notify(p_channel, p_kind || p_name);
  END IF;
END $$;
