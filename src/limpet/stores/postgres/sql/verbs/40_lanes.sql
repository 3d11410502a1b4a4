-- Promise: which lanes can be served: idle, active (their members have seats), or waiting at a gate.
-- Inputs: lanes that are stored. Answer: none but where it says so. Everything here changes the floor: the caller holds lock FLOOR.
-- Relies on seat_member, seat_ring, lane_now_active, lane_now_waiting.

-- How many jobs a turn of this queue or tenant is worth.
CREATE OR REPLACE FUNCTION lp.weight_of(p_name text) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
  IF p_name = '' THEN
    RETURN 1;
  END IF;
  RETURN coalesce(
    (SELECT least(greatest(convert_from(value, 'UTF8')::numeric, 1), :UNLIMITED)::integer FROM lp.control
     WHERE kind = 'weight' AND name = p_name), 1
  );
END $$;

-- A member or ring that had nothing active takes its place behind all who wait.
CREATE OR REPLACE FUNCTION lp.enter_round(p_id bigint, p_turn bigint, p_name text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_weight integer;
BEGIN
  UPDATE lp.turn SET turn = p_turn, left_n = weight WHERE id = p_id;
  IF NOT FOUND THEN
    v_weight := lp.weight_of(p_name);
    INSERT INTO lp.turn (id, turn, left_n, weight, name) VALUES (p_id, p_turn, v_weight, v_weight, p_name);
  END IF;
END $$;

-- A lane became active: its member has a place in the line of its class.
CREATE OR REPLACE FUNCTION lp.take_seat(p_lane lp.lane, p_turn bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lp.seat (class, priority, member, ring, turn, lane)
  VALUES (p_lane.class, p_lane.priority, p_lane.member, p_lane.ring, p_turn, p_lane.id) ON CONFLICT DO NOTHING;
END $$;

-- An idle lane has ready jobs: it enters at the end of the round.
CREATE OR REPLACE FUNCTION lp.activate_lane(p_lane lp.lane, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_member_sits boolean;
  v_ring_sits boolean;
  v_turn bigint;
BEGIN
  UPDATE lp.lane_now SET state = :ACTIVE, served_ms = p_now WHERE id = p_lane.id AND state = :IDLE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  v_member_sits := EXISTS (SELECT 1 FROM lp.seat WHERE member = p_lane.member);
  v_ring_sits := v_member_sits OR EXISTS (SELECT 1 FROM lp.seat WHERE ring = p_lane.ring);
  SELECT turn INTO v_turn FROM lp.turn WHERE id = p_lane.member;
  IF NOT v_member_sits OR v_turn IS NULL THEN
    v_turn := nextval('lp.turns');
    PERFORM lp.enter_round(p_lane.member, v_turn, coalesce('tenant:' || p_lane.tenant, ''));
    IF NOT v_ring_sits THEN
      PERFORM lp.enter_round(p_lane.ring, v_turn, 'queue:' || p_lane.queue);
    END IF;
  END IF;
  PERFORM lp.take_seat(p_lane, v_turn);
END $$;

-- A lane is no longer active; with the last of its kind its member gives up its place.
CREATE OR REPLACE FUNCTION lp.leave_seat(p_lane lp.lane) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM lp.seat AS s WHERE s.class = p_lane.class AND s.priority = p_lane.priority AND s.member = p_lane.member
    AND NOT EXISTS (
      SELECT 1 FROM lp.lane_now AS l WHERE l.class = p_lane.class AND l.member = p_lane.member AND l.state = :ACTIVE
    );
END $$;

-- These lanes are no longer active: the same for many.
CREATE OR REPLACE FUNCTION lp.leave_seats(p_lanes bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM lp.seat AS s USING (SELECT DISTINCT r.class, r.priority, r.member FROM lp.lane_now AS r WHERE r.id = ANY (p_lanes)) AS g
  WHERE s.class = ANY (ARRAY[g.class]) AND s.priority = ANY (ARRAY[g.priority]) AND s.member = ANY (ARRAY[g.member])
    AND NOT EXISTS (
      SELECT 1 FROM lp.lane_now AS l WHERE l.class = g.class AND l.member = g.member AND l.state = :ACTIVE OFFSET 0
    );
END $$;

-- These lanes have no ready jobs.
CREATE OR REPLACE FUNCTION lp.idle_lanes(p_lanes bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE lp.lane_now SET state = :IDLE WHERE id = ANY (p_lanes);
  PERFORM lp.leave_seats(p_lanes);
END $$;

-- The classes with lanes that wait at a gate; NULL: none.
CREATE OR REPLACE FUNCTION lp.waiting_classes(p_gate text) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN (
    WITH RECURSIVE step (class) AS (
      (SELECT class FROM lp.lane_now WHERE gate = p_gate AND state = :WAITING ORDER BY class LIMIT 1)
      UNION ALL
      SELECT (SELECT l.class FROM lp.lane_now AS l WHERE l.gate = p_gate AND l.state = :WAITING AND l.class > step.class
              ORDER BY l.class LIMIT 1)
      FROM step WHERE step.class IS NOT NULL
    )
    SELECT array_agg(class) FROM step WHERE class IS NOT NULL
  );
END $$;

-- Wake as many lanes of each class that waits at a gate as it has room for, or note when to look again. False when
-- another transaction holds the gate: look again then. The woken lanes carry the room: a lane that uses it, finds it taken
-- or is empty looks at the gate again.
CREATE OR REPLACE FUNCTION lp.wake_lanes(p_gate text, p_now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_gate lp.gate;
  v_exists boolean;
  v_classes bigint[];
  v_class bigint;
  v_free bigint := :UNLIMITED;
  v_opens bigint;
  v_woken bigint;
  v_lane lp.lane;
BEGIN
  SELECT * INTO v_gate FROM lp.gate WHERE key = p_gate FOR UPDATE SKIP LOCKED;
  v_exists := FOUND;
  IF NOT v_exists AND EXISTS (SELECT 1 FROM lp.gate WHERE key = p_gate) THEN
    RETURN false;
  END IF;
  v_classes := lp.waiting_classes(p_gate);
  IF v_exists AND v_classes IS NOT NULL THEN
    v_free := lp.gate_room(v_gate, p_now);
    v_opens := CASE WHEN v_free <= 0 THEN lp.gate_opens_at(v_gate, p_now) END;
  END IF;
  FOREACH v_class IN ARRAY CASE WHEN v_free > 0 THEN coalesce(v_classes, '{}') ELSE '{}' END LOOP
    FOR v_woken IN
      UPDATE lp.lane_now SET state = :ACTIVE, gate = NULL WHERE id = ANY (ARRAY(
        SELECT id FROM lp.lane_now WHERE gate = p_gate AND class = v_class AND state = :WAITING
        ORDER BY priority, turn LIMIT least(v_free, 256)
      )) RETURNING id
    LOOP
      SELECT * INTO v_lane FROM lp.lane WHERE id = v_woken;
      PERFORM lp.take_seat(v_lane, coalesce((SELECT turn FROM lp.turn WHERE id = v_lane.member), 0));
    END LOOP;
  END LOOP;
  IF v_exists AND v_gate.opens_ms IS DISTINCT FROM v_opens THEN
    UPDATE lp.gate SET opens_ms = v_opens WHERE key = p_gate;
  END IF;
  RETURN true;
END $$;

-- Queue and task of a lane, stored or only posted; NULL when nothing is known of it.
CREATE OR REPLACE FUNCTION lp.lane_names(p_lane bigint, OUT queue text, OUT task text) LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_body jsonb;
BEGIN
  SELECT l.queue, l.task INTO queue, task FROM lp.lane AS l WHERE l.id = p_lane;
  IF NOT FOUND THEN
    SELECT convert_from(p.body, 'UTF8')::jsonb INTO v_body FROM lp.post AS p
    WHERE p.lane = p_lane AND p.body IS NOT NULL AND p.kind = :POST_LANE LIMIT 1;
    queue := v_body ->> 'queue';
    task := v_body ->> 'task';
  END IF;
END $$;
