-- Fast path of enqueue: one plain job of a known lane that rests is claimed for a session that sleeps and takes it, and its
-- record goes into the session's mailbox. It loads a module only where a gate has a record. It does all of the verb or
-- nothing; then the ordinary paths follow. A change of the ledger, of the lease or of what counts jobs must be made here too.

local LANE_ID, LANE_RAW, CLASS_RAW, POLICY, POLICY_LIMITS = 3, 4, 5, 6, 8
local ID, TAIL, META = 9, 10, 11 -- arguments of a call with one job
local LARGEST = 16384 -- bytes of arguments and what is packed beside them
local ENTRIES = 16 -- active classes, sleepers of a signature and leases of a session that this path looks at
local MOST_UNENDED = 8 -- jobs handed to one session
local SLOW_TOKENS = 1000 * 2048 -- what tokens grow by in a second: who takes longer may stand still
local SLACK_MS = 30000 -- see take

-- The job's run, if nothing about the job needs the ordinary way.
local function plain_run()
  if #ARGV ~= META or ARGV[META] ~= "" or #ARGV[TAIL] > LARGEST then
    return nil
  end
  local head = unpack_(ARGV[2])
  local run = head.runs[1]
  if head.rules[1] or head.order or head.flows or run[RUN.delay] > 0 or run[RUN.due_at] >= 0 or run[RUN.expires] >= 0 then
    return nil
  end
  return run
end

-- Sessions that sleep and can run the class: {name, signature, free}.
local function sleepers(kind)
  local found = {}
  for _, sig in ipairs(call("SMEMBERS", K.class_signatures .. kind)) do
    local row = call("ZRANGE", K.sleepers .. sig, 0, ENTRIES - 1, "WITHSCORES")
    for i = 1, #row, 2 do
      found[#found + 1] = { name = row[i], sig = sig, free = row[i + 1] == "0" }
    end
  end
  return found
end

-- True when no gate on the way of the class has a say.
local function gates_are_silent(class, now)
  local keys = { "all", "queue:" .. class[CLASS.queue], "task:" .. class[CLASS.scope] }
  for i, raw in ipairs(base.mget(K.gates, keys)) do
    if raw then
      load_modules()
      local gate = gates_math.decode(raw, keys[i])
      if gate.draining or gate.rule.depth or gate.rule.tenant_depth or gates_math.room(gate, now) < base.UNLIMITED then
        return false
      end
    end
  end
  return true
end

-- True when nothing is due that could bring other jobs, and the id is not that of a job that is or was stored.
local function is_calm(id, now)
  local timer = call("ZRANGE", K.timers, 0, 0, "WITHSCORES")[2]
  if (timer and tonumber(timer) <= now) or call("EXISTS", K.graph_todo, K.draining) > 0 then
    return false
  elseif call("EXISTS", K.erased_until) == 1 and call("EXISTS", K.erased .. sub(id, 1, BUCKET_BYTES)) == 1 then
    return false
  end
  return call("HEXISTS", K.jobs, id) == 0
end

-- Leave out those whose signature can run a class that has jobs ready; nil when there are very many such classes.
local function without_work(list)
  local entries, busy, kinds = call("ZRANGE", K.active_classes, 0, ENTRIES - 1), {}, {}
  if #entries == 0 then
    return list
  elseif #entries == ENTRIES then
    return {}
  end
  for i, entry in ipairs(entries) do
    kinds[i] = sub(entry, ACTIVE.kind)
  end
  local left = {}
  for _, each in ipairs(list) do
    if busy[each.sig] == nil then
      busy[each.sig] = false
      for _, yes in ipairs(call("SMISMEMBER", K.signature_classes .. each.sig, unpack(kinds))) do
        busy[each.sig] = busy[each.sig] or yes == 1
      end
    end
    if not busy[each.sig] then
      left[#left + 1] = each
    end
  end
  return left
end

-- Add to a session what it has got since it lay down that has not ended (`got`), what was handed to it (`unended`) and the
-- token of the oldest of that; false when it has very many leases.
local function look(each, slept)
  each.got, each.unended, each.oldest = 0, 0, nil
  local tokens = call("SMEMBERS", K.session_leases .. each.name)
  if #tokens > ENTRIES then
    return false
  end
  for i, raw in ipairs(base.mget(K.leases, tokens)) do
    local lease, token = raw and unpack_(raw), tonumber(tokens[i])
    if lease and token > slept then
      each.got = each.got + lease[LEASE.left]
    end
    if lease and lease[LEASE.handed] then
      each.unended, each.oldest = each.unended + 1, min(each.oldest or token, token)
    end
  end
  return true
end

-- The sleeper with the fewest that has a place; one that may stand still only if no other one sleeps.
local function best(list, prio, now)
  local found, others = nil, #list
  for _, each in ipairs(without_work(list)) do
    local deadline, mailbox, takes, urgent, slept, handed =
      unpack(call("HMGET", K.session .. each.name, "deadline", "mailbox", "takes", "takes_urgent", "slept", "handed"))
    local places = tonumber((prio <= base.URGENT and urgent or takes) or 0)
    if
      each.free and places > 0 and tonumber(deadline or 0) > now and (mailbox or "") ~= "" and look(each, tonumber(slept))
      and each.got < places and each.unended < MOST_UNENDED
    then
      each.slow = each.oldest ~= nil and now * 2048 - each.oldest > SLOW_TOKENS
      each.mailbox, each.number, each.awake = mailbox, tonumber(handed or 0) + 1, each.got + 1 >= tonumber(takes)
      if not found or (found.slow and not each.slow) or (found.slow == each.slow and each.unended < found.unended) then
        found = each
      end
    end
  end
  return not (found and found.slow and others > 1) and found or nil
end

-- Write the job's id into the ledger.
local function write_ledger(seq, id)
  local chunk = base.text(floor(seq / SLOTS))
  call("SETRANGE", K.ledger .. chunk, seq % SLOTS * ID_BYTES, id)
  if call("HINCRBY", K.ledger_counts, chunk, 1) == 1 then
    call("ZADD", K.ledger_chunks, chunk, chunk)
  end
end

-- Write the lease, and send the record.
local function lease(to, id, stored, token, now, shift)
  local text, number = base.text(token), base.text(to.number)
  local hard = tonumber(string.match(ARGV[POLICY_LIMITS], " (.+)$"))
  call("HSET", K.running, id, struct.pack(HOLD.format, token, now))
  call("HSET", K.leases, text, pack({ to.name, 1, number }))
  call("SET", K.lease_jobs .. text, id)
  call("SADD", K.session_leases .. to.name, text)
  if hard then
    call("ZADD", K.hard_deadlines, base.text(now + hard + SLACK_MS - shift), text)
  end
  call("HSET", K.session .. to.name, "handed", number)
  if to.awake then
    call("ZREM", K.sleepers .. to.sig, to.name)
    call("HDEL", K.session .. to.name, "idle")
  end
  local said = struct.pack(SENT.format, token, to.number, now, to.awake and 1 or 0, id, #to.name)
  call("RPUSH", K.mailbox .. to.mailbox, TELL_HANDED .. said .. to.name .. stored)
  call("PEXPIRE", K.mailbox .. to.mailbox, 60000)
end

-- The answer of the verb; nil when it must be done in the ordinary way.
local function handed()
  local run, lane, policy, id = plain_run(), ARGV[LANE_ID], ARGV[POLICY], ARGV[ID]
  local kind, _, _, prio, flags = struct.unpack(LANE.kind_to_flags.format, ARGV[LANE_RAW])
  local list = run and bit.band(flags, KEYED + LIMITED + MULTI) == 0 and sleepers(kind)
  if not list or #list == 0 then
    return nil
  end
  local class = unpack_(ARGV[CLASS_RAW])
  local layout, token, swept, seq, store_name, recount, shift =
    unpack(call("HMGET", K.meta, "layout", "token", "swept", "seq", "store", "recount", "shift"))
  local now = base.now(token, swept)
  if
    tonumber(layout) ~= base.LAYOUT or tonumber(recount or 0) > now or call("HEXISTS", K.lanes, lane) == 0
    or call("HEXISTS", K.policies, policy) == 0 or call("HEXISTS", K.lane_states, lane) == 1
    or call("SISMEMBER", K.bounded, "queue:" .. class[CLASS.queue]) == 1
    or not is_calm(id, now) or not gates_are_silent(class, now)
  then
    return nil
  end
  local to = best(list, prio, now)
  if not to then
    return nil
  end
  seq, token = tonumber(seq or 0) + 1, max(tonumber(token or 0) + 1, now * 2048)
  local now6 = base.b6(now)
  local stored = struct.pack(RECORD.version_to_held.format, 1, READY, run[RUN.flags], 0, 0, 0) .. base.b6(seq) .. now6 .. now6
    .. lane .. policy .. "\0\0\0\0\0\0\0\0\0\0\0\0" .. ARGV[TAIL]
  call("HSET", K.jobs, id, stored)
  write_ledger(seq, id)
  lease(to, id, stored, token, now, tonumber(shift or 0))
  if call("HINCRBY", K.lane_jobs, lane, 1) <= 1 then
    call("ZREM", K.empty_lanes, lane)
  end
  call("HINCRBY", K.counters, class[CLASS.queue] .. "\0" .. class[CLASS.task] .. "\0" .. RUNNING, 1)
  call("HINCRBY", K.counters, "\0\0" .. ENQUEUED, 1)
  call("HSET", K.meta, "seq", base.text(seq), "token", base.text(token))
  return { "ok", char(48 + RUNNING), {}, store_name }
end

local given = handed()
if given then
  return given
end
