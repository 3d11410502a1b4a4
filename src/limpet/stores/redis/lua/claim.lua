-- Promise: ready jobs become running under a lease of a live session, best priority first, fair between queues and
--   groups, no gate exceeded. The same (session, claimer, seq) again gets what is still held of the same jobs again.
--   An empty answer marks the session idle in the same step, so that no wake-up is missed.
-- Keys: meta, and those of its modules.
-- Args: now · session · signature · serves (msgpack) · limit · slots · seq · claimer · least urgent · ear · aged · most
--   urgent: so many jobs are taken first, of that priority and less urgent ones
-- Answer: {now, next instant or "", again 0|1, rows}; a row is four values: record, id, token, and "" or
--   {probe 0|1, arguments or "", inputs, notes, together} for the few jobs that have any of them; of very many inputs it
--   is their number alone, and they are read after it, a part at a time.
-- Bounds: 1,024 jobs, 64 due gates, 512 due jobs, 1,000 dependents of ended jobs; 256 looks at the active lanes, each at
--   256 classes of the best priority and as many members of each as there are jobs to give, until 256 lanes turned out
--   shut or empty. Where more classes of it have work, each look begins where the last one of such a worker ended.
--   Classes that it cannot run are passed in pages.
-- Short way: short_claim
-- Uses: base record period gate fair signature wake tx gating news seats lanes waiting calendar unique ledger flows erasing ending graph front taking choosing sharing merging
local refused = tx.begin()
if refused then
  return refused
end
local session, sig, serves = ARGV[2], ARGV[3], ARGV[4]
local limit, slots, seq, claimer = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], ARGV[8]
local least, ear, aged, most = tonumber(ARGV[9]), ARGV[10], tonumber(ARGV[11]), tonumber(ARGV[12])
local EVERYTHING = 9
local MANY_INPUTS = 256 -- each may be large

local function needs_more(flags)
  return flags ~= 0 and (record.has(flags, BODY) or record.has(flags, INPUTS) or record.has(flags, NOTES))
end

-- What a job has noted, but for the lines of its log: they are for people, and no claim is slower for them.
local function notes_of(id)
  local fields = {}
  for _, field in ipairs(call("HKEYS", K.notes .. id)) do
    if sub(field, 1, 4) ~= "log\0" then
      fields[#fields + 1] = field
    end
  end
  local notes = {}
  for at, body in ipairs(base.mget(K.notes .. id, fields)) do
    notes[2 * at - 1], notes[2 * at] = fields[at], body
  end
  return notes
end

-- What a row needs beyond its record.
local function more(row)
  local flags = row.flags
  local body, inputs, notes = "", {}, {}
  if record.has(flags, BODY) then
    body = call("HGET", K.large_args, row.id) or ""
  end
  if record.has(flags, INPUTS) then
    local key = K.parents .. row.id
    local count = call("HLEN", key)
    inputs = count > MANY_INPUTS and count or call("HGETALL", key)
  end
  if record.has(flags, NOTES) then
    notes = notes_of(row.id)
  end
  return { row.probe and 1 or 0, body, inputs, notes, row.together }
end

local function answer_of(rows)
  local out = {}
  for _, row in ipairs(rows) do
    local n = #out
    out[n + 1], out[n + 2], out[n + 3] = row.raw, row.id, row.lease.text
    out[n + 4] = (row.probe or row.together > 0 or needs_more(row.flags)) and more(row) or ""
  end
  return out
end

-- The answer of a claim that was made before: what is still held of it.
local function repeated(tokens)
  local rows = {}
  for token in string.gmatch(tokens, "%d+") do
    local ids, packed = {}, call("GET", K.lease_jobs .. token) or ""
    for i = 1, #packed, 16 do
      ids[#ids + 1] = sub(packed, i, i + 15)
    end
    local raws, runs = base.mget(K.jobs, ids), base.mget(K.running, ids)
    for i, id in ipairs(ids) do
      if raws[i] and #raws[i] >= 56 and runs[i] then
        local held, _, charges = record.hold(runs[i])
        if held == tonumber(token) then
          local probe, gates = false, {}
          for _, one in ipairs(charges or {}) do
            probe = probe or one[4]
            gates[#gates + 1] = one[2] and gating.get(one[1]) or nil
          end
          local flags = byte(raws[i], 3) * 256 + byte(raws[i], 4)
          local row = { raw = raws[i], id = id, lease = { text = token }, flags = flags, probe = probe }
          row.together, rows[#rows + 1] = taking.together(gates), row
        end
      end
    end
  end
  return answer_of(rows)
end

-- Nothing was found: the session sleeps until work of what it asked for comes.
local function sleep(known, instant)
  local key = K.session .. session
  if known.idle and known.asked ~= sig then
    call("ZREM", K.sleepers .. known.asked, session)
  end
  call("HSET", key, "idle", "1", "asked", sig, "slots", slots, "ear", ear)
  call("ZADD", K.sleepers .. sig, slots > 0 and 0 or 1, session)
  if instant then
    call("HSET", K.sleeps_until, session, base.text(instant))
  else
    call("HDEL", K.sleeps_until, session)
  end
end

local found = call("HMGET", K.session .. session, "deadline", "idle", "asked", "ear")
local known = { deadline = tonumber(found[1] or nil), idle = found[2], asked = found[3], ear = found[4] }
if not known.deadline or known.deadline <= tx.now then
  return { base.text(tx.now), "", 0, {} }
end
local receipt = call("HGET", K.receipts .. session, claimer)
if receipt and string.match(receipt, "^%d+") == seq then
  return { base.text(tx.now), "", 0, repeated(sub(receipt, #seq + 1)) }
end
tx.insist()
signature.meet(sig, serves)
if known.ear ~= ear then
  call("HSET", K.session .. session, "ear", ear)
end

local more_due = calendar.open_due(aged > 0 and most or 0)
if call("EXISTS", K.graph_todo) == 1 then
  more_due = graph.fan_out() or more_due
end
local taken = taking.begin(sig, limit, slots, least)
local again = taking.fill(aged, most) or (more_due and #taken.rows < limit)
if #taken.rows == 0 then
  local instant = calendar.next_instant()
  if taken.reopening then
    instant = min(instant or taken.reopening, taken.reopening)
  end
  if least == EVERYTHING and not again then
    sleep(known, instant)
  end
  tx.finish()
  return { base.text(tx.now), instant and base.text(instant) or "", again and 1 or 0, {} }
end
taking.lease(session)
local tokens = {}
for i, lease in ipairs(taken.tokens) do
  tokens[i] = lease.text
end
call("HSET", K.receipts .. session, claimer, seq .. " " .. table.concat(tokens, " "))
call("PEXPIRE", K.receipts .. session, 3600000)
if known.idle and least == EVERYTHING then
  call("ZREM", K.sleepers .. known.asked, session)
  call("HDEL", K.session .. session, "idle")
end
tx.finish()
return { base.text(tx.now), "", again and 1 or 0, answer_of(taken.rows) }
