-- Promise: named records and the two logs. Inputs: positional. Answer: rows where it says so.
-- Relies on limpet_log_by and the primary keys.

-- name: control_value
SELECT value FROM limpet_control WHERE kind = ? AND name = ?;

-- name: control_version
SELECT version FROM limpet_control WHERE kind = ? AND name = ?;

-- name: hooks
SELECT value FROM limpet_control WHERE kind = 'hook' ORDER BY name;

-- name: control_put
INSERT OR REPLACE INTO limpet_control (kind, name, value, version) VALUES (?, ?, ?, ?);

-- name: controls
SELECT kind, name, value, version FROM limpet_control WHERE kind = ? ORDER BY name;

-- name: log_add
INSERT INTO limpet_log (log, at_ms, kind, actor, job, reason, data) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: log_read_newest
SELECT log, at_ms, kind, actor, job, reason, data, seq FROM limpet_log INDEXED BY limpet_log_by WHERE log = ? AND seq > ? ORDER BY seq DESC LIMIT ?;

-- name: log_read
SELECT log, at_ms, kind, actor, job, reason, data, seq FROM limpet_log INDEXED BY limpet_log_by WHERE log = ? AND seq > ? ORDER BY seq LIMIT ?;
