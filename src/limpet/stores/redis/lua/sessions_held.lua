-- Promise: what a session holds now; changes nothing.
-- Keys: meta, session_leases, lease_jobs, running, jobs.
-- Args: now session
-- Answer: id, token, lost of each job.
-- Bounds: what one session holds.
-- Uses: base record tx sessions

local refused = tx.begin()
if refused then
  return refused
end
local answer = {}
for _, r in ipairs(sessions.records(sessions.tokens(ARGV[2]), base.UNLIMITED)) do
  answer[#answer + 1] = r.id
  answer[#answer + 1] = base.text(record.hold(r.running))
  answer[#answer + 1] = r.lost
end
return answer
