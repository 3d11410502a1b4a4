-- Promise: from now on the end of this job is told to a mailbox; a finished job is answered as it is.
-- Keys: meta, jobs, running, watchers.
-- Args: now id mailbox
-- Answer: the job's state code, or nil when it is gone.
-- Bounds: one job.
-- Uses: base record tx

local DAY = 86400000 -- cleanup: a caller that waits longer looks by itself now and then

local refused = tx.begin()
if refused then
  return refused
end
local r = record.load(ARGV[2])
if not r then
  return false
end
if r.state < SUCCEEDED then
  if not HAS(r.flags, WATCHED) then
    r.flags = record.with(r.flags, WATCHED)
    record.save(r)
  end
  call("SADD", K.watchers .. r.id, ARGV[3])
  call("PEXPIRE", K.watchers .. r.id, DAY)
end
return record.state(r)
