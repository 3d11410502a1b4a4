-- Promise: ready jobs of lanes that gates rule become running as far as these admit them, all lanes of a round at once.
-- Inputs: what the claim has taken so far (lp.taking) and lanes of the floor, in the order of their turns. Answer: the
-- same, and the jobs in order. The caller holds lock FLOOR and so waits for nobody: lanes whose gates are locked by somebody
-- else are left for the next claim ("again"). Relies on the primary keys of lane and gate, lane_now_waiting.

-- The stored gates of these lanes: how many places, starts and how much money each has (NULL: no matter), what a job of
-- cost 1 is charged there, whether jobs that pass it must start at once, and which unit it counts. Those that count, or
-- at which a lane would have to wait, are locked, and come first: they alone have a `must`. `held`: somebody else has
-- locked it. `priced`: one at least is a budget, or counts another unit than the plain cost. `slow`: the rows of those
-- whose rate goes slower than declared.
CREATE OR REPLACE FUNCTION lp.gates_of_lanes(
  p_lanes lp.lane[], p_now bigint,
  OUT keys text[], OUT places bigint[], OUT tokens bigint[], OUT moneys bigint[], OUT charges jsonb[], OUT musts boolean[],
  OUT units text[], OUT held boolean[], OUT priced boolean, OUT slow lp.gate[]
) LANGUAGE plpgsql AS $$
DECLARE
  v_keys text[];
  v_own boolean[]; -- a lane would wait there
  v_rest record;
BEGIN
  SELECT array_agg(k.key), array_agg(k.own) INTO v_keys, v_own FROM (
    SELECT k.key, bool_or(k.n > cardinality(l.class_gates)) AS own FROM unnest(p_lanes) AS l
    CROSS JOIN LATERAL unnest(l.class_gates || l.lane_gates) WITH ORDINALITY AS k (key, n) GROUP BY k.key
  ) AS k;
  SELECT coalesce(array_agg(g.key), '{}'), array_agg(g.places), array_agg(g.tokens), array_agg(g.money), array_agg(g.charge),
    array_agg(g.must), array_agg(g.unit), coalesce(bool_or(g.money IS NOT NULL OR g.unit <> ''), false), array_agg(g.slow)
  INTO keys, places, tokens, moneys, charges, musts, units, priced, slow
  FROM unnest(v_keys, v_own) AS k (key, own) CROSS JOIN LATERAL (
    SELECT x.key, lp.gate_places(x, p_now) AS places, lp.gate_taken(x, 1, p_now) AS charge, x.unit,
      CASE WHEN x.interval_us IS NOT NULL THEN lp.gate_starts(x, p_now) END AS tokens,
      CASE WHEN x.interval_us IS NOT NULL AND lp.gate_is_slow(x) THEN x END AS slow,
      CASE WHEN x.cap IS NOT NULL THEN lp.gate_money(x, p_now) END AS money,
      lp.gate_counts(x, p_now) AS must
    FROM lp.gate AS x
    WHERE x.key = k.key
      AND (k.own OR x.open_until_ms > 0 OR lp.gate_counts(x, p_now))
    FOR UPDATE SKIP LOCKED
  ) AS g;
  SELECT array_agg(g.key) AS keys, array_agg(g.places) AS places, array_agg(g.charge) AS charges, array_agg(g.held) AS held
  INTO v_rest FROM unnest(v_keys, v_own) AS k (key, own) LEFT JOIN unnest(keys) AS l (key) ON l.key = k.key
  CROSS JOIN LATERAL (
    SELECT x.key, lp.gate_places(x, p_now) AS places, lp.gate_taken(x, 1, p_now) AS charge,
      k.own OR x.open_until_ms > 0 OR lp.gate_counts(x, p_now) AS held
    FROM lp.gate AS x WHERE x.key = k.key OFFSET 0
  ) AS g WHERE l.key IS NULL;
  held := array_fill(false, ARRAY[cardinality(keys)]) || v_rest.held;
  keys := keys || v_rest.keys;
  places := places || v_rest.places;
  charges := charges || v_rest.charges;
END $$;

-- These lanes may have been woken for places that they do not take: others who wait at their gates go on, or it is noted
-- when to look again.
CREATE OR REPLACE FUNCTION lp.pass_room_on(p_lanes bigint[], p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_keys text[] := ARRAY(
    SELECT k.key FROM (
      SELECT DISTINCT c.key FROM unnest(p_lanes) AS a (id)
      CROSS JOIN LATERAL (SELECT x.lane_gates FROM lp.lane AS x WHERE x.id = a.id OFFSET 0) AS l
      CROSS JOIN LATERAL unnest(l.lane_gates) AS c (key)
    ) AS k WHERE EXISTS (SELECT 1 FROM lp.lane_now AS w WHERE w.gate = k.key AND w.state = :WAITING OFFSET 0)
  );
  v_shut text[];
  v_opens bigint[];
  v_key text;
BEGIN
  IF v_keys = '{}' THEN
    RETURN;
  END IF;
  SELECT array_agg(g.key), array_agg(g.opens) INTO v_shut, v_opens FROM (
    SELECT x.key, lp.gate_opens_at(x, p_now) AS opens FROM lp.gate AS x
    WHERE x.key = ANY (v_keys) AND lp.gate_room(x, p_now) <= 0 FOR UPDATE SKIP LOCKED
  ) AS g;
  UPDATE lp.gate AS g SET opens_ms = s.opens FROM unnest(v_shut, v_opens) AS s (key, opens)
  WHERE g.key = ANY (ARRAY[s.key]) AND g.opens_ms IS DISTINCT FROM s.opens;
  FOR v_key IN SELECT k.key FROM unnest(v_keys) AS k (key) WHERE NOT k.key = ANY (coalesce(v_shut, '{}')) LOOP
    IF NOT lp.wake_lanes(v_key, p_now) THEN
      PERFORM lp.post_gate(v_key);
    END IF;
  END LOOP;
END $$;

-- Lanes that their gates stop: each waits at the first of its own that is shut, or its class is stopped as a whole, which
-- the next look at the classes finds, and when that may go on (open_classes).
CREATE OR REPLACE FUNCTION lp.park_lanes(INOUT t lp.taking, p_lanes bigint[]) LANGUAGE plpgsql AS $$
DECLARE
  v_lanes bigint[];
  v_gates text[];
BEGIN
  SELECT array_agg(s.id), array_agg(s.gate) INTO v_lanes, v_gates FROM (
    SELECT l.id, (
      SELECT k.key FROM unnest(l.lane_gates) WITH ORDINALITY AS k (key, at)
      CROSS JOIN LATERAL (SELECT lp.gate_room(x, t.now) AS room FROM lp.gate AS x WHERE x.key = k.key OFFSET 0) AS g
      WHERE g.room <= 0 ORDER BY k.at LIMIT 1
    ) AS gate
    FROM unnest(p_lanes) AS a (id)
    CROSS JOIN LATERAL (SELECT x.id, x.lane_gates FROM lp.lane AS x WHERE x.id = a.id OFFSET 0) AS l
  ) AS s WHERE s.gate IS NOT NULL;
  t.skipped_lanes := t.skipped_lanes || p_lanes;
  IF v_lanes IS NOT NULL THEN
    UPDATE lp.lane_now AS n SET state = :WAITING, gate = p.gate,
      turn = coalesce((SELECT k.turn FROM lp.turn AS k WHERE k.id = n.member), 0)
    FROM unnest(v_lanes, v_gates) AS p (id, gate) WHERE n.id BETWEEN p.id AND p.id;
    PERFORM lp.leave_seats(v_lanes);
    PERFORM lp.pass_room_on(v_lanes, t.now);
  END IF;
END $$;

-- What a job costs at a gate that counts this unit ('' or NULL: the plain cost), by its plain cost and what it costs of others.
CREATE OR REPLACE FUNCTION lp.cost_in(p_unit text, p_cost integer, p_costs jsonb) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN p_unit <> '' THEN coalesce((p_costs ->> p_unit)::bigint, 0) ELSE p_cost END
$$;

-- The same for several.
CREATE OR REPLACE FUNCTION lp.costs_in(p_unit text, p_costs integer[], p_priced jsonb[]) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN ARRAY(
    SELECT lp.cost_in(p_unit, c.cost, c.costs) FROM unnest(p_costs, p_priced) WITH ORDINALITY AS c (cost, costs, at) ORDER BY c.at
  );
END $$;

-- What a job of another cost than 1 is charged, by what one of cost 1 would be. p_units: which each of these gates counts
-- (NULL: the plain cost), and p_costs what the job costs of others.
CREATE OR REPLACE FUNCTION lp.charges_of(p_charged jsonb, p_units text[], p_cost integer, p_costs jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
  SELECT jsonb_agg(CASE
    WHEN c.charge -> :CHARGE_COST = '0' THEN c.charge
    ELSE jsonb_set(c.charge, '{:CHARGE_COST}', to_jsonb(lp.cost_in(p_units[c.at], p_cost, p_costs)))
  END ORDER BY c.at)
  FROM jsonb_array_elements(p_charged) WITH ORDINALITY AS c (charge, at)
$$;

-- How many jobs from the front of a lane pass its gates (p_gates, by their places among all) where one at least is a budget
-- or counts another unit than the plain cost; with what those cost at each of them. p_most: more may not start. When
-- nothing but budgets stops the first of the others, `wants` is what it needs of these: nobody passes it there.
CREATE OR REPLACE FUNCTION lp.admit_priced(
  p_gates integer[], p_places bigint[], p_tokens bigint[], p_moneys bigint[], p_units text[],
  p_costs integer[], p_priced jsonb[], p_most integer, OUT n integer, OUT sums bigint[], OUT wants bigint[]
) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  v_gate integer;
  v_costs bigint[];
  v_counts integer[];
  v_short boolean;
BEGIN
  n := least(cardinality(p_costs), p_most);
  FOR i IN 1 .. cardinality(p_gates) LOOP
    v_gate := p_gates[i];
    v_costs := lp.costs_in(p_units[v_gate], p_costs, p_priced);
    v_counts[i] := lp.admitted(p_places[v_gate], p_tokens[v_gate], p_moneys[v_gate], v_costs);
    n := least(n, v_counts[i]);
  END LOOP;
  v_short := n < cardinality(p_costs);
  FOR i IN 1 .. cardinality(p_gates) LOOP
    v_gate := p_gates[i];
    v_costs := lp.costs_in(p_units[v_gate], p_costs, p_priced);
    sums[i] := (SELECT least(coalesce(sum(c.cost), 0), :MOST) FROM unnest(v_costs[: n]) AS c (cost));
    wants[i] := CASE WHEN v_counts[i] = n THEN lp.falls_short(p_moneys[v_gate] - sums[i], v_costs[n + 1]) END;
    v_short := v_short AND (v_counts[i] > n OR wants[i] IS NOT NULL);
  END LOOP;
  IF NOT v_short OR array_remove(wants, NULL) = '{}' THEN
    wants := NULL; -- something else stops it, too
  END IF;
END $$;

-- Take up to so many jobs from the front of each of these lanes; what one takes of a gate, the next finds taken.
CREATE OR REPLACE FUNCTION lp.take_gated(
  INOUT t lp.taking, p_lanes bigint[], p_counts integer[], OUT ids bytea[], OUT lanes bigint[], OUT dues bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
  v_rows lp.lane[];
  v_keys text[]; -- of each gate: its key, what is left there, what it charges, what it means
  v_places bigint[];
  v_tokens bigint[];
  v_moneys bigint[];
  v_charges jsonb[];
  v_musts boolean[];
  v_units text[];
  v_held boolean[];
  v_ns integer[]; -- and what is taken there: jobs, what they cost together, which is the first of them,
  v_spent bigint[];
  v_firsts integer[];
  v_wants bigint[]; -- and what one that did not fit its budget needs
  v_slow lp.gate[]; -- of each that goes slower than its rate: its row, as it is after that
  v_priced boolean; -- some gate is a budget or counts another unit than the plain cost:
  v_costs jsonb[]; -- what those that were seen cost of other units
  v_sums bigint[]; -- and, of one lane at each of its gates, what those that pass cost, and what the next one needs
  v_needs bigint[];
  v_mine integer[]; -- its gates, and which units those count that charge it
  v_mine_units text[];
  v_stopped bigint[] := '{}'; -- lanes by what becomes of them
  v_skipped bigint[] := '{}';
  v_lanes bigint[] := '{}';
  v_asked integer[] := '{}'; -- of each that is asked: for how many, what a job of cost 1 is charged, whether it must start,
  v_lane_charges jsonb[] := '{}';
  v_lane_musts boolean[] := '{}';
  v_gates integer[] := '{}'; -- and its gates, which end in this array where v_ends says
  v_ends integer[] := '{}';
  v_seen lp.popped;
  p lp.popped;
  v_uneven boolean;
  v_taken integer[] := '{}'; -- which of those that were seen, and what each is charged
  v_charged jsonb[] := '{}';
  v_slots integer := t.slots;
  v_got record;
  v_lane record;
  v_gate integer;
  v_place bigint;
  v_token bigint;
  v_must boolean;
  v_busy boolean;
  v_charge jsonb;
  v_first integer;
  v_last integer := 0;
  v_n integer;
  v_sum bigint;
BEGIN
  ids := '{}';
  v_rows := ARRAY(
    SELECT l.row FROM unnest(p_lanes) WITH ORDINALITY AS a (id, at)
    CROSS JOIN LATERAL (SELECT x AS row FROM lp.lane AS x WHERE x.id = a.id OFFSET 0) AS l ORDER BY a.at
  );
  SELECT g.* INTO v_keys, v_places, v_tokens, v_moneys, v_charges, v_musts, v_units, v_held, v_priced, v_slow
  FROM lp.gates_of_lanes(v_rows, t.now) AS g;

  -- Whom to ask for how many.
  FOR v_lane IN
    SELECT l.id, l.limited, p_counts[l.ordinality] AS n,
      coalesce(array_agg(g.at::integer ORDER BY g.at) FILTER (WHERE g.at IS NOT NULL), '{}') AS gates
    FROM unnest(v_rows) WITH ORDINALITY AS l CROSS JOIN LATERAL unnest(l.class_gates || l.lane_gates) AS k (key)
    LEFT JOIN unnest(v_keys) WITH ORDINALITY AS g (key, at) ON g.key = k.key
    GROUP BY l.ordinality, l.id, l.limited ORDER BY l.ordinality
  LOOP
    v_place := :LOTS;
    v_must := v_lane.limited;
    v_busy := false;
    v_charge := NULL;
    FOREACH v_gate IN ARRAY v_lane.gates LOOP
      v_place := least(v_place, v_places[v_gate], v_tokens[v_gate], v_moneys[v_gate]);
      v_must := v_must OR coalesce(v_musts[v_gate], false);
      v_busy := v_busy OR coalesce(v_held[v_gate], false);
      IF v_charges[v_gate] IS NOT NULL THEN
        v_charge := coalesce(v_charge, '[]') || jsonb_build_array(v_charges[v_gate]);
      END IF;
    END LOOP;
    IF v_busy THEN
      v_skipped := v_skipped || v_lane.id;
      t.again := true;
    ELSIF v_place <= 0 THEN
      v_stopped := v_stopped || v_lane.id;
    ELSIF v_must AND v_slots <= 0 THEN -- that says nothing about what the lane holds
      v_skipped := v_skipped || v_lane.id;
    ELSE
      v_lanes := v_lanes || v_lane.id;
      v_asked := v_asked || least(v_lane.n, v_place, CASE WHEN v_must THEN v_slots END)::integer;
      v_lane_charges := v_lane_charges || v_charge;
      v_lane_musts := v_lane_musts || v_must;
      v_gates := v_gates || v_lane.gates;
      v_ends := v_ends || cardinality(v_gates);
    END IF;
  END LOOP;

  v_seen := lp.pop_ready(v_lanes, v_asked, t.now);
  p := v_seen;
  IF p.odd THEN
    SELECT * INTO v_got FROM lp.drop_unusable(t, p);
    t := v_got.t;
    p := v_got.p;
  END IF;
  v_uneven := 1 <> ANY (p.costs);
  IF v_priced THEN
    v_costs := ARRAY(
      SELECT c.costs FROM unnest(p.ids) WITH ORDINALITY AS j (id, at)
      LEFT JOIN LATERAL (SELECT x.costs FROM lp.cost_job AS x WHERE x.id = j.id OFFSET 0) AS c ON true ORDER BY j.at
    );
  END IF;

  -- Who passes, lane by lane.
  v_ns := array_fill(0, ARRAY[coalesce(cardinality(v_keys), 0)]);
  v_spent := v_ns;
  v_firsts := array_fill(NULL::integer, ARRAY[cardinality(v_ns)]);
  v_wants := v_firsts;
  FOR i IN 1 .. cardinality(v_lanes) LOOP
    v_first := v_last + 1;
    WHILE p.lanes[v_last + 1] = v_lanes[i] LOOP
      v_last := v_last + 1;
    END LOOP;
    CONTINUE WHEN v_last < v_first;
    v_place := NULL;
    v_token := NULL;
    v_mine := v_gates[coalesce(v_ends[i - 1], 0) + 1 : v_ends[i]];
    FOREACH v_gate IN ARRAY v_mine LOOP
      v_place := least(v_place, v_places[v_gate], v_moneys[v_gate]);
      v_token := least(v_token, v_tokens[v_gate]);
    END LOOP;
    v_n := least(v_last - v_first + 1, v_place, v_token);
    IF v_n <= 0 THEN
      v_stopped := v_stopped || v_lanes[i]; -- those before it took the rest
      CONTINUE;
    END IF;
    IF v_lane_musts[i] AND v_slots <= 0 THEN
      v_skipped := v_skipped || v_lanes[i];
      CONTINUE;
    END IF;
    IF v_priced THEN
      v_mine_units := ARRAY(
        SELECT v_units[g.gate] FROM unnest(v_mine) WITH ORDINALITY AS g (gate, at) WHERE v_charges[g.gate] IS NOT NULL ORDER BY g.at
      );
      SELECT * INTO v_n, v_sums, v_needs FROM lp.admit_priced(
        v_mine, v_places, v_tokens, v_moneys, v_units, p.costs[v_first : v_last], v_costs[v_first : v_last],
        CASE WHEN v_lane_musts[i] THEN v_slots END
      );
      IF t.floor_priorities[0] IS NOT NULL THEN
        v_needs := NULL; -- an aged job stops nobody whom it would pass
      END IF;
    ELSIF v_uneven THEN
      v_n := lp.admitted(v_place, v_token, NULL, p.costs[v_first : v_last]);
    END IF;
    IF v_lane_musts[i] THEN
      v_n := least(v_n, v_slots);
      v_slots := v_slots - v_n;
    ELSIF p.odd THEN
      FOR v_job IN v_first .. v_first + v_n - 1 LOOP
        CONTINUE WHEN p.losts[v_job] = 0;
        IF v_slots <= 0 THEN -- a suspect needs one
          v_n := v_job - v_first;
          EXIT;
        END IF;
        v_slots := v_slots - 1;
      END LOOP;
    END IF;
    IF v_n = 0 AND v_needs IS NOT NULL THEN
      v_stopped := v_stopped || v_lanes[i];
    ELSIF v_n = 0 THEN
      v_skipped := v_skipped || v_lanes[i];
      CONTINUE;
    END IF;
    v_sum := 0;
    FOR v_job IN v_first .. v_first + v_n - 1 LOOP
      v_taken := v_taken || v_job;
      v_charged := v_charged || CASE
        WHEN v_priced THEN lp.charges_of(v_lane_charges[i], v_mine_units, p.costs[v_job], v_costs[v_job])
        WHEN p.costs[v_job] = 1 THEN v_lane_charges[i]
        ELSE lp.charges_of(v_lane_charges[i], NULL, p.costs[v_job], NULL)
      END;
      v_sum := v_sum + p.costs[v_job];
    END LOOP;
    FOR v_at IN 1 .. cardinality(v_mine) LOOP
      v_gate := v_mine[v_at];
      IF v_priced THEN
        v_sum := v_sums[v_at];
        v_moneys[v_gate] := v_moneys[v_gate] - v_sum;
        IF v_needs[v_at] IS NOT NULL THEN
          v_wants[v_gate] := v_needs[v_at];
          v_moneys[v_gate] := 0; -- from now on nobody passes
        END IF;
      END IF;
      v_places[v_gate] := v_places[v_gate] - v_n;
      v_tokens[v_gate] := v_tokens[v_gate] - v_sum;
      IF (v_slow[v_gate]).key IS NOT NULL THEN -- those take parts of tokens
        v_slow[v_gate].full_at_us := lp.gate_passed(v_slow[v_gate], v_sum, t.now);
        v_tokens[v_gate] := lp.gate_starts(v_slow[v_gate], t.now);
      END IF;
      IF v_musts[v_gate] IS NOT NULL THEN -- what is not locked may count by now, and nothing was charged there
        v_ns[v_gate] := v_ns[v_gate] + v_n;
      END IF;
      v_spent[v_gate] := least(v_spent[v_gate] + v_sum, :MOST);
      IF v_n > 0 THEN
        v_firsts[v_gate] := coalesce(v_firsts[v_gate], cardinality(v_taken) - v_n + 1);
      END IF;
    END LOOP;
  END LOOP;
  t.slots := v_slots;

  IF v_taken <> '{}' THEN
    IF cardinality(v_taken) < cardinality(p.ids) THEN
      p := lp.select_rows(p, v_taken);
    END IF;
    SELECT * INTO v_got FROM lp.start_jobs(t, p, v_charged);
    t := v_got.t;
    PERFORM lp.charge_gates(
      v_keys, v_ns, v_spent, ARRAY(SELECT v_got.tokens[f.job] FROM unnest(v_firsts) WITH ORDINALITY AS f (job, at) ORDER BY f.at), t.now
    );
    ids := p.ids;
    lanes := p.lanes;
    dues := p.dues;
  END IF;
  IF v_priced THEN
    PERFORM lp.reserve_budgets(v_keys, v_ns, v_spent, v_wants, t.now);
  END IF;
  SELECT * INTO v_got FROM lp.review_lanes(t, v_lanes, v_asked, v_seen.lanes, v_seen.ids);
  t := v_got.t;
  t.skipped_lanes := t.skipped_lanes || v_skipped;
  IF v_got.resting <> '{}' THEN
    PERFORM lp.pass_room_on(v_got.resting, t.now);
  END IF;
  IF v_stopped <> '{}' THEN
    t := lp.park_lanes(t, v_stopped);
  END IF;
END $$;
