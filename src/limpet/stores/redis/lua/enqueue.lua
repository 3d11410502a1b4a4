-- Promise: all jobs of the call are stored, or none; a job whose id or unique key is there answers the one that is.
-- Keys: meta, and those of its modules.
-- Args: now · head (msgpack map: lanes and policies (how many), rules [GateRule maps], runs [[lane, policy, flags, delay,
--   due at or -1, expires or -1, jobs]], order [indexes, parents first] or nothing, flows [[id in hex, first index, last
--   index]] or nothing, always (no depth refuses them) or nothing) · per lane: id, definition, class definition · per policy: id, JSON, "max_lost hard_timeout" ·
--   per job, ids ascending: id, tail (extra and arguments), and "" or what few jobs have (storing.meta)
-- Answer: {"ok", states, others}: one character per job, "0" + state when new, "@" + state when it was there; others
--   is a flat list of index, id for jobs that another one stands for; last comes the store's own name. {"draining", index, gate},
--   {"parent", index, id} or {"full", msgpack map of what depth.full says}: nothing was stored.
-- Bounds: the 20,000 jobs of a call.
-- Short way: short_enqueue
-- Uses: base record period gate fair change signature wake tx gating news seats lanes waiting calendar unique ledger flows erasing ending graph noting storing depth arrival
local refused = tx.begin()
if refused then
  return refused
end
return arrival.all(2)
