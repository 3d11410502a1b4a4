-- Promise: the sharing of core/limits/fair.py: round robin with weights, number for number; nothing is read or written.
-- Inputs: a ring as arrays of one length, least recently served first: what is left of each turn, a whole turn's weight.
-- Answer: numbers in ring order; places in the order in which new turns are taken. Relies on: nothing.

-- How many of p_count jobs each participant gets: what is left of interrupted turns, then whole turns.
CREATE OR REPLACE FUNCTION lp.share(p_count integer, p_lefts integer[], p_weights integer[]) RETURNS integer[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  v_size integer := cardinality(p_lefts);
  v_count integer := p_count;
  v_total integer := 0;
  v_rounds integer;
  v_part integer;
  v_given integer[];
BEGIN
  IF v_size = 1 THEN
    RETURN ARRAY[p_count];
  END IF;
  v_given := array_fill(0, ARRAY[v_size]);
  FOR i IN 1 .. v_size LOOP
    EXIT WHEN v_count <= 0;
    v_part := least(v_count, p_lefts[i]);
    v_given[i] := v_part;
    v_count := v_count - v_part;
  END LOOP;
  IF v_count <= 0 OR v_size = 0 THEN
    RETURN v_given;
  END IF;
  FOR i IN 1 .. v_size LOOP
    v_total := v_total + p_weights[i];
  END LOOP;
  v_rounds := v_count / v_total;
  v_count := v_count % v_total;
  FOR i IN 1 .. v_size LOOP
    v_part := least(v_count, p_weights[i]);
    v_count := v_count - v_part;
    v_given[i] := v_given[i] + v_rounds * p_weights[i] + v_part;
  END LOOP;
  RETURN v_given;
END $$;

-- Who stands where after p_served. A turn cut short keeps its place and its remainder; of the members whose turn is over,
-- the one with fewer turns in the batch comes first: it is the one whose turn is next, perhaps with a part of it taken.
CREATE OR REPLACE FUNCTION lp.places(
  p_members bigint[], p_lefts integer[], p_weights integer[], p_served integer[],
  OUT members bigint[], OUT lefts integer[], OUT moves boolean[]
) LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  IF cardinality(p_members) = 1 AND p_served[1] >= p_lefts[1] THEN
    members := p_members;
    lefts := ARRAY[p_weights[1] - (p_served[1] - p_lefts[1]) % p_weights[1]];
    moves := '{true}';
    RETURN;
  END IF;
  SELECT
    coalesce(array_agg(r.member), '{}'),
    coalesce(array_agg(CASE WHEN r.turns < 0 THEN -r.over ELSE r.weight - r.over % r.weight END), '{}'),
    coalesce(array_agg(r.turns >= 0), '{}')
  INTO members, lefts, moves
  FROM (
    SELECT t.member, t.weight, t.served - t.remaining AS over,
      CASE WHEN t.served < t.remaining THEN -1 ELSE (t.served - t.remaining) / t.weight END AS turns
    FROM unnest(p_members, p_lefts, p_weights, p_served) WITH ORDINALITY AS t (member, remaining, weight, served, n)
    WHERE t.served > 0 OR t.remaining <= 0
    ORDER BY turns, t.n
  ) AS r;
END $$;
