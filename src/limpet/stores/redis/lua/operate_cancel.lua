-- Promise: waiting jobs are cancelled with their dependents; running ones are asked to stop, or with force fenced off.
-- Keys: meta, and those of its modules.
-- Args: now · the call's own name · force 0|1 · reason · ids (16 bytes each) · finished jobs to keep per queue
-- Answer: one character per id: c cancelled, a asked to stop, x cancelled before, f otherwise finished before, "-" no
--   such job.
-- Bounds: the ids given (500 per call), 1,000 dependents in all (the rest in graph_todo), and of each queue's cancelled jobs
--   at most two for each new one, and 1,000, erased.
-- Uses: base record gates_period gates_math sessions_signature wake tx gates gates_events turns lanes gates_wait lanes_due unique find_ledger effect_ending graph hooks enqueue_store notes find_flows prune effect give_back settle
local refused = tx.begin()
if refused then
  return refused
end
local answered = tx.answered()
if answered then
  return answered
end
local force, reason, ids = ARGV[3] == "1", ARGV[4], base.ids(ARGV[5])

local function stop(r)
  local token = base.text((record.hold(r.running)))
  local lease = call("HGET", K.leases, token)
  lease = lease and settle.lease(lease)
  if lease then
    tx.tell_cancel(lease[LEASE.session])
  end
  if force then
    r.rare[ADDED.reason] = reason -- whatever was said when it was asked to stop
    effect.all({ r }, {}, "", MADE.forced) -- its lease is over at once: a late success of its holder is stale
    effect_ending.note_cancelled(effect_ending.class(r).queue, 1)
    return "c"
  end
  r.flags, r.rare[ADDED.reason] = record.with(r.flags, CANCELLING), reason
  record.save(r)
  if HAS(r.flags, KIDS) then
    graph.cancel_children(r.id, reason)
  end
  return "a"
end

-- The states at the beginning, by id: a job that is taken down on the way was not finished before.
local function states_of(ids)
  local states = {}
  for i, raw in ipairs(base.mget(K.jobs, ids)) do
    if raw then
      states[ids[i]] = byte(raw, RECORD.state) or DEAD
    end
  end
  return states
end

local function cancel(id, before)
  local r = record.load(id)
  if r == nil then
    return "-"
  elseif not r then
    local running = call("HGET", K.running, id)
    if running then
      return stop(effect_ending.salvage(id, call("HGET", K.jobs, id), running, {}))
    end
    effect_ending.bury_spoilt(id)
    return "f"
  elseif r.running then
    return stop(r)
  elseif graph.cancel_waiting(id, reason) then
    return "c"
  end
  return before == CANCELLED and "x" or before >= SUCCEEDED and "f" or "c"
end

tx.insist()
local answers, before = {}, states_of(ids)
for i, id in ipairs(ids) do
  answers[i] = cancel(id, before[id])
end
prune.trim_cancelled(tonumber(ARGV[6]))
tx.finish()
return tx.answer(table.concat(answers))
