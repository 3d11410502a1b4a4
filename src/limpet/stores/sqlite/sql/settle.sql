-- Promise: a running job leaves its lease. Inputs: positional. Answer: rows where it says so.
-- Relies on the primary keys; the caller has compared the token in the same transaction.

-- name: heads
SELECT id, state, token, lane, attempt, lost, flags, charged, claimed_ms, reason FROM limpet_job WHERE id IN (:keys);

-- name: job_succeeded
UPDATE limpet_job SET state = 4, token = NULL, charged = NULL, reason = NULL, cause = NULL, error_type = NULL, finished_ms = ?
WHERE id IN (:keys);

-- name: result_put
INSERT OR REPLACE INTO limpet_result (id, body) VALUES (?, ?);

-- name: attempt_add
INSERT INTO limpet_attempt (job, seq, number, outcome, started_ms, finished_ms, session, kind, type, message, traceback, cause)
VALUES (?, 1 + coalesce((SELECT max(seq) FROM limpet_attempt WHERE job = ?), 0), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: job_retry
UPDATE limpet_job SET state = ?, due_ms = ?, expires_ms = NULL, token = NULL, charged = NULL, reason = ?, cause = ?, error_type = ? WHERE id = ?;

-- name: job_release
UPDATE limpet_job SET state = 2, token = NULL, charged = NULL, attempt = attempt - 1,
  expires_ms = CASE WHEN ? THEN NULL ELSE expires_ms END WHERE id = ?;

-- name: job_snooze
UPDATE limpet_job SET state = 1, due_ms = ?, expires_ms = NULL, token = NULL, charged = NULL, attempt = attempt - 1, reason = ?, held = held + 1,
  held_since_ms = coalesce(held_since_ms, ?) WHERE id = ?;

-- name: job_suspend
UPDATE limpet_job SET state = ?, due_ms = ?, flags = flags | ?, expires_ms = NULL, token = NULL, charged = NULL,
  attempt = attempt - 1, held = 0, held_since_ms = NULL, reason = NULL WHERE id = ?;

-- name: job_hold
UPDATE limpet_job SET state = 2, expires_ms = NULL, token = NULL, charged = NULL, attempt = attempt - 1, reason = ?, held = held + 1,
  held_since_ms = coalesce(held_since_ms, ?) WHERE id = ?;

-- name: job_lost
UPDATE limpet_job SET state = 2, expires_ms = NULL, token = NULL, charged = NULL, attempt = attempt - 1, lost = ?, reason = ? WHERE id = ?;

-- name: job_lost_count
UPDATE limpet_job SET lost = ?, attempt = attempt - 1 WHERE id = ?;

-- name: job_policy
SELECT policy FROM limpet_job WHERE id = ?;

-- name: lease_less
UPDATE limpet_lease SET left = left - ? WHERE token = ?;

-- name: lease_done
DELETE FROM limpet_lease WHERE token = ? AND left <= ?;

-- name: job_flag_settled
UPDATE limpet_job SET flags = flags | 64 WHERE id = ? AND token = ? AND state = 3;

-- Said again under the same token it is replaced. A row of another token stays: the job's effects are there already.
-- name: settled_put
INSERT INTO limpet_settled (id, token, result) VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET result = excluded.result WHERE token = excluded.token;

-- name: settled_take
DELETE FROM limpet_settled WHERE id = ? RETURNING result;

-- name: job_flag_notes
UPDATE limpet_job SET flags = flags | 8 WHERE id = ? AND token = ? AND state = 3;

-- name: note_put
INSERT OR REPLACE INTO limpet_note (job, kind, name, body) VALUES (?, ?, ?, ?);
