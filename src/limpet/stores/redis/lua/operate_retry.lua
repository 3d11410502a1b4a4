-- Promise: dead jobs run again with fresh attempts under their ids, and revive dependents that their death cancelled;
--   scheduled ones run now (or after the delay).
-- Keys: meta, and those of its modules.
-- Args: now · the call's own name · delay_ms · ids (16 bytes each) · msgpack [names of steps to forget, "*" = all] · new
--   arguments for each of them, or no argument
-- Answer: one character per id: r retried, u another job holds its unique key, n not dead, "-" no such job.
-- Bounds: the ids given (500 per call), their notes, and 1,000 dependents in all (the rest in graph_todo).
-- Uses: base record gates_period gates_math sessions_signature wake tx gates gates_events turns lanes gates_wait lanes_due unique find_ledger effect_ending graph hooks enqueue_store notes
local refused = tx.begin()
if refused then
  return refused
end
local SMALL = 1024 -- larger arguments lie beside the record
local answered = tx.answered()
if answered then
  return answered
end
local delay, ids, forget, args = tonumber(ARGV[3]), base.ids(ARGV[4]), unpack_(ARGV[5]), ARGV[6]

local function edit(r)
  local extra = record.halves(r.flags, r.tail)
  call("HDEL", K.large_args, r.id)
  r.flags = record.without(r.flags, BODY)
  if #args > SMALL then
    r.tail, r.flags = extra .. sub(r.id, -1), record.with(r.flags, BODY)
    call("HSET", K.large_args, r.id, args)
  else
    r.tail = extra .. args .. sub(r.id, -1)
  end
end

local parents = {} -- jobs that live again and had others wait for them

local function again(r, lane)
  local old, class = r.state, tx.class(lane.kind)
  if old == DEAD then
    if not unique.reclaim(r) then
      return "u"
    end
    effect_ending.unbury(r)
    effect_ending.unfile(r)
    r.attempt, r.lost, r.held, r.rare, r.flags = 0, 0, 0, {}, record.without(r.flags, CANCELLING)
  else
    lanes_due.unschedule(lane, record.item(r))
  end
  if args then
    edit(r)
  end
  if #forget > 0 then
    notes.forget_steps(r, forget)
  end
  r.state, r.due = delay > 0 and SCHEDULED or READY, tx.now + delay
  record.save(r)
  tx.move(class, old, r.state)
  if old == DEAD then
    lanes.crowd(lane, 1)
  end
  if r.state == READY then
    lanes.add(lane, { record.item(r) })
  else
    lanes_due.schedule(lane, record.item(r))
  end
  if old == DEAD and HAS(r.flags, KIDS) then
    parents[#parents + 1] = r.id
  end
  return "r"
end

local function retry(id)
  local r = record.load(id)
  if r == nil then
    return "-"
  elseif not r then -- a person should see it first
    if call("HEXISTS", K.running, id) == 0 then
      effect_ending.bury_spoilt(id)
    end
    return "n"
  elseif r.running or (r.state ~= DEAD and r.state ~= SCHEDULED) then
    return "n"
  end
  return again(r, lanes.get(r.lane))
end

tx.insist()
local answers = {}
for i, id in ipairs(ids) do
  answers[i] = retry(id)
end
for _, parent in ipairs(parents) do -- after the last: a child of several needs them all alive
  graph.revive_children(parent)
end
tx.finish()
return tx.answer(table.concat(answers))
