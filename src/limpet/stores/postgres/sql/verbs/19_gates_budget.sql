-- Promise: what is left of a budget in its period, as core/gate/budget.py and core/limits/period.py have it, number for number; nothing is read or written. Inputs: a gate,
-- the engine's time in ms. Answer: numbers, or the gate as it is afterwards. Relies on: nothing. Few
-- gates are budgets: what only they need is not written into the expression that calls it.

-- When the period began that p_now is in; NULL for none.
CREATE OR REPLACE FUNCTION lp.period_began(p_period text, p_now bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE
    WHEN p_period = 'minute' THEN p_now - p_now % 60000
    WHEN p_period = 'hour' THEN p_now - p_now % 3600000
    WHEN p_period IN ('day', 'week', 'month') THEN (
      date_trunc(p_period, (date '1970-01-01' + (p_now / 86400000)::integer)::timestamp)::date - date '1970-01-01'
    )::bigint * 86400000
  END
$$;

-- When it ends: the first instant of the next.
CREATE OR REPLACE FUNCTION lp.period_ends(p_period text, p_now bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  RETURN lp.period_began(p_period, lp.period_began(p_period, p_now) + CASE p_period
    WHEN 'minute' THEN 60000 WHEN 'hour' THEN 3600000 WHEN 'day' THEN 86400000 WHEN 'week' THEN 604800000
    WHEN 'month' THEN 2678400000 -- in the next one, whatever day that is
  END);
END $$;

-- Whether the period that is counted is the one that it is now, or a later one: no clock that goes back refills.
CREATE OR REPLACE FUNCTION lp.gate_is_current(p_gate lp.gate, p_now bigint) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  RETURN coalesce(p_gate.period_ms >= lp.period_began(p_gate.period, p_now), false);
END $$;

-- What is left of the budget in this period; below zero when jobs cost more than they had reserved.
CREATE OR REPLACE FUNCTION lp.gate_budget_left(p_gate lp.gate, p_now bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  RETURN CASE
    WHEN p_gate.cap IS NULL THEN :UNLIMITED
    WHEN lp.gate_is_current(p_gate, p_now) THEN p_gate.cap - p_gate.spent
    ELSE p_gate.cap
  END;
END $$;

-- The same, unless a job waits for more than that: smaller jobs cannot starve a large one.
CREATE OR REPLACE FUNCTION lp.gate_budget_room(p_gate lp.gate, p_now bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  v_left bigint := lp.gate_budget_left(p_gate, p_now);
  v_wanted bigint := CASE WHEN lp.gate_is_current(p_gate, p_now) THEN p_gate.reserved_for ELSE 0 END;
BEGIN
  RETURN CASE WHEN v_left >= v_wanted THEN v_left ELSE 0 END;
END $$;

-- What a job of this cost needs of a budget that has so much left, if that is more; else NULL.
CREATE OR REPLACE FUNCTION lp.falls_short(p_money bigint, p_cost bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN p_money < greatest(1, p_cost) THEN greatest(1, p_cost) END
$$;

-- The gate after so much of its budget was reserved. p_reserved_for: what the first job that did not fit needs; 0: all did.
CREATE OR REPLACE FUNCTION lp.gate_reserve(p_gate lp.gate, p_cost bigint, p_reserved_for bigint, p_now bigint) RETURNS lp.gate
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  v_began bigint := lp.period_began(p_gate.period, p_now);
BEGIN
  IF p_gate.cap IS NULL OR v_began IS NULL THEN
    RETURN p_gate;
  END IF;
  p_gate.spent := least(CASE WHEN p_gate.period_ms >= v_began THEN p_gate.spent ELSE 0 END + p_cost, :MOST);
  p_gate.period_ms := greatest(p_gate.period_ms, v_began);
  p_gate.reserved_for := p_reserved_for;
  RETURN p_gate;
END $$;
