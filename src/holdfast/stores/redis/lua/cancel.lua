-- Promise: waiting jobs are cancelled with their dependents; running ones are asked to stop, or with force fenced off.
-- Keys: the namespace's m.
-- Args: now · force 0|1 · reason · ids (16 bytes each)
-- Answer: one character per id: c cancelled, a asked to stop, f finished before, "-" no such job.
-- Bounds: the ids given, and 4,000 dependents in all (the rest in fan).
-- Uses: base record gate signature wake tx gating seats lanes waiting calendar unique ending graph outcome settling
local refused = tx.begin()
if refused then
  return refused
end
local force, reason, ids = ARGV[2] == "1", ARGV[3], ARGV[4]

local function stop(r)
  local token = base.text((record.hold(r.running)))
  local lease = call("HGET", P .. "le", token)
  if lease then
    tx.tell_cancel(unpack_(lease)[1])
  end
  if force then
    outcome.revoke(r, reason)
    return "c"
  end
  r.flags, r.rare.r = record.with(r.flags, CANCELLING), reason
  record.save(r)
  if record.has(r.flags, KIDS) then
    graph.cancel_children(r.id, reason)
  end
  return "a"
end

tx.insist()
local answers = {}
local before = {} -- the state at the beginning: who is taken down on the way was not finished before
for at = 1, #ids, 16 do
  local id = sub(ids, at, at + 15)
  local raw = before[id] == nil and call("HGET", P .. "J", id)
  if raw then
    before[id] = byte(raw, 2)
  end
end
for at = 1, #ids, 16 do
  local id = sub(ids, at, at + 15)
  local r = record.load(id)
  if not r then
    answers[#answers + 1] = "-"
  elseif r.running then
    answers[#answers + 1] = stop(r)
  elseif graph.cancel_waiting(id, reason) then
    answers[#answers + 1] = "c"
  else
    answers[#answers + 1] = before[id] >= SUCCEEDED and "f" or "c"
  end
end
tx.finish()
return table.concat(answers)
