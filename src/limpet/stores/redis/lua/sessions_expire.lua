-- Promise: takes back what silent sessions and leases past their hard deadline hold, unless the sweeps themselves had
--          been away (D6); cancels waiting jobs that were not started in time; a place that has drained ends paused.
-- Keys: meta, sessions, session_leases, hard_deadlines, expiring, draining, counters, and those of its modules.
-- Args: now limit · finished jobs to keep per queue
-- Answer: how many jobs were taken back.
-- Bounds: `limit` jobs taken back, `limit` jobs cancelled and 1,000 dependents, 64 sessions, the gates that drain; while a
--         place drains, the counts of every queue and task; 1,000 old cancelled jobs of each queue that got new ones.
-- Uses: base record gates_period gates_math sessions_signature wake tx gates gates_events turns lanes gates_wait lanes_due unique find_ledger effect_ending graph hooks enqueue_store notes find_flows prune effect give_back settle sessions

local GAP = 5000 -- longer than this without a sweep, and live workers may not have been able to beat
local CALM = 15000 -- one lease time
local MARK = 2000 -- an idle worker sweeps each second: it need not write as often
local SESSIONS = 64

local refused = tx.begin()
if refused then
  return refused
end
local limit = tonumber(ARGV[2])

-- Take back what sessions hold whose time was over at `since`.
local function silent(since)
  local taken = 0
  for _, session in ipairs(call("ZRANGEBYSCORE", K.sessions, "-inf", base.text(since), "LIMIT", 0, SESSIONS)) do
    local records, vanished = sessions.all(sessions.tokens(session), limit - taken)
    effect.all(records, vanished, session, effect.of_session(MADE.silent, session))
    taken = taken + #records + #vanished
    if taken >= limit then
      return taken
    end
    sessions.forget(session)
  end
  return taken
end

-- Deadlines in H stand still while no worker sweeps: `shift` is the sum of all gaps.
local function overdue(most)
  if most <= 0 then
    return 0
  end
  local by = base.text(tx.now - (tx.meta("shift") or 0))
  local tokens = call("ZRANGEBYSCORE", K.hard_deadlines, "-inf", by, "LIMIT", 0, most)
  local records, vanished = sessions.all(tokens, most)
  effect.all(records, vanished, "", MADE.overdue)
  if #records + #vanished == 0 and #tokens > 0 then
    base.chunked("ZREM", K.hard_deadlines, tokens) -- leases without jobs must not stand before others
  end
  return #records + #vanished
end

-- Jobs that were not started in time are cancelled, whether or not a worker would claim them.
local function unstarted()
  local late = call("ZRANGEBYLEX", K.expiring, "-", "(" .. base.b6(tx.now + 1), "LIMIT", 0, limit)
  base.chunked("ZREM", K.expiring, late)
  for _, item in ipairs(late) do
    graph.cancel_waiting(sub(item, EXPIRY.id), "expired")
  end
end

-- How many unfinished jobs everything, each queue, and each task (its field) in a queue holds.
local function alive()
  local counts, all = {}, call("HGETALL", K.counters)
  for i = 1, #all, 2 do
    local queue, task, what = string.match(all[i], "^(%Z*)%z(%Z*)%z(%d+)$")
    if tonumber(what) <= RUNNING then
      for _, key in ipairs({ "all", "queue:" .. queue, queue .. "\0" .. task .. "\0" }) do
        counts[key] = (counts[key] or 0) + tonumber(all[i + 1])
      end
    end
  end
  return counts
end

-- Whether a place holds unfinished jobs; those of a task are those of all classes that its gate rules.
local function has_jobs(key, counts)
  if not base.begins(key, "task:") then
    return (counts[key] or 0) > 0
  end
  for _, kind in ipairs(call("SMEMBERS", K.gate_classes .. key)) do
    local class = tx.class(kind)
    if class and (counts[class.field] or 0) > 0 then
      return true
    end
  end
  return false
end

-- A draining queue, task or store with nothing left ends paused.
local function drained()
  local keys, open = call("SMEMBERS", K.draining), {}
  gates.load(keys)
  for _, key in ipairs(keys) do
    local kind, found = string.match(key, "^(%a+):?"), gates.get(key)
    if found and found.draining and not found.paused and (key == "all" or kind == "queue" or kind == "task") then
      open[#open + 1] = key
    end
  end
  local counts = #open > 0 and alive()
  for _, key in ipairs(open) do
    if not has_jobs(key, counts) then
      gates.edit(key).paused = { by = "drain", reason = "drained", at_ms = tx.now }
    end
  end
end

tx.insist()
local swept, calm = tx.meta("swept"), tx.meta("calm") or 0
local gap = swept and tx.now - swept or 0
if not swept then
  calm = tx.now + CALM -- it is unknown how long no worker swept
elseif gap > GAP then
  calm = tx.now + CALM
  -- Time that passed while everything stood still does not count: a suspended machine must not make all jobs overdue.
  tx.set_meta("shift", (tx.meta("shift") or 0) + gap)
end
if not swept or gap < 0 or gap >= MARK then
  tx.set_meta("swept", tx.now)
  tx.set_meta("calm", calm)
end
local taken = 0
if tx.now >= calm then
  taken = silent(tx.now)
  taken = taken + overdue(limit - taken)
elseif gap >= CALM then
  -- Sweeps are rare here (agents only, no worker): who was silent at the last one has had its lease time.
  taken = silent(swept)
end
unstarted()
graph.fan_out() -- what a step left over for a parent with very many children, in case no worker claims
drained()
prune.trim_cancelled(tonumber(ARGV[3]))
tx.finish()
return taken
