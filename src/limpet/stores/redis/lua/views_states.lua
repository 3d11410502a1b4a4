-- Promise: the states of these jobs, at one instant; changes nothing.
-- Keys: meta, jobs, running.
-- Args: now; ids (16 bytes each)
-- Answer: one character per id: its state code, "-" when there is no such job.
-- Bounds: the ids named; callers name at most 1,000.
-- Uses: base record tx

local refused = tx.begin()
if refused then
  return refused
end
local ids, states = base.ids(ARGV[2]), {}
local found = record.states(ids)
for i, id in ipairs(ids) do
  states[i] = found[id] and char(48 + found[id]) or "-"
end
return table.concat(states)
