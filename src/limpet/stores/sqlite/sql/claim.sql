-- Promise: ready jobs become running under one token. Inputs: positional. Answer: rows where it says so.
-- Relies on limpet_seat_turn, limpet_lane_active, limpet_job_ready, limpet_job_running.
-- "LIMIT ? + 0" because SQLite prepares a statement with a bare "LIMIT ?" again each time the bound number is set.

-- name: session_claiming
SELECT r.answer, s.idle, s.next_ms, s.asked, s.slots, s.takes, s.takes_urgent FROM limpet_session s
LEFT JOIN limpet_receipt r ON r.session = s.id AND r.claimer = ? AND r.seq = ?
WHERE s.id = ? AND s.deadline_ms > ?;

-- name: chores
SELECT (SELECT 1 FROM limpet_gate WHERE opens_ms <= ?1 LIMIT 1),
  (SELECT 1 FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS p
   CROSS JOIN limpet_job AS j INDEXED BY limpet_job_scheduled
   WHERE j.state = 1 AND j.priority = p.column1 AND j.due_ms <= ?1 LIMIT 1),
  (SELECT 1 FROM limpet_fan LIMIT 1),
  (SELECT guests FROM limpet_clock);

-- What the call answered before, or NULL; and whether there are hooks.
-- name: receipt
SELECT (SELECT answer FROM limpet_receipt WHERE session = ? AND claimer = ? AND seq = ?),
  EXISTS (SELECT 1 FROM limpet_control WHERE kind = 'hook');

-- name: receipt_put
INSERT OR REPLACE INTO limpet_receipt (session, claimer, seq, answer, at_ms) VALUES (?, ?, ?, ?, ?);

-- A loose scan: one seek per class that has an active lane, however many lanes and jobs there are.
-- name: active_classes
WITH RECURSIVE step(class) AS (
  SELECT min(class) FROM limpet_seat
  UNION ALL
  SELECT (SELECT min(class) FROM limpet_seat WHERE class > step.class) FROM step WHERE step.class IS NOT NULL
)
SELECT step.class, s.priority, s.lane FROM step
CROSS JOIN limpet_seat s ON s.class = step.class
  AND (s.priority, s.member) = (SELECT priority, member FROM limpet_seat WHERE class = step.class ORDER BY priority, member LIMIT 1);

-- name: any_seat
SELECT 1 FROM limpet_seat LIMIT 1;

-- name: active_below
SELECT priority, lane FROM limpet_seat WHERE class = ? AND priority >= ? ORDER BY priority, member LIMIT 1;

-- The first seats with the first lane of each, and whether there is a second.
-- name: seats
SELECT s.member, s.ring, s.turn,
  (SELECT l.id FROM limpet_lane l INDEXED BY limpet_lane_active WHERE l.class = s.class AND l.member = s.member AND l.state = 1
   ORDER BY l.served_ms, l.id LIMIT 1),
  (SELECT 1 FROM limpet_lane l INDEXED BY limpet_lane_active WHERE l.class = s.class AND l.member = s.member AND l.state = 1
   ORDER BY l.served_ms, l.id LIMIT 1 OFFSET 1)
FROM limpet_seat s INDEXED BY limpet_seat_turn WHERE s.class = ? AND s.priority = ? ORDER BY s.turn, s.member LIMIT ? + 0;

-- name: seat_lanes
SELECT id FROM limpet_lane INDEXED BY limpet_lane_active WHERE class = ? AND member = ? AND state = 1
ORDER BY served_ms, id LIMIT ? + 0;

-- name: lane_front
SELECT j.due_ms, j.id, j.attempt, j.lost, j.flags, j.enqueued_ms, j.expires_ms, j.held, j.held_since_ms, j.lane,
       j.policy, coalesce(j.args, (SELECT b.args FROM limpet_body b WHERE b.id = j.id)), j.extra
FROM limpet_job j INDEXED BY limpet_job_ready
WHERE j.lane = ? AND j.state = 2 ORDER BY j.due_ms, j.id LIMIT ? + 0;

-- name: lane_behind
SELECT j.due_ms, j.id, j.attempt, j.lost, j.flags, j.enqueued_ms, j.expires_ms, j.held, j.held_since_ms, j.lane,
       j.policy, coalesce(j.args, (SELECT b.args FROM limpet_body b WHERE b.id = j.id)), j.extra
FROM limpet_job j INDEXED BY limpet_job_ready
WHERE j.lane = ? AND j.state = 2 AND (j.due_ms, j.id) > (?, ?) ORDER BY j.due_ms, j.id LIMIT ? + 0;

-- name: rows_of_token
SELECT j.due_ms, j.id, j.attempt, j.lost, j.flags, j.enqueued_ms, j.expires_ms, j.held, j.held_since_ms, j.lane,
       j.policy, coalesce(j.args, (SELECT b.args FROM limpet_body b WHERE b.id = j.id)), j.extra
FROM limpet_job j INDEXED BY limpet_job_running
WHERE j.token = ? AND j.state = 3 ORDER BY j.priority, j.due_ms, j.id;

-- name: charges_of_token
SELECT id, charged FROM limpet_job INDEXED BY limpet_job_running WHERE token = ? AND state = 3;

-- name: clock_floor
SELECT max(token / 2048, coalesce(swept_at_ms, 0)), store FROM limpet_clock;

-- name: next_token
UPDATE limpet_clock SET token = max(token + 1, ?) RETURNING token;

-- The whole front of a lane in one go.
-- name: front_start
UPDATE limpet_job INDEXED BY limpet_job_ready SET state = 3, token = ?, attempt = attempt + 1, claimed_ms = ?
WHERE lane = ? AND state = 2 AND (due_ms, id) <= (?, ?);

-- name: job_start
UPDATE limpet_job SET state = 3, token = ?, attempt = attempt + 1, claimed_ms = ? WHERE id = ? AND state = 2;

-- name: job_start_charged
UPDATE limpet_job SET state = 3, token = ?, attempt = attempt + 1, claimed_ms = ?, charged = ? WHERE id = ? AND state = 2;

-- name: lease_put
INSERT INTO limpet_lease (token, session, hard_until_ms, left) VALUES (?, ?, ?, ?);

-- Nothing when the results are larger than the bound together; to know their sizes none of them is read.
-- name: inputs
SELECT parent, result, failed FROM limpet_dep WHERE child = ?1 AND done = 1
AND (SELECT coalesce(sum(length(result)), 0) FROM limpet_dep WHERE child = ?1 AND done = 1) <= ?2;

-- Lines of its log are for people: however many there are, no claim is slower for it.
-- name: notes_handed_out
SELECT kind, name, body FROM limpet_note WHERE job = ? AND kind <> 'log' ORDER BY kind, name;

-- name: notes
SELECT kind, name, body FROM limpet_note WHERE job = ? ORDER BY kind, name;
