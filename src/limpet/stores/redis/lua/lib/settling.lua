-- Gathers what became of running jobs whose tokens were compared, and writes it at the end: by far the most are first
-- tries that simply worked, and those are all done here.

settling = {}

local TOGETHER = 64 -- ids in one entry of the finished index

-- What one settlement has gathered.
function settling.new(session)
  return {
    session = session, instant = base.b6(tx.now),
    leases = {}, -- token (7 bytes) -> {n = jobs that left it}
    -- First tries that simply worked: ids, new records, ids by lane, and what many of them have in common.
    count = 0, ids = {}, stored = {}, clean = {}, starts = {}, running = "", times = "", lease = false, lane = "",
    of_lane = false,
    -- All others, see outcome.
    vanished = {}, records = {}, filed = {}, ready = {}, scheduled = {}, suspended = {}, attempts = {}, buried = {}, ended = {},
    results = {}, -- id and result in turn
    returned = {}, -- gate -> what came back to its rate, by when it was charged
    succeeded = {}, -- queue -> ids
    kept = {}, -- queue -> succeeded jobs that it keeps now
  }
end

-- One job more has left its lease.
function settling.leave(s, running)
  local lease = base.heap(s.leases, sub(running, 1, 7))
  lease.n = (lease.n or 0) + 1
  return lease
end

-- A first try that simply worked: no more than a few bytes of its record change. False when there is more to do: it
-- failed or was lost before, is limited, watched, waited for, has something to forget, or cannot be read.
function settling.clean(s, id, running, raw, result)
  if #raw < 56 then
    return false
  end
  local version, state, high, low, tried, tried_, lost, lost_ = byte(raw, 1, 8)
  if
    version ~= 1 or state ~= READY or #running ~= 13 or tried + tried_ + lost + lost_ > 0 or low % 8 > 0
    or low % 128 >= RARE
  then
    return false
  end
  local lane = sub(raw, 29, 36)
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
    s.running, s.times, s.lease = running, sub(running, 8, 13) .. s.instant, settling.leave(s, running)
  else
    s.lease.n = s.lease.n + 1
  end
  local start = s.starts[flags]
  if not start then
    start = struct.pack(">BBHH", 1, SUCCEEDED, flags, 1)
    s.starts[flags] = start
  end
  local of_lane = s.of_lane
  of_lane[#of_lane + 1] = id
  s.count = n + 1
  s.ids[n + 1] = id
  s.stored[2 * n + 1], s.stored[2 * n + 2] = id, start .. sub(raw, 7, 44) .. s.times .. sub(raw, 57)
  return true
end

-- -- writing

local function write_clean(s)
  base.chunked("HDEL", P .. "run", s.ids)
  base.chunked("HSET", P .. "J", s.stored)
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
    for at = 1, #ids, TOGETHER do
      local member = s.instant .. table.concat(ids, "", at, min(at + TOGETHER - 1, #ids))
      call("ZADD", P .. "F:" .. SUCCEEDED .. queue, "0", member)
    end
    s.kept[queue] = call("HINCRBY", P .. "fc", queue, #ids)
  end
end

-- The stored lease: {session, jobs left}; nil when its bytes make no sense.
function settling.lease(raw)
  local ok, lease = pcall(unpack_, raw)
  return ok and type(lease) == "table" and type(lease[1]) == "string" and type(lease[2]) == "number" and lease or nil
end

-- Jobs have left their leases; one that has given up its last is over.
local function write_leases(s)
  for name, gone in pairs(s.leases) do
    local token = base.text((struct.unpack(">I7", name)))
    local raw = call("HGET", P .. "le", token)
    local lease = raw and settling.lease(raw)
    if lease and lease[2] > gone.n then
      call("HSET", P .. "le", token, pack({ lease[1], lease[2] - gone.n }))
    elseif lease then
      settling.put_lease(token, lease[1], 0)
    end
  end
end

-- Say again how many jobs are left of a lease; without any it is over.
function settling.put_lease(token, session, left)
  if left > 0 then
    call("HSET", P .. "le", token, pack({ session, left }))
    call("SADD", P .. "st:" .. session, token)
  else
    call("HDEL", P .. "le", token)
    call("DEL", P .. "b:" .. token)
    call("ZREM", P .. "H", token)
    call("SREM", P .. "st:" .. session, token)
  end
end

-- Write what was gathered; the first write only removes. Dependents are moved last, when every parent's record is true.
function settling.write(s)
  if s.count > 0 then
    write_clean(s)
  end
  if #s.records + #s.vanished > 0 then
    outcome.write(s)
  end
  base.chunked("HSET", P .. "res", s.results)
  write_index(s)
  write_leases(s)
end

-- Write a note of a running job while its token holds; false when it does not.
function settling.save(id, token, kind, name, body)
  local running, raw = call("HGET", P .. "run", id), call("HGET", P .. "J", id)
  if not running or not raw or record.hold(running) ~= token then
    tx.tally(STALE)
    return false
  end
  if #raw >= 56 and byte(raw, 4) % (NOTES * 2) < NOTES then
    call("HSET", P .. "J", id, sub(raw, 1, 3) .. char(byte(raw, 4) + NOTES) .. sub(raw, 5))
  end
  call("HSET", P .. "no:" .. id, kind .. "\0" .. name, body)
  return true
end
