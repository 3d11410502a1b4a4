-- Promise: a claim is shared between queues, then between the members of each: round robin with weights, FIFO within a
-- member. Inputs: lp.taking and candidates of one priority. Answer: the same, and jobs in order. The caller holds lock FLOOR. Relies on the primary key of turn.

-- How much may be shared at once: when a gate leaves less than is asked, everyone gets a part of that.
CREATE OR REPLACE FUNCTION lp.shareable(t lp.taking, p_candidates lp.candidate[], p_count integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  v_most bigint;
  v_least bigint;
BEGIN
  SELECT max(r.room), min(r.room) INTO v_most, v_least FROM (
    SELECT least(g.free, CASE WHEN l.limited OR g.must THEN t.slots END) AS room
    FROM (SELECT DISTINCT ON (c.class) c.lane FROM unnest(p_candidates) AS c ORDER BY c.class) AS k
    CROSS JOIN LATERAL (SELECT x.limited, x.class_gates FROM lp.lane AS x WHERE x.id = k.lane OFFSET 0) AS l
    CROSS JOIN LATERAL (
      SELECT coalesce(min(lp.gate_room(g, t.now)), :UNLIMITED) AS free,
        coalesce(bool_or(lp.gate_counts(g, t.now)), false) AS must
      FROM lp.gate AS g WHERE g.key = ANY (l.class_gates)
    ) AS g
  ) AS r;
  RETURN CASE WHEN v_most < p_count THEN greatest(1, least(p_count, v_least)) ELSE p_count END;
END $$;

-- The order of turns: the members, the longest not served first, with the rest of their turns.
CREATE OR REPLACE FUNCTION lp.turns_of(p_ids bigint[], OUT ids bigint[], OUT lefts integer[], OUT weights integer[]) LANGUAGE plpgsql AS $$
BEGIN
  SELECT array_agg(p.id ORDER BY k.turn NULLS LAST, p.id), array_agg(greatest(1, coalesce(k.left_n, 1)) ORDER BY k.turn NULLS LAST, p.id),
    array_agg(greatest(1, coalesce(k.weight, 1)) ORDER BY k.turn NULLS LAST, p.id)
  INTO ids, lefts, weights FROM unnest(p_ids) AS p (id)
  LEFT JOIN LATERAL (SELECT x.turn, x.left_n, x.weight FROM lp.turn AS x WHERE x.id = p.id OFFSET 0) AS k ON true;
END $$;

-- The served members take their new places, one behind the other.
CREATE OR REPLACE FUNCTION lp.advance_turns(p_ids bigint[], p_lefts integer[], p_weights integer[], p_served integer[], p_seats boolean)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_ids bigint[];
  v_lefts integer[];
  v_turns bigint[];
BEGIN
  SELECT array_agg(e.id), array_agg(e.left_n), array_agg(CASE WHEN e.moves THEN nextval('lp.turns') END)
  INTO v_ids, v_lefts, v_turns FROM lp.places(p_ids, p_lefts, p_weights, p_served) AS p
  CROSS JOIN LATERAL unnest(p.members, p.lefts, p.moves) AS e (id, left_n, moves);
  UPDATE lp.turn AS k SET left_n = e.left_n, turn = coalesce(e.turn, k.turn)
  FROM unnest(v_ids, v_lefts, v_turns) AS e (id, left_n, turn) WHERE k.id BETWEEN e.id AND e.id;
  IF p_seats THEN
    UPDATE lp.seat AS s SET turn = e.turn FROM unnest(v_ids, v_turns) AS e (id, turn)
    WHERE s.member BETWEEN e.id AND e.id AND e.turn IS NOT NULL;
  END IF;
END $$;

-- How many jobs each of several lanes gives to the first `p_count` of all, in order of (due, id). Lanes are read in
-- growing pieces: with many of them most need only their first jobs.
CREATE OR REPLACE FUNCTION lp.merge_lanes(p_lanes bigint[], p_count integer, OUT lanes bigint[], OUT ns integer[]) LANGUAGE plpgsql AS $$
DECLARE
  v_piece integer := least(p_count, 4);
  v_more boolean;
BEGIN
  LOOP
    WITH heads AS (
      SELECT w.lane, w.due_ms, w.id FROM unnest(p_lanes) AS l (id)
      CROSS JOIN LATERAL (SELECT x.id, x.floor_ms, x.floor_id FROM lp.lane_now AS x WHERE x.id = l.id OFFSET 0) AS k
      CROSS JOIN LATERAL (
        SELECT r.lane, r.due_ms, r.id FROM lp.wait AS r
        WHERE r.lane = k.id AND r.state = :READY AND (r.due_ms, r.id) >= (k.floor_ms, k.floor_id)
        ORDER BY r.due_ms, r.id LIMIT v_piece
      ) AS w ORDER BY w.due_ms, w.id LIMIT p_count
    ), each AS (
      SELECT lane, count(*)::integer AS n FROM heads GROUP BY lane
    )
    SELECT coalesce(array_agg(e.lane), p_lanes), coalesce(array_agg(e.n), array_fill(1, ARRAY[cardinality(p_lanes)])),
      coalesce(bool_or(e.n = v_piece), false)
    INTO lanes, ns, v_more FROM each AS e; -- when none has anything, each must be seen to be empty
    EXIT WHEN NOT v_more OR v_piece >= p_count;
    v_piece := least(v_piece * 4, p_count);
  END LOOP;
END $$;

-- Which lanes of one ring give how many jobs, so that its members share p_count: apart those that no gate rules, and the
-- others, in the order of their members' turns.
CREATE OR REPLACE FUNCTION lp.share_lanes(
  t lp.taking, p_candidates lp.candidate[], p_count integer, p_members bigint[], p_lefts integer[], p_weights integer[],
  OUT plain bigint[], OUT plain_ns integer[], OUT gated bigint[], OUT gated_ns integer[]
) LANGUAGE plpgsql AS $$
DECLARE
  v_each record;
  v_lanes bigint[];
  v_ns integer[];
BEGIN
  plain := '{}';
  gated := '{}';
  FOR v_each IN
    SELECT m.lanes, m.plain, g.n FROM unnest(
      p_members, lp.share(lp.shareable(t, p_candidates, p_count), p_lefts, p_weights)
    ) WITH ORDINALITY AS g (member, n, at) JOIN (
      SELECT c.member, array_agg(c.lane) AS lanes, bool_and(c.plain) AS plain FROM unnest(p_candidates) AS c GROUP BY c.member
    ) AS m ON m.member = g.member WHERE g.n > 0 ORDER BY g.at
  LOOP
    v_lanes := v_each.lanes;
    v_ns := ARRAY[v_each.n];
    IF cardinality(v_lanes) > 1 THEN
      SELECT m.lanes, m.ns INTO v_lanes, v_ns FROM lp.merge_lanes(v_lanes, v_each.n) AS m;
    END IF;
    IF v_each.plain THEN
      plain := plain || v_lanes;
      plain_ns := plain_ns || v_ns;
    ELSE
      gated := gated || v_lanes;
      gated_ns := gated_ns || v_ns;
    END IF;
  END LOOP;
END $$;

-- Share `p_count` between the members of one ring; one of each in turn, so that no member's jobs wait behind a whole
-- share of another member, and in order of (due, id) within a member.
CREATE OR REPLACE FUNCTION lp.take_ring(INOUT t lp.taking, p_candidates lp.candidate[], p_count integer, OUT ids bytea[]) LANGUAGE plpgsql AS $$
DECLARE
  v_got record;
  v_turns record := lp.turns_of(ARRAY(SELECT DISTINCT c.member FROM unnest(p_candidates) AS c));
  v_shares record := lp.share_lanes(t, p_candidates, p_count, v_turns.ids, v_turns.lefts, v_turns.weights);
  v_served integer[];
  v_from bigint[] := '{}'; -- of each job that was taken: its lane and when it was due
  v_dues bigint[] := '{}';
BEGIN
  ids := '{}';
  IF v_shares.gated <> '{}' THEN
    v_got := lp.take_gated(t, v_shares.gated, v_shares.gated_ns);
    t := v_got.t;
    ids := v_got.ids;
    v_from := v_got.lanes;
    v_dues := v_got.dues;
  END IF;
  IF v_shares.plain <> '{}' THEN
    v_got := lp.take_plain(t, v_shares.plain, v_shares.plain_ns);
    t := v_got.t;
    ids := ids || v_got.ids;
    v_from := v_from || v_got.lanes;
    v_dues := v_dues || v_got.dues;
  END IF;

  SELECT coalesce(array_agg(k.id ORDER BY k.rank, k.member), '{}') INTO ids FROM (
    SELECT j.id, m.at AS member, row_number() OVER (PARTITION BY m.at ORDER BY j.due_ms, j.id) AS rank
    FROM unnest(ids, v_from, v_dues) AS j (id, lane, due_ms) JOIN unnest(p_candidates) AS c ON c.lane = j.lane
    JOIN unnest(v_turns.ids) WITH ORDINALITY AS m (id, at) ON m.id = c.member
  ) AS k;
  IF cardinality(v_turns.ids) > 1 OR t.cut THEN
    SELECT array_agg(coalesce(s.n, 0) ORDER BY m.at) INTO v_served
    FROM unnest(v_turns.ids) WITH ORDINALITY AS m (id, at) LEFT JOIN (
      SELECT c.member, count(*)::integer AS n FROM unnest(v_from) AS j (lane) JOIN unnest(p_candidates) AS c ON c.lane = j.lane
      GROUP BY c.member
    ) AS s ON s.member = m.id;
    PERFORM lp.advance_turns(v_turns.ids, v_turns.lefts, v_turns.weights, v_served, true);
  END IF;
END $$;

-- Share the rest of the claim between queues, then between the members of each; one of each in turn here too.
CREATE OR REPLACE FUNCTION lp.take_fairly(INOUT t lp.taking, p_candidates lp.candidate[], OUT ids bytea[]) LANGUAGE plpgsql AS $$
DECLARE
  v_got record;
  v_rings bigint[];
  v_lefts integer[];
  v_weights integer[];
  v_given integer[];
  v_served integer[] := '{}';
  v_ranks integer[] := '{}'; -- of each job that was taken: its place among those of its queue
  v_mine lp.candidate[];
BEGIN
  ids := '{}';
  SELECT k.ids, k.lefts, k.weights INTO v_rings, v_lefts, v_weights
  FROM lp.turns_of(ARRAY(SELECT DISTINCT c.ring FROM unnest(p_candidates) AS c)) AS k;
  v_given := lp.share(lp.shareable(t, p_candidates, t.left_n), v_lefts, v_weights);
  FOR i IN 1 .. cardinality(v_rings) LOOP
    v_served[i] := 0;
    IF v_given[i] > 0 THEN
      v_mine := ARRAY(SELECT c FROM unnest(p_candidates) AS c WHERE c.ring = v_rings[i]);
      v_got := lp.take_ring(t, v_mine, v_given[i]);
      t := v_got.t;
      ids := ids || v_got.ids;
      v_served[i] := cardinality(v_got.ids);
      v_ranks := v_ranks || ARRAY(SELECT generate_series(1, v_served[i]));
    END IF;
  END LOOP;
  IF cardinality(v_rings) > 1 THEN
    SELECT coalesce(array_agg(j.id ORDER BY j.rank, j.at), '{}') INTO ids
    FROM unnest(ids, v_ranks) WITH ORDINALITY AS j (id, rank, at);
    PERFORM lp.advance_turns(v_rings, v_lefts, v_weights, v_served, false);
  END IF;
END $$;

-- Whether this claim has set many lanes aside that were shut or empty. A hundred thousand keys may run out at once: to
-- set them all aside would take longer than the caller waits for the answer, and all of it would be undone.
CREATE OR REPLACE FUNCTION lp.has_set_many_aside(t lp.taking) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN cardinality(t.skipped_lanes) >= 256 AND 256 <= (
    SELECT count(*) FROM unnest(t.skipped_lanes) AS s (id)
    CROSS JOIN LATERAL (SELECT 1 FROM lp.lane_now AS n WHERE n.id = s.id AND n.state <> :ACTIVE OFFSET 0) AS n
  );
END $$;

-- Take until there is enough or nothing is left; `again` when a bound ended it first.
CREATE OR REPLACE FUNCTION lp.fill_claim(INOUT t lp.taking, OUT ids bytea[]) LANGUAGE plpgsql AS $$
DECLARE
  v_got record;
  v_chosen lp.candidate[];
BEGIN
  ids := '{}';
  FOR v_round IN 1 .. 256 LOOP
    IF t.left_n <= 0 THEN
      RETURN;
    END IF;
    v_got := lp.choose_lanes(t);
    t := v_got.t;
    v_chosen := v_got.chosen;
    IF v_chosen = '{}' THEN
      RETURN;
    END IF;
    IF cardinality(v_chosen) > 1 OR t.cut THEN
      v_got := lp.take_fairly(t, v_chosen);
    ELSIF v_chosen[1].plain THEN
      v_got := lp.take_plain(t, ARRAY[v_chosen[1].lane], ARRAY[t.left_n]);
    ELSE
      v_got := lp.take_gated(t, ARRAY[v_chosen[1].lane], ARRAY[t.left_n]);
    END IF;
    t := v_got.t;
    ids := ids || v_got.ids;
    IF t.left_n > 0 AND NOT EXISTS (SELECT 1 FROM lp.seat) THEN
      RETURN; -- that was all there is: no need for a closer look
    END IF;
    EXIT WHEN lp.has_set_many_aside(t);
  END LOOP;
  t.again := true;
END $$;
