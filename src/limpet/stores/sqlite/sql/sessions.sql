-- Promise: sessions, their leases and what silence does to them. Inputs: positional. Answer: rows where it says so.
-- Relies on limpet_session_idle, limpet_session_deadline, limpet_lease_session, limpet_lease_handed, limpet_lease_hard, limpet_job_running, limpet_job_expires.

-- name: session_handed
SELECT handed FROM limpet_session WHERE id = ?;

-- name: session_open
INSERT INTO limpet_session (id, serves, info, started_ms, beat_ms, deadline_ms, ear, handed) VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: session_beat
UPDATE limpet_session SET serves = ?, info = ?, beat_ms = ?, deadline_ms = ?, ear = ? WHERE id = ?;

-- name: store_now
SELECT store, token FROM limpet_clock;

-- name: session_close
DELETE FROM limpet_session WHERE id = ?;

-- name: receipts_close
DELETE FROM limpet_receipt WHERE session = ?;

-- name: session_idle
UPDATE limpet_session SET idle = 1, next_ms = ?, asked = ?, slots = ?, takes = ?, takes_urgent = ?,
  slept_at_token = (SELECT token FROM limpet_clock) WHERE id = ?;

-- name: session_busy
UPDATE limpet_session SET idle = 0 WHERE id = ?;

-- name: session_next
UPDATE limpet_session SET next_ms = ? WHERE id = ?;

-- name: session_ear
SELECT ear FROM limpet_session WHERE id = ?;

-- name: idle_sessions
SELECT s.id, s.asked, s.ear, s.slots FROM limpet_session s INDEXED BY limpet_session_idle
WHERE s.idle = 1 ORDER BY s.slots = 0 LIMIT 256;

-- name: idle_sessions_until
SELECT s.id, s.asked, s.ear, s.slots FROM limpet_session s INDEXED BY limpet_session_idle
WHERE s.idle = 1 AND (s.next_ms IS NULL OR s.next_ms > ?) ORDER BY s.slots = 0 LIMIT 256;

-- name: live_sessions
SELECT id, serves, ear FROM limpet_session WHERE deadline_ms > ? LIMIT 256;

-- name: session_views
SELECT s.id, s.serves, s.info, s.started_ms, s.beat_ms, s.deadline_ms, s.idle,
       (SELECT coalesce(sum(l.left), 0) FROM limpet_lease l WHERE l.session = s.id)
FROM limpet_session s WHERE s.deadline_ms > ? ORDER BY s.id;

-- name: held
SELECT j.id, j.token, j.lost, coalesce(l.handed, 0) FROM limpet_lease l CROSS JOIN limpet_job j INDEXED BY limpet_job_running ON j.token = l.token AND j.state = 3
WHERE l.session = ?;

-- name: held_heads
SELECT j.id, j.state, j.token, j.lane, j.attempt, j.lost, j.flags, j.charged, j.claimed_ms, j.reason
FROM limpet_lease l CROSS JOIN limpet_job j INDEXED BY limpet_job_running ON j.token = l.token AND j.state = 3
WHERE l.session = ? LIMIT ?;

-- name: overdue_heads
SELECT j.id, j.state, j.token, j.lane, j.attempt, j.lost, j.flags, j.charged, j.claimed_ms, j.reason
FROM limpet_lease l INDEXED BY limpet_lease_hard CROSS JOIN limpet_job j INDEXED BY limpet_job_running ON j.token = l.token AND j.state = 3
WHERE l.hard_until_ms <= ? LIMIT ?;

-- name: cancelling
SELECT j.id, j.token FROM limpet_lease l CROSS JOIN limpet_job j INDEXED BY limpet_job_running ON j.token = l.token AND j.state = 3
WHERE l.session = ? AND j.flags & 4;

-- name: sweep_state
SELECT swept_at_ms, calm_until_ms FROM limpet_clock;

-- name: sweep_mark
UPDATE limpet_clock SET swept_at_ms = ?, calm_until_ms = ?;

-- name: leases_later
UPDATE limpet_lease SET hard_until_ms = hard_until_ms + ? WHERE hard_until_ms IS NOT NULL;

-- name: silent_sessions
SELECT id FROM limpet_session INDEXED BY limpet_session_deadline WHERE deadline_ms <= ? ORDER BY deadline_ms LIMIT 64;

-- name: expired_jobs
SELECT id FROM limpet_job INDEXED BY limpet_job_expires WHERE expires_ms <= ? AND expires_ms IS NOT NULL AND state < 3 LIMIT ?;

-- name: live_of
SELECT coalesce(sum(n), 0) FROM limpet_count AS c
WHERE CASE ? WHEN 'queue:' THEN c.queue = ? WHEN 'task:' THEN EXISTS (
  SELECT 1 FROM limpet_lane AS l WHERE l.queue = c.queue AND l.task = c.task AND l.scope = ?
) ELSE 1 END AND c.what IN (?, ?, ?, ?);

-- name: watchers
SELECT job, ear FROM limpet_watch WHERE job IN (:keys);

-- name: watch_done
DELETE FROM limpet_watch WHERE job = ?;

-- name: watch_put
INSERT OR IGNORE INTO limpet_watch (job, ear) VALUES (?, ?);

-- name: job_watch
UPDATE limpet_job SET flags = flags | 2 WHERE id = ? AND state < 4;
