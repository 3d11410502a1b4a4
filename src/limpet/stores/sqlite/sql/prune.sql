-- Promise: what is over and has outlived its time goes, and nothing else. Inputs: positional. Answer: rows where it says so.
-- Relies on limpet_job_finished, limpet_lane_empty, limpet_gone_until, limpet_log_by and the primary keys.

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

-- name: lane_gates_drop
DELETE FROM limpet_lane_gate WHERE lane = ?;

-- Some gates from one key on, each with whether it is in use: it rules a stored lane, or one waits there.
-- name: gates_from
SELECT key, body, EXISTS (SELECT 1 FROM limpet_lane_gate l WHERE l.gate = g.key)
  OR EXISTS (SELECT 1 FROM limpet_lane l WHERE l.gate = g.key AND l.state = 2)
FROM limpet_gate g WHERE key > ? ORDER BY key LIMIT ?;

-- name: gate_drop
DELETE FROM limpet_gate WHERE key = ?;

-- name: lane_drop
DELETE FROM limpet_lane WHERE id = ?;

-- name: turn_drop
DELETE FROM limpet_turn WHERE id = ? AND NOT EXISTS (SELECT 1 FROM limpet_lane l WHERE l.member = ?);
