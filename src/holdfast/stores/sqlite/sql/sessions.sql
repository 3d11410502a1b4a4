-- Promise: sessions, their leases and what silence does to them. Inputs: positional. Answer: rows where it says so.
-- Relies on hf_session_idle, hf_session_deadline, hf_lease_session, hf_lease_hard, hf_job_running, hf_job_expires.

-- name: session_deadline
SELECT deadline_ms FROM hf_session WHERE id = ?;

-- name: session_open
INSERT INTO hf_session (id, serves, info, started_ms, beat_ms, deadline_ms, ear) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: session_beat
UPDATE hf_session SET serves = ?, info = ?, beat_ms = ?, deadline_ms = ?, ear = ? WHERE id = ?;

-- name: session_close
DELETE FROM hf_session WHERE id = ?;

-- name: receipts_close
DELETE FROM hf_receipt WHERE session = ?;

-- name: session_idle
UPDATE hf_session SET idle = 1, next_ms = ?, asked = ?, slots = ? WHERE id = ?;

-- name: session_busy
UPDATE hf_session SET idle = 0 WHERE id = ?;

-- name: session_next
UPDATE hf_session SET next_ms = ? WHERE id = ?;

-- name: session_ear
SELECT ear FROM hf_session WHERE id = ?;

-- name: idle_sessions
SELECT s.id, s.asked, s.ear, s.slots FROM hf_session s INDEXED BY hf_session_idle
WHERE s.idle = 1 ORDER BY s.slots = 0 LIMIT 256;

-- name: idle_sessions_until
SELECT s.id, s.asked, s.ear, s.slots FROM hf_session s INDEXED BY hf_session_idle
WHERE s.idle = 1 AND (s.next_ms IS NULL OR s.next_ms > ?) ORDER BY s.slots = 0 LIMIT 256;

-- name: live_sessions
SELECT id, serves, ear FROM hf_session WHERE deadline_ms > ? LIMIT 256;

-- name: session_views
SELECT s.id, s.serves, s.info, s.started_ms, s.beat_ms, s.deadline_ms, s.idle,
       (SELECT coalesce(sum(l.left), 0) FROM hf_lease l WHERE l.session = s.id)
FROM hf_session s WHERE s.deadline_ms > ? ORDER BY s.id;

-- name: held
SELECT j.id, j.token, j.lost FROM hf_lease l CROSS JOIN hf_job j INDEXED BY hf_job_running ON j.token = l.token AND j.state = 3
WHERE l.session = ?;

-- name: held_heads
SELECT j.id, j.state, j.token, j.lane, j.attempt, j.lost, j.flags, j.charged, j.claimed_ms, j.reason
FROM hf_lease l CROSS JOIN hf_job j INDEXED BY hf_job_running ON j.token = l.token AND j.state = 3
WHERE l.session = ? LIMIT ?;

-- name: overdue_heads
SELECT j.id, j.state, j.token, j.lane, j.attempt, j.lost, j.flags, j.charged, j.claimed_ms, j.reason
FROM hf_lease l INDEXED BY hf_lease_hard CROSS JOIN hf_job j INDEXED BY hf_job_running ON j.token = l.token AND j.state = 3
WHERE l.hard_until_ms <= ? LIMIT ?;

-- name: cancelling
SELECT j.id, j.token FROM hf_lease l CROSS JOIN hf_job j INDEXED BY hf_job_running ON j.token = l.token AND j.state = 3
WHERE l.session = ? AND j.flags & 4;

-- name: sweep_state
SELECT swept_at_ms, calm_until_ms FROM hf_clock;

-- name: sweep_mark
UPDATE hf_clock SET swept_at_ms = ?, calm_until_ms = ?;

-- name: leases_later
UPDATE hf_lease SET hard_until_ms = hard_until_ms + ? WHERE hard_until_ms IS NOT NULL;

-- name: silent_sessions
SELECT id FROM hf_session INDEXED BY hf_session_deadline WHERE deadline_ms <= ? ORDER BY deadline_ms LIMIT 64;

-- name: expired_jobs
SELECT id FROM hf_job INDEXED BY hf_job_expires WHERE expires_ms <= ? AND expires_ms IS NOT NULL AND state < 3 LIMIT ?;

-- name: live_of
SELECT coalesce(sum(n), 0) FROM hf_count
WHERE CASE ? WHEN 'queue:' THEN queue = ? WHEN 'task:' THEN task = ? ELSE 1 END AND what IN (?, ?, ?, ?);

-- name: watchers
SELECT job, ear FROM hf_watch WHERE job IN (:keys);

-- name: watch_done
DELETE FROM hf_watch WHERE job = ?;

-- name: watch_put
INSERT OR IGNORE INTO hf_watch (job, ear) VALUES (?, ?);

-- name: job_watch
UPDATE hf_job SET flags = flags | 2 WHERE id = ? AND state < 4;
