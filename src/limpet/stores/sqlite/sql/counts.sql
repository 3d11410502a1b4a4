-- Promise: counters that move with the jobs they count. Inputs: positional. Answer: rows where it says so.
-- Relies on the primary key of limpet_count.

-- name: count_add
INSERT INTO limpet_count (queue, task, what, n) VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n;

-- name: counts
SELECT queue, task, what, n FROM limpet_count WHERE n <> 0;
