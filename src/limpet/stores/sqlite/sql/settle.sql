-- Promise: a running job leaves its lease. Inputs: positional. Answer: rows where it says so.
-- Relies on the primary keys; the caller has compared the token in the same transaction.

-- name: heads
SELECT id, state, token, lane, attempt, lost, flags, charged, claimed_ms, reason FROM limpet_job WHERE id IN (:keys);

-- name: endings
SELECT id, lane, state, attempt, enqueued_ms, finished_ms, reason, error_type FROM limpet_job WHERE id IN (:keys);

-- name: job_succeeded
UPDATE limpet_job SET state = 4, token = NULL, charged = NULL, reason = NULL, cause = NULL, error_type = NULL, finished_ms = ?
WHERE id IN (:keys);

-- name: result_put
INSERT OR REPLACE INTO limpet_result (id, body) VALUES (?, ?);

-- name: attempt_add
INSERT INTO limpet_attempt (job, seq, number, outcome, started_ms, finished_ms, session, kind, type, message, traceback, cause)
VALUES (?, 1 + coalesce((SELECT max(seq) FROM limpet_attempt WHERE job = ?), 0), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- What an effect says of a job that still waits: ?1 state ?2 due (NULL: as it was) ?3 unstarted ?4 unspent ?5 lost ?6 held
-- ?7 now ?8 reason ?9 blame ?10 cause ?11 type of error ?12 flags to set ?13 id.
-- name: job_waits
UPDATE limpet_job SET state = ?1, due_ms = coalesce(?2, due_ms), expires_ms = CASE WHEN ?3 THEN expires_ms END, token = NULL,
  charged = NULL, attempt = attempt - ?4, lost = lost + ?5,
  held = CASE ?6 WHEN 'more' THEN held + 1 WHEN 'none' THEN 0 ELSE held END,
  held_since_ms = CASE ?6 WHEN 'more' THEN coalesce(held_since_ms, ?7) WHEN 'none' THEN NULL ELSE held_since_ms END,
  reason = ?8, cause = CASE WHEN ?9 THEN ?10 ELSE cause END, error_type = CASE WHEN ?9 THEN ?11 ELSE error_type END,
  flags = flags | ?12 WHERE id = ?13;

-- The same of a job that is dead or cancelled: ?1 state ?2 now ?3 unspent ?4 lost ?5 reason ?6 blame ?7 cause ?8 type of error ?9 id.
-- name: job_ends
UPDATE limpet_job SET state = ?1, finished_ms = ?2, token = NULL, charged = NULL, attempt = attempt - ?3, lost = lost + ?4,
  reason = ?5, cause = CASE WHEN ?6 THEN ?7 ELSE cause END, error_type = CASE WHEN ?6 THEN ?8 ELSE error_type END WHERE id = ?9;

-- name: job_lane
UPDATE limpet_job SET lane = ? WHERE id = ?;

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
