-- Promise: lanes, turns and gates as claim sees them. Inputs: positional. Answer: rows where it says so.
-- Relies on limpet_seat_member, limpet_seat_ring, limpet_lane_active, limpet_lane_waiting, limpet_job_scheduled, limpet_gate_opens.
-- "LIMIT ? + 0": see claim.sql.

-- name: lane_insert
INSERT OR IGNORE INTO limpet_lane (id, class, member, ring, priority, queue, task, scope, tenant, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: lane_gate_insert
INSERT OR IGNORE INTO limpet_lane_gate (gate, lane) VALUES (?, ?);

-- name: lane_body
SELECT body FROM limpet_lane WHERE id = ?;

-- name: lane_state
SELECT state FROM limpet_lane WHERE id = ?;

-- name: lane_count
UPDATE limpet_lane SET jobs = jobs + ? WHERE id = ?;

-- name: lane_activate
UPDATE limpet_lane SET state = 1, served_ms = ? WHERE id = ? AND state = 0;

-- name: lane_served
UPDATE limpet_lane SET served_ms = ? WHERE id = ?;

-- name: seat_take
INSERT OR IGNORE INTO limpet_seat (class, priority, member, ring, turn, lane) VALUES (?, ?, ?, ?, ?, ?);

-- name: seat_leave
DELETE FROM limpet_seat WHERE class = ?1 AND priority = ?2 AND member = ?3 AND NOT EXISTS (
  SELECT 1 FROM limpet_lane l INDEXED BY limpet_lane_active WHERE l.class = ?1 AND l.member = ?3 AND l.state = 1);

-- name: seat_other_lane
UPDATE limpet_seat SET lane = (
  SELECT l.id FROM limpet_lane l INDEXED BY limpet_lane_active WHERE l.class = ?1 AND l.member = ?3 AND l.state = 1 LIMIT 1)
WHERE class = ?1 AND priority = ?2 AND member = ?3 AND lane = ?4;

-- name: seats_move
UPDATE limpet_seat SET turn = ? WHERE member = ?;

-- name: lane_idle
UPDATE limpet_lane SET state = 0 WHERE id = ?;

-- name: lane_park
UPDATE limpet_lane SET state = 2, gate = ?,
  turn = coalesce((SELECT t.turn FROM limpet_turn t WHERE t.id = limpet_lane.member), 0) WHERE id = ?;

-- name: next_turn
UPDATE limpet_clock SET turn = turn + 1 RETURNING turn;

-- name: seated
SELECT EXISTS (SELECT 1 FROM limpet_seat WHERE member = ?1), EXISTS (SELECT 1 FROM limpet_seat WHERE ring = ?2),
  (SELECT turn FROM limpet_turn WHERE id = ?1);

-- name: turn_enter
UPDATE limpet_turn SET turn = ?, left = weight WHERE id = ?;

-- name: turn_get
SELECT turn FROM limpet_turn WHERE id = ?;

-- name: turn_put
INSERT INTO limpet_turn (id, turn, left, weight, name) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET turn = excluded.turn, left = excluded.left, weight = excluded.weight;

-- name: turns
SELECT id, turn, left, weight FROM limpet_turn WHERE id IN (:keys);

-- name: turn_left
UPDATE limpet_turn SET left = ? WHERE id = ?;

-- name: turn_move
UPDATE limpet_turn SET left = ?, turn = ? WHERE id = ?;

-- name: turn_weight
UPDATE limpet_turn SET weight = ?, left = min(left, ?) WHERE name = ?;

-- name: due_jobs
SELECT j.id, j.lane FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS p
CROSS JOIN limpet_job AS j INDEXED BY limpet_job_scheduled
WHERE p.column1 >= ? AND j.state = 1 AND j.priority = p.column1 AND j.due_ms <= ? LIMIT ? + 0;

-- name: job_promote
UPDATE limpet_job SET state = 2 WHERE id = ? AND state = 1;

-- What is due at 1 << 52 waits for an event alone, and not for a time.
-- name: next_due
SELECT min(due) FROM (
  SELECT (SELECT j.due_ms FROM limpet_job j INDEXED BY limpet_job_scheduled
          WHERE j.state = 1 AND j.priority = p.column1 AND j.due_ms < 1 << 52 ORDER BY j.due_ms LIMIT 1) AS due
  FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS p
);

-- name: gates_by_key
SELECT key, body FROM limpet_gate WHERE key IN (:keys);

-- name: gate_put
INSERT INTO limpet_gate (key, body, opens_ms, rank) VALUES (?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET body = excluded.body, opens_ms = excluded.opens_ms, rank = excluded.rank;

-- name: breaker_count
SELECT count(*) FROM limpet_gate INDEXED BY limpet_gate_rank WHERE rank IS NOT NULL;

-- name: gate_arm
UPDATE limpet_gate SET opens_ms = ? WHERE key = ? AND opens_ms IS NOT ?;

-- name: due_gates
SELECT key FROM limpet_gate WHERE opens_ms <= ? ORDER BY opens_ms LIMIT ? + 0;

-- name: next_gate
SELECT min(opens_ms) FROM limpet_gate WHERE opens_ms IS NOT NULL;

-- name: waiting_classes
WITH RECURSIVE step(class) AS (
  SELECT min(class) FROM limpet_lane WHERE gate = ?1 AND state = 2
  UNION ALL
  SELECT (SELECT min(class) FROM limpet_lane WHERE gate = ?1 AND state = 2 AND class > step.class) FROM step
  WHERE step.class IS NOT NULL
)
SELECT class FROM step WHERE class IS NOT NULL;

-- name: waiting_lane
SELECT id FROM limpet_lane WHERE gate = ? AND class = ? AND state = 2 LIMIT 1;

-- name: wake_lanes
UPDATE limpet_lane SET state = 1, gate = NULL WHERE id IN (SELECT id FROM limpet_lane WHERE gate = ? AND class = ? AND state = 2 ORDER BY priority, turn LIMIT ? + 0)
RETURNING id;
