-- Promise: what a session holds now; changes nothing.
-- Keys: meta, session_leases, lease_jobs, leases, running, jobs.
-- Args: now session
-- Answer: id, token, lost of each job, and its number if it was handed to the session, else 0.
-- Bounds: what one session holds.
-- Uses: base record tx sessions

local refused = tx.begin()
if refused then
  return refused
end
local answer, tokens, numbers = {}, sessions.tokens(ARGV[2]), {}
for i, raw in ipairs(base.mget(K.leases, tokens)) do
  numbers[tokens[i]] = raw and unpack_(raw)[LEASE.handed]
end
for _, r in ipairs(sessions.records(tokens, base.UNLIMITED)) do
  local token = base.text(record.hold(r.running))
  answer[#answer + 1] = r.id
  answer[#answer + 1] = token
  answer[#answer + 1] = r.lost
  answer[#answer + 1] = numbers[token] or "0"
end
return answer
