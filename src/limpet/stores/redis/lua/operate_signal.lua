-- Promise: each event is noted with its job unless one of that name is there, and a job that waits for it becomes ready.
-- Keys: meta, and those of its modules.
-- Args: now · the call's own name · id, event, value of each signal
-- Answer: one character per signal: w woken, k kept for when it waits, a there already, m many are (none is taken
--   any more), f finished, "-" no such job.
-- Bounds: the signals given, and the notes of those jobs.
-- Uses: base record gates_period gates_math sessions_signature wake tx gates gates_events turns lanes gates_wait lanes_due unique find_ledger effect_ending graph hooks enqueue_store notes
local refused = tx.begin()
if refused then
  return refused
end
local answered = tx.answered()
if answered then
  return answered
end

local function rouse(r)
  local lane = lanes.get(r.lane)
  lanes_due.unschedule(lane, record.item(r))
  r.state, r.due = READY, tx.now
  notes.wait(r, {})
  record.save(r)
  tx.move(tx.class(lane.kind), SCHEDULED, READY)
  lanes.add(lane, { record.item(r) })
end

local answers = {}
for at = 3, #ARGV, 3 do
  local id, event, value = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local r, answer = record.load(id), "k"
  if r == nil then
    answer = "-"
  elseif not r then -- it goes to the dead letters, now or when its run ends
    if call("HEXISTS", K.running, id) == 0 then
      effect_ending.bury_spoilt(id)
    end
    answer = "f"
  elseif r.state >= SUCCEEDED then
    answer = "f"
  elseif notes.has_event(r, { event }) then
    answer = "a"
  elseif not notes.event(r, event, value) then
    answer = "m"
  elseif notes.waits(r, event) then
    rouse(r)
    answer = "w"
  end
  answers[#answers + 1] = answer
end
tx.finish()
return tx.answer(table.concat(answers))
