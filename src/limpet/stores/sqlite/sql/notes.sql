-- Promise: what a suspended job waits for, and the events that were signalled to it. Inputs: positional.
-- Answer: rows where it says so. Relies on the primary keys.

-- name: waits
SELECT id, state, lane, due_ms FROM limpet_job WHERE id IN (:keys);

-- name: event_known
SELECT 1 FROM limpet_note WHERE job = ? AND kind = 'event' AND name = ?;

-- name: events_kept
SELECT count(*), coalesce(sum(length(body)), 0) FROM limpet_note WHERE job = ? AND kind = 'event';

-- name: event_put
INSERT INTO limpet_note (job, kind, name, body) VALUES (?, 'event', ?, ?);

-- name: waiting_end
DELETE FROM limpet_note WHERE job = ? AND kind = 'waiting';

-- name: waiting_for
SELECT 1 FROM limpet_note WHERE job = ? AND kind = 'waiting' AND name = ? AND body = ?;

-- name: step_forget
DELETE FROM limpet_note WHERE job = ? AND kind = 'step' AND name = ?;

-- name: steps_forget
DELETE FROM limpet_note WHERE job = ? AND kind = 'step';
