-- Promise: what people change. Inputs: positional. Answer: rows where it says so. Relies on the primary keys.

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
