-- Promise: ready jobs of lanes that gates rule become running as far as these admit them, all lanes of a round at once.
-- Inputs: what the claim has taken so far (lp.taking) and lanes of the floor, in the order of their turns. Answer: the
-- same, and the jobs in order. The caller holds lock FLOOR and so waits for no lock: lanes whose gates another transaction
-- has locked are left for the next claim ("again"). Relies on the primary keys of lane and gate, lane_now_waiting.

-- The stored gates of these lanes. Those that count, or at which a lane would have to wait, are locked and come first: they
-- alone have a `must`, a unit, and tokens and money where they have a rate and a budget.
CREATE OR REPLACE FUNCTION lp.gates_of_lanes(p_lanes lp.lane[], p_now bigint) RETURNS lp.claim_gate[] LANGUAGE plpgsql AS $$
DECLARE
  v_keys text[];
  v_own boolean[]; -- a lane would wait there
  v_gates lp.claim_gate[];
BEGIN
  SELECT array_agg(k.key), array_agg(k.own) INTO v_keys, v_own FROM (
    SELECT k.key, bool_or(k.n > cardinality(l.class_gates)) AS own FROM unnest(p_lanes) AS l
    CROSS JOIN LATERAL unnest(l.class_gates || l.lane_gates) WITH ORDINALITY AS k (key, n) GROUP BY k.key
  ) AS k;
  SELECT coalesce(array_agg(g::lp.claim_gate), '{}') INTO v_gates
  FROM unnest(v_keys, v_own) AS k (key, own) CROSS JOIN LATERAL (
    SELECT lp.gate_places(x, p_now) AS places, CASE WHEN x.interval_us IS NOT NULL THEN lp.gate_rate_room(x, p_now) END AS tokens,
      CASE WHEN x.cap IS NOT NULL THEN lp.gate_budget_room(x, p_now) END AS money, 0 AS n, 0::bigint AS spent,
      NULL::integer AS first, NULL::bigint AS reserved_for, lp.gate_counts(x, p_now) AS must, false AS held, x.key, x.unit,
      lp.gate_taken(x, 1, p_now) AS charge, CASE WHEN x.interval_us IS NOT NULL AND lp.gate_is_slow(x) THEN x END AS slow
    FROM lp.gate AS x
    WHERE x.key = k.key
      AND (k.own OR x.open_until_ms > 0 OR lp.gate_counts(x, p_now))
    FOR UPDATE SKIP LOCKED
  ) AS g;
  RETURN v_gates || ARRAY(
    SELECT g::lp.claim_gate FROM unnest(v_keys, v_own) AS k (key, own) LEFT JOIN unnest(v_gates) AS l ON l.key = k.key
    CROSS JOIN LATERAL (
      SELECT lp.gate_places(x, p_now) AS places, NULL::bigint AS tokens, NULL::bigint AS money, 0 AS n, 0::bigint AS spent,
        NULL::integer AS first, NULL::bigint AS reserved_for, NULL::boolean AS must,
        k.own OR x.open_until_ms > 0 OR lp.gate_counts(x, p_now) AS held, x.key, NULL::text AS unit,
        lp.gate_taken(x, 1, p_now) AS charge, NULL::lp.gate AS slow
      FROM lp.gate AS x WHERE x.key = k.key OFFSET 0
    ) AS g WHERE l.key IS NULL
  );
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

-- How many jobs from the front of a lane pass its gates (p_mine of all), where one at least is a budget or counts another
-- unit than the plain cost; with what those cost at each of them. p_most: more may not start. When nothing but budgets stops
-- the first of the others, `reserved_for` is what it needs of these: no later job passes there.
CREATE OR REPLACE FUNCTION lp.admit_priced(
  p_gates lp.claim_gate[], p_mine integer[], p_costs integer[], p_priced jsonb[], p_most integer,
  OUT n integer, OUT sums bigint[], OUT reserved_for bigint[]
) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  g lp.claim_gate;
  v_costs bigint[];
  v_counts integer[];
  v_short boolean;
BEGIN
  n := least(cardinality(p_costs), p_most);
  FOR i IN 1 .. cardinality(p_mine) LOOP
    g := p_gates[p_mine[i]];
    v_counts[i] := lp.admitted(g.places, g.tokens, g.money, lp.costs_in(g.unit, p_costs, p_priced));
    n := least(n, v_counts[i]);
  END LOOP;
  v_short := n < cardinality(p_costs);
  FOR i IN 1 .. cardinality(p_mine) LOOP
    g := p_gates[p_mine[i]];
    v_costs := lp.costs_in(g.unit, p_costs, p_priced);
    sums[i] := (SELECT least(coalesce(sum(c.cost), 0), :MOST) FROM unnest(v_costs[: n]) AS c (cost));
    reserved_for[i] := CASE WHEN v_counts[i] = n THEN lp.falls_short(g.money - sums[i], v_costs[n + 1]) END;
    v_short := v_short AND (v_counts[i] > n OR reserved_for[i] IS NOT NULL);
  END LOOP;
  IF NOT v_short OR array_remove(reserved_for, NULL) = '{}' THEN
    reserved_for := NULL; -- something else stops it, too
  END IF;
END $$;

-- Which lanes to ask for how many jobs, and what each of these is charged, breakers last: `asks`, in order. The others: `stopped` by a gate; `skipped`, since another
-- transaction has locked one of their gates (`busy`), or their jobs must start at once and no slot is free.
CREATE OR REPLACE FUNCTION lp.ask_lanes(
  p_lanes lp.lane[], p_counts integer[], p_gates lp.claim_gate[], p_slots integer,
  OUT asks lp.lane_ask[], OUT stopped bigint[], OUT skipped bigint[], OUT busy boolean
) LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  SELECT coalesce(array_agg(a::lp.lane_ask) FILTER (WHERE NOT l.busy AND l.room > 0 AND NOT l.full), '{}'),
    coalesce(array_agg(a.lane) FILTER (WHERE NOT l.busy AND l.room <= 0), '{}'),
    coalesce(array_agg(a.lane) FILTER (WHERE l.busy OR l.full AND l.room > 0), '{}'), coalesce(bool_or(l.busy), false)
  INTO asks, stopped, skipped, busy
  FROM (
    SELECT g.*, g.must AND p_slots <= 0 AS full FROM (
      SELECT l.id, p_counts[l.ordinality] AS n, least(:UNLIMITED, min(g.places), min(g.tokens), min(g.money)) AS room,
        l.limited OR coalesce(bool_or(g.must), false) AS must, coalesce(bool_or(g.held), false) AS busy,
        coalesce(array_agg(g.ordinality::integer ORDER BY g.ordinality) FILTER (WHERE g.key IS NOT NULL), '{}') AS gates,
        jsonb_agg(g.charge ORDER BY starts_with(g.key, 'breaker:'), g.ordinality) FILTER (WHERE g.charge IS NOT NULL) AS charge,
        array_agg(g.unit ORDER BY starts_with(g.key, 'breaker:'), g.ordinality) FILTER (WHERE g.charge IS NOT NULL) AS units,
        l.class_gates[cardinality(l.class_gates)] AS own, l.lane_gates[cardinality(l.lane_gates)] AS last
      FROM unnest(p_lanes) WITH ORDINALITY AS l CROSS JOIN LATERAL unnest(l.class_gates || l.lane_gates) AS k (key)
      LEFT JOIN unnest(p_gates) WITH ORDINALITY AS g ON g.key = k.key
      GROUP BY l.ordinality, l.id, l.limited, l.class_gates, l.lane_gates ORDER BY l.ordinality
    ) AS g
  ) AS l CROSS JOIN LATERAL (
    SELECT l.id AS lane, least(l.n, l.room, CASE WHEN l.must THEN p_slots END)::integer AS n, l.must, l.gates,
      CASE WHEN starts_with(l.last, 'breaker:') THEN lp.charges_by_key(l.charge, l.own, l.last) ELSE l.charge END AS charge, l.units,
      NULL::integer AS first, 0 AS passed, NULL::bigint[] AS sums, NULL::bigint[] AS reserved_for
  ) AS a;
END $$;

-- A gate after p_n jobs with this total cost have passed it; p_first: the place of the first of them among all.
-- p_reserved_for: what the next one needs of its budget, which then no later job passes.
CREATE OR REPLACE FUNCTION lp.gate_after(g lp.claim_gate, p_n integer, p_cost bigint, p_reserved_for bigint, p_first integer, p_now bigint)
RETURNS lp.claim_gate LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  g.places := g.places - p_n;
  g.tokens := g.tokens - p_cost;
  g.money := CASE WHEN p_reserved_for IS NULL THEN g.money - p_cost ELSE 0 END;
  g.reserved_for := coalesce(p_reserved_for, g.reserved_for);
  IF (g.slow).key IS NOT NULL THEN -- those take parts of tokens
    g.slow.full_at_us := lp.gate_passed(g.slow, p_cost, p_now);
    g.tokens := lp.gate_rate_room(g.slow, p_now);
  END IF;
  IF g.must IS NOT NULL THEN -- what is not locked may count by now, and nothing was charged there
    g.n := g.n + p_n;
  END IF;
  g.spent := least(g.spent + p_cost, :MOST);
  IF p_n > 0 THEN
    g.first := coalesce(g.first, p_first);
  END IF;
  RETURN g;
END $$;

-- How many jobs from the front may start with this number of free slots, if only suspects need one. p_losts: how often each was
-- lost.
CREATE OR REPLACE FUNCTION lp.startable(p_losts integer[], p_slots integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  FOR i IN 1 .. cardinality(p_losts) LOOP
    CONTINUE WHEN p_losts[i] = 0;
    IF p_slots <= 0 THEN
      RETURN i - 1;
    END IF;
    p_slots := p_slots - 1;
  END LOOP;
  RETURN cardinality(p_losts);
END $$;

-- How many jobs of a lane pass, where some cost more than others (p_costs; p_priced: of other units, NULL: no gate counts
-- those) or are suspects (p_losts). a.passed: as many places and starts its gates have. p_aged: as in `admit`.
CREATE OR REPLACE FUNCTION lp.admit_uneven(
  a lp.lane_ask, p_gates lp.claim_gate[], p_costs integer[], p_priced jsonb[], p_losts integer[], p_slots integer, p_aged boolean
) RETURNS lp.lane_ask LANGUAGE plpgsql AS $$
DECLARE
  v_most integer := CASE WHEN a.must THEN p_slots END;
  v_places bigint;
  v_tokens bigint;
BEGIN
  IF p_priced IS NOT NULL THEN
    SELECT * INTO a.passed, a.sums, a.reserved_for FROM lp.admit_priced(p_gates, a.gates, p_costs, p_priced, v_most);
    IF p_aged THEN
      a.reserved_for := NULL;
    END IF;
  ELSE
    SELECT least(min(g.places), min(g.money)), min(g.tokens) INTO v_places, v_tokens FROM unnest(a.gates) AS m (at)
    CROSS JOIN LATERAL (SELECT (p_gates[m.at]).*) AS g;
    a.passed := least(lp.admitted(v_places, v_tokens, NULL, p_costs), v_most);
    a.sums := array_fill((SELECT coalesce(sum(c), 0) FROM unnest(p_costs[: a.passed]) AS c), ARRAY[cardinality(a.gates)]);
  END IF;
  IF NOT a.must THEN
    a.passed := lp.startable(p_losts[: a.passed], p_slots);
  END IF;
  RETURN a;
END $$;

-- Which of the jobs that were seen pass, lane by lane: what one takes of a gate, the next finds taken. p_costs: what each job
-- costs of other units than the plain one; NULL: no gate counts those. p_aged: an aged job stops no job that it would pass.
CREATE OR REPLACE FUNCTION lp.admit(
  INOUT asks lp.lane_ask[], INOUT gates lp.claim_gate[], INOUT slots integer, p lp.popped, p_costs jsonb[], p_aged boolean, p_now bigint,
  OUT stopped bigint[], OUT skipped bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
  a lp.lane_ask;
  v_uneven boolean := p.odd OR p_costs IS NOT NULL OR 1 <> ANY (p.costs);
  v_last integer := 0;
  v_taken integer := 0;
BEGIN
  stopped := '{}';
  skipped := '{}';
  FOR v_at IN 1 .. cardinality(asks) LOOP
    a := asks[v_at];
    a.first := v_last + 1;
    WHILE p.lanes[v_last + 1] = a.lane LOOP
      v_last := v_last + 1;
    END LOOP;
    CONTINUE WHEN v_last < a.first;
    a.passed := v_last - a.first + 1;
    FOR i IN 1 .. cardinality(a.gates) LOOP
      a.passed := least(a.passed, gates[a.gates[i]].places, gates[a.gates[i]].tokens, gates[a.gates[i]].money);
    END LOOP;
    IF a.passed <= 0 THEN
      stopped := stopped || a.lane; -- those before it took the rest
      CONTINUE;
    ELSIF a.must AND slots <= 0 THEN
      skipped := skipped || a.lane;
      CONTINUE;
    ELSIF v_uneven THEN
      a := lp.admit_uneven(
        a, gates, p.costs[a.first : v_last], p_costs[a.first : v_last], p.losts[a.first : v_last], slots, p_aged
      );
    ELSIF a.must THEN
      a.passed := least(a.passed, slots);
    END IF;
    IF a.passed = 0 AND a.reserved_for IS NOT NULL THEN
      stopped := stopped || a.lane;
    ELSIF a.passed = 0 THEN
      skipped := skipped || a.lane;
      CONTINUE;
    ELSIF a.must THEN
      slots := slots - a.passed;
    ELSIF p.odd THEN
      slots := slots - (SELECT count(*) FROM unnest(p.losts[a.first : a.first + a.passed - 1]) AS l WHERE l > 0);
    END IF;
    FOR i IN 1 .. cardinality(a.gates) LOOP
      gates[a.gates[i]] := lp.gate_after(
        gates[a.gates[i]], a.passed, coalesce(a.sums[i], a.passed), a.reserved_for[i], v_taken + 1, p_now
      );
    END LOOP;
    v_taken := v_taken + a.passed;
    asks[v_at] := a;
  END LOOP;
END $$;

-- Jobs that pass become running, each with what its gates charge; and that is taken from the gates. `p`: those that were
-- seen, then those that run.
CREATE OR REPLACE FUNCTION lp.start_admitted(
  INOUT t lp.taking, INOUT p lp.popped, p_asks lp.lane_ask[], p_gates lp.claim_gate[], p_costs jsonb[]
) LANGUAGE plpgsql AS $$
DECLARE
  v_taken integer[];
  v_charged jsonb[];
  v_got record;
BEGIN
  SELECT array_agg(j.at), array_agg(CASE
    WHEN p_costs IS NOT NULL THEN lp.charges_of(a.charge, a.units, p.costs[j.at], p_costs[j.at])
    WHEN p.costs[j.at] = 1 THEN a.charge
    ELSE lp.charges_of(a.charge, NULL, p.costs[j.at], NULL)
  END) INTO v_taken, v_charged
  FROM unnest(p_asks) AS a CROSS JOIN LATERAL generate_series(a.first, a.first + a.passed - 1) AS j (at);
  IF v_taken IS NULL THEN
    p := NULL;
    RETURN;
  END IF;
  IF cardinality(v_taken) < cardinality(p.ids) THEN
    p := lp.select_rows(p, v_taken);
  END IF;
  v_got := lp.start_jobs(t, p, v_charged);
  t := v_got.t;
  PERFORM lp.charge_gates(array_agg(g.key), array_agg(g.n), array_agg(g.spent), array_agg(v_got.tokens[g.first]), t.now)
  FROM unnest(p_gates) AS g;
END $$;

-- Take up to the given number of jobs from the front of each of these lanes.
CREATE OR REPLACE FUNCTION lp.take_gated(
  INOUT t lp.taking, p_lanes bigint[], p_counts integer[], OUT ids bytea[], OUT lanes bigint[], OUT dues bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
  v_rows lp.lane[] := ARRAY(
    SELECT l.row FROM unnest(p_lanes) WITH ORDINALITY AS a (id, at)
    CROSS JOIN LATERAL (SELECT x AS row FROM lp.lane AS x WHERE x.id = a.id OFFSET 0) AS l ORDER BY a.at
  );
  v_gates lp.claim_gate[] := lp.gates_of_lanes(v_rows, t.now);
  v_priced boolean := EXISTS (SELECT 1 FROM unnest(v_gates) AS g WHERE g.money IS NOT NULL OR g.unit <> '');
  v_asked record;
  v_lanes bigint[];
  v_counts integer[];
  v_seen lp.popped;
  p lp.popped;
  v_costs jsonb[]; -- what the jobs that were seen cost of other units
  v_passed record;
  v_got record;
BEGIN
  v_asked := lp.ask_lanes(v_rows, p_counts, v_gates, t.slots);
  v_lanes := ARRAY(SELECT a.lane FROM unnest(v_asked.asks) AS a);
  v_counts := ARRAY(SELECT a.n FROM unnest(v_asked.asks) AS a);
  v_seen := lp.pop_ready(v_lanes, v_counts, t.now);
  p := v_seen;
  IF p.odd THEN
    v_got := lp.drop_unusable(t, p);
    t := v_got.t;
    p := v_got.p;
  END IF;
  IF v_priced THEN
    v_costs := ARRAY(
      SELECT c.costs FROM unnest(p.ids) WITH ORDINALITY AS j (id, at)
      LEFT JOIN LATERAL (SELECT x.costs FROM lp.cost_job AS x WHERE x.id = j.id OFFSET 0) AS c ON true ORDER BY j.at
    );
  END IF;
  v_passed := lp.admit(v_asked.asks, v_gates, t.slots, p, v_costs, t.floor_priorities[0] IS NOT NULL, t.now);
  t.slots := v_passed.slots;
  v_got := lp.start_admitted(t, p, v_passed.asks, v_passed.gates, v_costs);
  t := v_got.t;
  p := v_got.p;
  IF v_priced THEN
    PERFORM lp.reserve_budgets(array_agg(g.key), array_agg(g.n), array_agg(g.spent), array_agg(g.reserved_for), t.now)
    FROM unnest(v_passed.gates) AS g;
  END IF;
  ids := coalesce(p.ids, '{}');
  lanes := p.lanes;
  dues := p.dues;
  v_got := lp.review_lanes(t, v_lanes, v_counts, v_seen.lanes, v_seen.ids);
  t := v_got.t;
  t.again := t.again OR v_asked.busy;
  t.skipped_lanes := t.skipped_lanes || v_asked.skipped || v_passed.skipped;
  IF v_got.resting <> '{}' THEN
    PERFORM lp.pass_room_on(v_got.resting, t.now);
  END IF;
  IF v_asked.stopped <> '{}' OR v_passed.stopped <> '{}' THEN
    t := lp.park_lanes(t, v_asked.stopped || v_passed.stopped);
  END IF;
END $$;
