-- Promise: ready jobs become running under a lease of a live session, best priority first, fair between queues and
--   tenants, no gate exceeded. The same (session, claimer, seq) again gets what is still held of the same jobs again.
--   An empty answer marks the session idle in the same step, so that no wake-up is missed.
-- Keys: meta, and those of its modules.
-- Args: now · session · signature · serves (msgpack) · limit · slots · seq · claimer · mailbox · options (msgpack map:
--   core.jobs.lease.ClaimOptions) · jobs that it takes with wake-ups while it sleeps · the same, urgent ones
-- Answer: {now, next instant or "", again 0|1, rows}; a row is four values: record, id, token, and "" or
--   {probe 0|1, arguments or "", inputs, notes, together} for the few jobs that have any of them; of very many inputs it
--   is their number alone, and they are read after it, a part at a time.
-- Bounds: 1,024 jobs, 64 due gates, 512 due jobs, 1,000 dependents of ended jobs; 256 looks at the active lanes, each at
--   256 classes of the best priority and as many members of each as there are jobs to give, until 256 lanes turned out
--   shut or empty. Where more classes of it have work, each look begins where the last one of such a worker ended.
--   Classes that it cannot run are passed in pages.
-- Fast path: claim_fast
-- Uses: base record gates_period gates_math turns_fair sessions_signature wake tx gates gates_events turns lanes gates_wait lanes_due unique find_ledger find_flows prune effect_ending graph hooks enqueue_store take_front take choose turns_share take_merge
local refused = tx.begin()
if refused then
  return refused
end
local session, sig, serves, limit, slots, seq, claimer, mailbox, options = unpack(ARGV, 2, 10)
limit, slots, options = tonumber(limit), tonumber(slots), unpack_(options)
local takes_all = not (options.least_urgent or options.needing) -- a session that asks for less does not go to sleep
local MANY_INPUTS = 256 -- each may be large

-- -- the answer

local function needs_more(flags)
  return bit.band(flags, BODY + INPUTS + NOTES) ~= 0
end

-- What a job has noted, but for the lines of its log: they are for people, and no claim is slower for them.
local function notes_of(id)
  local fields = {}
  for _, field in ipairs(call("HKEYS", K.notes .. id)) do
    if not base.begins(field, "log\0") then
      fields[#fields + 1] = field
    end
  end
  local noted = {}
  for at, body in ipairs(base.mget(K.notes .. id, fields)) do
    noted[2 * at - 1], noted[2 * at] = fields[at], body
  end
  return noted
end

-- What a row needs beyond its record.
local function more(row)
  local flags = row.flags
  local body, inputs, noted = "", {}, {}
  if HAS(flags, BODY) then
    body = call("HGET", K.large_args, row.id) or ""
  end
  if HAS(flags, INPUTS) then
    local key = K.parents .. row.id
    local count = call("HLEN", key)
    inputs = count > MANY_INPUTS and count or call("HGETALL", key)
  end
  if HAS(flags, NOTES) then
    noted = notes_of(row.id)
  end
  return { row.probe and 1 or 0, body, inputs, noted, row.together }
end

local function answer(instant, again, rows)
  local out = {}
  for _, row in ipairs(rows) do
    local n = #out
    out[n + 1], out[n + 2], out[n + 3] = row.raw, row.id, row.lease.text
    out[n + 4] = (row.probe or row.together > 0 or needs_more(row.flags)) and more(row) or ""
  end
  return { base.text(tx.now), instant and base.text(instant) or "", again and 1 or 0, out }
end

-- -- a claim that was made before

-- The row of a job that is still held; `charges` are what its gates were charged.
local function row_of(raw, id, token, charges)
  local row, ruling = { raw = raw, id = id, lease = { text = token }, probe = false, together = 0 }, {}
  row.flags = record.flags(raw)
  for _, one in ipairs(charges or {}) do
    row.probe = row.probe or one[CHARGE.probe]
    ruling[#ruling + 1] = one[CHARGE.slot] and gates.get(one[CHARGE.gate]) or nil
  end
  row.together = take.together(ruling)
  return row
end

-- What is still held of the leases with these tokens.
local function still_held(tokens)
  local rows = {}
  for token in string.gmatch(tokens, "%d+") do
    local ids = base.ids(call("GET", K.lease_jobs .. token) or "")
    local raws, runs = base.mget(K.jobs, ids), base.mget(K.running, ids)
    for i, id in ipairs(ids) do
      if raws[i] and #raws[i] >= RECORD.size and runs[i] then
        local held, _, charges = record.hold(runs[i])
        if held == tonumber(token) then
          rows[#rows + 1] = row_of(raws[i], id, token, charges)
        end
      end
    end
  end
  return rows
end

-- -- a new claim

-- Nothing was found: the session sleeps until work of what it asked for comes, or until an instant.
local function sleep(idle, asked, instant)
  if idle and asked ~= sig then
    call("ZREM", K.sleepers .. asked, session)
  end
  call("HSET", K.session .. session, "idle", "1", "asked", sig, "slots", slots, "mailbox", mailbox, "takes", ARGV[11],
    "takes_urgent", ARGV[12], "slept", base.text(tx.meta("token") or 0))
  call("ZADD", K.sleepers .. sig, slots > 0 and 0 or 1, session)
  if instant then
    call("HSET", K.sleeps_until, session, base.text(instant))
  else
    call("HDEL", K.sleeps_until, session)
  end
end

-- The instant at which there may be something for this session, as far as time alone decides.
local function next_instant(reopening)
  local instant = lanes_due.next_instant()
  return reopening and min(instant or reopening, reopening) or instant
end

-- Remember what this claim was given, should its answer get lost.
local function write_receipt(taken)
  local tokens = {}
  for i, lease in ipairs(taken.tokens) do
    tokens[i] = lease.text
  end
  call("HSET", K.receipts .. session, claimer, seq .. " " .. table.concat(tokens, " "))
  call("PEXPIRE", K.receipts .. session, 3600000)
end

local function claim(idle, asked)
  local more_due = lanes_due.open_due(options.aged and options.most_urgent or 0)
  if call("EXISTS", K.graph_todo) == 1 then
    more_due = graph.fan_out() or more_due
  end
  local taken = take.begin(sig, limit, slots, options)
  local again, instant = take.fill() or (more_due and #taken.rows < limit), nil
  if #taken.rows == 0 then
    instant = next_instant(taken.reopening)
    if takes_all and not again then
      sleep(idle, asked, instant)
    end
  else
    take.lease(session)
    write_receipt(taken)
    if idle and takes_all then
      call("ZREM", K.sleepers .. asked, session)
      call("HDEL", K.session .. session, "idle")
    end
  end
  tx.finish()
  return answer(instant, again, taken.rows)
end

local deadline, idle, asked, known_mailbox = unpack(call("HMGET", K.session .. session, "deadline", "idle", "asked", "mailbox"))
if not deadline or tonumber(deadline) <= tx.now then
  return answer(nil, false, {})
end
local receipt = call("HGET", K.receipts .. session, claimer)
if receipt and string.match(receipt, "^%d+") == seq then
  return answer(nil, false, still_held(sub(receipt, #seq + 1)))
end
tx.insist()
sessions_signature.meet(sig, serves)
if known_mailbox ~= mailbox then
  call("HSET", K.session .. session, "mailbox", mailbox)
end
if limit == 0 then -- it asks for nothing, and sleeps no more
  if idle then
    call("ZREM", K.sleepers .. asked, session)
    call("HDEL", K.session .. session, "idle")
  end
  tx.finish()
  return answer(nil, false, {})
end
return claim(idle, asked)
