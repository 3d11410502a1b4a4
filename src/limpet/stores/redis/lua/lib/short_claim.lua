-- The short way of claim, without a room: nothing is due, and of what the worker can run there is nothing, or one lane
-- that no gate rules and whose first jobs are plain. It does all of the verb or nothing, and then the long way follows.
-- Whoever changes lanes, seats, the lease or the sleep of a session changes this too.

local ENTRIES = 16 -- active classes that the short way looks at

-- A seat less for a member or ring, whose turn is `raw`.
local function stand(id, raw)
  local turn, left, count = struct.unpack(">I6I4I4", raw)
  if count > 1 then
    call("HSET", K.turns, id, struct.pack(">I6I4I4", turn, left, count - 1))
  else
    call("HDEL", K.turns, id)
  end
end

-- The one entry of the active classes that this worker can run; nil when there are several, false when there is none.
local function only_class(sig, least)
  local entries, found = call("ZRANGE", K.active_classes, 0, ENTRIES - 1), false
  if #entries == 0 then
    return false
  elseif #entries == ENTRIES then
    return nil
  end
  local kinds = {}
  for i, entry in ipairs(entries) do
    kinds[i] = sub(entry, 10, 17)
  end
  for i, yes in ipairs(call("SMISMEMBER", K.signature_classes .. sig, unpack(kinds))) do
    if yes == 1 and byte(entries[i], 1) <= least then
      if found then
        return nil
      end
      found = entries[i]
    end
  end
  return found
end

-- The records of the first jobs of a lane, when each is plain, ready, in its place and of one policy.
local function plain_front(lane, items, ids)
  local raws, runs = base.mget(K.jobs, ids), base.mget(K.running, ids)
  local policy = raws[1] and sub(raws[1], 37, 44)
  for i, raw in ipairs(raws) do
    if not raw or runs[i] or #raw < 56 then
      return nil
    end
    local version, state, high, low, _, _, lost, lost_ = byte(raw, 1, 8)
    if
      version ~= 1 or state ~= READY or high % 2 == 1 or low % 32 >= NOTES or low % 128 >= RARE or lost + lost_ > 0
      or sub(raw, 29, 44) ~= lane .. policy or sub(raw, 17, 22) ~= sub(items[i], 1, 6)
    then
      return nil
    end
  end
  return raws, policy
end

local function short()
  local session, sig, limit, slots, seq = ARGV[2], ARGV[3], tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
  local claimer, least, ear, s = ARGV[8], tonumber(ARGV[9]), ARGV[10], K.session .. ARGV[2]
  local meta = call("HMGET", K.meta, "layout", "token", "swept", "shift", "recount")
  local now = base.now(meta[2], meta[3])
  local known, receipt = call("HMGET", s, "deadline", "idle", "asked", "ear", "slots"), call("HGET", K.receipts .. session, claimer)
  local timer = call("ZRANGE", K.timers, 0, 0, "WITHSCORES")[2]
  if
    tonumber(meta[1]) ~= base.LAYOUT or tonumber(meta[5] or 0) > now or limit < 1 or (least < 9 and ARGV[11] ~= "0") or tonumber(known[1] or 0) <= now or (timer and tonumber(timer) <= now)
    or (receipt and string.match(receipt, "^%d+") == seq) or call("EXISTS", K.graph_todo) == 1
    or call("HEXISTS", K.signatures, sig) == 0
  then
    return nil
  end
  local entry = only_class(sig, least)
  if entry == nil then
    return nil
  end
  local instant = base.text(now)
  if not entry then
    call("ZREM", K.timers, "") -- see tx.insist
    if least == 9 then
      if known[2] and known[3] ~= sig then
        call("ZREM", K.sleepers .. known[3], session)
      end
      call("HSET", s, "idle", "1", "asked", sig, "slots", slots, "ear", ear)
      call("ZADD", K.sleepers .. sig, slots > 0 and 0 or 1, session)
      if timer then
        call("HSET", K.sleeps_until, session, timer)
      else
        call("HDEL", K.sleeps_until, session)
      end
    elseif known[4] ~= ear then
      call("HSET", s, "ear", ear)
    end
    return { instant, timer or "", 0, {} }
  end

  local kind, prio = sub(entry, 10, 17), sub(entry, 1, 1)
  local line = K.seats .. kind .. prio
  local members = call("ZRANGE", line, 0, 1)
  local lane = not members[2] and call("HGET", K.seat_lanes, kind .. members[1])
  local definition = lane and call("HGET", K.lanes, lane)
  if not definition or byte(definition, 26) % 8 ~= 0 or call("EXISTS", K.ready_aside .. lane) == 1 then
    return nil
  end
  local class, list = call("HGET", K.classes, kind), K.ready .. lane
  if not class then
    return nil
  end
  class = unpack_(class)
  local gates = call("HMGET", K.gates, "all", "queue:" .. class[1], "task:" .. class[2])
  limit = min(limit, 1024)
  local items = call("LRANGE", list, 0, limit - 1)
  if gates[1] or gates[2] or gates[3] or #items == 0 then
    return nil
  end
  local ids = {}
  for i, item in ipairs(items) do
    ids[i] = sub(item, 13)
  end
  local raws, policy = plain_front(lane, items, ids)
  local turns = call("HMGET", K.turns, members[1], sub(entry, 2, 9))
  if not raws or not turns[1] or not turns[2] then
    return nil
  end

  local count = #items
  call("LTRIM", list, count, -1)
  if count < limit then -- that was all: the lane rests
    call("HDEL", K.lane_states, lane)
    call("ZREM", K.oldest_ready .. class[1], lane)
    call("ZREM", line, members[1])
    call("HDEL", K.seat_lanes, kind .. members[1])
    call("ZREM", K.active_classes, entry)
    stand(members[1], turns[1])
    stand(sub(entry, 2, 9), turns[2])
  end
  local token = max(tonumber(meta[2] or 0) + 1, now * 2048)
  local text, holds = base.text(token), struct.pack(">I7I6", token, now)
  local running, rows = {}, {}
  for i, id in ipairs(ids) do
    running[2 * i - 1], running[2 * i] = id, holds
    local n = 4 * i
    rows[n - 3], rows[n - 2], rows[n - 1], rows[n] = raws[i], id, text, ""
  end
  base.chunked("HSET", K.running, running)
  call("HSET", K.leases, text, pack({ session, count }))
  call("SET", K.lease_jobs .. text, table.concat(ids))
  call("SADD", K.session_leases .. session, text)
  local hard = tonumber(string.match(call("HGET", K.policy_limits, policy) or "0 -", " (.+)$"))
  if hard then
    call("ZADD", K.hard_deadlines, base.text(now + hard + 30000 - tonumber(meta[4] or 0)), text)
  end
  local field = class[1] .. "\0" .. class[2] .. "\0"
  if call("HINCRBY", K.counters, field .. READY, -count) == 0 then
    call("HDEL", K.counters, field .. READY)
  end
  call("HINCRBY", K.counters, field .. RUNNING, count)
  if byte(definition, 26) ~= 0 then
    local crowd = class[1] .. "\0" .. unpack_(sub(definition, 27))[4]
    if call("HINCRBY", K.waiting_by_group, crowd, -count) <= 0 then
      call("HDEL", K.waiting_by_group, crowd)
    end
  end
  call("HSET", K.receipts .. session, claimer, seq .. " " .. text)
  call("PEXPIRE", K.receipts .. session, 3600000)
  if known[2] and least == 9 then
    call("ZREM", K.sleepers .. known[3], session)
    call("HDEL", s, "idle")
  end
  if known[4] ~= ear then
    call("HSET", s, "ear", ear)
  end
  call("HSET", K.meta, "token", text)
  return { instant, "", 0, rows }
end

local answer = short()
if answer then
  return answer
end
