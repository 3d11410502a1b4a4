-- Promise: the engine's time, as every other script takes it; changes nothing.
-- Keys: meta.
-- Args: now
-- Answer: milliseconds.
-- Bounds: one read.
-- Uses: base tx

return tx.begin() or tx.now
