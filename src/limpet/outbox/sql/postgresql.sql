-- Promise: the outbox in a PostgreSQL database: its two tables, what a caller's transaction writes into them, and what
--   one relay at a time does with them. `create` is printed by `limpet outbox --sql`; everything else runs as it is.
-- Inputs: $1, $2 and so on, named beside each statement.
-- Answer: rows where it says so. Relies on limpet_outbox_line (rows that are not set aside, in order) and primary keys.

-- name: create
CREATE TABLE IF NOT EXISTS limpet_outbox (
  seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  namespace text NOT NULL,
  id text NOT NULL,
  queue text NOT NULL,
  task text NOT NULL,
  job bytea NOT NULL,
  created_at_ms bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
  error text
);
CREATE INDEX IF NOT EXISTS limpet_outbox_line ON limpet_outbox (namespace, seq) WHERE error IS NULL;
CREATE TABLE IF NOT EXISTS limpet_outbox_relay (
  namespace text PRIMARY KEY,
  source text NOT NULL,
  batch bigint NOT NULL DEFAULT 0,
  seqs bigint[] NOT NULL DEFAULT '{}'
);

-- name: tables
-- Whether they are there: (limpet_outbox, limpet_outbox_relay).
SELECT to_regclass('limpet_outbox') IS NOT NULL, to_regclass('limpet_outbox_relay') IS NOT NULL;

-- name: home
-- Which database this is, and whether its table is there: (database's name, home, table). Two homes are never alike,
-- though one may be a copy of the other: the running server, the database in it, the table in that.
SELECT current_database()::text, concat_ws('.', c.system_identifier,
    (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint, d.oid, coalesce(t.found, 0)), t.found IS NOT NULL
FROM pg_control_system() AS c, pg_database AS d, (SELECT to_regclass('limpet_outbox')::oid) AS t (found)
WHERE d.datname = current_database();

-- name: put
-- By a caller, in its own transaction: namespace; ids, queues, tasks and jobs in order.
WITH put AS (
  INSERT INTO limpet_outbox (namespace, id, queue, task, job)
  SELECT $1::text, j.id, j.queue, j.task, j.job
  FROM unnest($2::text[], $3::text[], $4::text[], $5::bytea[]) WITH ORDINALITY AS j (id, queue, task, job, place)
  ORDER BY j.place RETURNING seq
)
SELECT pg_notify('limpet_outbox', $1::text) FROM (SELECT count(*) FROM put) AS c (written) WHERE written > 0;

-- name: name_source
-- Namespace, name: a source is named once, by the first relay that comes.
INSERT INTO limpet_outbox_relay (namespace, source) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: rename
-- Namespace, name.
UPDATE limpet_outbox_relay SET source = $2 WHERE namespace = $1;

-- name: lock
-- Namespace, milliseconds. No row: another relay has its turn. A relay whose machine has vanished is given up for dead
-- when it has not been heard of for so long; without that, its lock would stay until the network's own patience ends.
SELECT source, batch, seqs, set_config('idle_in_transaction_session_timeout', $2::text, true)
FROM limpet_outbox_relay WHERE namespace = $1 FOR UPDATE SKIP LOCKED;

-- name: rows
-- Rows by seq; rows removed meanwhile are missing.
SELECT seq, id, queue, task, job, (extract(epoch FROM clock_timestamp()) * 1000)::bigint - created_at_ms
FROM limpet_outbox WHERE seq = ANY($1::bigint[]) ORDER BY seq;

-- name: fresh
-- Namespace, how many at most, how many bytes before the last of them at most, and the queues and tasks to leave out. The
-- innermost part walks the index and stops: as a join, what is left out would make it read and sort the whole line.
SELECT seq, id, queue, task, job, (extract(epoch FROM clock_timestamp()) * 1000)::bigint - created_at_ms FROM (
  SELECT *, sum(length(job)) OVER (ORDER BY seq) - length(job) AS bytes_before FROM (
    SELECT seq, id, queue, task, job, created_at_ms FROM limpet_outbox o WHERE namespace = $1 AND error IS NULL
      AND NOT coalesce((SELECT bool_or(w.queue = o.queue AND w.task = o.task)
        FROM unnest($4::text[], $5::text[]) AS w (queue, task)), false)
    ORDER BY seq LIMIT $2
  ) first
) line WHERE bytes_before <= $3 ORDER BY seq;

-- name: stamp
-- Namespace, batch, its rows.
UPDATE limpet_outbox_relay SET batch = $2, seqs = $3::bigint[] WHERE namespace = $1;

-- name: remove
DELETE FROM limpet_outbox WHERE seq = ANY($1::bigint[]);

-- name: set_aside
-- Row, why.
UPDATE limpet_outbox SET error = $2 WHERE seq = $1;

-- name: holds
-- Namespace, ids: whether one of them waits in the line.
SELECT EXISTS (SELECT FROM limpet_outbox WHERE namespace = $1 AND error IS NULL AND id = ANY($2::text[]));

-- name: tally
-- Namespace: rows in the line, rows set aside, and the age of the oldest in the line.
SELECT count(*) FILTER (WHERE error IS NULL), count(*) FILTER (WHERE error IS NOT NULL),
  (extract(epoch FROM clock_timestamp()) * 1000)::bigint - min(created_at_ms) FILTER (WHERE error IS NULL)
FROM limpet_outbox WHERE namespace = $1;

-- name: failed
-- Namespace, how many at most: (id, queue, task, error).
SELECT id, queue, task, error FROM limpet_outbox WHERE namespace = $1 AND error IS NOT NULL ORDER BY seq LIMIT $2;

-- name: retry_failed
-- Namespace.
UPDATE limpet_outbox SET error = NULL WHERE namespace = $1 AND error IS NOT NULL;
