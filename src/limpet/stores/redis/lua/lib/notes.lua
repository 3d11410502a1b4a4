-- The notes of a job: what it wrote down, the events that were signalled to it, those that it waits for, and which jobs
-- stand for parents of it. Each is a field of its hash, kind \0 name. The record's flag NOTES says whether there are any.

notes = {}

local MOST_EVENTS, MOST_BYTES = 1000, 4 * 1024 * 1024 -- of one job, as on every engine
local tallies = {} -- of the events that jobs keep, by id

local FOREVER = "4503599627370496" -- how NEVER is written for people, as on every engine

-- Remove the notes of one kind that `goes` names; the record is not saved.
local function remove(r, kind, goes)
  if not HAS(r.flags, NOTES) then
    return
  end
  local key, fields, before = K.notes .. r.id, {}, kind .. "\0"
  for _, field in ipairs(call("HKEYS", key)) do
    if base.begins(field, before) and goes(sub(field, #before + 1)) then
      fields[#fields + 1] = field
    end
  end
  base.chunked("HDEL", key, fields)
  if #fields > 0 and call("EXISTS", key) == 0 then
    r.flags = record.without(r.flags, NOTES)
  end
end

local function any()
  return true
end

local function due_text(r)
  return r.due >= NEVER and FOREVER or base.text(r.due)
end

-- True when the job has recorded steps or a checkpoint: what it did, with the arguments it has.
function notes.remembers(r)
  if HAS(r.flags, NOTES) then
    for _, field in ipairs(call("HKEYS", K.notes .. r.id)) do
      local kind = sub(field, 1, (string.find(field, "\0", 1, true)) - 1)
      if kind == "step" or kind == "checkpoint" then
        return true
      end
    end
  end
  return false
end

-- True when one of these events was signalled to the job.
function notes.has_event(r, events)
  if HAS(r.flags, NOTES) then
    for _, event in ipairs(events) do
      if call("HEXISTS", K.notes .. r.id, "event\0" .. event) == 1 then
        return true
      end
    end
  end
  return false
end

-- How many events a job keeps, and the bytes of their values; counted once in a call.
local function events_of(r)
  local kept = tallies[r.id]
  if not kept then
    kept = { count = 0, bytes = 0 }
    tallies[r.id] = kept
    if HAS(r.flags, NOTES) then
      local key = K.notes .. r.id
      for _, field in ipairs(call("HKEYS", key)) do
        if base.begins(field, "event\0") then
          kept.count, kept.bytes = kept.count + 1, kept.bytes + call("HSTRLEN", key, field)
        end
      end
    end
  end
  return kept
end

-- Note a new event; the record is saved if it must say so. False when the job can keep no more.
function notes.event(r, event, value)
  local kept = events_of(r)
  if kept.count >= MOST_EVENTS or kept.bytes + #value > MOST_BYTES then
    return false
  end
  kept.count, kept.bytes = kept.count + 1, kept.bytes + #value
  call("HSET", K.notes .. r.id, "event\0" .. event, value)
  if not HAS(r.flags, NOTES) then
    r.flags = record.with(r.flags, NOTES)
    record.save(r)
  end
  return true
end

-- The job waits for these events until it is due, and no longer for others. The record is not saved.
function notes.wait(r, events)
  remove(r, "waiting", any)
  local fields = {}
  for _, event in ipairs(events) do
    fields[#fields + 1] = "waiting\0" .. event
    fields[#fields + 1] = due_text(r)
  end
  base.chunked("HSET", K.notes .. r.id, fields)
  if #fields > 0 then
    r.flags = record.with(r.flags, NOTES)
  end
end

-- True when the job waits for this event now: what it noted is of the wait that it is in.
function notes.waits(r, event)
  return r.state == SCHEDULED and not r.running and call("HGET", K.notes .. r.id, "waiting\0" .. event) == due_text(r)
end

-- Note which jobs (`parents`, {id, state} each) stand for those that a new job named; true when any does.
function notes.stand_ins(id, named, parents)
  local fields = {}
  for at, parent in ipairs(parents) do
    if parent[1] ~= named[at] then
      fields[#fields + 1] = "stands_for\0" .. effect_ending.name(named[at])
      fields[#fields + 1] = '"' .. effect_ending.name(parent[1]) .. '"'
    end
  end
  base.chunked("HSET", K.notes .. id, fields)
  return #fields > 0
end

-- Forget steps by name; "*" stands for all. The record is not saved.
function notes.forget_steps(r, names)
  local asked = {}
  for _, name in ipairs(names) do
    asked[name] = true
  end
  remove(r, "step", asked["*"] and any or function(name)
    return asked[name]
  end)
end
