-- Promise: ready jobs become running. Inputs: what the claim has taken so far (lp.taking) and lanes of the floor.
-- Answer: the same, and the jobs in order. The caller holds lock FLOOR and so waits for no lock: a job that another
-- transaction has locked is left for a later claim.
-- Relies on wait_ready, whose range begins at the lane's floor: rows that are gone are not walked over again.

-- Of the rows that were popped, those that can run now. Expired ones are cancelled on the way; suspects need a slot.
CREATE OR REPLACE FUNCTION lp.usable_rows(
  INOUT t lp.taking, p_lanes bigint[], p_ids bytea[], p_losts integer[], p_expires bigint[], OUT usable integer[]
) LANGUAGE plpgsql AS $$
DECLARE
  v_slots integer := t.slots;
BEGIN
  usable := '{}';
  FOR i IN 1 .. cardinality(p_ids) LOOP
    IF p_expires[i] <= t.now THEN
      IF lp.try_lock(:GRAPH) THEN
        PERFORM lp.cancel_waiting(p_ids[i], 'expired', t.now);
      ELSE
        t.skipped_lanes := t.skipped_lanes || p_lanes[i];
        t.again := true;
      END IF;
    ELSIF p_losts[i] > 0 THEN
      IF v_slots > 0 THEN
        v_slots := v_slots - 1;
        usable := usable || i;
      ELSE
        t.skipped_lanes := t.skipped_lanes || p_lanes[i];
      END IF;
    ELSE
      usable := usable || i;
    END IF;
  END LOOP;
END $$;

-- Lock the first ready jobs of each of these lanes, as many as asked for.
CREATE OR REPLACE FUNCTION lp.pop_ready(p_lanes bigint[], p_counts integer[], p_now bigint) RETURNS lp.popped LANGUAGE plpgsql AS $$
DECLARE
  p lp.popped;
BEGIN
  SELECT array_agg(w.place), array_agg(w.id), array_agg(w.lane), array_agg(w.due_ms), array_agg(w.cost),
    array_agg(w.lost), array_agg(w.expires_ms), array_agg(coalesce(k.hard_timeout_ms, -1)),
    bool_or(w.lost > 0 OR coalesce(w.expires_ms <= p_now, false))
  INTO p.places, p.ids, p.lanes, p.dues, p.costs, p.losts, p.expires, p.hards, p.odd
  FROM unnest(p_lanes, p_counts) AS l (id, n)
  CROSS JOIN LATERAL (SELECT x.id, x.floor_ms, x.floor_id FROM lp.lane_now AS x WHERE x.id = l.id OFFSET 0) AS f
  CROSS JOIN LATERAL (
    SELECT r.ctid AS place, r.id, r.lane, r.due_ms, r.cost, r.lost, r.expires_ms FROM lp.wait AS r
    WHERE r.lane = f.id AND r.state = :READY AND (r.due_ms, r.id) >= (f.floor_ms, f.floor_id)
    ORDER BY r.due_ms, r.id LIMIT l.n FOR UPDATE SKIP LOCKED
  ) AS w
  CROSS JOIN LATERAL (SELECT x.policy FROM lp.job AS x WHERE x.id = w.id OFFSET 0) AS j
  LEFT JOIN LATERAL (SELECT x.hard_timeout_ms FROM lp.policy AS x WHERE x.id = j.policy OFFSET 0) AS k ON true;
  RETURN p;
END $$;

-- Some of them, by their places in the order.
CREATE OR REPLACE FUNCTION lp.select_rows(p lp.popped, p_which integer[]) RETURNS lp.popped LANGUAGE plpgsql AS $$
BEGIN
  SELECT array_agg(j.place), array_agg(j.id), array_agg(j.lane), array_agg(j.due_ms), array_agg(j.cost), array_agg(j.lost),
    array_agg(j.expires_ms), array_agg(j.hard)
  INTO p.places, p.ids, p.lanes, p.dues, p.costs, p.losts, p.expires, p.hards
  FROM (
    SELECT j.* FROM unnest(p_which) AS w (at)
    JOIN unnest(p.places, p.ids, p.lanes, p.dues, p.costs, p.losts, p.expires, p.hards) WITH ORDINALITY
      AS j (place, id, lane, due_ms, cost, lost, expires_ms, hard, at) ON j.at = w.at ORDER BY j.at
  ) AS j;
  RETURN p;
END $$;

-- The same without those that cannot run now.
CREATE OR REPLACE FUNCTION lp.drop_unusable(INOUT t lp.taking, INOUT p lp.popped) LANGUAGE plpgsql AS $$
DECLARE
  v_got record;
BEGIN
  v_got := lp.usable_rows(t, p.lanes, p.ids, p.losts, p.expires);
  t := v_got.t;
  p := lp.select_rows(p, v_got.usable);
END $$;

-- The tokens of these jobs: those that end together share a lease, a suspect has one of its own.
CREATE OR REPLACE FUNCTION lp.tokens_for(INOUT t lp.taking, p_hards bigint[], p_losts integer[], OUT tokens bigint[]) LANGUAGE plpgsql AS $$
DECLARE
  v_alike boolean := p_hards[1] = ALL (p_hards) AND 0 = ALL (p_losts);
  v_at integer;
BEGIN
  tokens := '{}';
  FOR i IN 1 .. CASE WHEN v_alike THEN 1 ELSE cardinality(p_hards) END LOOP
    v_at := CASE WHEN p_losts[i] = 0 THEN array_position(t.hards, p_hards[i]) END;
    WHILE v_at IS NOT NULL AND NOT t.shared[v_at] LOOP -- a suspect's
      v_at := array_position(t.hards, p_hards[i], v_at + 1);
    END LOOP;
    IF v_at IS NULL THEN
      t.token := greatest(t.token + 1, t.now * :TOKENS_PER_MS);
      t.tokens := t.tokens || t.token;
      t.hards := t.hards || p_hards[i];
      t.shared := t.shared || (p_losts[i] = 0);
      v_at := cardinality(t.tokens);
    END IF;
    tokens := tokens || t.tokens[v_at];
  END LOOP;
  IF v_alike THEN
    tokens := array_fill(tokens[1], ARRAY[cardinality(p_hards)]);
  END IF;
END $$;

-- Locked jobs that no gate has charged become running under one token.
CREATE OR REPLACE FUNCTION lp.start_one_token(p_places tid[], p_token bigint, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_started integer;
BEGIN
  WITH gone AS (
    DELETE FROM lp.wait WHERE ctid = ANY (p_places) RETURNING *
  )
  INSERT INTO lp.running (
    id, token, lane, due_ms, claimed_ms, expires_ms, held_since_ms, attempt, lost, held, cost, priority, flags,
    reason, cause, error_type
  )
  SELECT g.id, p_token, g.lane, g.due_ms, p_now, g.expires_ms, g.held_since_ms, g.attempt + 1, g.lost, g.held, g.cost,
    g.priority, g.flags, g.reason, g.cause, g.error_type
  FROM gone AS g;
  GET DIAGNOSTICS v_started = ROW_COUNT;
  IF v_started <> cardinality(p_places) THEN -- one more would be running without a worker: better no claim at all
    RAISE EXCEPTION '% jobs would start where % are held', v_started, cardinality(p_places) USING ERRCODE = 'data_corrupted';
  END IF;
END $$;

-- The same, each under its own token and with what its gates charged (NULL: nothing).
CREATE OR REPLACE FUNCTION lp.start_tokens(p_places tid[], p_tokens bigint[], p_charged jsonb[], p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_started integer;
BEGIN
  WITH gone AS (
    DELETE FROM lp.wait AS w USING unnest(p_places, p_tokens, p_charged) AS p (place, token, charged) WHERE w.ctid = p.place
    RETURNING w.*, p.token, p.charged
  )
  INSERT INTO lp.running (
    id, token, lane, due_ms, claimed_ms, expires_ms, held_since_ms, attempt, lost, held, cost, priority, flags, charged,
    reason, cause, error_type
  )
  SELECT g.id, g.token, g.lane, g.due_ms, p_now, g.expires_ms, g.held_since_ms, g.attempt + 1, g.lost, g.held, g.cost,
    g.priority, g.flags, g.charged, g.reason, g.cause, g.error_type
  FROM gone AS g;
  GET DIAGNOSTICS v_started = ROW_COUNT;
  IF v_started <> cardinality(p_places) THEN -- one more would be running without a worker: better no claim at all
    RAISE EXCEPTION '% jobs would start where % are held', v_started, cardinality(p_places) USING ERRCODE = 'data_corrupted';
  END IF;
END $$;

-- Nothing of these lanes lies before the last that was taken: the next claim begins there. Looked at once in a while,
-- since it walks over what was just taken.
CREATE OR REPLACE FUNCTION lp.raise_floors(p_lanes bigint[], p_dues bigint[], p_ids bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE lp.lane_now AS f SET floor_ms = l.due_ms, floor_id = l.id
  FROM (
    SELECT DISTINCT ON (p.lane) p.lane, p.due_ms, p.id FROM unnest(p_lanes, p_dues, p_ids) AS p (lane, due_ms, id)
    ORDER BY p.lane, p.due_ms DESC, p.id DESC
  ) AS l
  WHERE f.id BETWEEN l.lane AND l.lane AND NOT coalesce((
    SELECT (w.due_ms, w.id) < (l.due_ms, l.id) FROM lp.wait AS w -- the first alone: a scan would not end with the last
    WHERE w.lane = f.id AND w.state = :READY AND (w.due_ms, w.id) >= (f.floor_ms, f.floor_id) ORDER BY w.due_ms, w.id LIMIT 1
  ), false);
END $$;

-- Locked jobs become running, and are counted.
CREATE OR REPLACE FUNCTION lp.start_jobs(INOUT t lp.taking, p lp.popped, p_charged jsonb[], OUT tokens bigint[]) LANGUAGE plpgsql AS $$
DECLARE
  v_got record;
BEGIN
  v_got := lp.tokens_for(t, p.hards, p.losts);
  t := v_got.t;
  tokens := v_got.tokens;
  PERFORM lp.start_tokens(p.places, tokens, p_charged, t.now);
  INSERT INTO lp.tally (lane, whats, ns)
  SELECT l.lane, '{:READY,:RUNNING}', ARRAY[-count(*), count(*)] FROM unnest(p.lanes) AS l (lane) GROUP BY l.lane;
  t.left_n := t.left_n - cardinality(p.ids);
  IF random() < 0.1 THEN
    PERFORM lp.raise_floors(p.lanes, p.dues, p.ids);
  END IF;
END $$;

-- What the asked lanes gave: empty lanes rest (the answer), and lanes that gave less than asked are asked no more.
CREATE OR REPLACE FUNCTION lp.review_lanes(
  INOUT t lp.taking, p_lanes bigint[], p_counts integer[], p_from bigint[], p_seen bytea[], OUT resting bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
  v_short bigint[]; -- lanes that gave less than they were asked for
  v_few bigint[]; -- those, and lanes that were asked for little: one look spares another visit
  v_held bigint[];
BEGIN
  resting := '{}';
  SELECT array_agg(l.id) FILTER (WHERE l.got < l.n), array_agg(l.id) FILTER (WHERE l.got < l.n OR l.n < 4) INTO v_short, v_few
  FROM (
    SELECT a.id, a.n, coalesce(g.n, 0) AS got FROM unnest(p_lanes, p_counts) AS a (id, n)
    LEFT JOIN (SELECT f.lane, count(*) AS n FROM unnest(p_from) AS f (lane) GROUP BY f.lane) AS g ON g.lane = a.id
  ) AS l;
  IF v_few IS NOT NULL THEN
    resting := ARRAY(SELECT l FROM unnest(v_few) AS l WHERE NOT EXISTS (SELECT 1 FROM lp.wait AS w WHERE w.lane = l AND w.state = :READY OFFSET 0));
    PERFORM lp.idle_lanes(resting);
  END IF;
  IF v_short IS NOT NULL THEN
    t.skipped_lanes := t.skipped_lanes || v_short;
    -- What is left there and was not seen is held by another transaction, or is before a floor that is too high.
    v_held := ARRAY(SELECT l FROM unnest(v_short) AS l WHERE NOT l = ANY (resting) AND EXISTS (
      SELECT 1 FROM lp.wait AS w WHERE w.lane = l AND w.state = :READY AND NOT coalesce(w.id = ANY (p_seen), false) OFFSET 0
    ));
    IF v_held <> '{}' THEN
      UPDATE lp.lane_now SET floor_ms = 0, floor_id = '\x' WHERE id = ANY (v_held) AND floor_ms > 0;
      t.reopening := least(t.reopening, t.now + 500); -- a caller's transaction may hold it for long
    END IF;
  END IF;
END $$;

-- Take jobs from lanes without a gate, the given number from each.
CREATE OR REPLACE FUNCTION lp.take_plain(
  INOUT t lp.taking, p_lanes bigint[], p_counts integer[], OUT ids bytea[], OUT lanes bigint[], OUT dues bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
  v_got record;
  v_seen lp.popped := lp.pop_ready(p_lanes, p_counts, t.now);
  p lp.popped := v_seen;
BEGIN
  IF p.odd THEN
    v_got := lp.drop_unusable(t, p);
    t := v_got.t;
    p := v_got.p;
  END IF;
  IF p.ids IS NOT NULL THEN
    v_got := lp.start_jobs(t, p, NULL);
    t := v_got.t;
    IF p.odd THEN
      t.slots := t.slots - (SELECT count(*) FROM unnest(p.losts) AS lost WHERE lost > 0)::integer;
    END IF;
  END IF;
  v_got := lp.review_lanes(t, p_lanes, p_counts, v_seen.lanes, v_seen.ids);
  t := v_got.t;
  ids := coalesce(p.ids, '{}');
  lanes := p.lanes;
  dues := p.dues;
END $$;
