-- Promise: each transition whose token still holds its job is applied; the others change nothing. The same (session,
--   seq) again gets the same answers again and changes nothing.
-- Keys: meta, and those of its modules.
-- Args: now · session · seq · finished jobs to keep per queue · the groups of transitions (GROUP) ·
--   the ids of all transitions, 16 bytes each · if the first group is of kind $ (and of no transitions), what jobs cost
--   actually: msgpack [[place of the transition, {unit: cost}]] · then, for each whose kind has one, its body:
--   s success · S success: its result · e any other: its effect, msgpack (core/endings/effect.py)
-- Answer: one character per transition: "0" + state when done, "A" + state when stale, "-" when there is no such job.
--   Behind them, if any of the gates is shut at which these failed, or that they held: msgpack [[place of the transition,
--   [gate…]]…].
-- Bounds: the transitions given, and the notes of jobs that suspend; 256 released children per parent and 1,000 dependents
--   in all (the rest in graph_todo), and twice as many old jobs as were settled (and at most 64 more), erased; of cancelled ones 1,000 per queue.
-- Fast path: settle_fast
-- Uses: base record gates_period gates_math sessions_signature wake tx gates gates_events turns lanes gates_wait lanes_due unique find_ledger effect_ending graph hooks enqueue_store notes find_flows prune effect give_back settle
local refused = tx.begin()
if refused then
  return refused
end
local session, seq, keep, groups, packed = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
local receipt = call("HGET", K.receipts .. session, "settle")
if receipt and base.begins(receipt, seq .. " ") then
  return sub(receipt, #seq + 2)
end

local ids = base.ids(packed)
local runs, raws = base.mget(K.running, ids), base.mget(K.jobs, ids)
local s, now_in, answers = settle.new(session), {}, {}
local COSTS = 7 -- the argument with what jobs cost, if there is one; else bodies begin there
local DONE = char(48 + SUCCEEDED)
local spent, next_body = {}, COSTS - 1 -- what jobs cost, by place; the last body that was read
local touched = {} -- places with the gates at which these failed, or that they held

-- Read what jobs cost, where the call says so; where the groups of transitions begin.
local function read_costs()
  if not base.begins(groups, "$") then
    return 1
  end
  next_body = COSTS
  for _, each in ipairs(unpack_(ARGV[COSTS])) do
    spent[each[1]] = each[2]
  end
  return GROUP.size + 1
end

local function read(kind, body)
  return kind == "e" and unpack_(body) or effect.success(body)
end

-- The answer for a job that this call does not hold: it ran elsewhere, or was named before in this call (`ended`).
local function stale(raw, running, ended)
  tx.tally(STALE)
  local state = byte(raw, RECORD.state)
  return char(65 + (ended or running and RUNNING or record.is_state(state) and state or DEAD))
end

-- Settle the transition at place i, whose token fits its job or not; its answer.
local function one(i, kind, body, fits)
  local id, running, raw = ids[i], runs[i], raws[i]
  local ended = now_in[id]
  if not raw then
    if fits and not ended then -- its record was removed: what it held is freed all the same
      effect.vanished(s, id, running, read(kind, body), spent[i])
      now_in[id] = DEAD
    end
    return "-"
  elseif ended or not fits then
    return stale(raw, running, ended)
  end
  local r = record.open(id, raw) or effect_ending.salvage(id, raw, running, {})
  r.running = running
  local state, keys = effect.apply(s, r, read(kind, body), spent[i])
  now_in[id] = state
  touched[#touched + 1] = #keys > 0 and { i, keys } or nil
  return char(48 + state)
end

-- Settle the transitions of a group, which begin behind place `before`.
local function group(before, kind, token, count)
  local last, fits, worked, body = nil, false, kind ~= "e", nil
  for i = before + 1, before + count do
    local id, running, raw = ids[i], runs[i], raws[i]
    if kind ~= "s" then
      next_body = next_body + 1
      body = ARGV[next_body]
    end
    if running ~= last then -- jobs of one claim have equal entries
      last, fits = running, running and #running >= HOLD.size and sub(running, HOLD.token) == token
    end
    if worked and fits and raw and not now_in[id] and settle.clean(s, id, running, raw, body) then
      now_in[id], answers[i] = SUCCEEDED, DONE
    else
      answers[i] = one(i, kind, body, fits)
    end
  end
end

-- Those of the touched gates that are shut, packed; nothing when none is.
local function shut_gates()
  local shut = {}
  for _, each in ipairs(touched) do
    local keys = give_back.shut(each[2])
    shut[#shut + 1] = #keys > 0 and { each[1], keys } or nil
  end
  return #shut > 0 and pack(shut) or ""
end

local settled = 0
for at = read_costs(), #groups, GROUP.size do
  local kind, token, count = struct.unpack(GROUP.format, groups, at)
  group(settled, kind, token, count)
  settled = settled + count
end
local answer = table.concat(answers) .. shut_gates()
tx.insist()
settle.write(s)
settle.trim(s, keep, #ids)
call("HSET", K.receipts .. session, "settle", seq .. " " .. answer)
call("PEXPIRE", K.receipts .. session, "3600000")
tx.finish()
return answer
