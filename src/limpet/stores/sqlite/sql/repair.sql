-- Promise: where counters, lanes, leases and rows beside a job differ from the jobs, and what puts them right.
-- Inputs: positional. Answer: rows where it says so. What begins with repair_ reads whole tables, in a snapshot that blocks
-- no call; what begins with mend_ names what it changes.

-- name: repair_counts
SELECT queue, task, what, sum(n), sum(jobs) FROM (
  SELECT queue, task, what, n, 0 AS jobs FROM limpet_count WHERE what < 10
  UNION ALL
  SELECT l.queue, l.task, j.state, 0, count(*) FROM limpet_job j JOIN limpet_lane l ON l.id = j.lane GROUP BY l.queue, l.task, j.state
) GROUP BY queue, task, what HAVING sum(n) <> sum(jobs);

-- name: repair_tenants
SELECT queue, tenant, sum(n), sum(jobs) FROM (
  SELECT queue, task AS tenant, n, 0 AS jobs FROM limpet_count WHERE what = 20
  UNION ALL
  SELECT l.queue, l.tenant, 0, count(*) FROM limpet_job j JOIN limpet_lane l ON l.id = j.lane
  WHERE j.state < 3 AND l.tenant IS NOT NULL GROUP BY l.queue, l.tenant
) GROUP BY queue, tenant HAVING sum(n) <> sum(jobs);

-- name: repair_stored
SELECT state, count(*) FROM limpet_job GROUP BY state;

-- name: repair_totals
SELECT what, n FROM limpet_count WHERE what BETWEEN 10 AND 13;

-- name: repair_lanes
SELECT l.id, coalesce(c.n, 0) - l.jobs FROM limpet_lane l
LEFT JOIN (SELECT lane, count(*) AS n FROM limpet_job GROUP BY lane) c ON c.lane = l.id WHERE l.jobs <> coalesce(c.n, 0);

-- name: repair_nowhere
SELECT j.id FROM limpet_job j WHERE NOT EXISTS (SELECT 1 FROM limpet_lane l WHERE l.id = j.lane);

-- name: repair_causes
SELECT cause, queue, task, sum(n), sum(dead), max(type), max(message), max(sample) FROM (
  SELECT cause, queue, task, n, 0 AS dead, '' AS type, '' AS message, NULL AS sample FROM limpet_cause
  UNION ALL
  SELECT j.cause, l.queue, l.task, 0, count(*), max(j.error_type), max(j.reason), max(j.id) FROM limpet_job j
  JOIN limpet_lane l ON l.id = j.lane WHERE j.state = 5 GROUP BY j.cause, l.queue, l.task
) GROUP BY cause, queue, task HAVING sum(n) <> sum(dead);

-- Lanes with ready jobs that are idle; lanes that are active and have no seat.
-- name: repair_idle
SELECT l.id FROM limpet_lane l WHERE l.state = 0
  AND EXISTS (SELECT 1 FROM limpet_job j INDEXED BY limpet_job_ready WHERE j.lane = l.id AND j.state = 2)
UNION ALL
SELECT l.id FROM limpet_lane l WHERE l.state = 1 AND NOT EXISTS (
  SELECT 1 FROM limpet_seat s WHERE s.class = l.class AND s.priority = l.priority AND s.member = l.member);

-- name: repair_seats
SELECT s.class, s.priority, s.member FROM limpet_seat s WHERE NOT EXISTS (
  SELECT 1 FROM limpet_lane l WHERE l.state = 1 AND l.class = s.class AND l.priority = s.priority AND l.member = s.member);

-- Gates that lanes wait at and that are not there.
-- name: repair_gateless
SELECT DISTINCT l.gate FROM limpet_lane l WHERE l.state = 2 AND NOT EXISTS (SELECT 1 FROM limpet_gate g WHERE g.key = l.gate);

-- Tokens whose lease counts other jobs than run under it, or is not there, or is of no session and has no end.
-- name: repair_leases
SELECT token FROM (
  SELECT l.token AS token FROM limpet_lease l LEFT JOIN limpet_job j INDEXED BY limpet_job_running ON j.token = l.token AND j.state = 3
  GROUP BY l.token HAVING l.left <> count(j.id)
  UNION
  SELECT j.token FROM limpet_job j INDEXED BY limpet_job_running WHERE j.state = 3 AND j.token NOT IN (SELECT token FROM limpet_lease)
  UNION
  SELECT l.token FROM limpet_lease l WHERE l.session NOT IN (SELECT id FROM limpet_session) AND coalesce(l.hard_until_ms, 1 << 60) > ?
);

-- What is left of jobs that are not stored, and were not erased.
-- name: repair_left
SELECT x.id FROM (
  SELECT id FROM limpet_body UNION SELECT id FROM limpet_result UNION SELECT job FROM limpet_note UNION SELECT job FROM limpet_attempt
  UNION SELECT child FROM limpet_dep UNION SELECT job FROM limpet_unique WHERE states <> 0 UNION SELECT id FROM limpet_settled
  UNION SELECT d.parent FROM limpet_dep d JOIN limpet_job c ON c.id = d.child AND c.state = 0 WHERE d.done = 0
) AS x WHERE NOT EXISTS (SELECT 1 FROM limpet_job j WHERE j.id = x.id) AND NOT EXISTS (SELECT 1 FROM limpet_gone g WHERE g.id = x.id);

-- Blocked jobs that wait for no parent.
-- name: repair_blocked
SELECT j.id FROM limpet_job j INDEXED BY limpet_job_blocked WHERE j.state = 0
  AND NOT EXISTS (SELECT 1 FROM limpet_dep d WHERE d.child = j.id AND d.done = 0);

-- Unfinished jobs with a key, none of which is the holder of a key.
-- name: repair_keys
SELECT j.id, j.lane, j.state, j.extra FROM limpet_job j INDEXED BY limpet_job_unique WHERE j.unique_key IS NOT NULL AND j.state < 4
  AND NOT EXISTS (SELECT 1 FROM limpet_unique u, limpet_lane l WHERE l.id = j.lane AND u.key = l.scope || char(0) || j.unique_key);

-- name: mend_cause
INSERT INTO limpet_cause (cause, queue, task, n, type, message, first_ms, last_ms, sample) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (cause, queue, task) DO UPDATE SET n = n + excluded.n;

-- name: mend_lane_idle
UPDATE limpet_lane SET state = 0, gate = NULL WHERE id = ?;

-- name: mend_lane_ready
SELECT count(*) FROM limpet_job j INDEXED BY limpet_job_ready WHERE j.lane = ? AND j.state = 2;

-- name: mend_lane_unseated
SELECT 1 FROM limpet_lane l WHERE l.id = ? AND (l.state = 0 OR l.state = 1 AND NOT EXISTS (
  SELECT 1 FROM limpet_seat s WHERE s.class = l.class AND s.priority = l.priority AND s.member = l.member));

-- name: mend_running
SELECT count(*) FROM limpet_job j INDEXED BY limpet_job_running WHERE j.token = ? AND j.state = 3;

-- name: mend_lease
INSERT INTO limpet_lease (token, session, hard_until_ms, left) VALUES (?1, '', ?2, ?3) ON CONFLICT (token) DO UPDATE SET left = ?3,
  hard_until_ms = CASE WHEN session IN (SELECT id FROM limpet_session) THEN hard_until_ms ELSE ?2 END;

-- name: mend_lease_gone
DELETE FROM limpet_lease WHERE token = ?;

-- name: mend_stored
SELECT id FROM limpet_job WHERE id IN (:keys);

-- name: mend_settled
DELETE FROM limpet_settled WHERE id = ?;

-- name: repair_unique
DELETE FROM limpet_unique WHERE states <> 0 AND job IN (:keys);

-- name: mend_nowhere
UPDATE limpet_job SET lane = ?1, priority = ?2 WHERE id = ?3 RETURNING state, flags;

-- name: mend_buried
UPDATE limpet_job SET state = 5, token = NULL, charged = NULL, reason = ?, cause = ?, error_type = ?, finished_ms = ? WHERE id = ?;
