-- Promise: ids by their end; changes nothing. Inputs: positional. Answer: rows. Relies on the primary key.

-- name: by_suffix
SELECT id FROM (SELECT id FROM limpet_job ORDER BY id DESC LIMIT ?2) WHERE lower(hex(id)) LIKE ?1 LIMIT 3;
