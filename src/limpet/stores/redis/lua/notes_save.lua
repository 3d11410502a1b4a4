-- Promise: a note of a running job is written while its token holds.
-- Keys: meta, and those of its modules.
-- Args: now · id · token · kind · name · body
-- Answer: 1, or 0 when the token is stale.
-- Bounds: one job.
-- Uses: base record gates_period gates_math sessions_signature wake tx gates gates_events turns lanes gates_wait lanes_due settle
local refused = tx.begin()
if refused then
  return refused
end
tx.insist()
local saved = settle.save(ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6])
tx.finish()
return saved and 1 or 0
