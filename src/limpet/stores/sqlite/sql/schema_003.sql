-- Promise: the layout of a store that finds the jobs of one flow, and those of one unique key, by an index.
-- Inputs: none; `limpet_` is replaced by the namespace's prefix. Answer: none.
-- A process of the release before that is open meanwhile goes on as it was, and another of them is refused. The jobs it
-- stores have neither column: they run like all others, and are not found by their flow or key.

ALTER TABLE limpet_job ADD COLUMN flow BLOB;
ALTER TABLE limpet_job ADD COLUMN unique_key TEXT;
UPDATE limpet_job SET flow = extra_flow(extra), unique_key = extra_unique(extra) WHERE extra IS NOT NULL;

-- With the state in it, so that counting the jobs of a flow reads nothing else.
CREATE INDEX limpet_job_flow ON limpet_job (flow, id, state) WHERE flow IS NOT NULL;
CREATE INDEX limpet_job_unique ON limpet_job (unique_key, id) WHERE unique_key IS NOT NULL;
