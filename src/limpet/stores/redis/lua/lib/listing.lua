-- The lists and the count of a repair. What stands in a list stands for a job, or goes; all jobs are counted in order of arrival,
-- a few at a time, and at the end of that it is known what the counters must say.

listing = {}

local tell = mending.tell
local NOWHERE = string.rep("\0", 8) -- the lane of jobs that cannot be read

local function state_of(id)
  local r = record.load(id)
  return r and record.state(r), r
end

-- Members of a sorted set that stand for no job go.
local function keep_members(key, cursor, count, is_right)
  local page = call("ZSCAN", key, cursor, "COUNT", count)
  for i = 1, #page[2], 2 do
    if not is_right(page[2][i]) and tell("listed") then
      call("ZREM", key, page[2][i])
    end
  end
  return page[1]
end

function listing.blocked(cursor, count)
  return keep_members(K.blocked, cursor, count, function(id)
    return state_of(id) == BLOCKED
  end)
end

function listing.scheduled(level, cursor, count)
  return keep_members(K.scheduled .. level, cursor, count, function(item)
    local state, r = state_of(sub(item, 13))
    return state == SCHEDULED and record.item(r) == item
  end)
end

function listing.expiring(cursor, count)
  return keep_members(K.expiring, cursor, count, function(entry)
    local state, r = state_of(sub(entry, 7))
    return state and state <= RUNNING and r.rare.e == base.n6(entry, 1)
  end)
end

-- The same for jobs that ended: those that did so together share a member.
function listing.filed(name, cursor, count)
  local key, state = K.finished .. name, tonumber(sub(name, 1, 1))
  local page = call("ZSCAN", key, cursor, "COUNT", count)
  for i = 1, #page[2], 2 do
    local member, kept = page[2][i], {}
    for at = 7, #member, 16 do
      local found, r = state_of(sub(member, at, at + 15))
      if found == state and base.b6(r.finished) == sub(member, 1, 6) and state .. ending.class(r).queue == name then
        kept[#kept + 1] = r.id
      end
    end
    if #kept * 16 + 6 < #member and tell("listed") then
      call("ZREM", key, member)
      if #kept > 0 then
        call("ZADD", key, "0", sub(member, 1, 6) .. table.concat(kept))
      end
    end
  end
  return page[1]
end

-- What a hash holds of jobs that are not stored goes.
local function keep_fields(key, cursor, count)
  local page = call("HSCAN", key, cursor, "COUNT", count)
  for i = 1, #page[2], 2 do
    if call("HEXISTS", K.jobs, page[2][i]) == 0 and tell("listed") then
      call("HDEL", key, page[2][i])
    end
  end
  return page[1]
end

function listing.results(cursor, count)
  return keep_fields(K.results, cursor, count)
end

function listing.large_args(cursor, count)
  return keep_fields(K.large_args, cursor, count)
end

-- Keys of jobs that are gone: the window of one that was erased may go on, and then it is known when it ends.
function listing.keys(cursor, count)
  local page = call("HSCAN", K.unique_keys, cursor, "COUNT", count)
  for i = 1, #page[2], 2 do
    local key, raw = page[2][i], page[2][i + 1]
    local over = #raw == 23 and base.n6(raw, 18) or 0
    if call("HEXISTS", K.jobs, sub(raw, 1, 16)) == 0 and not call("ZSCORE", K.unique_windows, key) and tell("listed") then
      if over > tx.now then
        call("ZADD", K.unique_windows, base.text(over), key)
      else
        call("HDEL", K.unique_keys, key)
      end
    end
  end
  return page[1]
end

-- Jobs that are said to have held a key before have.
function listing.former(bare, cursor, count)
  local page = call("ZSCAN", K.former_holders .. bare, cursor, "COUNT", count)
  for i = 1, #page[2], 2 do
    if not unique.is_former(page[2][i], bare) and tell("listed") then
      call("ZREM", K.former_holders .. bare, page[2][i])
    end
  end
  return page[1]
end

-- Ranges of arrivals hold jobs of their flow and no others.
local function range_of(flow, range)
  local first, last, kept, from, upto = base.n6(range, 1), base.n6(range, 7), {}, nil, nil
  local foreign = false
  for seq = first, last do
    local id = ledger.at(seq)
    local r = id and record.load(id)
    if r and r.seq == seq and record.extra(r)[4] and base.bytes(record.extra(r)[4]) == flow then
      from, upto = from or seq, seq
    elseif r and r.seq == seq then
      foreign = true
      if from then
        kept[#kept + 1] = { from, upto }
        from = nil
      end
    end
  end
  if from then
    kept[#kept + 1] = { from, upto }
  end
  return kept, foreign or not kept[1] or kept[1][1] ~= first
end

function listing.flows(cursor, count)
  local page = call("ZSCAN", K.flows, cursor, "COUNT", count)
  for i = 1, #page[2], 2 do
    local flow = page[2][i]
    local key = K.flow_ranges .. flow
    for _, range in ipairs(call("ZRANGE", key, 0, -1)) do
      local kept, wrong = range_of(flow, range)
      if wrong and tell("listed") then
        call("ZREM", key, range)
        for _, part in ipairs(kept) do
          flows.join(flow, part[1], part[2])
        end
      end
    end
    if call("EXISTS", key) == 0 and tell("listed") then
      call("ZREM", K.flows, flow)
    end
  end
  return page[1]
end

-- -- counting

-- What is left of a job whose record is gone goes.
local function vanish(id, seq)
  call("HDEL", K.running, id)
  ledger.wipe({ seq })
  graph.leave_parents(id)
  call("DEL", K.parents .. id, K.notes .. id, K.attempts .. id, K.watchers .. id)
  call("HDEL", K.large_args, id)
  call("HDEL", K.results, id)
  call("ZREM", K.blocked, id)
  graph.removed(id)
end

-- Count the jobs of some further chunks of the ledger; true when all are counted.
function listing.count(chunks, until_ms)
  local from = (tx.meta("counted") or 0) + 1
  local last, missing = min((floor(from / 64) + chunks) * 64 - 1, tx.meta("seq") or 0), {}
  for seq = from, last do
    local id = ledger.at(seq)
    local place, number = nil, nil
    if id then
      place, number = tx.place(id)
    end
    if place and number == seq then
      tx.recounted(place, 1)
    elseif id and call("HEXISTS", K.jobs, id) == 0 then
      missing[#missing + 1] = { id, seq }
    elseif id and place and tell("ledger", id) then
      ledger.wipe({ seq }) -- it has another number
    elseif id and not place and not mending.mend then -- it cannot be read, and would be a dead letter if it has not ended
      local state = byte(call("HGET", K.jobs, id), 2)
      tx.recounted(NOWHERE .. char((state == SUCCEEDED or state == CANCELLED) and state or DEAD), 1)
    end
  end
  tx.set_meta("counted", max(from - 1, last))
  tx.set_meta("recount", until_ms)
  for _, each in ipairs(missing) do
    if tell("vanished", each[1]) then
      vanish(each[1], each[2])
    end
  end
  for number = floor(from / 64), floor(last / 64) do
    if not ledger.counts(number, mending.mend) then
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
    found[all[i]] = ok and type(entry) == "table" and tonumber(entry[1]) or -1
  end
  for name, each in pairs(differences(found, right)) do
    if tell("cause") then
      local known = each[1] > 0 and unpack_(call("HGET", K.causes, name))
      local cause = string.match(name, "^(%Z*)")
      local entry = known or { 0, cause, "", tx.now, tx.now, "" }
      entry[1] = each[2]
      if each[2] > 0 then
        call("HSET", K.causes, name, pack(entry))
      else
        call("HDEL", K.causes, name)
      end
    end
  end
end

-- A total that must be changed so that enqueued = live + dead + succeeded + cancelled + discarded: {what, found, right}, or false.
-- Jobs that have vanished count as discarded; where more are known than were enqueued, they were enqueued.
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
  if mending.mend then
    call("HINCRBY", K.counters, "\0\0" .. what, math.abs(missing))
  end
  return { what, ever[what], ever[what] + math.abs(missing) }
end

-- What the counters must say, by what was counted.
local function counted()
  local all, ids = call("HGETALL", K.recount), {}
  local right = { jobs = {}, counts = {}, crowds = {}, causes = {}, kept = {}, sums = { 0, 0, 0, 0, 0, 0, 0 } }
  for i = 1, #all, 2 do
    ids[#ids + 1] = sub(all[i], 1, 8)
  end
  lanes.load(ids)
  for i = 1, #all, 2 do
    local lane_id, state, count = sub(all[i], 1, 8), byte(all[i], 9), tonumber(all[i + 1])
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
      add(right.causes, sub(all[i], 10) .. "\0" .. class.queue .. "\0" .. class.task, count)
    end
  end
  return right
end

-- Compare the counters with what was counted, and set them. The answer: {field, found, right} of counters, those of groups with an
-- empty state, and what balance says.
function listing.compare()
  local right, found, now = counted(), {}, numbers(K.counters)
  for name in pairs(now) do
    now[name] = sub(name, 1, 2) ~= "\0\0" and now[name] or nil
  end
  local wrong, wrong_crowds = differences(now, right.counts), differences(numbers(K.waiting_by_group), right.crowds)
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
  if mending.mend then
    put(K.counters, wrong)
    put(K.waiting_by_group, wrong_crowds)
    put(K.lane_jobs, wrong_lanes)
    put(K.kept, wrong_kept)
  end
  return found, balance(right.sums)
end
