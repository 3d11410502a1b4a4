-- Promise: the jobs of an outbox's batch are stored and its mark is moved to that batch, both or neither. A batch that is
--   not newer than the mark changes nothing, however late it comes.
-- Keys: meta, controls (kind outbox: the marks, as put_control.lua writes records), and those of its modules.
-- Args: now · source · batch (a whole number below 2^53) · from head on as enqueue.lua says, ids in any order
-- Answer: nil when the batch is not newer, else as enqueue.lua; what is refused leaves the mark where it was.
-- Bounds: the 20,000 jobs of a call.
-- Uses: base record gates_period gates_math turns_fair gates_change sessions_signature wake tx gates gates_events turns lanes gates_wait lanes_due unique find_ledger find_flows prune effect_ending graph hooks notes enqueue_store enqueue_depth enqueue
local refused = tx.begin()
if refused then
  return refused
end
local marks, source, batch = K.controls .. "outbox", ARGV[2], ARGV[3]
local found, version, mark = call("HGET", marks, source), 0, 0
if found then
  version, mark = struct.unpack(CONTROL.version.format, found), tonumber(sub(found, CONTROL.value))
end
if tonumber(batch) <= mark then
  return false
end
local answer = enqueue.all(4)
if answer[1] == "ok" then
  call("HSET", marks, source, struct.pack(CONTROL.version.format, version + 1) .. batch)
end
return answer
