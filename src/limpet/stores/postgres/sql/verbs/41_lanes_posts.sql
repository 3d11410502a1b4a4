-- Promise: what others posted reaches the floor: new lanes, ready jobs, opened gates, children whose parents must be
-- looked at, declared rules, events. Inputs: as named; the caller holds lock FLOOR. Answer: whether there is more. Relies on the primary key of post.

-- Store a lane's definition, as it was posted.
CREATE OR REPLACE FUNCTION lp.define_lane(p_post lp.post) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_body jsonb := convert_from(p_post.body, 'UTF8')::jsonb;
  v_needs text[] := ARRAY(SELECT jsonb_array_elements_text(v_body -> 'needs'));
  v_class_gates text[];
  v_keys text[] := ARRAY(SELECT 'limit:' || key FROM jsonb_array_elements_text(v_body -> 'keys') AS key);
  v_lane_gates text[] := v_keys;
BEGIN
  v_class_gates := ARRAY['all', 'queue:' || (v_body ->> 'queue'), 'task:' || coalesce(v_body ->> 'scope', v_body ->> 'task')]
    || ARRAY(SELECT 'limit:' || key FROM jsonb_array_elements_text(v_body -> 'limits') AS key);
  IF v_body ->> 'breaker' IS NOT NULL THEN
    v_class_gates := v_class_gates || ('breaker:' || (v_body ->> 'breaker'));
  END IF;
  IF v_body ->> 'breaker_key' IS NOT NULL THEN
    v_lane_gates := v_keys || ('breaker:' || (v_body ->> 'breaker_key'));
  END IF;
  INSERT INTO lp.lane (
    id, class, member, ring, priority, limited, queue, task, tenant, needs, class_gates, lane_gates, body
  ) VALUES (
    p_post.lane, p_post.class, p_post.member, p_post.ring, (v_body ->> 'priority')::smallint,
    cardinality(v_class_gates) > 3 OR cardinality(v_lane_gates) > 0,
    v_body ->> 'queue', v_body ->> 'task', v_body ->> 'tenant', v_needs, v_class_gates, v_lane_gates, p_post.body
  ) ON CONFLICT DO NOTHING;
  INSERT INTO lp.lane_now (id, class, member, priority)
  VALUES (p_post.lane, p_post.class, p_post.member, (v_body ->> 'priority')::smallint) ON CONFLICT DO NOTHING;
  INSERT INTO lp.lane_gate (gate, lane)
  SELECT key, p_post.lane FROM unnest(v_class_gates[4:] || v_keys) AS key ON CONFLICT DO NOTHING;
  IF FOUND THEN
    PERFORM lp.recall_gates(v_class_gates[4:] || v_keys);
  END IF;
END $$;

-- Store a policy, as it was posted or sent.
CREATE OR REPLACE FUNCTION lp.define_policy(p_id bigint, p_body bytea) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_body jsonb := convert_from(p_body, 'UTF8')::jsonb;
BEGIN
  INSERT INTO lp.policy (id, hard_timeout_ms, max_lost, body)
  VALUES (p_id, (v_body ->> 'hard_timeout_ms')::bigint, (v_body ->> 'max_lost')::integer, p_body) ON CONFLICT DO NOTHING;
END $$;

-- A lane was posted, perhaps several times: it is stored, its floor is low enough, and it is active if it has jobs.
CREATE OR REPLACE FUNCTION lp.apply_lane_post(p_post lp.post, p_ready boolean, p_due bigint, p_id bytea, p_now bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_now lp.lane_now;
  v_lane lp.lane;
BEGIN
  SELECT * INTO v_now FROM lp.lane_now WHERE id = p_post.lane;
  IF NOT FOUND THEN
    IF p_post.body IS NULL THEN
      RAISE EXCEPTION 'lane % is not stored', p_post.lane USING ERRCODE = 'data_corrupted';
    END IF;
    PERFORM lp.define_lane(p_post);
    SELECT * INTO v_now FROM lp.lane_now WHERE id = p_post.lane;
  END IF;
  IF NOT p_ready THEN
    RETURN;
  END IF;
  IF (v_now.floor_ms, v_now.floor_id) > (p_due, p_id) THEN
    UPDATE lp.lane_now SET floor_ms = p_due, floor_id = p_id WHERE id = p_post.lane;
  END IF;
  IF v_now.state = :IDLE THEN
    SELECT * INTO v_lane FROM lp.lane WHERE id = p_post.lane;
    PERFORM lp.activate_lane(v_lane, p_now);
  END IF;
END $$;

-- A snapshot of this very transaction, with itself as one that is still open: snapshots leave that out, and what is
-- posted further on here is for the next claims to file.
CREATE OR REPLACE FUNCTION lp.open_snapshot(p_seen pg_snapshot) RETURNS pg_snapshot LANGUAGE plpgsql AS $$
BEGIN
  IF pg_current_xact_id() >= pg_snapshot_xmax(p_seen) THEN
    RETURN p_seen;
  END IF;
  RETURN (
    SELECT pg_snapshot_xmin(p_seen) || ':' || pg_snapshot_xmax(p_seen) || ':' || string_agg(o.xid::text, ',' ORDER BY o.xid)
    FROM (SELECT pg_snapshot_xip(p_seen) UNION SELECT pg_current_xact_id()) AS o (xid)
  )::pg_snapshot;
END $$;

-- A job that a budget was shut for has gone without having run; false: another transaction holds the gate.
CREATE OR REPLACE FUNCTION lp.give_up(p_key text, p_reserved_for bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  UPDATE lp.gate AS g SET reserved_for = 0 WHERE g.key = p_key AND g.reserved_for = p_reserved_for
    AND EXISTS (SELECT FROM lp.gate AS x WHERE x.key = p_key FOR UPDATE SKIP LOCKED);
  RETURN FOUND OR NOT EXISTS (SELECT FROM lp.gate AS g WHERE g.key = p_key AND g.reserved_for = p_reserved_for);
END $$;

-- Tell lanes what was posted about them, each once; how many had something to be told.
CREATE OR REPLACE FUNCTION lp.apply_lane_posts(p_posts lp.post[], p_now bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  v_lanes integer := 0;
  v_each record;
BEGIN
  FOR v_each IN
    SELECT k.at, k.ready, k.due_ms, k.id FROM (
      SELECT p.lane, coalesce(min(p.ordinality) FILTER (WHERE p.body IS NOT NULL), min(p.ordinality)) AS at, bool_or(p.n > 0) AS ready,
        (array_agg(p.due_ms ORDER BY p.due_ms, p.id) FILTER (WHERE p.n > 0))[1] AS due_ms,
        (array_agg(p.id ORDER BY p.due_ms, p.id) FILTER (WHERE p.n > 0))[1] AS id, min(p.ordinality) AS first
      FROM unnest(p_posts) WITH ORDINALITY AS p WHERE p.kind = :POST_LANE GROUP BY p.lane
    ) AS k WHERE NOT EXISTS ( -- most of those that are busy have nothing to be told
      SELECT 1 FROM lp.lane_now AS x WHERE x.id = k.lane
        AND (NOT k.ready OR (x.state <> :IDLE AND (x.floor_ms, x.floor_id) <= (k.due_ms, k.id))) OFFSET 0
    ) ORDER BY k.first
  LOOP
    v_lanes := v_lanes + 1;
    PERFORM lp.apply_lane_post(p_posts[v_each.at], v_each.ready, v_each.due_ms, v_each.id, p_now);
  END LOOP;
  RETURN v_lanes;
END $$;

-- The same for gates: a budget that was shut for a job which is gone (due_ms: what it needed) opens, and lanes wake. A gate
-- that another transaction has locked is posted again.
CREATE OR REPLACE FUNCTION lp.apply_gate_posts(p_posts lp.post[], p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_post lp.post;
  v_key text;
BEGIN
  FOR v_post IN SELECT (p).* FROM unnest(p_posts) AS p WHERE p.kind = :POST_GATE AND p.due_ms IS NOT NULL LOOP
    IF NOT lp.give_up(v_post.gate, v_post.due_ms) THEN
      INSERT INTO lp.post (kind, gate, due_ms) VALUES (:POST_GATE, v_post.gate, v_post.due_ms);
    END IF;
  END LOOP;
  FOR v_key IN SELECT DISTINCT p.gate FROM unnest(p_posts) AS p WHERE p.kind = :POST_GATE ORDER BY p.gate LOOP
    IF NOT lp.wake_lanes(v_key, p_now) THEN
      PERFORM lp.post_gate(v_key);
    END IF;
  END LOOP;
END $$;

-- Apply posts of all kinds; how many lanes had something to be told.
CREATE OR REPLACE FUNCTION lp.apply_all_posts(p_posts lp.post[], p_now bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  v_post lp.post;
  v_graph boolean;
  v_lanes integer;
BEGIN
  FOR v_post IN SELECT (p).* FROM unnest(p_posts) AS p WHERE p.kind = :POST_POLICY LOOP
    PERFORM lp.define_policy(v_post.lane, v_post.body);
  END LOOP;
  FOR v_post IN SELECT (p).* FROM unnest(p_posts) AS p WHERE p.kind = :POST_RULE ORDER BY p.gate COLLATE "C" LOOP
    PERFORM lp.declare(jsonb_build_array(convert_from(v_post.body, 'UTF8')::jsonb), p_now);
  END LOOP;
  v_lanes := lp.apply_lane_posts(p_posts, p_now);
  FOR v_post IN SELECT (p).* FROM unnest(p_posts) AS p WHERE p.kind = :POST_CHILD LOOP
    v_graph := coalesce(v_graph, lp.try_lock(:GRAPH));
    IF NOT v_graph OR NOT lp.apply_child_post(v_post.id, p_now) THEN
      INSERT INTO lp.post (kind, id, n) VALUES (:POST_CHILD, v_post.id, 1); -- another transaction holds it: with the next claim
    END IF;
  END LOOP;
  FOR v_post IN SELECT (p).* FROM unnest(p_posts) AS p WHERE p.kind = :POST_EVENT LOOP
    PERFORM lp.log_event(v_post.gate, v_post.body, false, v_post.due_ms);
  END LOOP;
  PERFORM lp.apply_gate_posts(p_posts, p_now);
  RETURN v_lanes;
END $$;

-- Apply up to `p_limit` posts. `more`: there may be more; `lanes`: the number of lanes that had news. How far it got is noted
-- once in a while: the few that are gone by then are cheap to walk over, and the note's own versions would not be.
CREATE OR REPLACE FUNCTION lp.apply_posts(p_limit integer, p_now bigint, OUT more boolean, OUT lanes integer) LANGUAGE plpgsql AS $$
DECLARE
  v_pass pg_snapshot; -- one that is under way
  v_seen pg_snapshot;
  v_posts lp.post[];
  v_count integer;
BEGIN
  SELECT f.pass, pg_current_snapshot(), CASE WHEN pg_snapshot_xmin(f.filed) = pg_snapshot_xmax(f.filed) THEN ARRAY(
    SELECT p FROM lp.post AS p WHERE (p.xid, p.seq) > (k.xid, k.seq) ORDER BY p.xid, p.seq LIMIT p_limit
  ) ELSE ARRAY(SELECT p FROM lp.unfiled_posts(p_limit) AS p) END INTO v_pass, v_seen, v_posts
  FROM lp.floor AS f CROSS JOIN LATERAL lp.filed_up_to(f) AS k;
  v_count := cardinality(v_posts);
  more := v_count = p_limit;
  lanes := 0;
  IF v_count = 0 THEN
    more := v_pass IS NOT NULL;
    IF more THEN -- the pass is over: what was committed behind it comes next
      UPDATE lp.floor SET filed = v_pass, pass = NULL, at_xid = '0', at_seq = 0;
    END IF;
    RETURN;
  END IF;
  DELETE FROM lp.post AS p USING unnest(v_posts) AS f WHERE p.xid = ANY (ARRAY[f.xid]) AND p.seq = ANY (ARRAY[f.seq]);
  IF v_count = p_limit THEN
    UPDATE lp.floor SET pass = coalesce(v_pass, lp.open_snapshot(v_seen)), at_xid = v_posts[v_count].xid,
      at_seq = v_posts[v_count].seq;
  ELSIF v_count > 16 OR v_pass IS NOT NULL OR random() < 0.1 THEN
    UPDATE lp.floor SET filed = coalesce(v_pass, lp.open_snapshot(v_seen)), pass = NULL, at_xid = '0', at_seq = 0;
  END IF;
  IF v_count = 1 AND v_posts[1].kind = :POST_LANE THEN -- as most are
    PERFORM lp.apply_lane_post(v_posts[1], v_posts[1].n > 0, v_posts[1].due_ms, v_posts[1].id, p_now);
    lanes := 1;
  ELSE
    lanes := lp.apply_all_posts(v_posts, p_now);
  END IF;
END $$;
