-- Promise: what is stored about these jobs, at one instant; changes nothing.
-- Keys: meta, jobs, running, leases, large_args, results, notes, parents.
-- Args: now; what to read beside the records (letters: a large arguments, h holders, r results, n notes, p parents); ids
-- Answer: record, entry in run, session, large arguments, result, notes (fields and values), "@" and the parents' ids of
--   each; nil for what is not there.
-- Bounds: the ids named; callers name at most 512.
-- Uses: base record tx

local refused = tx.begin()
if refused then
  return refused
end

local wants = {}
for letter in string.gmatch(ARGV[2], "%a") do
  wants[letter] = true
end

local holders = {}

-- The session that holds a running job.
local function holder(running)
  local token = base.text((record.hold(running)))
  if holders[token] == nil then
    local lease = call("HGET", K.leases, token)
    holders[token] = lease and unpack_(lease)[LEASE.session] or false
  end
  return holders[token]
end

local ids, answer = {}, {}
for i = 3, #ARGV do
  ids[#ids + 1] = ARGV[i]
end
local raws, runs = base.mget(K.jobs, ids), base.mget(K.running, ids)
for i, id in ipairs(ids) do
  local raw, running = raws[i], runs[i]
  local session, args, result, noted, parents = false, false, false, false, false
  if raw and #raw >= RECORD.size then
    local flags = record.flags(raw)
    session = wants.h and running and holder(running)
    args = wants.a and HAS(flags, BODY) and call("HGET", K.large_args, id)
    result = wants.r and byte(raw, RECORD.state) == SUCCEEDED and call("HGET", K.results, id)
    noted = wants.n and HAS(flags, NOTES) and call("HGETALL", K.notes .. id)
    parents = wants.p and HAS(flags, INPUTS) and call("HGET", K.parents .. id, "@")
  end
  for _, value in ipairs({
    raw, running, session or false, args or false, result or false, noted or false, parents or false,
  }) do
    answer[#answer + 1] = value
  end
end
return answer
