-- Promise: a unique key has at most one holder. Inputs: positional. Answer: rows where it says so. Relies on the primary keys.

-- name: unique_drop
DELETE FROM limpet_unique WHERE key = ? AND job = ? AND (until_ms IS NULL OR until_ms <= ?);

-- name: unique_orphan
UPDATE limpet_unique SET states = 0 WHERE key = ? AND job = ?;

-- name: unique_old
DELETE FROM limpet_unique WHERE key IN (SELECT key FROM limpet_unique WHERE states = 0 AND until_ms <= ? LIMIT ?);
