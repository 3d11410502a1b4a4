-- Fast path of settle: first tries of one claim and one lane that simply worked. It loads no module and does all of the verb
-- or nothing; then the full path follows. A change of settle or of the index of finished jobs must be made here too.

-- What is to be written, if all of these jobs are held by the token, are of one lane, and are first tries that need no more
-- than a change of state: ids; records and results, each with its id in front; and the lane.
local function read_jobs(token, instant, with_result)
  local packed, ids, seen = ARGV[6], {}, {}
  for i = 1, #packed / ID_BYTES do
    local id = sub(packed, ID_BYTES * (i - 1) + 1, ID_BYTES * i)
    if seen[id] then
      return nil
    end
    ids[i], seen[id] = id, true
  end
  local runs, raws = base.mget(K.running, ids), base.mget(K.jobs, ids)
  local holds, lane = runs[1], raws[1] and sub(raws[1], RECORD.lane)
  if not holds or #holds ~= HOLD.size or sub(holds, HOLD.token) ~= token then
    return nil
  end
  local stored, results = {}, {}
  local times, extra = sub(holds, HOLD.claimed) .. instant, with_result and RESULT / 256 or 0
  for i, raw in ipairs(raws) do
    if not raw or runs[i] ~= holds or #raw < RECORD.size or sub(raw, RECORD.lane) ~= lane then
      return nil
    end
    local version, state, high, low, tried, tried_, lost, lost_ = byte(raw, RECORD.version_to_lost)
    if
      version ~= 1 or state ~= READY or tried + tried_ + lost + lost_ > 0 or low % (2 * CANCELLING) > 0 or HAS(low, RARE)
      or high % (RESULT / 128) >= RESULT / 256
    then
      return nil
    end
    local start = char(1, SUCCEEDED, high + extra, low, 0, 1)
    stored[2 * i - 1], stored[2 * i] = ids[i], start .. sub(raw, RECORD.lost_to_policy) .. times .. sub(raw, RECORD.rest)
    if with_result then
      results[2 * i - 1], results[2 * i] = ids[i], ARGV[6 + i]
    end
  end
  return ids, stored, results, lane
end

-- Write them, with all that counts them; how many the queue keeps now.
local function write(ids, stored, results, class, lease, token, instant)
  local queue, count = class[CLASS.queue], #ids
  base.chunked("HDEL", K.running, ids)
  base.chunked("HSET", K.jobs, stored)
  base.chunked("HSET", K.results, results)
  for at = 1, count, base.TOGETHER do
    local member = instant .. table.concat(ids, "", at, min(at + base.TOGETHER - 1, count))
    call("ZADD", K.finished .. SUCCEEDED .. queue, "0", member)
  end
  if lease[LEASE.left] > count then
    call("HSET", K.leases, token, pack({ lease[LEASE.session], lease[LEASE.left] - count }))
  else
    call("HDEL", K.leases, token)
    call("DEL", K.lease_jobs .. token)
    call("ZREM", K.hard_deadlines, token)
    call("SREM", K.session_leases .. lease[LEASE.session], token)
  end
  local field = queue .. "\0" .. class[CLASS.task] .. "\0"
  if call("HINCRBY", K.counters, field .. RUNNING, -count) == 0 then
    call("HDEL", K.counters, field .. RUNNING)
  end
  call("HINCRBY", K.counters, field .. SUCCEEDED, count)
  call("HINCRBY", K.counters, "\0\0" .. EVER_SUCCEEDED, count)
  return call("HINCRBY", K.kept, queue, count)
end

-- One group of successes, which was not settled before; they have no hooks; and no repair counts, which must see all changes.
local kind, token, now
if #ARGV[5] == GROUP.size then
  kind, token = struct.unpack(GROUP.kind_to_token.format, ARGV[5])
end
if kind == "s" or kind == "S" then
  local found = call("HMGET", K.meta, "layout", "token", "swept", "recount", "hooks")
  local layout, last_token, swept, recount, hooked = unpack(found)
  local receipt = call("HGET", K.receipts .. ARGV[2], "settle")
  if tonumber(layout) == base.LAYOUT and not (receipt and base.begins(receipt, ARGV[3] .. " ")) then
    now = base.now(last_token, swept)
    now = tonumber(recount or 0) <= now and not (hooked and string.find(hooked, SUCCEEDED, 1, true)) and now
  end
end
if now then
  local instant, lease_name = base.b6(now), base.text((struct.unpack(HOLD.token.format, token)))
  local ids, stored, results, lane = read_jobs(token, instant, kind == "S")
  local definition = ids and call("HGET", K.lanes, lane)
  local class = definition and call("HGET", K.classes, sub(definition, LANE.kind))
  local lease = class and call("HGET", K.leases, lease_name)
  if lease then
    class = unpack_(class)
    local kept = write(ids, stored, results, class, unpack_(lease), lease_name, instant)
    local answer, keep = string.rep(SUCCEEDED, #ids), tonumber(ARGV[4])
    call("HSET", K.receipts .. ARGV[2], "settle", ARGV[3] .. " " .. answer)
    call("PEXPIRE", K.receipts .. ARGV[2], 3600000)
    if kept > keep then
      load_modules()
      tx.begin()
      prune.trim(class[CLASS.queue], SUCCEEDED, keep, 2 * #ids)
      tx.finish()
    end
    return answer
  end
end
