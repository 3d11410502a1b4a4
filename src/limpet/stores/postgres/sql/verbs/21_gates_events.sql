-- Promise: what people want to hear about a gate (core/text/gate_events.py) is in the log of events if and when the step that changed
-- the gate is committed. Inputs: the gate before and after, the engine's time. Answer: none. Relies on: nothing.
-- Lock LOG keeps the log in order (append_1). It is the last lock of all: a step that has it waits for no other lock, and only a step
-- that locks nothing after it (`last`) waits for it. Other steps, and claims, which wait for no lock, post the event if
-- another transaction holds the log, and a later claim writes it.

-- Log an event now, or post it.
CREATE OR REPLACE FUNCTION lp.log_event(p_kind text, p_data bytea, p_last boolean, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_last THEN
    PERFORM lp.lock(:LOG);
  ELSIF NOT lp.try_lock(:LOG) THEN
    INSERT INTO lp.post (kind, n, due_ms, gate, body) VALUES (:POST_EVENT, 1, p_at, p_kind, p_data);
    RETURN;
  END IF;
  INSERT INTO lp.log (log, at_ms, kind, actor, reason, data) VALUES ('event', p_at, p_kind, '', '', p_data);
END $$;

-- Which marks of a budget are announced after the news of a step: each once in a period, while the cap stays (what jobs
-- reserve and give back lets a busy budget pass its marks up and down all day). Bits: 1, 2, 4 at 50, 80, 100 percent, 8
-- a job waits. `fresh`: the new ones of them.
CREATE OR REPLACE FUNCTION lp.gate_announced_marks(p_before lp.gate, p_after lp.gate, p_now bigint, OUT announced_marks bigint, OUT fresh bigint)
LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_spent numeric := p_after.cap - lp.gate_budget_left(p_after, p_now); -- percents of large numbers are larger
  v_announced bigint := CASE WHEN p_before.period_ms = p_after.period_ms THEN p_before.announced_marks ELSE 0 END;
BEGIN
  announced_marks := p_after.announced_marks;
  fresh := 0;
  IF (p_before.cap, p_before.period_ms, p_before.spent, p_before.reserved_for)
    IS NOT DISTINCT FROM (p_after.cap, p_after.period_ms, p_after.spent, p_after.reserved_for)
  THEN
    RETURN;
  END IF;
  announced_marks := CASE WHEN p_before.cap = p_after.cap THEN v_announced ELSE 0 END
    | CASE WHEN v_spent * 100 >= 50 * p_after.cap::numeric THEN :MARK_50 ELSE 0 END
    | CASE WHEN v_spent * 100 >= 80 * p_after.cap::numeric THEN :MARK_80 ELSE 0 END
    | CASE WHEN v_spent >= p_after.cap THEN :MARK_100 ELSE 0 END
    | CASE WHEN p_after.reserved_for > 0 THEN :SHORT ELSE 0 END;
  fresh := announced_marks & ~v_announced;
END $$;

-- The events of one step that changed a gate.
CREATE OR REPLACE FUNCTION lp.gate_events(p_before lp.gate, p_after lp.gate, p_now bigint) RETURNS TABLE (kind text, facts json)
LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_spent bigint;
  v_fresh bigint;
BEGIN
  IF p_after.opened > p_before.opened THEN
    RETURN QUERY SELECT 'breaker.opened', json_build_object('gate', p_after.key, 'until_ms', p_after.open_until_ms);
  ELSIF p_before.open_until_ms > 0 AND p_after.open_until_ms <= 0 THEN
    RETURN QUERY SELECT 'breaker.closed', json_build_object('gate', p_after.key);
  END IF;
  IF p_after.held_until_ms > p_now AND p_before.held_until_ms <= p_now THEN
    RETURN QUERY SELECT 'limit.held', json_build_object('gate', p_after.key, 'until_ms', p_after.held_until_ms);
  END IF;
  IF p_after.floor IS NOT NULL AND p_after.last_cut_token > p_before.last_cut_token THEN
    RETURN QUERY SELECT 'limit.slowed', json_build_object('gate', p_after.key, 'pace', p_after.pace);
  END IF;
  IF p_after.cap IS NULL THEN
    RETURN;
  END IF;
  v_spent := p_after.cap - lp.gate_budget_left(p_after, p_now);
  v_fresh := (SELECT t.fresh FROM lp.gate_announced_marks(p_before, p_after, p_now) AS t);
  RETURN QUERY
  SELECT 'budget.reached', json_build_object('gate', p_after.key, 'percent', m.percent, 'spent', v_spent, 'cap', p_after.cap)
  FROM unnest('{:MARK_50,:MARK_80,:MARK_100}'::bigint[], '{50,80,100}'::integer[]) AS m (mask, percent) WHERE v_fresh & m.mask <> 0;
  IF v_fresh & :SHORT <> 0 THEN
    RETURN QUERY
    SELECT 'budget.short', json_build_object('gate', p_after.key, 'wants', p_after.reserved_for, 'spent', v_spent, 'cap', p_after.cap);
  END IF;
END $$;

-- Log them. The gate's row is held.
CREATE OR REPLACE FUNCTION lp.log_gate_events(p_before lp.gate, p_after lp.gate, p_last boolean, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_marks bigint;
BEGIN
  IF p_after.cap IS NULL AND p_after.opened = p_before.opened AND p_after.open_until_ms = p_before.open_until_ms
    AND p_after.held_until_ms = p_before.held_until_ms AND p_after.last_cut_token = p_before.last_cut_token
  THEN
    RETURN; -- as most changes are
  END IF;
  IF p_after.cap IS NOT NULL THEN
    v_marks := (SELECT t.announced_marks FROM lp.gate_announced_marks(p_before, p_after, p_now) AS t);
    UPDATE lp.gate AS g SET announced_marks = v_marks WHERE g.key = p_after.key AND g.announced_marks <> v_marks;
  END IF;
  PERFORM lp.log_event(n.kind, convert_to(n.facts::text, 'UTF8'), p_last, p_now) FROM lp.gate_events(p_before, p_after, p_now) AS n;
END $$;
