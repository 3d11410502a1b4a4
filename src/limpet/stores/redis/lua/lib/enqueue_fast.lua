-- Fast path of enqueue: plain jobs that may run at once, all of one lane that is known. It loads no module and does all of
-- the verb or nothing; then the full path follows. A change of lanes, turns, find_ledger or wake must be made here too.

local LANE_ID, LANE_RAW, CLASS_RAW, POLICY = 3, 4, 5, 6 -- arguments of a call with one lane and one policy
local ID, TAIL, META = 6, 7, 8 -- arguments of its job i: three times i further on

-- The run of equal jobs that the call consists of; nil when it holds more than that.
local function only_run(count)
  local head = unpack_(ARGV[2])
  local run = head.runs[1]
  if
    head.lanes > 1 or head.policies > 1 or head.runs[2] or head.rules[1] or head.order or head.flows
    or run[RUN.delay] > 0 or run[RUN.due_at] >= 0 or run[RUN.expires] >= 0
  then
    return nil
  end
  for i = 1, count do
    if ARGV[META + 3 * i] ~= "" then
      return nil
    end
  end
  return run
end

-- True when a drain, a weight or a depth of this queue must be looked at: this path knows none of them.
local function is_odd(queue)
  local found = call("EXISTS", K.draining, K.weights, K.bounded)
  return found > 1
    or found == 1 and (call("EXISTS", K.bounded) == 0 or call("SISMEMBER", K.bounded, "queue:" .. queue) == 1)
end

-- True when some of these jobs may have been erased a while ago.
local function may_be_erased(count)
  if call("EXISTS", K.erased_until) == 0 then
    return false
  end
  local seen
  for i = 1, count do
    local bucket = sub(ARGV[ID + 3 * i], 1, BUCKET_BYTES)
    if bucket ~= seen and call("EXISTS", K.erased .. bucket) == 1 then
      return true
    end
    seen = bucket
  end
  return false
end

-- The state of a job that is stored, by its record.
local function state_of(id, raw)
  if call("HEXISTS", K.running, id) == 1 then
    return RUNNING
  end
  return #raw < RECORD.size and DEAD or min(byte(raw, RECORD.state), CANCELLED)
end

-- Store what is new of the call: the items for the lane, all ids, which of them are new, and an answer for each. Jobs of
-- one id follow each other, since a call comes in the order of ids.
local function store(count, seq, now6, first, middle)
  local ids, items, stored, answers, records = {}, {}, {}, {}, {}
  for i = 1, count do
    ids[i] = ARGV[ID + 3 * i]
  end
  local there = base.mget(K.jobs, ids)
  for i, id in ipairs(ids) do
    if there[i] then
      answers[i] = char(64 + state_of(id, there[i]))
    elseif id == ids[i - 1] then
      answers[i] = char(64 + READY)
    else
      local number, at = base.b6(seq + i), 2 * #items
      records[at + 1], records[at + 2] = id, first .. number .. middle .. ARGV[TAIL + 3 * i]
      items[#items + 1], stored[i], answers[i] = now6 .. number .. id, true, char(48 + READY)
    end
  end
  base.chunked("HSET", K.jobs, records)
  return items, ids, stored, table.concat(answers)
end

-- Write the ids into the ledger, one of them without the module.
local function write_ledger(first, ids, stored)
  if #ids > 1 then
    load_modules()
    find_ledger.write(first, ids, stored)
    return
  end
  local chunk = base.text(floor(first / SLOTS))
  call("SETRANGE", K.ledger .. chunk, first % SLOTS * ID_BYTES, ids[1])
  if call("HINCRBY", K.ledger_counts, chunk, 1) == 1 then
    call("ZADD", K.ledger_chunks, chunk, chunk)
  end
end

-- One more seat for a member or ring; what has none yet stands where `turn` says.
local function sit(id, turn)
  local raw, left, count = call("HGET", K.turns, id), 1, 0
  if raw then
    turn, left, count = struct.unpack(TURN.format, raw)
  end
  call("HSET", K.turns, id, struct.pack(TURN.format, turn, left, count + 1))
  return turn
end

-- The lane, which was idle, gets a seat in the line of its class; the last turn that was given.
local function enter(lane, kind, member, ring, prio, turn)
  local stands = sit(member, turn + 1)
  turn = max(turn, stands) -- a member that sits already keeps its turn
  sit(ring, turn)
  call("ZADD", K.seats .. kind .. char(prio), "NX", base.text(stands), member)
  call("HSET", K.seat_lanes, kind .. member, lane)
  call("ZADD", K.active_classes, 0, char(prio) .. ring .. kind)
  return turn
end

-- Count jobs that came into a lane.
local function count_jobs(lane, class, flags, count)
  if call("HINCRBY", K.lane_jobs, lane, count) <= count then
    call("ZREM", K.empty_lanes, lane)
  end
  call("HINCRBY", K.counters, class[CLASS.queue] .. "\0" .. class[CLASS.task] .. "\0" .. READY, count)
  call("HINCRBY", K.counters, "\0\0" .. ENQUEUED, count)
  if HAS(flags, TENANT) then
    local tenant = unpack_(sub(ARGV[LANE_RAW], LANE.definition))[DEFINITION.tenant]
    call("HINCRBY", K.waiting_by_tenant, class[CLASS.queue] .. "\0" .. tenant, count)
  end
end

-- -- waking

local function tell(mailbox, message)
  if mailbox and mailbox ~= "" then
    call("RPUSH", K.mailbox .. mailbox, message)
    call("PEXPIRE", K.mailbox .. mailbox, 60000)
  end
end

-- Wake up to `count` sleepers that have (score 0) or have not (1) a free slot; how many are still wanted.
local function rouse(sigs, score, count, woken)
  for i = #sigs, 1, -1 do -- from the end, as wake does
    local idle = K.sleepers .. sigs[i]
    local row = count > 0 and call("ZREVRANGEBYSCORE", idle, score, score, "LIMIT", 0, min(count, 256)) or {}
    for _, name in ipairs(row) do
      woken[name], count = true, count - 1
      call("ZREM", idle, name)
      tell(call("HGET", K.session .. name, "mailbox"), TELL_WORK .. name)
      call("HDEL", K.session .. name, "idle")
    end
  end
  return count
end

-- Wake workers for `count` new jobs: sleeping ones, and for urgent jobs busy ones.
local function wake_for(kind, class, prio, limited, count, now)
  local sigs, woken = call("SMEMBERS", K.class_signatures .. kind), {}
  count = rouse(sigs, 0, count, woken)
  if count > 0 and not limited then
    local found = call("HMGET", K.gates, "all", "queue:" .. class[CLASS.queue], "task:" .. class[CLASS.scope])
    if not (found[1] or found[2] or found[3]) then
      count = rouse(sigs, 1, count, woken)
    end
  end
  if count <= 0 or prio > base.URGENT then
    return
  end
  for _, name in ipairs(call("ZRANGEBYSCORE", K.sessions, "(" .. base.text(now), "+inf", "LIMIT", 0, 256)) do
    local found = count > 0 and not woken[name] and call("HMGET", K.session .. name, "sig", "mailbox")
    if found and found[1] and call("SISMEMBER", K.class_signatures .. kind, found[1]) == 1 then
      tell(found[2], TELL_URGENT .. name)
      count = count - 1
    end
  end
end

-- The answer of the verb; nil when the full path must do it.
local function short()
  local count, lane, policy = (#ARGV - META) / 3, ARGV[LANE_ID], ARGV[POLICY]
  local kind, member, ring, prio, flags = struct.unpack(LANE.kind_to_flags.format, ARGV[LANE_RAW])
  local run = only_run(count)
  if not run or HAS(flags, MULTI) then
    return nil
  end
  local class, list = unpack_(ARGV[CLASS_RAW]), K.ready .. lane
  local layout, token, swept, seq, turn, store_name, recount =
    unpack(call("HMGET", K.meta, "layout", "token", "swept", "seq", "turn", "store", "recount"))
  if
    tonumber(layout) ~= base.LAYOUT or is_odd(class[CLASS.queue]) or call("HEXISTS", K.lanes, lane) == 0
    or call("HEXISTS", K.policies, policy) == 0
  then
    return nil
  end
  local now, last = base.now(token, swept), call("LINDEX", list, -1)
  if tonumber(recount or 0) > now or (last and base.n6(last, ITEM.due.at) > now) or may_be_erased(count) then
    return nil
  end

  local now6 = base.b6(now)
  local first = struct.pack(RECORD.version_to_held.format, 1, READY, run[RUN.flags], 0, 0, 0)
  local middle = now6 .. now6 .. lane .. policy .. "\0\0\0\0\0\0\0\0\0\0\0\0" -- neither claimed nor finished
  seq, turn = tonumber(seq or 0), tonumber(turn or 0)
  local items, ids, stored, answers = store(count, seq, now6, first, middle)
  local answer = { "ok", answers, {}, store_name }
  if #items == 0 then
    call("HSET", K.meta, "seq", base.text(seq + count))
    return answer
  end
  base.chunked("RPUSH", list, items)
  write_ledger(seq + 1, ids, stored)
  if call("HSETNX", K.lane_states, lane, LANE_ACTIVE) == 1 then
    call("ZADD", K.oldest_ready .. class[CLASS.queue], "LT", base.text(now), lane)
    turn = enter(lane, kind, member, ring, prio, turn)
  end
  count_jobs(lane, class, flags, #items)
  call("HSET", K.meta, "seq", base.text(seq + count), "turn", base.text(turn))
  wake_for(kind, class, prio, HAS(flags, LIMITED), #items, now)
  return answer
end

local answer = short()
if answer then
  return answer
end
