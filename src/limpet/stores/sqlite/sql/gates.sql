-- Promise: gates as they are, and what running jobs were charged; changes nothing. Inputs: positional. Answer: rows.
-- Relies on the primary keys and limpet_gate_rank.

-- name: all_gates
SELECT key, body FROM limpet_gate WHERE key >= ? AND key < ? ORDER BY key LIMIT 10000;

-- name: ranked_gates
SELECT key, body FROM limpet_gate INDEXED BY limpet_gate_rank WHERE rank = ? AND key > ? AND key >= ? AND key < ? ORDER BY key LIMIT ?;

-- name: charged_jobs
SELECT token, claimed_ms, charged FROM limpet_job INDEXED BY limpet_job_running WHERE state = 3 AND charged IS NOT NULL;
