-- Promise: applies operators' changes to gates and wakes lanes that can run now.
-- Keys: meta, gates, answers, and those of its modules.
-- Args: now, the call's own name, changes(msgpack array of core.gate.GateChange maps; a field left out or nil leaves the gate alone)
-- Answer: the gate (msgpack map of core.gate.Gate) after each change.
-- Bounds: the changes given; 256 lanes per class and gate are woken at once.
-- Uses: base record gates_period gates_math sessions_signature wake tx gates gates_events turns lanes gates_wait lanes_due gates_change

local refused = tx.begin()
if refused then
  return refused
end
local answered = tx.answered()
if answered then
  return unpack_(answered)
end
tx.insist()
local answers = gates_change.apply(unpack_(ARGV[3]))
tx.finish()
tx.answer(pack(answers))
return answers
