-- Promise: dead jobs are removed for good; jobs that still wait for them are cancelled.
-- Keys: meta, and those of its modules.
-- Args: now · the call's own name · ids (16 bytes each)
-- Answer: how many there were.
-- Bounds: the ids given (500 per call), and 1,000 dependents in all (the rest in graph_todo).
-- Uses: base record gates_period gates_math sessions_signature wake tx gates gates_events turns lanes gates_wait lanes_due unique find_ledger effect_ending graph hooks enqueue_store find_flows prune
local refused = tx.begin()
if refused then
  return refused
end
local answered = tx.answered()
if answered then
  return answered
end
tx.insist()
local gone = 0
for _, id in ipairs(base.ids(ARGV[3])) do
  gone = gone + prune.dead(id)
end
tx.finish()
return tx.answer(base.text(gone))
