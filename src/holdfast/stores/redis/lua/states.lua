-- Promise: the states of these jobs, at one instant; changes nothing.
-- Keys: m J run
-- Args: now; ids (16 bytes each)
-- Answer: one character per id: its state code, "-" when there is no such job.
-- Bounds: the ids named; callers name at most 1,000.
-- Uses: base record tx

local refused = tx.begin()
if refused then
  return refused
end
local ids, states = {}, {}
for at = 1, #ARGV[2], 16 do
  ids[#ids + 1] = sub(ARGV[2], at, at + 15)
end
local runs = base.mget(P .. "run", ids)
for i, raw in ipairs(base.mget(P .. "J", ids)) do
  states[i] = (not raw or #raw < 56) and "-" or char(48 + (runs[i] and RUNNING or byte(raw, 2)))
end
return table.concat(states)
