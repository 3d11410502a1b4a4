-- The count of a repair: all jobs are counted in order of arrival, a few at a time, and at the end of that it is known what
-- the counters must say.

repair_count = {}

local tell = repair.tell
local NOWHERE = string.rep("\0", 8) -- the lane of jobs that cannot be read

-- What is left of a job whose record is gone goes.
local function vanish(id, seq)
  call("HDEL", K.running, id)
  find_ledger.wipe({ seq })
  graph.leave_parents(id)
  call("DEL", K.parents .. id, K.notes .. id, K.attempts .. id, K.watchers .. id)
  call("HDEL", K.large_args, id)
  call("HDEL", K.results, id)
  call("ZREM", K.blocked, id)
  graph.removed(id)
end

-- Count the job that arrived under this number; true when its record is missing.
local function count_one(id, seq)
  local place, number = tx.place(id)
  if place and number == seq then
    tx.recounted(place, 1)
  elseif call("HEXISTS", K.jobs, id) == 0 then
    return true
  elseif place and tell("ledger", id) then
    find_ledger.wipe({ seq }) -- it has another number
  elseif not place and not repair.mend then -- it cannot be read, and would be a dead letter if it has not ended
    local state = byte(call("HGET", K.jobs, id), RECORD.state)
    tx.recounted(NOWHERE .. char((state == SUCCEEDED or state == CANCELLED) and state or DEAD), 1)
  end
  return false
end

-- Count the jobs of some further chunks of the ledger; true when all are counted.
function repair_count.count(chunks, until_ms)
  local from = (tx.meta("counted") or 0) + 1
  local last, missing = min((floor(from / SLOTS) + chunks) * SLOTS - 1, tx.meta("seq") or 0), {}
  for seq = from, last do
    local id = find_ledger.at(seq)
    if id and count_one(id, seq) then
      missing[#missing + 1] = { id = id, seq = seq }
    end
  end
  tx.set_meta("counted", max(from - 1, last))
  tx.set_meta("recount", until_ms)
  for _, each in ipairs(missing) do
    if tell("vanished", each.id) then
      vanish(each.id, each.seq)
    end
  end
  for number = floor(from / SLOTS), floor(last / SLOTS) do
    if not find_ledger.counts(number, repair.mend) then
      tell("chunk")
    end
  end
  return last >= (tx.meta("seq") or 0)
end

-- Add to a number under a name.
local function add(sums, name, count)
  sums[name] = (sums[name] or 0) + count
end

-- Hashes of numbers that differ: {name -> {found, right}}.
local function differences(found, right)
  local wrong = {}
  for name, count in pairs(right) do
    if (found[name] or 0) ~= count then
      wrong[name] = { found[name] or 0, count }
    end
  end
  for name, count in pairs(found) do
    if not right[name] and count ~= 0 then
      wrong[name] = { count, 0 }
    end
  end
  return wrong
end

local function numbers(key)
  local all, found = call("HGETALL", key), {}
  for i = 1, #all, 2 do
    if all[i] ~= "" then
      found[all[i]] = tonumber(all[i + 1])
    end
  end
  return found
end

local function put(key, wrong)
  for name, each in pairs(wrong) do
    if each[2] == 0 then
      call("HDEL", key, name)
    else
      call("HSET", key, name, base.text(each[2]))
    end
  end
end

local function put_causes(right)
  local all, found = call("HGETALL", K.causes), {}
  for i = 1, #all, 2 do
    local ok, entry = pcall(unpack_, all[i + 1])
    found[all[i]] = ok and type(entry) == "table" and tonumber(entry[CAUSE.count]) or -1
  end
  for name, each in pairs(differences(found, right)) do
    if tell("cause") then
      local known = each[1] > 0 and unpack_(call("HGET", K.causes, name))
      local cause = string.match(name, "^(%Z*)")
      local entry = known or { 0, cause, "", tx.now, tx.now, "" }
      entry[CAUSE.count] = each[2]
      if each[2] > 0 then
        call("HSET", K.causes, name, pack(entry))
      else
        call("HDEL", K.causes, name)
      end
    end
  end
end

-- A total that must be changed so that enqueued = live + dead + succeeded + cancelled + discarded: {what, found, right}, or
-- false. Jobs that have vanished count as discarded; where more are known than were enqueued, they were enqueued.
local function balance(sums)
  local ever = {}
  for what = ENQUEUED, DISCARDED do
    ever[what] = tonumber(call("HGET", K.counters, "\0\0" .. what) or 0)
  end
  local missing = ever[ENQUEUED] - ever[EVER_SUCCEEDED] - ever[EVER_CANCELLED] - ever[DISCARDED]
  for state, count in ipairs(sums) do
    missing = missing - (state - 1 ~= SUCCEEDED and state - 1 ~= CANCELLED and count or 0)
  end
  if missing == 0 then
    return false
  end
  local what = missing > 0 and DISCARDED or ENQUEUED
  if repair.mend then
    call("HINCRBY", K.counters, "\0\0" .. what, math.abs(missing))
  end
  return { what, ever[what], ever[what] + math.abs(missing) }
end

-- What the counters must say, by what was counted.
local function counted()
  local all, ids = call("HGETALL", K.recount), {}
  local right = { jobs = {}, counts = {}, crowds = {}, causes = {}, kept = {}, sums = { 0, 0, 0, 0, 0, 0, 0 } }
  for i = 1, #all, 2 do
    ids[#ids + 1] = sub(all[i], COUNTED.lane)
  end
  lanes.load(ids)
  for i = 1, #all, 2 do
    local lane_id, state, count = sub(all[i], COUNTED.lane), byte(all[i], COUNTED.state), tonumber(all[i + 1])
    local class = lanes.whole(lane_id) and tx.class(lanes.get(lane_id).kind)
    right.sums[state + 1] = right.sums[state + 1] + count
    if class then
      add(right.jobs, lane_id, count)
      add(right.counts, class.field .. state, count)
    end
    local crowd = class and state <= READY and lanes.field(lanes.get(lane_id))
    if crowd then
      add(right.crowds, crowd, count)
    elseif class and state == SUCCEEDED then
      add(right.kept, class.queue, count)
    elseif class and state == DEAD then
      add(right.causes, sub(all[i], COUNTED.cause) .. "\0" .. class.queue .. "\0" .. class.task, count)
    end
  end
  return right
end

-- Compare the counters with what was counted, and set them. The answer: {field, found, right} of counters, those of tenants
-- with an empty state, and what balance says.
function repair_count.compare()
  local right, found, now = counted(), {}, numbers(K.counters)
  for name in pairs(now) do
    now[name] = not base.begins(name, "\0\0") and now[name] or nil
  end
  local wrong, wrong_crowds = differences(now, right.counts), differences(numbers(K.waiting_by_tenant), right.crowds)
  local wrong_lanes, wrong_kept = differences(numbers(K.lane_jobs), right.jobs), differences(numbers(K.kept), right.kept)
  for name, each in pairs(wrong) do
    found[#found + 1] = { name, each[1], each[2] }
  end
  for name, each in pairs(wrong_crowds) do
    found[#found + 1] = { name .. "\0", each[1], each[2] }
  end
  for lane_id, each in pairs(wrong_lanes) do
    if tell("lane") then
      call(each[2] > 0 and "ZREM" or "ZADD", K.empty_lanes, unpack(each[2] > 0 and { lane_id } or { 0, lane_id }))
    end
  end
  for _ in pairs(wrong_kept) do
    tell("kept")
  end
  put_causes(right.causes)
  if repair.mend then
    put(K.counters, wrong)
    put(K.waiting_by_tenant, wrong_crowds)
    put(K.lane_jobs, wrong_lanes)
    put(K.kept, wrong_kept)
  end
  return found, balance(right.sums)
end
