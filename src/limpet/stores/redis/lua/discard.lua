-- Promise: dead jobs are removed for good; those who still wait for them are cancelled.
-- Keys: meta, and those of its modules.
-- Args: now · the call's own name · ids (16 bytes each)
-- Answer: how many there were.
-- Bounds: the ids given (500 per call), and 1,000 dependents in all (the rest in fan).
-- Uses: base record period gate signature wake tx gating news seats lanes waiting calendar unique ledger ending graph flows erasing
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
  gone = gone + erasing.dead(id)
end
tx.finish()
return tx.answer(base.text(gone))
