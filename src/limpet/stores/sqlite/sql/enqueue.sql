-- Promise: new heads, bodies, policies and unique keys. Inputs: positional, in column order.
-- Answer: rows where it says so. Relies on the primary keys only.

-- Jobs of one call that share all but id, arguments and the rest: :rows stands for "(?,?,?),(?,?,?)…".
-- name: job_insert
INSERT INTO limpet_job (state, lane, priority, due_ms, enqueued_ms, expires_ms, policy, flow, unique_key, id, args, extra)
SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, column1, column2, column3 FROM (VALUES :rows);

-- name: body_insert
INSERT OR REPLACE INTO limpet_body (id, args) VALUES (?, ?);

-- name: policy_insert
INSERT OR IGNORE INTO limpet_policy (id, body) VALUES (?, ?);

-- name: policy_body
SELECT body FROM limpet_policy WHERE id = ?;

-- name: any_gone
SELECT 1 FROM limpet_gone LIMIT 1;

-- name: gone_states
SELECT id, state FROM limpet_gone WHERE id IN (:keys);

-- name: job_states
SELECT id, state FROM limpet_job WHERE id IN (:keys);

-- name: job_state
SELECT state FROM limpet_job WHERE id = ?;

-- name: unique_put
INSERT OR REPLACE INTO limpet_unique (key, job, states, until_ms) VALUES (?, ?, ?, ?);

-- name: unique_holder
SELECT u.job, u.states, u.until_ms, j.state FROM limpet_unique u LEFT JOIN limpet_job j ON j.id = u.job WHERE u.key = ?;

-- name: job_waiting
SELECT state, lane, enqueued_ms, extra FROM limpet_job AS j WHERE id = ? AND state < 3
  AND NOT EXISTS (SELECT 1 FROM limpet_note WHERE job = j.id AND kind IN ('step', 'checkpoint'));

-- name: job_replace
UPDATE limpet_job SET state = ?, lane = ?, priority = ?, due_ms = ?, expires_ms = ?, attempt = 0, held = 0, held_since_ms = NULL,
  policy = ?, args = ?, extra = ? WHERE id = ? AND state < 3;

-- Writes nothing new: a driver that begins before a statement that writes has begun after it.
-- name: guest_enter
UPDATE limpet_clock SET guests = guests;

-- name: guest_add
UPDATE limpet_clock SET guests = guests + 1;

-- What no enqueue changes and every worker does: two files that were one are told apart by it.
-- name: stamp
SELECT store, token, swept_at_ms, calm_until_ms FROM limpet_clock;

-- name: guests
SELECT guests FROM limpet_clock;
