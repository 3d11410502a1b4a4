-- Promise: each transition whose token still holds its job is applied; the others change nothing. The same (session,
--   seq) again gets the same answers again and changes nothing.
-- Keys: the namespace's m.
-- Args: now · session · seq · finished jobs to keep per queue · one head of 24 bytes per transition: kind(1) id(16)
--   token(7) · then, for each kind that has one, its body in the same order:
--   s succeed, S succeed with its result · r retry: msgpack [delay, failure] · b bury: msgpack [failure] ·
--   d drop: reason · u release unstarted, U release started · z snooze: msgpack [delay, reason] ·
--   h hold: msgpack [gate, delay, reason] · l lose: reason, L lose proven: reason
-- Answer: one character per transition: "0" + state when done, "A" + state when stale, "-" when there is no such job.
-- Bounds: the transitions given; 256 released children per parent and 4,000 dependents in all (the rest in fan), and
--   twice as many old jobs as were settled, erased.
-- Uses: base record gate fair signature wake lanes tx unique ledger graph erasing settling
local refused = tx.begin()
if refused then
  return refused
end
local session, seq, keep, heads = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local receipt = call("HGET", P .. "rc:" .. session, "settle")
if receipt and sub(receipt, 1, #seq + 1) == seq .. " " then
  return sub(receipt, #seq + 2)
end

local bodies = 5
local function body()
  bodies = bodies + 1
  return ARGV[bodies]
end

local read = {
  s = function()
    return { kind = "succeed" }
  end,
  S = function()
    return { kind = "succeed", result = body() }
  end,
  r = function()
    local t = unpack_(body())
    return { kind = "retryafter", delay_ms = t[1], failure = t[2] }
  end,
  b = function()
    return { kind = "bury", failure = unpack_(body())[1] }
  end,
  d = function()
    return { kind = "drop", reason = body() }
  end,
  u = function()
    return { kind = "release", started = false }
  end,
  U = function()
    return { kind = "release", started = true }
  end,
  z = function()
    local t = unpack_(body())
    return { kind = "snooze", delay_ms = t[1], reason = t[2] }
  end,
  h = function()
    local t = unpack_(body())
    return { kind = "hold", gate = t[1], delay_ms = t[2], reason = t[3] }
  end,
  l = function()
    return { kind = "lose", reason = body(), proven = false }
  end,
  L = function()
    return { kind = "lose", reason = body(), proven = true }
  end,
}

local ids = {}
for at = 2, #heads, 24 do
  ids[#ids + 1] = sub(heads, at, at + 15)
end
local runs, raws = base.mget(P .. "run", ids), base.mget(P .. "J", ids)
local s, now_in, answers = settling.new(session), {}, {}

for i, id in ipairs(ids) do
  local at, running, raw = 24 * i - 23, runs[i], raws[i]
  local kind = sub(heads, at, at)
  local ended = now_in[id] -- named before in this call
  if not raw or #raw < 56 then
    answers[i] = "-"
  elseif ended or not running or sub(running, 1, 7) ~= sub(heads, at + 17, at + 23) then
    tx.tally(STALE)
    answers[i] = char(65 + (ended or running and RUNNING or byte(raw, 2)))
  elseif kind == "s" and settling.is_clean(running, raw) then
    settling.clean(s, id, running, raw)
    now_in[id], answers[i] = SUCCEEDED, "4"
  else
    local r = record.open(id, raw)
    if r then
      r.running = running
      now_in[id] = settling.one(s, r, read[kind]())
      kind = nil
      answers[i] = char(48 + now_in[id])
    else
      answers[i] = "-" -- nothing can be said of a job whose record is spoilt
    end
  end
  if kind and kind ~= "s" and kind ~= "u" and kind ~= "U" then
    body() -- not wanted
  end
end

local answer = table.concat(answers)
tx.insist()
settling.write(s)
for _, each in pairs(s.queues) do
  if each[1] ~= DEAD then
    erasing.trim(each[2], each[1], keep, 2 * #ids)
  end
end
call("HSET", P .. "rc:" .. session, "settle", seq .. " " .. answer)
call("PEXPIRE", P .. "rc:" .. session, 3600000)
tx.finish()
return answer
