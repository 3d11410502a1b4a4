-- Promise: unused lanes and gates are forgotten.
-- Inputs: as named. Answer: how many went.
-- Relies on lane_now_empty, lane_gate and the primary keys. It holds the floor, for a few rows, when no other transaction has it.

-- A lane was stored that names these gates: those that were forgotten a moment ago are there again.
CREATE OR REPLACE FUNCTION lp.recall_gates(p_keys text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_old lp.gate_old;
  v_gate lp.gate;
BEGIN
  FOR v_old IN DELETE FROM lp.gate_old WHERE key = ANY (p_keys) RETURNING * LOOP
    v_gate := jsonb_populate_record(NULL::lp.gate, to_jsonb(v_old));
    INSERT INTO lp.gate VALUES (v_gate.*) ON CONFLICT (key) DO NOTHING;
  END LOOP;
END $$;

-- A lane without jobs goes, with its seat and, if it was the last of its member, that member's turn.
CREATE OR REPLACE FUNCTION lp.drop_lane(p_lane lp.lane) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_gate text;
BEGIN
  FOREACH v_gate IN ARRAY p_lane.class_gates[4:] || p_lane.lane_gates LOOP
    IF EXISTS (SELECT FROM lp.lane_now AS l WHERE l.gate = v_gate AND l.state = :WAITING AND l.id <> p_lane.id) THEN
      PERFORM lp.post_gate(v_gate); -- the lane may have been woken for a free place: the next one that waits gets it
    END IF;
  END LOOP;
  DELETE FROM lp.lane_gate WHERE lane = p_lane.id;
  DELETE FROM lp.lane_now WHERE id = p_lane.id;
  DELETE FROM lp.lane WHERE id = p_lane.id;
  PERFORM lp.leave_seat(p_lane);
  UPDATE lp.seat AS s SET lane = (
    SELECT l.id FROM lp.lane_now AS l WHERE l.class = s.class AND l.member = s.member AND l.state = :ACTIVE LIMIT 1
  ) WHERE s.class = p_lane.class AND s.priority = p_lane.priority AND s.member = p_lane.member AND s.lane = p_lane.id;
  IF NOT EXISTS (SELECT FROM lp.lane_now AS l WHERE l.member = p_lane.member) THEN
    DELETE FROM lp.turn WHERE id = p_lane.member;
  END IF;
END $$;

-- Lanes that store no job, and have had none ready for an hour, go. All posts are filed: what comes later brings the
-- definition of its lane with it.
CREATE OR REPLACE FUNCTION lp.drop_lanes(p_limit integer, p_now bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  v_lanes bigint[] := ARRAY(SELECT l.id FROM lp.lane_now AS l WHERE l.jobs <= 0 AND l.served_ms <= p_now - 3600000 LIMIT p_limit);
  v_lane lp.lane;
  v_removed integer := 0;
BEGIN
  IF v_lanes = '{}' THEN
    RETURN 0;
  END IF;
  FOR v_lane IN
    SELECT l.* FROM lp.lane AS l WHERE l.id = ANY (v_lanes) AND l.id <> ALL (ARRAY(SELECT t.lane FROM lp.tally AS t))
  LOOP
    PERFORM lp.drop_lane(v_lane);
    v_removed := v_removed + 1;
  END LOOP;
  RETURN v_removed;
END $$;

-- Limits and breakers that rule no lane and remember nothing; some of them are looked at, and the next time others.
CREATE OR REPLACE FUNCTION lp.forget_gates(p_limit integer, p_open xid8, p_now bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  v_from text := (SELECT key FROM lp.pruned WHERE what = 'gate');
  v_some text[];
  v_gate lp.gate;
  v_removed integer := 0;
BEGIN
  DELETE FROM lp.gate_old WHERE seen <= p_open;
  UPDATE lp.gate_old SET seen = pg_snapshot_xmax(pg_current_snapshot()) WHERE seen IS NULL;
  v_some := ARRAY(SELECT key FROM lp.gate WHERE key > v_from ORDER BY key LIMIT 1000);
  UPDATE lp.pruned SET key = CASE WHEN cardinality(v_some) = 1000 THEN v_some[1000] ELSE '' END WHERE what = 'gate' AND (key <> '' OR cardinality(v_some) = 1000);
  FOR v_gate IN
    SELECT g.* FROM lp.gate AS g WHERE g.key = ANY (v_some) AND g.key ~ '^(limit|breaker):'
      AND NOT EXISTS (SELECT FROM lp.lane_gate AS l WHERE l.gate = g.key OFFSET 0)
      AND NOT EXISTS (SELECT FROM lp.lane_now AS l WHERE l.gate = g.key AND l.state = :WAITING OFFSET 0) AND lp.gate_is_blank(g, p_now)
    LIMIT p_limit FOR UPDATE OF g SKIP LOCKED
  LOOP
    INSERT INTO lp.gate_old SELECT v_gate.* ON CONFLICT (key) DO NOTHING;
    DELETE FROM lp.gate WHERE key = v_gate.key;
    v_removed := v_removed + 1;
  END LOOP;
  RETURN v_removed;
END $$;

-- Verb: forget unused lanes and gates, if no claim runs just now.
CREATE OR REPLACE FUNCTION lp.forget_1(
  p_limit integer, p_now bigint, OUT removed integer,
  OUT w_lanes bigint[], OUT w_ns integer[], OUT w_dues bigint[], OUT w_gates text[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint := lp.now_1(p_now);
  v_open xid8 := pg_snapshot_xmin(pg_current_snapshot()); -- before filing: what older transactions posted is filed below
BEGIN
  removed := 0;
  IF NOT lp.try_lock(:FLOOR) OR (SELECT f.more FROM lp.apply_posts(1000, v_now) AS f) THEN
    RETURN;
  END IF;
  removed := lp.drop_lanes(p_limit, v_now) + lp.forget_gates(p_limit, v_open, v_now);
  SELECT * INTO w_lanes, w_ns, w_dues, w_gates FROM lp.posted();
END $$;
