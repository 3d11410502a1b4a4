-- Promise: ready jobs are leased to a live session, in one step that can be asked again. One claim at a time per
-- namespace (lock FLOOR): it waits there while it holds nothing, and afterwards only for a step that shuts a gate and is
-- about to commit (the door): nothing is handed out under a gate after it was seen shut. Its commit does not wait for the
-- disk: a claim that a crash takes back leaves its jobs ready, its tokens are never given again (they follow the
-- clock), and any later settlement makes it durable. Inputs: who asks, for what. Answer: one row of arrays, in order.

-- Due jobs of this priority and less urgent ones become ready, urgent ones first; true when more are due than one step takes.
CREATE OR REPLACE FUNCTION lp.promote_due(p_most smallint, p_now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_n integer := 0;
  v_each record;
  v_post lp.post;
BEGIN
  FOR v_each IN
    WITH due AS (
      SELECT w.place FROM generate_series(p_most, :LEAST_URGENT) AS p (priority) CROSS JOIN LATERAL (
        SELECT r.ctid AS place FROM lp.wait AS r WHERE r.state = :SCHEDULED AND r.priority = p.priority AND r.due_ms <= p_now
          AND EXISTS (SELECT 1 FROM lp.lane_now AS k WHERE k.id = r.lane OFFSET 0) -- others are filed first
        ORDER BY r.due_ms, r.id LIMIT 512 FOR UPDATE SKIP LOCKED
      ) AS w LIMIT 512
    ), up AS (
      UPDATE lp.wait SET state = :READY WHERE ctid = ANY (ARRAY(SELECT place FROM due)) RETURNING lane, due_ms, id
    )
    SELECT lane, count(*)::integer AS n, (array_agg(due_ms ORDER BY due_ms, id))[1] AS due_ms,
      (array_agg(id ORDER BY due_ms, id))[1] AS id
    FROM up GROUP BY lane ORDER BY 3, 4
  LOOP
    v_n := v_n + v_each.n;
    v_post.lane := v_each.lane;
    PERFORM lp.apply_lane_post(v_post, true, v_each.due_ms, v_each.id, p_now);
    PERFORM lp.count_jobs(v_each.lane, :SCHEDULED, -v_each.n, :READY, v_each.n);
    IF v_each.n > 1 THEN -- others may help with what this claim leaves
      PERFORM lp.post_ready(v_each.lane, v_each.due_ms, v_each.id, v_each.n - 1);
    END IF;
  END LOOP;
  RETURN v_n >= 512;
END $$;

-- Gates that are due admit their waiting lanes.
CREATE OR REPLACE FUNCTION lp.open_due_gates(p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_key text;
BEGIN
  FOR v_key IN SELECT key FROM lp.gate WHERE opens_ms <= p_now ORDER BY opens_ms LIMIT 64 LOOP
    PERFORM lp.wake_lanes(v_key, p_now);
  END LOOP;
END $$;

-- When something may become ready by itself: the next scheduled job that has a time (2^52: never), or the next gate that
-- opens. A job that is due, or a child that was posted again, is held by a transaction that may take long, a
-- caller's: it is looked for again after a while.
CREATE OR REPLACE FUNCTION lp.next_ready_at(p_now bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_due bigint := (
    SELECT min(w.due_ms) FROM generate_series(0, :LEAST_URGENT) AS p (priority) CROSS JOIN LATERAL (
      SELECT r.due_ms FROM lp.wait AS r
      WHERE r.state = :SCHEDULED AND r.priority = p.priority AND r.due_ms < :FOREVER_MS ORDER BY r.due_ms LIMIT 1
    ) AS w
  );
BEGIN
  IF v_due <= p_now THEN
    v_due := p_now + 500;
  ELSIF EXISTS (SELECT 1 FROM lp.post WHERE xid = pg_current_xact_id() AND kind = :POST_CHILD) THEN
    v_due := least(v_due, p_now + 500);
  END IF;
  RETURN least(v_due, (SELECT g.opens_ms FROM lp.gate AS g WHERE g.opens_ms IS NOT NULL ORDER BY g.opens_ms LIMIT 1));
END $$;

-- The leases of what was taken: one for each token. The last of these is the last that was given.
CREATE OR REPLACE FUNCTION lp.write_leases(p_session text, p_tokens bigint[], p_hards bigint[], p_n integer, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM setval('lp.tokens', p_tokens[cardinality(p_tokens)]);
  IF cardinality(p_tokens) = 1 THEN
    INSERT INTO lp.lease (token, session, hard_until_ms, left_n)
    VALUES (p_tokens[1], p_session, CASE WHEN p_hards[1] >= 0 THEN p_now + p_hards[1] + 30000 END, p_n);
    RETURN;
  END IF;
  INSERT INTO lp.lease (token, session, hard_until_ms, left_n)
  SELECT k.token, p_session, CASE WHEN k.hard >= 0 THEN p_now + k.hard + 30000 END, count(r.id)
  FROM unnest(p_tokens, p_hards) AS k (token, hard)
  CROSS JOIN LATERAL (SELECT x.id FROM lp.running AS x WHERE x.token = k.token OFFSET 0) AS r
  GROUP BY k.token, k.hard;
END $$;

-- The priorities of a claim: from this one on aged jobs are taken, and down to the other one the rest.
CREATE OR REPLACE FUNCTION lp.most_urgent(p_options jsonb) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce((p_options ->> 'most_urgent')::smallint, 0::smallint)
$$;

CREATE OR REPLACE FUNCTION lp.least_urgent(p_options jsonb) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce((p_options ->> 'least_urgent')::smallint, :LEAST_URGENT::smallint)
$$;

-- The fast path, by far the most common: one lane is all there is, no gate rules it, and its jobs end together. It does
-- what the full path would do; ids NULL: not so, or there is an option that it does not know: take that one. p_last: the last token
-- that was given.
CREATE OR REPLACE FUNCTION lp.take_only_lane(
  p_limit integer, p_queues text[], p_tasks text[], p_capabilities text[], p_options jsonb, p_last bigint, p_now bigint,
  OUT ids bytea[], OUT tokens bigint[], OUT hards bigint[], OUT again boolean, OUT reopening bigint
) LANGUAGE plpgsql AS $$
DECLARE
  v_id bigint;
  v_token bigint := greatest(p_last + 1, p_now * :TOKENS_PER_MS);
  p lp.popped;
BEGIN
  again := false;
  SELECT n.only INTO v_id FROM (SELECT count(*) AS n, min(s.lane) AS lane FROM (SELECT lane FROM lp.seat LIMIT 2) AS s) AS s
  CROSS JOIN LATERAL (SELECT x.* FROM lp.lane AS x WHERE x.id = s.lane OFFSET 0) AS l
  CROSS JOIN LATERAL (
    SELECT count(*) AS n, min(a.id) AS only
    FROM (SELECT id FROM lp.lane_now WHERE class = l.class AND member = l.member AND state = :ACTIVE LIMIT 2) AS a
  ) AS n
  WHERE s.n = 1 AND n.n = 1 AND NOT l.limited AND l.priority <= lp.least_urgent(p_options) AND p_capabilities @> l.needs
    AND coalesce(l.queue = ANY (p_queues), true) AND coalesce(l.task = ANY (p_tasks), true)
    AND NOT EXISTS (SELECT 1 FROM lp.gate WHERE key = ANY (l.class_gates)) AND p_options - '{least_urgent,aged,most_urgent}'::text[] = '{}';
  IF v_id IS NULL THEN
    RETURN;
  END IF;
  p := lp.pop_ready(ARRAY[v_id], ARRAY[p_limit], p_now);
  IF p.ids IS NULL AND NOT EXISTS (SELECT 1 FROM lp.wait WHERE lane = v_id AND state = :READY) THEN
    ids := '{}';
    RETURN;
  END IF;
  IF p.odd OR p.ids IS NULL OR p.hards <> array_fill(p.hards[1], ARRAY[cardinality(p.hards)]) THEN
    RETURN;
  END IF;
  ids := p.ids;
  tokens := ARRAY[v_token];
  hards := p.hards[:1];
  PERFORM lp.start_one_token(p.places, v_token, p_now);
  INSERT INTO lp.tally (lane, whats, ns) VALUES (v_id, '{:READY,:RUNNING}', ARRAY[-cardinality(ids), cardinality(ids)]);
  IF random() < 0.1 THEN
    PERFORM lp.raise_floors(p.lanes, p.dues, p.ids);
  END IF;
  again := cardinality(ids) < p_limit AND EXISTS (SELECT 1 FROM lp.wait WHERE lane = v_id AND state = :READY); -- another transaction holds it
END $$;

-- A claim that has taken nothing yet. p_last: the last token that was given.
CREATE OR REPLACE FUNCTION lp.begin_taking(
  p_limit integer, p_slots integer, p_queues text[], p_tasks text[], p_capabilities text[], p_options jsonb, p_last bigint, p_now bigint
) RETURNS lp.taking LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  t lp.taking;
BEGIN
  t.now := p_now;
  t.left_n := p_limit;
  t.slots := p_slots;
  t.least := lp.least_urgent(p_options);
  t.options := p_options;
  t.queues := p_queues;
  t.tasks := p_tasks;
  t.capabilities := p_capabilities;
  t.token := p_last;
  t.tokens := '{}';
  t.hards := '{}';
  t.shared := '{}';
  t.skipped := '{}';
  t.skipped_lanes := '{}';
  t.floor_classes := '{}';
  t.floor_priorities := '{}';
  t.cut := false;
  t.again := false;
  RETURN t;
END $$;

-- The full path: up to `aged` jobs of the priority `most_urgent` and less urgent ones first, then the rest by priority, down
-- to `least_urgent` (t.options).
CREATE OR REPLACE FUNCTION lp.take_by_priority(
  t lp.taking,
  OUT ids bytea[], OUT tokens bigint[], OUT hards bigint[], OUT again boolean, OUT reopening bigint
) LANGUAGE plpgsql AS $$
DECLARE
  v_limit integer := t.left_n;
  v_least smallint := t.least;
  v_got record;
BEGIN
  IF t.options ? 'aged' THEN
    t.left_n := least(v_limit, (t.options ->> 'aged')::bigint);
    t.least := :LEAST_URGENT;
    t.floor_priorities := array_fill(lp.most_urgent(t.options), '{1}', '{0}');
    v_got := lp.fill_claim(t);
    t := v_got.t;
    ids := v_got.ids;
    t.left_n := v_limit - cardinality(ids);
    t.least := v_least;
    t.floor_classes := '{}';
    t.floor_priorities := '{}';
    t.skipped_lanes := '{}';
  END IF;
  v_got := lp.fill_claim(t);
  t := v_got.t;
  ids := ids || v_got.ids;
  tokens := t.tokens;
  hards := t.hards;
  again := t.again;
  reopening := t.reopening;
END $$;

-- Running jobs as a worker needs them, in the order of their ids here.
CREATE OR REPLACE FUNCTION lp.hand_out(p_ids bytea[]) RETURNS lp.handed LANGUAGE plpgsql AS $$
DECLARE
  h lp.handed;
  v_flags integer;
  v_heavy bytea[];
BEGIN
  SELECT array_agg(o.id), array_agg(o.token), array_agg(o.attempt), array_agg(o.lost), array_agg(o.lane),
    array_agg(o.policy), array_agg(o.args), array_agg(o.extra), array_agg(o.enqueued_ms), array_agg(o.due_ms),
    array_agg(o.claimed_ms), array_agg(o.held), array_agg(o.held_since_ms), array_agg(o.cost),
    array_agg(coalesce(jsonb_path_exists(o.charged, '$[*][:CHARGE_PROBE] ? (@ == true)'), false)),
    array_agg(CASE WHEN o.charged IS NULL THEN 0 ELSE ( -- under the tightest ceiling that it passed
      SELECT least(coalesce(min((c.taken ->> :CHARGE_CONCURRENCY)::bigint), 0), 2147483647) FROM jsonb_array_elements(o.charged) AS c (taken)
    ) END), bit_or(o.flags)
  INTO h.ids, h.tokens, h.attempts, h.losts, h.lanes, h.policies, h.args, h.extras, h.enqueued, h.dues, h.claimed,
    h.helds, h.held_sinces, h.costs, h.probes, h.togethers, v_flags
  FROM (
    SELECT r.*, j.policy, j.args, j.extra, j.enqueued_ms FROM unnest(p_ids) WITH ORDINALITY AS k (id, at)
    CROSS JOIN LATERAL (SELECT x.* FROM lp.running AS x WHERE x.id = k.id OFFSET 0) AS r
    CROSS JOIN LATERAL (
      SELECT x.policy, x.args, x.extra, x.enqueued_ms FROM lp.job AS x WHERE x.id = k.id OFFSET 0
    ) AS j ORDER BY k.at
  ) AS o;
  IF v_flags & :INPUTS <> 0 THEN
    -- Nothing for a job whose results are over 16 MiB together: more than that would not fit into an answer.
    v_heavy := ARRAY(
      SELECT d.child FROM lp.dep AS d WHERE d.child = ANY (p_ids) AND d.done
      GROUP BY d.child HAVING sum(octet_length(d.result)) > 16777216
    );
    SELECT array_agg(d.child), array_agg(d.parent), array_agg(d.result), array_agg(d.failed)
    INTO h.input_jobs, h.input_parents, h.input_results, h.input_failed
    FROM lp.dep AS d WHERE d.child = ANY (p_ids) AND d.done AND d.child <> ALL (v_heavy);
  END IF;
  IF v_flags & :NOTES <> 0 THEN
    SELECT array_agg(n.job ORDER BY n.job, n.kind, n.name), array_agg(n.kind ORDER BY n.job, n.kind, n.name),
      array_agg(n.name ORDER BY n.job, n.kind, n.name), array_agg(n.body ORDER BY n.job, n.kind, n.name)
    INTO h.note_jobs, h.note_kinds, h.note_names, h.note_bodies
    FROM lp.note AS n WHERE n.job = ANY (p_ids) AND n.kind <> 'log'; -- for people: no claim is slower for its lines
  END IF;
  RETURN h;
END $$;

-- Lie down: the next job of what was asked for wakes this session. Written by the claim that found nothing.
CREATE OR REPLACE FUNCTION lp.mark_idle(
  p_session text, p_queues text[], p_tasks text[], p_capabilities text[], p_slots integer, p_next bigint, p_channel text
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lp.sleeper AS s (session, next_ms, slots, queues, tasks, capabilities, channel)
  VALUES (p_session, p_next, p_slots, p_queues, p_tasks, p_capabilities, p_channel)
  ON CONFLICT (session) DO UPDATE SET next_ms = excluded.next_ms, slots = excluded.slots, queues = excluded.queues,
    tasks = excluded.tasks, capabilities = excluded.capabilities, channel = excluded.channel
  WHERE (s.next_ms, s.slots, s.queues, s.tasks, s.capabilities, s.channel) IS DISTINCT FROM
    (excluded.next_ms, excluded.slots, excluded.queues, excluded.tasks, excluded.capabilities, excluded.channel);
END $$;

-- What others posted, what is due and what may go on by now is on the floor, as far as one claim does that; `more`: not all.
-- p_most: of aged jobs, which are promoted first; NULL: none are asked for. `last`: the last token that was given.
CREATE OR REPLACE FUNCTION lp.bring_floor_up_to_date(p_most smallint, p_now bigint, OUT more boolean, OUT last bigint) LANGUAGE plpgsql AS $$
DECLARE
  v_got record;
  v_lanes integer := 0; -- that posts were applied to
  v_opens boolean; -- a gate
  v_due boolean; -- a scheduled job
  v_fans boolean; -- a parent to its children
BEGIN
  FOR v_round IN 1 .. 64 LOOP -- what is not applied is not served in its order; yet others wait for the floor
    v_got := lp.apply_posts(256, p_now);
    more := v_got.more;
    v_lanes := v_lanes + v_got.lanes;
    EXIT WHEN NOT more OR v_lanes >= 256;
  END LOOP;
  SELECT k.last_value, EXISTS (SELECT 1 FROM lp.gate AS g WHERE g.opens_ms <= p_now), EXISTS (SELECT 1 FROM lp.fan), EXISTS (
    SELECT 1 FROM generate_series(0, :LEAST_URGENT) AS p (priority) CROSS JOIN LATERAL (
      SELECT 1 FROM lp.wait AS w WHERE w.state = :SCHEDULED AND w.priority = p.priority AND w.due_ms <= p_now LIMIT 1
    ) AS w
  ) INTO last, v_opens, v_fans, v_due FROM lp.tokens AS k;
  IF v_opens THEN
    PERFORM lp.open_due_gates(p_now);
  END IF;
  IF v_due THEN
    IF p_most IS NOT NULL THEN
      PERFORM lp.promote_due(p_most, p_now);
    END IF;
    more := lp.promote_due(0::smallint, p_now) OR more;
  END IF;
  IF v_fans THEN
    more := lp.fan_out(p_now) OR more;
    more := (SELECT f.more FROM lp.apply_posts(256, p_now) AS f) OR more;
  END IF;
END $$;

-- The verb. p_options: core.jobs.lease.ClaimOptions; a field left out has its default.
CREATE OR REPLACE FUNCTION lp.claim_1(
  p_session text, p_claimer text, p_seq bigint, p_limit integer, p_slots integer,
  p_queues text[], p_tasks text[], p_capabilities text[], p_options jsonb, p_now bigint,
  OUT now_ms bigint, OUT next_at bigint, OUT again boolean, OUT asleep boolean, OUT jobs lp.handed,
  OUT w_lanes bigint[], OUT w_ns integer[], OUT w_dues bigint[], OUT w_gates text[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_most CONSTANT integer := 1024; -- jobs of one claim
  v_takes_all CONSTANT boolean := NOT p_options ?| '{least_urgent,needing}'; -- a session that asks for less does not go to sleep
  v_channel text;
  v_tokens bigint[];
  v_floor record;
  v_got record;
BEGIN
  again := false;
  asleep := false;
  now_ms := lp.now_1(p_now);
  SELECT s.channel INTO v_channel FROM lp.session AS s WHERE s.id = p_session AND s.deadline_ms > now_ms FOR KEY SHARE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  PERFORM lp.commit_without_waiting(), lp.lock(:FLOOR), lp.share_door();
  SELECT r.tokens INTO v_tokens FROM lp.receipt AS r WHERE r.session = p_session AND r.claimer = p_claimer AND r.seq = p_seq;
  IF FOUND THEN
    jobs := lp.hand_out(ARRAY(SELECT r.id FROM lp.running AS r WHERE r.token = ANY (v_tokens) ORDER BY r.priority, r.due_ms, r.id));
    RETURN;
  END IF;
  v_floor := lp.bring_floor_up_to_date(CASE WHEN p_options ? 'aged' THEN lp.most_urgent(p_options) END, now_ms);
  v_got := lp.take_only_lane(least(p_limit, v_most), p_queues, p_tasks, p_capabilities, p_options, v_floor.last, now_ms);
  IF v_got.ids IS NULL THEN
    v_got := lp.take_by_priority(
      lp.begin_taking(least(p_limit, v_most), p_slots, p_queues, p_tasks, p_capabilities, p_options, v_floor.last, now_ms)
    );
  END IF;
  again := v_got.again OR (v_floor.more AND cardinality(v_got.ids) < least(p_limit, v_most));
  IF v_got.ids = '{}' THEN
    next_at := least(lp.next_ready_at(now_ms), v_got.reopening);
    asleep := v_takes_all AND NOT again;
    IF asleep THEN
      PERFORM lp.mark_idle(p_session, p_queues, p_tasks, p_capabilities, p_slots, next_at, v_channel);
    END IF;
  ELSE
    PERFORM lp.write_leases(p_session, v_got.tokens, v_got.hards, cardinality(v_got.ids), now_ms);
    INSERT INTO lp.receipt (session, claimer, seq, at_ms, tokens) VALUES (p_session, p_claimer, p_seq, now_ms, v_got.tokens)
    ON CONFLICT (session, claimer) DO UPDATE SET seq = excluded.seq, at_ms = excluded.at_ms, tokens = excluded.tokens;
    IF v_takes_all THEN
      DELETE FROM lp.sleeper AS s WHERE s.session = p_session;
    END IF;
    jobs := lp.hand_out(v_got.ids);
  END IF;
  IF EXISTS (SELECT 1 FROM lp.post WHERE xid = pg_current_xact_id()) THEN
    SELECT p.lanes, p.ns, p.dues, p.gates INTO w_lanes, w_ns, w_dues, w_gates FROM lp.posted() AS p;
  END IF;
END $$;
