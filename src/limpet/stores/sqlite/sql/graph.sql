-- Promise: dependents move with their parents. Inputs: positional. Answer: rows where it says so.
-- Relies on limpet_dep_parent, limpet_dep_waiting, limpet_dep_open and the primary keys.

-- name: dep_insert
INSERT OR IGNORE INTO limpet_dep (child, parent, mode, done, result, failed) VALUES (?, ?, ?, ?, ?, ?);

-- name: dep_done
UPDATE limpet_dep SET done = 1, result = ? WHERE child = ? AND parent = ? AND done = 0;

-- name: some_children
SELECT child FROM limpet_dep INDEXED BY limpet_dep_waiting WHERE parent = ? AND done = 0 LIMIT ?;

-- name: fan_put
INSERT OR IGNORE INTO limpet_fan (parent) VALUES (?);

-- name: fan_next
SELECT f.parent, j.state FROM limpet_fan f LEFT JOIN limpet_job j ON j.id = f.parent LIMIT 1;

-- name: fan_done
DELETE FROM limpet_fan WHERE parent = ?;

-- name: dep_failed
UPDATE limpet_dep SET done = 1, failed = ? WHERE child = ? AND parent = ? AND done = 0;

-- name: open_children
SELECT child, mode FROM limpet_dep INDEXED BY limpet_dep_waiting WHERE parent = ? AND done = 0;

-- name: open_parents
SELECT d.parent, j.state FROM limpet_dep d LEFT JOIN limpet_job j ON j.id = d.parent WHERE d.child = ? AND d.done = 0;

-- Stops at the first: of thousands of dead parents that are retried one by one, each finds another one soon. One that
-- succeeded (4) and has not handed on to all its children yet stops none.
-- name: ended_parent
SELECT 1 FROM limpet_dep d LEFT JOIN limpet_job j ON j.id = d.parent
WHERE d.child = ? AND d.done = 0 AND coalesce(j.state, 5) > 4 LIMIT 1;

-- name: cancelled_children
SELECT d.child, j.lane, j.extra FROM limpet_dep d INDEXED BY limpet_dep_parent JOIN limpet_job j ON j.id = d.child
WHERE d.parent = ? AND d.done = 0 AND j.state = 6 AND j.flags & ?;

-- name: job_flag_kids
UPDATE limpet_job SET flags = flags | 1 WHERE id = ?;

-- name: job_flag_inputs
UPDATE limpet_job SET flags = flags | 16 WHERE id = ?;

-- name: job_flag
UPDATE limpet_job SET flags = flags | ? WHERE id = ?;

-- name: released
SELECT j.id, j.lane, j.due_ms FROM limpet_job j WHERE j.id IN (:keys) AND j.state = 0
AND NOT EXISTS (SELECT 1 FROM limpet_dep d INDEXED BY limpet_dep_open WHERE d.child = j.id AND d.done = 0);

-- name: job_released
UPDATE limpet_job SET state = ? WHERE id = ? AND state = 0;

-- name: job_revive_child
UPDATE limpet_job SET state = 0, flags = flags & ?, finished_ms = NULL, reason = NULL WHERE id = ? AND state = 6;

-- name: job_cancel_waiting
SELECT state, lane, flags, extra FROM limpet_job WHERE id = ? AND state < 3;

-- name: job_cancelled
UPDATE limpet_job SET state = 6, reason = ?, finished_ms = ?, token = NULL, charged = NULL WHERE id = ?;

-- name: job_buried
UPDATE limpet_job SET state = 5, reason = ?, cause = ?, error_type = ?, finished_ms = ?, token = NULL, charged = NULL WHERE id = ?;

-- name: job_reason
SELECT reason, flags FROM limpet_job WHERE id = ?;

-- name: result
SELECT body FROM limpet_result WHERE id = ?;

-- name: cause_add
INSERT INTO limpet_cause (cause, queue, task, n, type, message, first_ms, last_ms, sample) VALUES (?, ?, ?, 1, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET n = n + 1, message = excluded.message, last_ms = excluded.last_ms, sample = excluded.sample;

-- name: cause_less
UPDATE limpet_cause SET n = n - 1 WHERE cause = ? AND queue = ? AND task = ?;

-- name: cause_clean
DELETE FROM limpet_cause WHERE cause = ? AND queue = ? AND task = ? AND n <= 0;

-- name: cause_known
SELECT 1 FROM limpet_cause WHERE cause = ? AND queue = ? AND task = ?;

-- name: causes_full
SELECT 1 FROM limpet_cause LIMIT 1 OFFSET ?;
