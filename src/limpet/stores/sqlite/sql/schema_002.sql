-- Promise: the layout of a store whose handlers may complete their jobs in transactions of their own. It only adds.
-- Inputs: none; `limpet_` is replaced by the namespace's prefix. Answer: none.
-- A process of the release before that is open meanwhile goes on as it was, and another of them is refused. It may take
-- such a job back from a dead worker, for it does not look here; the row stays, and the next end of the job finds it.

-- Noted by a handler in its own transaction, together with a bit in limpet_job.flags: the job has succeeded, whatever ends
-- its lease. There while the job runs.
CREATE TABLE limpet_settled (id BLOB NOT NULL PRIMARY KEY, token INTEGER NOT NULL, result BLOB) WITHOUT ROWID;
