-- Promise: counters that move with the jobs they count. Inputs: positional. Answer: rows where it says so.
-- Relies on the primary key of limpet_count.

-- name: count_add
INSERT INTO limpet_count (queue, task, what, n) VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n;

-- name: counts
SELECT queue, task, what, n FROM limpet_count WHERE n <> 0 AND what < 20;

-- Tenants come and go: one that waits for nothing is not kept.
-- name: tenant_gone
DELETE FROM limpet_count WHERE queue = ? AND task = ? AND what = 20 AND n = 0;

-- name: queue_waiting
SELECT coalesce(sum(n), 0) FROM limpet_count WHERE queue = ? AND what < 3;

-- name: tenant_waiting
SELECT coalesce(sum(n), 0) FROM limpet_count WHERE queue = ? AND task = ? AND what = 20;
