-- Removes finished jobs, every trace of them but their ids: an enqueue repeated soon after is still the same job.

erasing = {}

local REMEMBER = 600000 -- ms
local SPAN = 64 -- ms of ids that share a bucket
local ENTRY = 17 -- id and state
local MOST_IDS, MOST_BUCKETS = 4194304, 131072 -- about 100 MB: beyond it the oldest are forgotten early
local STEP = 64 -- buckets that one step forgets

-- -- the memory of ids

local function bucket_of(id)
  return base.text(floor(base.n6(id, 1) / SPAN))
end

local function find_each(bucket, ids, found)
  for _, id in ipairs(ids) do
    local at = string.find(bucket, id, 1, true)
    while at and at % ENTRY ~= 1 do
      at = string.find(bucket, id, at + 1, true)
    end
    if at then
      found[id] = byte(bucket, at + 16)
    end
  end
end

local function find_all(bucket, ids, found)
  local asked = {}
  for _, id in ipairs(ids) do
    asked[id] = true
  end
  for at = 1, #bucket, ENTRY do
    local id = sub(bucket, at, at + 15)
    if asked[id] then
      found[id] = byte(bucket, at + 16)
    end
  end
end

-- Which of `ids` were jobs that are erased by now: {id -> the state they ended in}.
function erasing.remembered(ids)
  local found, buckets = {}, {}
  if call("EXISTS", P .. "GL") == 0 then
    return found
  end
  for _, id in ipairs(ids) do
    local name = bucket_of(id)
    local heap = buckets[name] or {}
    heap[#heap + 1], buckets[name] = id, heap
  end
  for name, heap in pairs(buckets) do
    local bucket = call("GET", P .. "G:" .. name)
    if bucket then
      (#heap > 8 and find_all or find_each)(bucket, heap, found)
    end
  end
  return found
end

local function forget_bucket(name)
  local count = tonumber(call("HGET", P .. "GN", name) or 0)
  call("DEL", P .. "G:" .. name)
  call("HDEL", P .. "GN", name)
  call("HINCRBY", P .. "GN", "#", -count)
end

-- Remember ids, by bucket, until `over`.
local function remember(buckets, over)
  local all = 0
  for name, entries in pairs(buckets) do
    local key = P .. "G:" .. name
    call("APPEND", key, table.concat(entries))
    call("PEXPIRE", key, REMEMBER + 60000) -- hygiene: GL says when they may go
    call("ZADD", P .. "GL", "GT", base.text(over), name)
    call("HINCRBY", P .. "GN", name, #entries)
    all = call("HINCRBY", P .. "GN", "#", #entries)
  end
  for _ = 1, STEP do
    if all <= MOST_IDS and call("ZCARD", P .. "GL") <= MOST_BUCKETS then
      return
    end
    forget_bucket(call("ZPOPMIN", P .. "GL")[1])
    all = tonumber(call("HGET", P .. "GN", "#"))
  end
end

-- Forget ids whose time is over; how many buckets went.
function erasing.forget(limit)
  local names = call("ZRANGEBYSCORE", P .. "GL", "-inf", base.text(tx.now), "LIMIT", 0, min(limit, STEP))
  for _, name in ipairs(names) do
    forget_bucket(name)
  end
  base.chunked("ZREM", P .. "GL", names)
  if #names > 0 and call("EXISTS", P .. "GL") == 0 then
    call("DEL", P .. "GN")
  end
  return #names
end

-- -- jobs

-- A child is gone: no parent has it in its list any more.
local function leave_parents(id)
  local all = call("HGETALL", P .. "d:" .. id)
  for i = 1, #all, 2 do
    if sub(all[i + 1], 1, 1) == "o" then
      call("ZREM", P .. "c:" .. all[i], id)
    end
  end
end

-- Remove what lies beside the record; false when the job must stay for now.
local function remove_beside(r)
  local flags, id = r.flags, r.id
  if record.has(flags, KIDS) and not graph.orphan(r) then
    return false
  end
  if record.has(flags, BODY) then
    call("HDEL", P .. "B", id)
  end
  if record.has(flags, RESULT) then
    call("HDEL", P .. "res", id)
  end
  if record.has(flags, INPUTS) then
    if r.state == CANCELLED then -- one that ran had no open dependency left
      leave_parents(id)
    end
    call("DEL", P .. "d:" .. id)
  end
  if record.has(flags, NOTES) or record.has(flags, ATTEMPTS) or record.has(flags, WATCHED) then
    call("DEL", P .. "no:" .. id, P .. "at:" .. id, P .. "wa:" .. id)
  end
  if record.has(flags, EXTRA) then
    unique.let_go(r)
  end
  return true
end

-- Erase jobs of one queue that ended in `state`, named by their entries in its index; how many.
-- Their ids are remembered from `since` on, or from when each of them ended.
function erasing.items(queue, state, items, since)
  local ids, gone, entries, seqs, lane_jobs = {}, {}, {}, {}, {}
  local buckets, over = {}, 0
  for i, item in ipairs(items) do
    ids[i] = sub(item, 7)
  end
  for i, raw in ipairs(base.mget(P .. "J", ids)) do
    local id = ids[i]
    local readable = raw and #raw >= 56 and byte(raw, 2) == state
    local plain = readable and byte(raw, 3) == 0 and byte(raw, 4) == 0
    if not readable then
      entries[#entries + 1] = items[i] -- nothing stands behind it
    elseif plain or remove_beside(record.open(id, raw)) then
      gone[#gone + 1], entries[#entries + 1] = id, items[i]
      seqs[#seqs + 1] = base.n6(raw, 11)
      local lane_id, ended = sub(raw, 29, 36), since or base.n6(raw, 51)
      lane_jobs[lane_id] = (lane_jobs[lane_id] or 0) + 1
      if ended + REMEMBER > tx.now then
        local name = bucket_of(id)
        local heap = buckets[name] or {}
        heap[#heap + 1], buckets[name] = id .. char(state), heap
        over = max(over, ended + REMEMBER)
      end
    end
  end
  base.chunked("HDEL", P .. "J", gone)
  base.chunked("ZREM", P .. "F:" .. state .. queue, entries)
  ledger.wipe(seqs)
  remember(buckets, over)
  for lane_id, count in pairs(lane_jobs) do
    tx.count_lane(lane_id, -count)
    tx.move(tx.class(lanes.get(lane_id).kind), state, nil, count)
  end
  return #entries
end

-- Remove a dead job for good; how many went (1 or 0).
function erasing.dead(id)
  local r = record.load(id)
  if not r or r.state ~= DEAD then
    return 0
  end
  local item = base.b6(r.finished) .. id
  ending.unbury(r)
  tx.tally(DISCARDED)
  return erasing.items(tx.class(lanes.get(r.lane).kind).queue, DEAD, { item }, tx.now)
end

-- Keep no more than `keep` jobs of a queue that ended in `state`; at most `most` go now.
function erasing.trim(queue, state, keep, most)
  local key = P .. "F:" .. state .. queue
  local surplus = min(call("ZCARD", key) - keep, most)
  return surplus > 0 and erasing.items(queue, state, call("ZRANGE", key, 0, surplus - 1)) or 0
end

-- Entries of at most `most` jobs of a queue that ended in `state` at `until_ms` or before.
function erasing.outlived(queue, state, until_ms, most)
  if until_ms < 0 or most <= 0 then
    return {}
  end
  local key = P .. "F:" .. state .. queue
  return call("ZRANGEBYLEX", key, "-", "(" .. base.b6(until_ms + 1), "LIMIT", 0, most)
end
