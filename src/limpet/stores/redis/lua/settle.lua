-- Promise: each transition whose token still holds its job is applied; the others change nothing. The same (session,
--   seq) again gets the same answers again and changes nothing.
-- Keys: the namespace's m.
-- Args: now · session · seq · finished jobs to keep per queue · groups of 10 bytes: kind(1) token(7) transitions(2) ·
--   the ids of all transitions, 16 bytes each · if the first group is of kind $ (and of no transitions), what jobs cost
--   in truth: msgpack [[place of the transition, {unit: cost}]] · then, for each whose kind has one, its body:
--   s succeed, S succeed with its result · r retry: msgpack [delay, failure] · b bury: msgpack [failure] ·
--   d drop: reason · u release unstarted, U release started · z snooze: msgpack [delay, reason] ·
--   p suspend: msgpack [delay or -1, event…] · h hold: msgpack [gate, delay, reason, trips] ·
--   l lose: reason, L lose proven: reason
-- Answer: one character per transition: "0" + state when done, "A" + state when stale, "-" when there is no such job.
--   Behind them, if any of the gates is shut at which these failed, or that they held: msgpack [[place of the transition,
--   [gate…]]…].
-- Bounds: the transitions given, and the notes of jobs that suspend; 256 released children per parent and 1,000 dependents in all (the rest in fan), and
--   twice as many old jobs as were settled (and at most 64 more), erased; of cancelled ones 1,000 per queue.
-- Short way: short_settle
-- Uses: base record period gate signature wake tx gating news seats lanes waiting calendar unique ledger ending graph noting flows erasing outcome settling
local refused = tx.begin()
if refused then
  return refused
end
local session, seq, keep, groups, packed = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
local receipt = call("HGET", P .. "rc:" .. session, "settle")
if receipt and sub(receipt, 1, #seq + 1) == seq .. " " then
  return sub(receipt, #seq + 2)
end

local BARE = { s = true, u = true, U = true } -- kinds without a body
local next_body = 6

-- A transition from its kind and body.
local function read(kind, body)
  if kind == "s" or kind == "S" then
    return { kind = "succeed", result = body }
  elseif kind == "u" or kind == "U" then
    return { kind = "release", started = kind == "U" }
  elseif kind == "d" then
    return { kind = "drop", reason = body }
  elseif kind == "l" or kind == "L" then
    return { kind = "lose", reason = body, proven = kind == "L" }
  end
  local t = unpack_(body)
  if kind == "r" then
    return { kind = "retryafter", delay_ms = t[1], failure = t[2] }
  elseif kind == "b" then
    return { kind = "bury", failure = t[1] }
  elseif kind == "z" then
    return { kind = "snooze", delay_ms = t[1], reason = t[2] }
  elseif kind == "p" then
    local delay_ms = table.remove(t, 1)
    return { kind = "suspend", delay_ms = delay_ms >= 0 and delay_ms or nil, events = t }
  end
  return { kind = "hold", gate = t[1], delay_ms = t[2], reason = t[3], trips = t[4] }
end

local ids = {}
for at = 1, #packed, 16 do
  ids[(at + 15) / 16] = sub(packed, at, at + 15)
end
local runs, raws = base.mget(P .. "run", ids), base.mget(P .. "J", ids)
local s, now_in, answers = settling.new(session), {}, {}
local last, fits, i = nil, false, 0
local spent, first = {}, 1 -- by place
local touched, shut = {}, {} -- places with their gates
if sub(groups, 1, 1) == "$" then
  next_body, first = 7, 11
  for _, each in ipairs(unpack_(ARGV[7])) do
    spent[each[1]] = each[2]
  end
end

for at = first, #groups, 10 do
  local kind, token, count = struct.unpack(">c1c7H", groups, at)
  local bare, succeeds = BARE[kind], kind == "s" or kind == "S"
  last = nil
  for _ = 1, count do
    i = i + 1
    local id, running, raw, body = ids[i], runs[i], raws[i], nil
    if not bare then
      next_body = next_body + 1
      body = ARGV[next_body]
    end
    if running ~= last then -- jobs of one claim have equal entries
      last, fits = running, running and #running >= 13 and sub(running, 1, 7) == token
    end
    local ended = now_in[id] -- named before in this call
    if not raw then
      if fits and not ended then -- somebody has removed its record: what it held is free all the same
        outcome.vanished(s, id, running, read(kind, body))
        now_in[id] = DEAD
      end
      answers[i] = "-"
    elseif ended or not fits then
      tx.tally(STALE)
      answers[i] = char(65 + (ended or running and RUNNING or record.is_state(byte(raw, 2)) and byte(raw, 2) or DEAD))
    elseif succeeds and settling.clean(s, id, running, raw, body) then
      now_in[id], answers[i] = SUCCEEDED, "4"
    else
      local r = record.open(id, raw) or ending.salvage(id, raw, running, {})
      local t = read(kind, body)
      r.running, t.spent = running, spent[i]
      now_in[id] = outcome.one(s, r, t)
      touched[#touched + 1] = #t.touched > 0 and { i, t.touched } or nil
      answers[i] = char(48 + now_in[id])
    end
  end
end

for _, each in ipairs(touched) do
  local keys = {}
  for _, key in ipairs(each[2]) do
    keys[#keys + 1] = gate.is_shut(gating.get(key), tx.now) and key or nil
  end
  shut[#shut + 1] = #keys > 0 and { each[1], keys } or nil
end
local answer = table.concat(answers) .. (#shut > 0 and pack(shut) or "")
tx.insist()
settling.write(s)
for queue, count in pairs(s.kept) do
  if count > keep then
    erasing.trim(queue, SUCCEEDED, keep, 2 * #ids)
  end
end
for name, entries in pairs(s.filed) do
  if tonumber(sub(name, 1, 1)) == CANCELLED then
    ending.note_cancelled(sub(name, 2), #entries / 2)
  end
end
erasing.trim_cancelled(keep)
call("HSET", P .. "rc:" .. session, "settle", seq .. " " .. answer)
call("PEXPIRE", P .. "rc:" .. session, "3600000")
tx.finish()
return answer
