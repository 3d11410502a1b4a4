-- Promise: all jobs of the call are stored, or none; a job whose id or unique key is there answers the one that is.
-- Keys: meta, and those of its modules.
-- Args: now · head (msgpack map: lanes and policies (how many), rules [GateRule maps], runs [[lane, policy, flags, delay,
--   due at or -1, expires or -1, jobs]], order [indexes, parents first] or nothing, flows [[id in hex, first index, last
--   index]] or nothing, always (no depth refuses them) or nothing) · per lane: id, definition, class definition · per policy: id, JSON, "max_lost hard_timeout" ·
--   per job, ids ascending: id, tail (extra and arguments), and "" or what few jobs have (enqueue_store.meta)
-- Answer: {"ok", states, others}: one character per job, "0" + state when new, "@" + state when it was there; others
--   is a flat list of index, id for jobs that another one stands for; last comes the store's own name. {"draining", index, gate},
--   {"parent", index, id} or {"full", msgpack map of what enqueue_depth.full says}: nothing was stored.
-- Bounds: the 20,000 jobs of a call.
-- Fast path: hand_off
-- Fast path: enqueue_fast
-- Uses: base record gates_period gates_math turns_fair gates_change sessions_signature wake tx gates gates_events turns lanes gates_wait lanes_due unique find_ledger find_flows prune effect_ending graph hooks notes enqueue_store enqueue_depth enqueue
local refused = tx.begin()
if refused then
  return refused
end
return enqueue.all(2)
