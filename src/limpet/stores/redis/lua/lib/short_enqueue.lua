-- The short way of enqueue, without a room: plain jobs that may run at once, all of one lane that is known. It does all
-- of the verb or nothing, and then the long way follows. Whoever changes lanes, seats, ledger or wake changes this too.

local function tell(ear, message)
  if ear and ear ~= "" then
    call("RPUSH", K.mailbox .. ear, message)
    call("PEXPIRE", K.mailbox .. ear, 60000)
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
      tell(call("HGET", K.session .. name, "ear"), "w" .. name)
      call("HDEL", K.session .. name, "idle")
    end
  end
  return count
end

local function wake_for(kind, class, prio, limited, count, now)
  local sigs, woken = call("SMEMBERS", K.class_signatures .. kind), {}
  count = rouse(sigs, 0, count, woken)
  if count > 0 and not limited then
    local gates = call("HMGET", K.gates, "all", "queue:" .. class[1], "task:" .. class[2])
    if not (gates[1] or gates[2] or gates[3]) then
      count = rouse(sigs, 1, count, woken)
    end
  end
  if count <= 0 or prio > base.URGENT then
    return
  end
  for _, name in ipairs(call("ZRANGEBYSCORE", K.sessions, "(" .. base.text(now), "+inf", "LIMIT", 0, 256)) do
    local found = count > 0 and not woken[name] and call("HMGET", K.session .. name, "sig", "ear")
    if found and found[1] and call("SISMEMBER", K.class_signatures .. kind, found[1]) == 1 then
      tell(found[2], "u" .. name)
      count = count - 1
    end
  end
end

-- One more seat for a member or ring; what has none yet stands where `turn` says.
local function sit(id, turn)
  local raw, left, count = call("HGET", K.turns, id), 1, 0
  if raw then
    turn, left, count = struct.unpack(">I6I4I4", raw)
  end
  call("HSET", K.turns, id, struct.pack(">I6I4I4", turn, left, count + 1))
  return turn
end

-- True when something is to be looked at that only the long way knows: a drain, weights, a depth of this queue.
local function is_odd(queue)
  local found = call("EXISTS", K.draining, K.weights, K.bounded)
  return found > 1 or found == 1 and (call("EXISTS", K.bounded) == 0 or call("SISMEMBER", K.bounded, "queue:" .. queue) == 1)
end

local function short()
  local head, count = unpack_(ARGV[2]), (#ARGV - 8) / 3
  local run = head.runs[1]
  if
    head.lanes > 1 or head.policies > 1 or head.runs[2] or head.rules[1] or head.order or head.flows
    or run[4] > 0 or run[5] >= 0 or run[6] >= 0 or byte(ARGV[4], 26) % 8 >= 4
  then
    return nil
  end
  for i = 1, count do
    if ARGV[8 + 3 * i] ~= "" then
      return nil
    end
  end
  local lane, class, policy, list = ARGV[3], unpack_(ARGV[5]), ARGV[6], K.ready .. ARGV[3]
  local meta = call("HMGET", K.meta, "layout", "token", "swept", "seq", "turn", "store", "recount")
  if
    tonumber(meta[1]) ~= base.LAYOUT or is_odd(class[1]) or call("HEXISTS", K.lanes, lane) == 0
    or call("HEXISTS", K.policies, policy) == 0
  then
    return nil
  end
  local now = base.now(meta[2], meta[3])
  local tail = call("LINDEX", list, -1)
  if tonumber(meta[7] or 0) > now or (tail and base.n6(tail, 1) > now) then
    return nil
  end
  if call("EXISTS", K.erased_until) == 1 then
    local seen
    for i = 1, count do
      local name = sub(ARGV[6 + 3 * i], 1, 5)
      if name ~= seen and call("EXISTS", K.erased .. name) == 1 then
        return nil
      end
      seen = name
    end
  end

  local seq, at = tonumber(meta[4] or 0), base.b6(now)
  local first = struct.pack(">BBHHHH", 1, READY, run[3], 0, 0, 0)
  local middle = at .. at .. lane .. policy .. "\0\0\0\0\0\0\0\0\0\0\0\0"
  local items, ids, stored, answers, jobs = {}, {}, {}, {}, K.jobs
  for i = 1, count do
    local id, number = ARGV[6 + 3 * i], base.b6(seq + i)
    ids[i] = id
    if call("HSETNX", jobs, id, first .. number .. middle .. ARGV[7 + 3 * i]) == 1 then
      items[#items + 1], stored[i], answers[i] = at .. number .. id, true, "2"
    else
      local running, raw = call("HEXISTS", K.running, id) == 1, call("HGET", jobs, id)
      local state = #raw < 56 and DEAD or min(byte(raw, 2), CANCELLED)
      answers[i] = char(64 + (running and RUNNING or state))
    end
  end
  local answer, new = { "ok", table.concat(answers), {}, meta[6] }, #items
  if new == 0 then
    call("HSET", K.meta, "seq", base.text(seq + count))
    return answer
  end
  base.chunked("RPUSH", list, items)
  if count == 1 then
    local chunk = base.text(floor((seq + 1) / 64))
    call("SETRANGE", K.ledger .. chunk, (seq + 1) % 64 * 16, ids[1])
    if call("HINCRBY", K.ledger_counts, chunk, 1) == 1 then
      call("ZADD", K.ledger_chunks, chunk, chunk)
    end
  else
    rooms()
    ledger.write(seq + 1, ids, stored)
  end
  local turn = tonumber(meta[5] or 0)
  local kind, member, ring, prio, flags = struct.unpack(">c8c8c8BB", ARGV[4])
  if call("HSETNX", K.lane_states, lane, "a") == 1 then
    call("ZADD", K.oldest_ready .. class[1], "LT", base.text(now), lane)
    local stands = sit(member, turn + 1)
    turn = max(turn, stands) -- a member that sits already keeps its turn
    sit(ring, turn)
    call("ZADD", K.seats .. kind .. char(prio), "NX", base.text(stands), member)
    call("HSET", K.seat_lanes, kind .. member, lane)
    call("ZADD", K.active_classes, 0, char(prio) .. ring .. kind)
  end
  if call("HINCRBY", K.lane_jobs, lane, new) <= new then
    call("ZREM", K.empty_lanes, lane)
  end
  call("HINCRBY", K.counters, class[1] .. "\0" .. class[2] .. "\0" .. READY, new)
  call("HINCRBY", K.counters, "\0\0" .. ENQUEUED, new)
  if flags >= 8 then
    call("HINCRBY", K.waiting_by_group, class[1] .. "\0" .. unpack_(sub(ARGV[4], 27))[4], new)
  end
  call("HSET", K.meta, "seq", base.text(seq + count), "turn", base.text(turn))
  wake_for(kind, class, prio, flags % 4 >= 2, new, now)
  return answer
end

local answer = short()
if answer then
  return answer
end
