-- Gathers what became of running jobs whose tokens were compared, and writes it at the end: by far the most are first
-- tries that simply worked, and those are all done here.

settle = {}

-- What one settlement has gathered.
function settle.new(session)
  return {
    session = session, instant = base.b6(tx.now),
    leases = {}, -- token (7 bytes) -> {n = jobs that left it}
    -- First tries that simply worked: ids, new records, ids by lane, and what many of them have in common.
    count = 0, ids = {}, stored = {}, clean = {}, starts = {}, running = "", times = "", lease = false, lane = "",
    of_lane = false,
    -- All others, see effect.
    vanished = {}, records = {}, filed = {}, ready = {}, scheduled = {}, suspended = {}, attempts = {}, buried = {}, ended = {},
    lanes = {}, -- id -> {id, definition, class} of lanes that jobs are moved to
    results = {}, -- id and result in turn
    returned = {}, -- gate -> what came back to its rate, by when it was charged
    succeeded = {}, -- queue -> ids
    kept = {}, -- queue -> succeeded jobs that it keeps now
  }
end

-- One job more has left its lease.
function settle.leave(s, running)
  local lease = base.heap(s.leases, sub(running, HOLD.token))
  lease.n = (lease.n or 0) + 1
  return lease
end

-- A first try that simply worked: no more than a few bytes of its record change. False when there is more to do: it
-- failed or was lost before, is limited, watched, waited for, has hooks or something to forget, or cannot be read.
function settle.clean(s, id, running, raw, result)
  if #raw < RECORD.size or tx.has_hooks(SUCCEEDED) then
    return false
  end
  local version, state, high, low, tried, tried_, lost, lost_ = byte(raw, RECORD.version_to_lost)
  if
    version ~= 1 or state ~= READY or #running ~= HOLD.size or tried + tried_ + lost + lost_ > 0
    or low % (2 * CANCELLING) > 0 or HAS(low, RARE)
  then
    return false
  end
  local lane = sub(raw, RECORD.lane)
  if lane ~= s.lane then
    if not lanes.whole(lane) then
      return false
    end
    s.lane, s.of_lane = lane, base.heap(s.clean, lane)
  end
  local flags, n = high * 256 + low, s.count
  if result then
    flags = record.with(flags, RESULT)
    s.results[#s.results + 1] = id
    s.results[#s.results + 1] = result
  end
  if running ~= s.running then
    s.running, s.times, s.lease = running, sub(running, HOLD.claimed) .. s.instant, settle.leave(s, running)
  else
    s.lease.n = s.lease.n + 1
  end
  local start = s.starts[flags]
  if not start then
    start = struct.pack(RECORD.version_to_attempt.format, 1, SUCCEEDED, flags, 1)
    s.starts[flags] = start
  end
  local of_lane = s.of_lane
  of_lane[#of_lane + 1] = id
  s.count = n + 1
  s.ids[n + 1] = id
  s.stored[2 * n + 1], s.stored[2 * n + 2] = id, start .. sub(raw, RECORD.lost_to_policy) .. s.times .. sub(raw, RECORD.rest)
  return true
end

-- -- writing

local function write_clean(s)
  base.chunked("HDEL", K.running, s.ids)
  base.chunked("HSET", K.jobs, s.stored)
  local counts, succeeded = {}, s.succeeded
  for lane_id, ids in pairs(s.clean) do
    local class = tx.class(lanes.get(lane_id).kind)
    local queue = class.queue
    local list = succeeded[queue]
    counts[class] = (counts[class] or 0) + #ids
    if list then
      local size = #list
      for i, id in ipairs(ids) do
        list[size + i] = id
      end
    else
      succeeded[queue] = ids
    end
  end
  for class, count in pairs(counts) do
    tx.move(class, RUNNING, SUCCEEDED, count)
  end
end

-- Jobs that succeeded together share entries of the finished index: one for each would cost more than all the rest.
local function write_index(s)
  for queue, ids in pairs(s.succeeded) do
    for at = 1, #ids, base.TOGETHER do
      local member = s.instant .. table.concat(ids, "", at, min(at + base.TOGETHER - 1, #ids))
      call("ZADD", K.finished .. SUCCEEDED .. queue, "0", member)
    end
    s.kept[queue] = call("HINCRBY", K.kept, queue, #ids)
  end
end

-- The stored lease: {session, jobs left}; nil when its bytes make no sense.
function settle.lease(raw)
  local ok, lease = pcall(unpack_, raw)
  local whole = ok and type(lease) == "table"
  return whole and type(lease[LEASE.session]) == "string" and type(lease[LEASE.left]) == "number" and lease or nil
end

-- Jobs have left their leases; one that has given up its last is over.
local function write_leases(s)
  for name, gone in pairs(s.leases) do
    local token = base.text((struct.unpack(HOLD.token.format, name)))
    local raw = call("HGET", K.leases, token)
    local lease = raw and settle.lease(raw)
    if lease and lease[LEASE.left] > gone.n then
      call("HSET", K.leases, token, pack({ lease[LEASE.session], lease[LEASE.left] - gone.n }))
    elseif lease then
      settle.put_lease(token, lease[LEASE.session], 0)
    end
  end
end

-- Say again how many jobs are left of a lease; without any it is over.
function settle.put_lease(token, session, left)
  if left > 0 then
    call("HSET", K.leases, token, pack({ session, left }))
    call("SADD", K.session_leases .. session, token)
  else
    call("HDEL", K.leases, token)
    call("DEL", K.lease_jobs .. token)
    call("ZREM", K.hard_deadlines, token)
    call("SREM", K.session_leases .. session, token)
  end
end

-- Write what was gathered; the first write only removes. Dependents are moved last, when every parent's record is true.
function settle.write(s)
  if s.count > 0 then
    write_clean(s)
  end
  if #s.records + #s.vanished > 0 then
    effect.write(s)
  end
  base.chunked("HSET", K.results, s.results)
  write_index(s)
  write_leases(s)
end

-- Of queues that got finished jobs, at most `keep` stay: some of the older ones go, by how many were settled.
function settle.trim(s, keep, settled)
  for queue, count in pairs(s.kept) do
    if count > keep then
      prune.trim(queue, SUCCEEDED, keep, 2 * settled)
    end
  end
  for name, entries in pairs(s.filed) do
    if tonumber(sub(name, 1, 1)) == CANCELLED then
      effect_ending.note_cancelled(sub(name, 2), #entries / 2)
    end
  end
  prune.trim_cancelled(keep)
end

-- Write a note of a running job while its token holds; false when it does not.
function settle.save(id, token, kind, name, body)
  local running, raw = call("HGET", K.running, id), call("HGET", K.jobs, id)
  if not running or not raw or record.hold(running) ~= token then
    tx.tally(STALE)
    return false
  end
  local changed = #raw >= RECORD.size and record.with_flag(raw, NOTES)
  if changed then
    call("HSET", K.jobs, id, changed)
  end
  call("HSET", K.notes .. id, kind .. "\0" .. name, body)
  return true
end
