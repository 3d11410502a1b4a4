-- Promise: which lanes a claim may take from next: best priority first, the longest not served first. Inputs:
-- lp.taking. Answer: lanes with their members, rings and classes, all of one priority. The caller holds lock FLOOR.
-- Relies on the primary key of seat (a loose scan: one seek per class that has an active lane, however many lanes and
-- jobs there are), seat_turn, lane_now_active.

-- The classes with active lanes that this worker can run and no gate stops as a whole, with their best priorities. Those
-- without a floor of their own have the one at place 0, if there is one.
CREATE OR REPLACE FUNCTION lp.open_classes(INOUT t lp.taking, OUT classes bigint[], OUT priorities smallint[], OUT plain boolean[]) LANGUAGE plpgsql AS $$
DECLARE
  v_each record;
BEGIN
  classes := '{}';
  priorities := '{}';
  plain := '{}';
  FOR v_each IN
    WITH RECURSIVE step (class) AS (
      (SELECT s.class FROM lp.seat AS s ORDER BY s.class LIMIT 1)
      UNION ALL
      SELECT n.class FROM step CROSS JOIN LATERAL (
        SELECT s.class FROM lp.seat AS s WHERE s.class > step.class ORDER BY s.class LIMIT 1
      ) AS n
    )
    SELECT step.class, f.priority, l.limited, g.free, g.must, g.opens, NOT l.limited AND NOT coalesce(g.rules, false) AS plain
    FROM step CROSS JOIN LATERAL (
      SELECT s.priority, s.lane FROM lp.seat AS s WHERE s.class = step.class
        AND s.priority >= coalesce(t.floor_priorities[array_position(t.floor_classes, step.class)], t.floor_priorities[0], 0)
      ORDER BY s.priority, s.member LIMIT 1
    ) AS f
    CROSS JOIN LATERAL (SELECT x.* FROM lp.lane AS x WHERE x.id = f.lane OFFSET 0) AS l
    CROSS JOIN LATERAL (
      SELECT min(lp.gate_room(g, t.now)) AS free,
        bool_or(lp.gate_counts(g, t.now)) AS must,
        bool_or(g.breaker_failures IS NOT NULL OR g.open_until_ms > 0 OR lp.gate_counts(g, t.now)) AS rules,
        CASE WHEN bool_and(lp.gate_opens_at(g, t.now) IS NOT NULL) FILTER (WHERE lp.gate_room(g, t.now) <= 0)
          THEN max(lp.gate_opens_at(g, t.now)) FILTER (WHERE lp.gate_room(g, t.now) <= 0) END AS opens
      FROM lp.gate AS g WHERE g.key = ANY (l.class_gates)
    ) AS g
    WHERE f.priority <= t.least AND NOT step.class = ANY (t.skipped)
      AND (t.queues IS NULL OR l.queue = ANY (t.queues)) AND (t.tasks IS NULL OR l.task = ANY (t.tasks))
      AND t.capabilities @> l.needs AND (NOT t.options ? 'needing' OR (t.options ->> 'needing') = ANY (l.needs))
  LOOP
    IF coalesce(v_each.free, 1) > 0 AND (t.slots > 0 OR NOT (v_each.limited OR coalesce(v_each.must, false))) THEN
      classes := classes || v_each.class;
      priorities := priorities || v_each.priority;
      plain := plain || v_each.plain;
    ELSE
      t.skipped := t.skipped || v_each.class;
      t.reopening := least(t.reopening, v_each.opens);
    END IF;
  END LOOP;
END $$;

-- The first active lanes of these classes at one priority. Where a class is cut off, members beyond the last turn seen
-- may be seen with only some of their lanes: those wait for the next look.
CREATE OR REPLACE FUNCTION lp.lanes_of_priority(
  INOUT t lp.taking, p_classes bigint[], p_plain boolean[], p_priority smallint, OUT chosen lp.candidate[]
) LANGUAGE plpgsql AS $$
DECLARE
  v_asked integer := t.left_n + cardinality(t.skipped_lanes) + 1;
BEGIN
  WITH seats AS (
    SELECT c.class, c.plain, c.at, s.member, s.ring, s.turn, row_number() OVER (PARTITION BY c.class ORDER BY s.turn, s.member) AS number
    FROM unnest(p_classes, p_plain) WITH ORDINALITY AS c (class, plain, at) CROSS JOIN LATERAL (
      SELECT n.member, n.ring, n.turn FROM lp.seat AS n WHERE n.class = c.class AND n.priority = p_priority
      ORDER BY n.turn, n.member LIMIT v_asked
    ) AS s
  ), horizons AS (
    SELECT ring, min(turn) AS turn FROM seats WHERE number = v_asked GROUP BY ring
  )
  SELECT coalesce(array_agg(ROW (l.id, s.member, s.ring, s.class, s.plain)::lp.candidate ORDER BY s.at, s.number, l.served_ms, l.id), '{}'),
    EXISTS (SELECT 1 FROM horizons)
  INTO chosen, t.cut
  FROM seats AS s LEFT JOIN horizons AS h ON h.ring = s.ring CROSS JOIN LATERAL (
    SELECT n.id, n.served_ms FROM lp.lane_now AS n
    WHERE n.class = s.class AND n.member = s.member AND n.state = :ACTIVE ORDER BY n.served_ms, n.id LIMIT v_asked
  ) AS l
  WHERE (h.turn IS NULL OR s.turn <= h.turn) AND NOT l.id = ANY (t.skipped_lanes);
END $$;

-- Active lanes of the best priority that has any; empty when there is nothing for this claim.
CREATE OR REPLACE FUNCTION lp.choose_lanes(INOUT t lp.taking, OUT chosen lp.candidate[]) LANGUAGE plpgsql AS $$
DECLARE
  v_got record;
  v_classes bigint[];
  v_plain boolean[];
  v_best smallint;
  v_class bigint;
  v_at integer;
BEGIN
  LOOP
    v_got := lp.open_classes(t);
    t := v_got.t;
    chosen := '{}';
    EXIT WHEN v_got.classes = '{}';
    v_best := (SELECT min(p) FROM unnest(v_got.priorities) AS p);
    SELECT array_agg(c.class), array_agg(c.plain) INTO v_classes, v_plain
    FROM unnest(v_got.classes, v_got.priorities, v_got.plain) AS c (class, priority, plain) WHERE c.priority = v_best;
    v_got := lp.lanes_of_priority(t, v_classes, v_plain, v_best);
    t := v_got.t;
    chosen := v_got.chosen;
    EXIT WHEN chosen <> '{}';
    -- All of them were looked at before: the next priority of these classes may still have something.
    FOREACH v_class IN ARRAY v_classes LOOP
      v_at := coalesce(array_position(t.floor_classes, v_class), cardinality(t.floor_classes) + 1);
      t.floor_classes[v_at] := v_class;
      t.floor_priorities[v_at] := v_best + 1;
    END LOOP;
  END LOOP;
END $$;
