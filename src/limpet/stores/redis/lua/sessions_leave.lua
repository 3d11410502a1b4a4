-- Promise: closes a session; what it still holds is released unspent.
-- Keys: meta, session, session_leases, and those of its modules.
-- Args: now session
-- Answer: how many jobs were released.
-- Bounds: what one session holds.
-- Uses: base record gates_period gates_math sessions_signature wake tx gates gates_events turns lanes gates_wait lanes_due unique find_ledger effect_ending graph hooks enqueue_store notes effect give_back settle sessions

local refused = tx.begin()
if refused then
  return refused
end
tx.insist()
local records, vanished = sessions.all(sessions.tokens(ARGV[2]), base.UNLIMITED)
effect.all(records, vanished, ARGV[2], MADE.left)
sessions.forget(ARGV[2])
tx.finish()
return #records
