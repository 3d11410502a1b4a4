-- Promise: a lone job runs from the step that stores it on. Inputs: positional. Answer: rows where it says so.
-- Relies on limpet_session_idle, limpet_lease_session, limpet_lease_handed and the primary keys.

-- Sessions that sleep and take jobs: what they have got since they lay down, and of what was handed to them how many
-- have not ended, and the token of the oldest of those.
-- name: takers
SELECT s.id, s.asked, s.ear, s.next_ms, s.handed, s.takes, s.takes_urgent,
  (SELECT coalesce(sum(l.left), 0) FROM limpet_lease l INDEXED BY limpet_lease_session
   WHERE l.session = s.id AND l.token > s.slept_at_token),
  (SELECT count(*) FROM limpet_lease l INDEXED BY limpet_lease_handed WHERE l.session = s.id AND l.handed IS NOT NULL),
  (SELECT min(l.token) FROM limpet_lease l INDEXED BY limpet_lease_handed WHERE l.session = s.id AND l.handed IS NOT NULL)
FROM limpet_session s INDEXED BY limpet_session_idle WHERE s.idle = 1 AND s.takes_urgent > 0 AND s.deadline_ms > ? LIMIT 64;

-- name: sleeping
SELECT asked FROM limpet_session INDEXED BY limpet_session_idle WHERE idle = 1 AND id <> ? AND deadline_ms > ? LIMIT 256;

-- name: job_handed
INSERT INTO limpet_job (state, attempt, token, claimed_ms, lane, priority, due_ms, enqueued_ms, policy, id, args, extra)
VALUES (3, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: lease_handed
INSERT INTO limpet_lease (token, session, hard_until_ms, left, handed) VALUES (?, ?, ?, 1, ?);

-- name: session_hand
UPDATE limpet_session SET handed = ?, idle = NOT ? WHERE id = ?;

-- name: session_takes_none
UPDATE limpet_session SET takes = 0, takes_urgent = 0 WHERE id = ?;
