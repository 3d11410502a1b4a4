-- Promise: the engine's time, as every other script takes it; changes nothing.
-- Keys: meta.
-- Args: now
-- Answer: milliseconds.
-- Bounds: one read.
-- Uses: base tx

local refused = tx.begin()
if refused then
  return refused
end
return tx.now
