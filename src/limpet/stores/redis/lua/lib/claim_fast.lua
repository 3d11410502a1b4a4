-- Fast path of claim: nothing is due, and of what the worker can run there is nothing, or one lane that no gate rules and
-- whose first jobs are plain. It loads no module and does all of the verb or nothing; then the full path follows. A change
-- of lanes, turns, the lease or the sleep of a session must be made here too.

local ENTRIES = 16 -- active classes that this path looks at
local LEAST = 9 -- the least urgent priority: a session that asks for less does not go to sleep
local KNOWN = { least_urgent = true, aged = true, most_urgent = true } -- options that this path keeps
local MAX_CLAIM, SLACK_MS = 1024, 30000 -- see take

-- -- looking

-- True when this path does what the options say: among jobs of one lane none is aged.
local function keeps(options)
  for name in pairs(options) do
    if not KNOWN[name] then
      return false
    end
  end
  return not (options.least_urgent and options.aged)
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
    kinds[i] = sub(entry, ACTIVE.kind)
  end
  for i, yes in ipairs(call("SMISMEMBER", K.signature_classes .. sig, unpack(kinds))) do
    if yes == 1 and byte(entries[i], ACTIVE.prio) <= least then
      if found then
        return nil
      end
      found = entries[i]
    end
  end
  return found
end

-- The one active lane of a class, if no gate rules it and all its ready jobs came in order: its id and stored form, its
-- member and its class; else nil.
local function only_lane(kind, prio)
  local members = call("ZRANGE", K.seats .. kind .. char(prio), 0, 1)
  local lane = #members == 1 and call("HGET", K.seat_lanes, kind .. members[1])
  local raw, class = lane and call("HGET", K.lanes, lane), call("HGET", K.classes, kind)
  if
    not raw or bit.band(byte(raw, LANE.flags), KEYED + LIMITED + MULTI) ~= 0 or not class
    or call("EXISTS", K.ready_aside .. lane) == 1
  then
    return nil
  end
  class = unpack_(class)
  local found = call("HMGET", K.gates, "all", "queue:" .. class[CLASS.queue], "task:" .. class[CLASS.scope])
  if found[1] or found[2] or found[3] then
    return nil
  end
  return lane, raw, members[1], class
end

-- The first jobs of a lane, if each is plain, ready, in its place and of one policy: their ids, records and policy.
local function plain_front(lane, items)
  local ids = {}
  for i, item in ipairs(items) do
    ids[i] = sub(item, ITEM.id)
  end
  local raws, runs = base.mget(K.jobs, ids), base.mget(K.running, ids)
  local policy = raws[1] and sub(raws[1], RECORD.policy)
  local belongs = policy and lane .. policy
  for i, raw in ipairs(raws) do
    if not raw or runs[i] or #raw < RECORD.size then
      return nil
    end
    local version, state, high, low, _, _, lost_high, lost_low = byte(raw, RECORD.version_to_lost)
    if
      version ~= 1 or state ~= READY or lost_high + lost_low > 0
      or bit.band(256 * high + low, BODY + NOTES + INPUTS + RARE) ~= 0 -- there is more to hand out than the record
      or sub(raw, RECORD.lane_to_policy) ~= belongs or sub(raw, RECORD.due) ~= sub(items[i], ITEM.due)
    then
      return nil
    end
  end
  return ids, raws, policy
end

-- -- writing

-- Nothing was found: the session sleeps until work of what it asked for comes, or until `timer`.
local function sleep(session, sig, slots, mailbox, timer, asked, token)
  if asked and asked ~= sig then
    call("ZREM", K.sleepers .. asked, session)
  end
  call("HSET", K.session .. session, "idle", "1", "asked", sig, "slots", slots, "mailbox", mailbox, "takes", ARGV[11],
    "takes_urgent", ARGV[12], "slept", token or 0)
  call("ZADD", K.sleepers .. sig, slots > 0 and 0 or 1, session)
  if timer then
    call("HSET", K.sleeps_until, session, timer)
  else
    call("HDEL", K.sleeps_until, session)
  end
end

-- A seat less for a member or ring, whose turn is `raw`.
local function stand(id, raw)
  local turn, left, count = struct.unpack(TURN.format, raw)
  if count > 1 then
    call("HSET", K.turns, id, struct.pack(TURN.format, turn, left, count - 1))
  else
    call("HDEL", K.turns, id)
  end
end

-- The lane is empty: it is idle, and its class is not active any more.
local function rest(entry, lane, member, queue, both)
  local kind, ring = sub(entry, ACTIVE.kind), sub(entry, ACTIVE.ring)
  call("HDEL", K.lane_states, lane)
  call("ZREM", K.oldest_ready .. queue, lane)
  call("ZREM", K.seats .. kind .. char(byte(entry, ACTIVE.prio)), member)
  call("HDEL", K.seat_lanes, kind .. member)
  call("ZREM", K.active_classes, entry)
  stand(member, both[1])
  stand(ring, both[2])
end

-- Write the lease of these jobs; the rows of the answer.
local function lease(session, ids, raws, token, now, deadline)
  local text, hold = base.text(token), struct.pack(HOLD.format, token, now)
  local running, rows = {}, {}
  for i, id in ipairs(ids) do
    running[2 * i - 1], running[2 * i] = id, hold
    local n = 4 * i
    rows[n - 3], rows[n - 2], rows[n - 1], rows[n] = raws[i], id, text, ""
  end
  base.chunked("HSET", K.running, running)
  call("HSET", K.leases, text, pack({ session, #ids }))
  call("SET", K.lease_jobs .. text, table.concat(ids))
  call("SADD", K.session_leases .. session, text)
  if deadline then
    call("ZADD", K.hard_deadlines, base.text(deadline), text)
  end
  return rows
end

-- Count jobs that were ready and run now.
local function count_jobs(raw, class, count)
  local field = class[CLASS.queue] .. "\0" .. class[CLASS.task] .. "\0"
  if call("HINCRBY", K.counters, field .. READY, -count) == 0 then
    call("HDEL", K.counters, field .. READY)
  end
  call("HINCRBY", K.counters, field .. RUNNING, count)
  if HAS(byte(raw, LANE.flags), TENANT) then
    local crowd = class[CLASS.queue] .. "\0" .. unpack_(sub(raw, LANE.definition))[DEFINITION.tenant]
    if call("HINCRBY", K.waiting_by_tenant, crowd, -count) <= 0 then
      call("HDEL", K.waiting_by_tenant, crowd)
    end
  end
end

-- -- the verb

-- Take the first jobs of the one lane that there is: the rows of the answer, and the token; nil when the full path must.
local function take_jobs(session, entry, limit, now, last_token, shift)
  local lane, raw, member, class = only_lane(sub(entry, ACTIVE.kind), byte(entry, ACTIVE.prio))
  local items = lane and call("LRANGE", K.ready .. lane, 0, limit - 1) or {}
  if #items == 0 then
    return nil
  end
  local ids, raws, policy = plain_front(lane, items)
  local both = call("HMGET", K.turns, member, sub(entry, ACTIVE.ring))
  if not ids or not both[1] or not both[2] then
    return nil
  end
  call("LTRIM", K.ready .. lane, #items, -1)
  if #items < limit then
    rest(entry, lane, member, class[CLASS.queue], both)
  end
  local token = max(tonumber(last_token or 0) + 1, now * 2048)
  local hard = tonumber(string.match(call("HGET", K.policy_limits, policy) or "0 -", " (.+)$"))
  local rows = lease(session, ids, raws, token, now, hard and now + hard + SLACK_MS - tonumber(shift or 0))
  count_jobs(raw, class, #items)
  return rows, base.text(token)
end

-- The answer of the verb; nil when the full path must do it.
local function short()
  local session, sig, _, limit, slots, seq, claimer, mailbox, options = unpack(ARGV, 2, 10)
  limit, slots, options = tonumber(limit), tonumber(slots), unpack_(options)
  local least, takes_all = options.least_urgent or LEAST, not options.least_urgent
  local layout, token, swept, shift, recount =
    unpack(call("HMGET", K.meta, "layout", "token", "swept", "shift", "recount"))
  local now, timer = base.now(token, swept), call("ZRANGE", K.timers, 0, 0, "WITHSCORES")[2]
  local deadline, idle, asked, known_mailbox = unpack(call("HMGET", K.session .. session, "deadline", "idle", "asked", "mailbox"))
  local receipt = call("HGET", K.receipts .. session, claimer)
  if
    tonumber(layout) ~= base.LAYOUT or tonumber(recount or 0) > now or limit < 1
    or not keeps(options) or tonumber(deadline or 0) <= now or (timer and tonumber(timer) <= now)
    or (receipt and string.match(receipt, "^%d+") == seq) or call("EXISTS", K.graph_todo) == 1
    or call("HEXISTS", K.signatures, sig) == 0
  then
    return nil
  end
  local entry = only_class(sig, least)
  if entry == false then
    call("ZREM", K.timers, "") -- see tx.insist
    if takes_all then
      sleep(session, sig, slots, mailbox, timer, idle and asked, token)
    elseif known_mailbox ~= mailbox then
      call("HSET", K.session .. session, "mailbox", mailbox)
    end
    return { base.text(now), timer or "", 0, {} }
  end
  local rows, text
  if entry then
    rows, text = take_jobs(session, entry, min(limit, MAX_CLAIM), now, token, shift)
  end
  if not rows then
    return nil
  end
  call("HSET", K.receipts .. session, claimer, seq .. " " .. text)
  call("PEXPIRE", K.receipts .. session, 3600000)
  if idle and takes_all then
    call("ZREM", K.sleepers .. asked, session)
    call("HDEL", K.session .. session, "idle")
  end
  if known_mailbox ~= mailbox then
    call("HSET", K.session .. session, "mailbox", mailbox)
  end
  call("HSET", K.meta, "token", text)
  return { base.text(now), "", 0, rows }
end

local answer = short()
if answer then
  return answer
end
