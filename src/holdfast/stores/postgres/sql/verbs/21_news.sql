-- Promise: what people want to hear about a gate (core/news.py) is in the log of events if and when the step that changed
-- the gate is committed. Inputs: the gate before and after, the engine's time. Answer: none. Relies on: nothing.
-- Lock 5 keeps the log in order (append_1). It is the last lock of all: whoever has it waits for nobody, and only who locks
-- nothing after it (`last`) waits for it. Others, and claims, who wait for nobody, post the event where the log is in
-- somebody's hands, and a later claim writes it.

-- Log an event now, or post it.
CREATE OR REPLACE FUNCTION hf.log_event_1(p_kind text, p_data bytea, p_last boolean, p_at bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_last THEN
    PERFORM hf.lock_1(5);
  ELSIF NOT hf.try_lock_1(5) THEN
    INSERT INTO hf.post (kind, n, due_ms, gate, body) VALUES (5, 1, p_at, p_kind, p_data);
    RETURN;
  END IF;
  INSERT INTO hf.log (log, at_ms, kind, actor, reason, data) VALUES ('event', p_at, p_kind, '', '', p_data);
END $$;

-- The events of one step that changed a gate.
CREATE OR REPLACE FUNCTION hf.gate_news_1(p_before hf.gate, p_after hf.gate, p_now bigint) RETURNS TABLE (kind text, facts json)
LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_spent numeric; -- percents of large numbers are larger
  v_was numeric;
BEGIN
  IF p_after.opened > p_before.opened THEN
    RETURN QUERY SELECT 'breaker.opened', json_build_object('gate', p_after.key, 'until_ms', p_after.open_until_ms);
  ELSIF p_before.open_until_ms > 0 AND p_after.open_until_ms <= 0 THEN
    RETURN QUERY SELECT 'breaker.closed', json_build_object('gate', p_after.key);
  END IF;
  IF p_after.held_until_ms > p_now AND p_before.held_until_ms <= p_now THEN
    RETURN QUERY SELECT 'limit.held', json_build_object('gate', p_after.key, 'until_ms', p_after.held_until_ms);
  END IF;
  IF p_after.floor IS NOT NULL AND p_after.cut_token > p_before.cut_token THEN
    RETURN QUERY SELECT 'limit.slowed', json_build_object('gate', p_after.key, 'pace', p_after.pace);
  END IF;
  IF p_after.cap IS NULL THEN
    RETURN;
  END IF;
  v_spent := p_after.cap - hf.gate_left_1(p_after, p_now);
  v_was := CASE WHEN p_before.period_ms = p_after.period_ms THEN p_before.spent ELSE 0 END;
  RETURN QUERY
  SELECT 'budget.reached', json_build_object('gate', p_after.key, 'percent', m.percent, 'spent', v_spent, 'cap', p_after.cap)
  FROM unnest('{50,80,100}'::integer[]) AS m (percent)
  WHERE v_was * 100 < m.percent * p_after.cap::numeric AND m.percent * p_after.cap::numeric <= v_spent * 100;
  IF p_after.wants > 0 AND NOT (p_before.wants > 0 AND p_before.period_ms = p_after.period_ms) THEN
    RETURN QUERY
    SELECT 'budget.short', json_build_object('gate', p_after.key, 'wants', p_after.wants, 'spent', v_spent, 'cap', p_after.cap);
  END IF;
END $$;

-- Log them. The gate's row is held.
CREATE OR REPLACE FUNCTION hf.log_news_1(p_before hf.gate, p_after hf.gate, p_last boolean, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_after.cap IS NULL AND p_after.opened = p_before.opened AND p_after.open_until_ms = p_before.open_until_ms
    AND p_after.held_until_ms = p_before.held_until_ms AND p_after.cut_token = p_before.cut_token
  THEN
    RETURN; -- as most changes are
  END IF;
  PERFORM hf.log_event_1(n.kind, convert_to(n.facts::text, 'UTF8'), p_last, p_now) FROM hf.gate_news_1(p_before, p_after, p_now) AS n;
END $$;
