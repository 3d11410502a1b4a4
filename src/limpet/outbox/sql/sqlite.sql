-- Promise: the outbox in a SQLite file: its two tables, what a caller's transaction writes into them, and what relays do
--   with them. `create` is printed by `limpet outbox --sql`; everything else runs as it is.
-- Inputs: ?1, ?2 and so on, named beside each statement. Lists are JSON.
-- Answer: rows where it says so. Relies on limpet_outbox_line (rows that are not set aside, in order) and primary keys.

-- name: create
CREATE TABLE IF NOT EXISTS limpet_outbox (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  namespace TEXT NOT NULL,
  id TEXT NOT NULL,
  queue TEXT NOT NULL,
  task TEXT NOT NULL,
  job BLOB NOT NULL,
  created_at_ms INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
  error TEXT
);
CREATE INDEX IF NOT EXISTS limpet_outbox_line ON limpet_outbox (namespace, seq) WHERE error IS NULL;
CREATE TABLE IF NOT EXISTS limpet_outbox_relay (
  namespace TEXT PRIMARY KEY,
  source TEXT NOT NULL,
  batch INTEGER NOT NULL DEFAULT 0,
  seqs TEXT NOT NULL DEFAULT '[]'
);

-- name: tables
-- Whether they are there: (limpet_outbox, limpet_outbox_relay).
SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'limpet_outbox'),
  EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'limpet_outbox_relay');

-- name: file
-- The file behind a connection.
SELECT file FROM pragma_database_list WHERE name = 'main';

-- name: put
-- By a caller, in its own transaction: namespace, id, queue, task, job.
INSERT INTO limpet_outbox (namespace, id, queue, task, job) VALUES (?1, ?2, ?3, ?4, ?5);

-- name: name_source
-- Namespace, name: a source is named once, by the first relay that comes.
INSERT OR IGNORE INTO limpet_outbox_relay (namespace, source) VALUES (?1, ?2);

-- name: rename
-- Namespace, name.
UPDATE limpet_outbox_relay SET source = ?2 WHERE namespace = ?1;

-- name: state
-- Namespace.
SELECT source, batch, seqs FROM limpet_outbox_relay WHERE namespace = ?1;

-- name: rows
-- Rows by seq; rows removed meanwhile are missing.
SELECT seq, id, queue, task, job, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) - created_at_ms
FROM limpet_outbox WHERE seq IN (SELECT value FROM json_each(?1)) ORDER BY seq;

-- name: fresh
-- Namespace, how many at most, how many bytes before the last of them at most; to leave out: [queue, task] pairs, rows.
SELECT seq, id, queue, task, job, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) - created_at_ms FROM (
  SELECT *, sum(length(job)) OVER (ORDER BY seq) - length(job) AS bytes_before FROM (
    SELECT seq, id, queue, task, job, created_at_ms FROM limpet_outbox o WHERE namespace = ?1 AND error IS NULL
      AND NOT EXISTS (SELECT 1 FROM json_each(?4) w
        WHERE json_extract(w.value, '$[0]') = o.queue AND json_extract(w.value, '$[1]') = o.task)
      AND seq NOT IN (SELECT value FROM json_each(?5))
    ORDER BY seq LIMIT ?2
  )
) WHERE bytes_before <= ?3 ORDER BY seq;

-- name: stamp
-- Namespace, batch, its rows.
UPDATE limpet_outbox_relay SET batch = ?2, seqs = ?3 WHERE namespace = ?1;

-- name: remove
DELETE FROM limpet_outbox WHERE seq IN (SELECT value FROM json_each(?1));

-- name: set_aside
-- Row, why.
UPDATE limpet_outbox SET error = ?2 WHERE seq = ?1;

-- name: holds
-- Namespace, ids: whether one of them waits in the line.
SELECT EXISTS (SELECT 1 FROM limpet_outbox
  WHERE namespace = ?1 AND error IS NULL AND id IN (SELECT value FROM json_each(?2)));

-- name: tally
-- Namespace: rows in the line, rows set aside, and the age of the oldest in the line.
SELECT count(*) FILTER (WHERE error IS NULL), count(*) FILTER (WHERE error IS NOT NULL),
  CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) - min(created_at_ms) FILTER (WHERE error IS NULL)
FROM limpet_outbox WHERE namespace = ?1;

-- name: failed
-- Namespace, how many at most: (id, queue, task, error).
SELECT id, queue, task, error FROM limpet_outbox WHERE namespace = ?1 AND error IS NOT NULL ORDER BY seq LIMIT ?2;

-- name: retry_failed
-- Namespace.
UPDATE limpet_outbox SET error = NULL WHERE namespace = ?1 AND error IS NOT NULL;
