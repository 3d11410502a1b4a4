-- Removes finished jobs, every trace of them but their ids: an enqueue repeated soon after is still the same job.
-- Jobs that succeeded together share one member of the index of finished jobs.

prune = {}

local REMEMBER = 600000 -- ms
local MOST_IDS, MOST_BUCKETS = 4194304, 131072 -- about 100 MB: beyond it the oldest are forgotten early
local FULL = 65536 -- bytes of a bucket: further ids lie in parts beside it, by a hash
local PARTS = 1024
local STEP = 64 -- buckets that one step forgets, members of up to 64 jobs each that it reads
local SINGLES = 1000 -- members of one job each that it reads

-- -- the memory of ids: buckets of those that were made within 256 ms, by their first five bytes. A program with ids
-- of another kind may fill a bucket: it has parts then, which go with it.

local function part_of(name, id)
  return name .. string.format("%03x", tonumber(sub(redis.sha1hex(id), 1, 3), 16) % PARTS)
end

local function find_each(bucket, ids, found)
  for _, id in ipairs(ids) do
    local at = string.find(bucket, id, 1, true)
    while at and at % ERASED.size ~= 1 do -- across two entries
      at = string.find(bucket, id, at + 1, true)
    end
    if at then
      found[id] = byte(bucket, at + ID_BYTES)
    end
  end
end

local function find_all(bucket, ids, found)
  local asked = {}
  for _, id in ipairs(ids) do
    asked[id] = true
  end
  for at = 1, #bucket, ERASED.size do
    local id = sub(bucket, at, at + ID_BYTES - 1)
    if asked[id] then
      found[id] = byte(bucket, at + ID_BYTES)
    end
  end
end

local function find(name, ids, found)
  local bucket = call("GET", K.erased .. name)
  if not bucket then
    return
  end
  (#ids > 8 and find_all or find_each)(bucket, ids, found)
  if #name == BUCKET_BYTES and #bucket >= FULL then
    local parts = {}
    for _, id in ipairs(ids) do
      if not found[id] then
        local heap = base.heap(parts, part_of(name, id))
        heap[#heap + 1] = id
      end
    end
    for part, heap in pairs(parts) do
      find(part, heap, found)
    end
  end
end

-- Which of `ids` were jobs that are erased by now: {id -> the state they ended in}.
function prune.remembered(ids)
  local found, buckets = {}, {}
  if call("EXISTS", K.erased_until) == 0 then
    return found
  end
  for _, id in ipairs(ids) do
    local name = sub(id, 1, BUCKET_BYTES)
    local heap = buckets[name] or {}
    heap[#heap + 1], buckets[name] = id, heap
  end
  for name, heap in pairs(buckets) do
    find(name, heap, found)
  end
  return found
end

local function forget_bucket(name)
  local count = tonumber(call("HGET", K.erased_counts, name) or 0)
  if count * ERASED.size > FULL then
    local parts = {}
    for i = 1, PARTS do
      parts[i] = K.erased .. name .. string.format("%03x", i - 1)
    end
    call("DEL", unpack(parts))
  end
  call("DEL", K.erased .. name)
  call("HDEL", K.erased_counts, name)
  call("HINCRBY", K.erased_counts, "#", -count)
end

local function append(name, ids, mark)
  local key = K.erased .. name
  call("APPEND", key, table.concat(ids, mark) .. mark)
  call("PEXPIRE", key, REMEMBER + 60000) -- hygiene: GL says when they may go
end

-- Add ids to a bucket, those that it has no room for to its parts.
local function fill(name, ids, mark)
  local room = math.ceil((FULL - call("STRLEN", K.erased .. name)) / ERASED.size)
  if #ids <= room then
    return append(name, ids, mark)
  end
  local first, parts = {}, {}
  for i, id in ipairs(ids) do
    local heap = i <= room and first or base.heap(parts, part_of(name, id))
    heap[#heap + 1] = id
  end
  if #first > 0 then
    append(name, first, mark)
  else
    call("PEXPIRE", K.erased .. name, REMEMBER + 60000)
  end
  for part, heap in pairs(parts) do
    append(part, heap, mark)
  end
end

-- Remember ids of jobs that ended in `state`, by bucket, until `over`.
local function remember(buckets, state, over)
  local all, mark = 0, char(state)
  for name, ids in pairs(buckets) do
    fill(name, ids, mark)
    call("ZADD", K.erased_until, "GT", base.text(over), name)
    call("HINCRBY", K.erased_counts, name, #ids)
    all = call("HINCRBY", K.erased_counts, "#", #ids)
  end
  for _ = 1, STEP do
    if all <= MOST_IDS and (all == 0 or call("ZCARD", K.erased_until) <= MOST_BUCKETS) then
      return
    end
    forget_bucket(call("ZPOPMIN", K.erased_until)[1])
    all = tonumber(call("HGET", K.erased_counts, "#"))
  end
end

-- Forget ids whose time is over; how many buckets went.
function prune.forget(limit)
  local names = call("ZRANGEBYSCORE", K.erased_until, "-inf", base.text(tx.now), "LIMIT", 0, min(limit, STEP))
  for _, name in ipairs(names) do
    forget_bucket(name)
  end
  base.chunked("ZREM", K.erased_until, names)
  if #names > 0 and call("EXISTS", K.erased_until) == 0 then
    call("DEL", K.erased_counts)
  end
  return #names
end

-- -- jobs

-- Remove what lies beside the record and note its flow; false when the job must stay for now.
local function remove_beside(e, r)
  local flags, id = r.flags, r.id
  if HAS(flags, KIDS) and not graph.orphan(r) then
    return false
  end
  if HAS(flags, BODY) then
    call("HDEL", K.large_args, id)
  end
  if HAS(flags, RESULT) then
    call("HDEL", K.results, id)
  end
  if HAS(flags, INPUTS) then
    if r.state == CANCELLED then -- one that ran had no open dependency left
      graph.leave_parents(id)
    end
    call("UNLINK", K.parents .. id)
  end
  if bit.band(flags, NOTES + ATTEMPTS + WATCHED) ~= 0 then
    call("DEL", K.notes .. id, K.attempts .. id, K.watchers .. id)
  end
  if HAS(flags, EXTRA) then
    local extra = record.extra(r)
    local flow = extra[PACKED.flow]
    unique.let_go(r, extra)
    if flow then
      local seqs = base.heap(e.flows, flow)
      seqs[#seqs + 1] = r.seq
    end
  end
  return true
end

-- Note what becomes of jobs that are erased: their ids are remembered until `over`.
local function note(e, ids, raws, over)
  local seqs, lane_id, of_lane, name, bucket = e.seqs, nil, nil, nil, nil
  for i, id in ipairs(ids) do
    local raw = raws[i]
    e.count = e.count + 1
    e.ids[e.count], seqs[e.count] = id, base.n6(raw, RECORD.seq.at)
    if sub(raw, RECORD.lane) ~= lane_id then
      lane_id = sub(raw, RECORD.lane)
      of_lane = base.heap(e.lanes, lane_id)
    end
    of_lane.jobs = (of_lane.jobs or 0) + 1
    if over > tx.now then
      if sub(id, 1, BUCKET_BYTES) ~= name then
        name = sub(id, 1, BUCKET_BYTES)
        bucket = base.heap(e.buckets, name)
      end
      bucket[#bucket + 1] = id
    end
  end
  e.over = max(e.over, over)
end

-- Write what was noted.
local function write(e, queue, state)
  base.chunked("HDEL", K.jobs, e.ids)
  find_ledger.wipe(e.seqs)
  for flow, seqs in pairs(e.flows) do
    find_flows.leave(base.bytes(flow), seqs)
  end
  remember(e.buckets, state, e.over)
  local counts = {}
  for lane_id, class in pairs(tx.classes(e.lanes)) do
    local jobs = e.lanes[lane_id].jobs
    tx.count_lane(lane_id, -jobs)
    counts[class] = (counts[class] or 0) + jobs
  end
  for class, count in pairs(counts) do
    tx.move(class, state, nil, count)
  end
  if state == SUCCEEDED and call("HINCRBY", K.kept, queue, -e.went) <= 0 then
    call("HDEL", K.kept, queue)
  end
end

-- True when it cannot be told from these bytes what is to be erased.
local function is_spoilt(raw)
  return #raw < RECORD.size or byte(raw, RECORD.version) ~= 1 or not lanes.whole(sub(raw, RECORD.lane))
end

-- Erase a job that ended in `state`, all but its record: true when it can go, and the record, or nil when nothing stands
-- behind the entry of the index.
local function erase_one(e, id, raw, state)
  local stored, high, low = byte(raw or "", RECORD.state_to_flags)
  local plain, r = stored == state and high == 0 and low == 0, nil
  if raw and (is_spoilt(raw) or (stored == state and not plain)) then
    r = record.open(id, raw) or effect_ending.salvage(id, raw, false, { state = state })
    if r.spoilt then
      raw, stored, plain = record.close(r), state, false
    end
  end
  if not plain and stored == state and not remove_beside(e, r) then
    return false, nil
  end
  return true, stored == state and raw or nil
end

-- Erase jobs of one member of the index as long as fewer than `most` went; those that stay.
local function erase_member(e, ids, state, most, over)
  local gone, raws, kept = {}, {}, {}
  for i, raw in ipairs(base.mget(K.jobs, ids)) do
    local goes, record_left = false, nil
    if e.went < most then
      goes, record_left = erase_one(e, ids[i], raw, state)
    end
    if not goes then
      kept[#kept + 1] = ids[i]
    else
      e.went = e.went + 1
      if record_left then
        gone[#gone + 1], raws[#gone + 1] = ids[i], record_left
      end
    end
  end
  note(e, gone, raws, over)
  return kept
end

-- Erase the first `most` jobs of these members of the index of a queue's jobs that ended in `state`; how many went.
-- Their ids are remembered from `since` on, or from when each of them ended.
function prune.members(queue, state, members, most, since)
  local key = K.finished .. state .. queue
  local e = { ids = {}, count = 0, seqs = {}, flows = {}, buckets = {}, over = 0, lanes = {}, went = 0 }
  for _, member in ipairs(members) do
    if e.went >= most then
      break
    end
    local ids = base.ids(member, ENDED.ids)
    local kept = erase_member(e, ids, state, most, (since or base.n6(member, ENDED.finished.at)) + REMEMBER)
    if #kept < #ids then
      call("ZREM", key, member)
      if #kept > 0 then
        call("ZADD", key, "0", sub(member, ENDED.finished) .. table.concat(kept))
      end
    end
  end
  if e.went > 0 then
    write(e, queue, state)
  end
  return e.went
end

-- Remove a dead job for good; how many went (1 or 0).
function prune.dead(id)
  local r = record.load(id)
  if r == false and call("HEXISTS", K.running, id) == 0 and effect_ending.bury_spoilt(id) == DEAD then
    r = record.load(id)
  end
  if not r or r.state ~= DEAD then
    return 0
  end
  effect_ending.unbury(r)
  tx.tally(DISCARDED)
  return prune.members(effect_ending.class(r).queue, DEAD, { base.b6(r.finished) .. id }, 1, tx.now)
end

-- Keep no more than `keep` jobs of a queue that ended in `state`, or a few that ended together more; about `most` go now.
function prune.trim(queue, state, keep, most)
  local key = K.finished .. state .. queue
  local surplus = (state == SUCCEEDED and tonumber(call("HGET", K.kept, queue) or 0) or call("ZCARD", key)) - keep
  if surplus <= 0 or most <= 0 then
    return 0
  end
  local members, count = {}, 0
  for _, member in ipairs(call("ZRANGE", key, 0, min(surplus, most, state == SUCCEEDED and STEP or SINGLES) - 1)) do
    count = count + (#member - ENDED.size) / ID_BYTES
    if count > surplus or (count > most and #members > 0) then
      break
    end
    members[#members + 1] = member
  end
  return prune.members(queue, state, members, base.UNLIMITED)
end

-- The same for the jobs that this script has cancelled: two go for each that came.
function prune.trim_cancelled(keep)
  for queue, count in pairs(effect_ending.cancelled) do
    prune.trim(queue, CANCELLED, keep, 2 * count)
  end
end

-- Members of a queue's index of jobs that ended in `state` at `until_ms` or before, enough for `most` jobs or STEP.
function prune.outlived(queue, state, until_ms, most)
  if until_ms < 0 or most <= 0 then
    return {}
  end
  local key = K.finished .. state .. queue
  local count = state == SUCCEEDED and min(most, STEP) or most
  return call("ZRANGEBYLEX", key, "-", "(" .. base.b6(until_ms + 1), "LIMIT", 0, count)
end
