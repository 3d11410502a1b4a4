-- Promise: closes a session; what it still holds is released unspent.
-- Keys: meta, session, session_leases, and those of its modules.
-- Args: now session
-- Answer: how many jobs were released.
-- Bounds: what one session holds.
-- Uses: base record period gate signature wake tx gating news seats lanes waiting calendar unique ledger ending graph noting effect give_back settle holding

local refused = tx.begin()
if refused then
  return refused
end
tx.insist()
local records, vanished = holding.all(holding.tokens(ARGV[2]), base.LOTS)
effect.all(records, vanished, ARGV[2], MADE.left)
holding.forget(ARGV[2])
tx.finish()
return #records
