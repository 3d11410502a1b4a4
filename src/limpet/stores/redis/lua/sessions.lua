-- Promise: the sessions that are alive, by name; changes nothing.
-- Keys: meta, sessions, session, session_leases, leases.
-- Args: now
-- Answer: name, serves (JSON), info, started, beat, deadline, idle (1|0), running of each.
-- Bounds: 10,000 sessions, those whose deadline is latest first, and the leases of each.
-- Uses: base record tx sessions

local MOST = 10000

local refused = tx.begin()
if refused then
  return refused
end

-- Jobs left in the leases of a session.
local function running(name)
  local jobs = 0
  for _, lease in ipairs(base.mget(K.leases, call("SMEMBERS", K.session_leases .. name))) do
    jobs = jobs + (lease and unpack_(lease)[LEASE.left] or 0)
  end
  return jobs
end

local answer, names = {}, call("ZREVRANGEBYSCORE", K.sessions, "+inf", "(" .. base.text(tx.now), "LIMIT", 0, MOST)
for _, name in ipairs(names) do
  local found = call("HMGET", K.session .. name, "serves", "info", "started", "beat", "deadline", "idle")
  answer[#answer + 1] = name
  for i = 1, 5 do
    answer[#answer + 1] = found[i]
  end
  answer[#answer + 1] = found[6] and 1 or 0
  answer[#answer + 1] = running(name)
end
return answer
