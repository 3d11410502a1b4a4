-- Promise: questions that change nothing. Inputs: positional. Answer: rows. Relies on the primary keys,
-- limpet_job_ready, limpet_job_flow and limpet_lane_queue.

-- name: views
SELECT j.id, j.state, j.lane, j.attempt, j.lost, j.enqueued_ms, j.due_ms, j.claimed_ms, j.finished_ms,
j.expires_ms, j.token, j.flags, j.reason, j.cause, j.error_type, j.held, j.policy,
coalesce(j.args, (SELECT b.args FROM limpet_body b WHERE b.id = j.id)), j.extra FROM limpet_job j WHERE j.id IN (:keys);

-- name: attempts
SELECT number, outcome, started_ms, finished_ms, session, kind, type, message, traceback, cause
FROM limpet_attempt WHERE job = ? ORDER BY seq;

-- name: causes
SELECT cause, n, type, message, task, queue, first_ms, last_ms, sample FROM limpet_cause
WHERE ? IS NULL OR queue = ? ORDER BY n DESC, last_ms DESC LIMIT ?;

-- name: queue_names
SELECT DISTINCT queue FROM limpet_lane INDEXED BY limpet_lane_queue;

-- name: oldest_ready
SELECT min(due) FROM (
  SELECT (SELECT j.due_ms FROM limpet_job j INDEXED BY limpet_job_ready WHERE j.lane = l.id AND j.state = 2
          ORDER BY j.due_ms LIMIT 1) AS due
  FROM limpet_lane l INDEXED BY limpet_lane_queue WHERE l.queue = ? AND l.state > 0 LIMIT 10000
);

-- name: ahead
SELECT count(*) FROM (
  SELECT 1 FROM limpet_job INDEXED BY limpet_job_ready WHERE lane = ? AND state = 2 AND (due_ms, id) < (?, ?) LIMIT ?
);

-- name: last_flow
SELECT max(flow) FROM limpet_job INDEXED BY limpet_job_flow WHERE flow IS NOT NULL;

-- name: flow_before
SELECT max(flow) FROM limpet_job INDEXED BY limpet_job_flow WHERE flow < ?;

-- name: flow_counts
SELECT min(id), sum(state = 0), sum(state = 1), sum(state = 2), sum(state = 3), sum(state = 4), sum(state = 5), sum(state = 6)
FROM limpet_job INDEXED BY limpet_job_flow WHERE flow = ?;

-- name: job_enqueued
SELECT enqueued_ms FROM limpet_job WHERE id = ?;
