-- Promise: what people and janitors change. Inputs: positional. Answer: rows where it says so.
-- Relies on limpet_job_finished, limpet_lane_empty, limpet_gone_until, limpet_log_by and the primary keys.

-- name: session_of
SELECT session FROM limpet_lease WHERE token = ?;

-- name: job_cancelling
UPDATE limpet_job SET flags = flags | 4, reason = ? WHERE id = ? AND state = 3;

-- name: job_for_retry
SELECT state, lane, flags, cause, extra FROM limpet_job WHERE id = ?;

-- name: job_again
UPDATE limpet_job SET state = ?, due_ms = ?, finished_ms = NULL, attempt = 0, lost = 0, held = 0, held_since_ms = NULL,
  expires_ms = NULL, flags = flags & ~4, reason = NULL, cause = NULL, error_type = NULL WHERE id = ? AND state = 5;

-- name: job_now
UPDATE limpet_job SET state = ?, due_ms = ? WHERE id = ? AND state = 1;

-- name: job_args
UPDATE limpet_job SET args = ? WHERE id = ?;

-- name: unique_drop
DELETE FROM limpet_unique WHERE key = ? AND job = ? AND (until_ms IS NULL OR until_ms <= ?);

-- name: unique_orphan
UPDATE limpet_unique SET states = 0 WHERE key = ? AND job = ?;

-- name: unique_old
DELETE FROM limpet_unique WHERE key IN (SELECT key FROM limpet_unique WHERE states = 0 AND until_ms <= ? LIMIT ?);

-- name: outlived
SELECT id, lane, state, extra, finished_ms, flags FROM limpet_job INDEXED BY limpet_job_finished
WHERE state = ? AND state >= 4 AND finished_ms <= ? ORDER BY finished_ms LIMIT ?;

-- The same from one place on, in the order of the index.
-- name: outlived_from
SELECT id, lane, state, extra, finished_ms, flags FROM limpet_job INDEXED BY limpet_job_finished
WHERE state = ? AND state >= 4 AND finished_ms >= ? AND (finished_ms, id) > (?, ?) AND finished_ms <= ?
ORDER BY finished_ms, id LIMIT ?;

-- name: erase_job
DELETE FROM limpet_job WHERE id = ?;

-- name: erase_body
DELETE FROM limpet_body WHERE id = ?;

-- name: erase_result
DELETE FROM limpet_result WHERE id = ?;

-- name: erase_notes
DELETE FROM limpet_note WHERE job = ?;

-- name: erase_attempts
DELETE FROM limpet_attempt WHERE job = ?;

-- name: erase_deps
DELETE FROM limpet_dep WHERE child = ?;

-- name: erase_watch
DELETE FROM limpet_watch WHERE job = ?;

-- name: gone_put
INSERT OR REPLACE INTO limpet_gone (id, state, until_ms) VALUES (?, ?, ?);

-- name: gone_old
DELETE FROM limpet_gone WHERE id IN (SELECT id FROM limpet_gone WHERE until_ms <= ? LIMIT ?);

-- name: receipts_old
DELETE FROM limpet_receipt WHERE (session, claimer) IN (
  SELECT session, claimer FROM limpet_receipt r WHERE at_ms <= ?
  AND NOT EXISTS (SELECT 1 FROM limpet_session s WHERE s.id = r.session) LIMIT ?);

-- name: log_old
DELETE FROM limpet_log WHERE seq IN (
  SELECT seq FROM (SELECT seq, at_ms FROM limpet_log INDEXED BY limpet_log_by WHERE log = ? ORDER BY seq LIMIT ?) WHERE at_ms <= ?);

-- name: events_over
DELETE FROM limpet_log WHERE seq IN (
  SELECT seq FROM limpet_log WHERE log = 'event'
  AND seq <= (SELECT seq FROM limpet_log WHERE log = 'event' ORDER BY seq DESC LIMIT 1 OFFSET ?) ORDER BY seq LIMIT ?);

-- name: empty_lanes
SELECT id, member FROM limpet_lane INDEXED BY limpet_lane_empty WHERE jobs <= 0 LIMIT ?;

-- name: gates_of_lane
SELECT gate FROM limpet_lane_gate WHERE lane = ?;

-- name: lane_gates_drop
DELETE FROM limpet_lane_gate WHERE lane = ?;

-- name: unused_gates
SELECT key, body FROM limpet_gate g WHERE (key GLOB 'limit:*' OR key GLOB 'breaker:*')
AND NOT EXISTS (SELECT 1 FROM limpet_lane_gate l WHERE l.gate = g.key) LIMIT ?;

-- name: gate_drop
DELETE FROM limpet_gate WHERE key = ?;

-- name: lane_drop
DELETE FROM limpet_lane WHERE id = ?;

-- name: turn_drop
DELETE FROM limpet_turn WHERE id = ? AND NOT EXISTS (SELECT 1 FROM limpet_lane l WHERE l.member = ?);

-- name: all_gates
SELECT key, body FROM limpet_gate WHERE key >= ? AND key < ? ORDER BY key LIMIT 10000;

-- name: charged_jobs
SELECT token, claimed_ms, charged FROM limpet_job INDEXED BY limpet_job_running WHERE state = 3 AND charged IS NOT NULL;

-- name: control_value
SELECT value FROM limpet_control WHERE kind = ? AND name = ?;

-- name: control_version
SELECT version FROM limpet_control WHERE kind = ? AND name = ?;

-- name: control_put
INSERT OR REPLACE INTO limpet_control (kind, name, value, version) VALUES (?, ?, ?, ?);

-- name: controls
SELECT kind, name, value, version FROM limpet_control WHERE kind = ? ORDER BY name;

-- name: log_add
INSERT INTO limpet_log (log, at_ms, kind, actor, job, reason, data) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: log_read_newest
SELECT log, at_ms, kind, actor, job, reason, data, seq FROM limpet_log INDEXED BY limpet_log_by WHERE log = ? AND seq > ? ORDER BY seq DESC LIMIT ?;

-- name: log_read
SELECT log, at_ms, kind, actor, job, reason, data, seq FROM limpet_log INDEXED BY limpet_log_by WHERE log = ? AND seq > ? ORDER BY seq LIMIT ?;
