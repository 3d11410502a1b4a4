-- Remembers which job holds an idempotency key; whether it still holds is read off the job itself.
-- A key is scope of the task \0 key; its entry (HOLDER) has a bit for each state, and a window of 0 is none. Jobs that held it before,
-- and are stored, are former_holders by their arrival, those of all tasks together.

unique = {}

local function entry(key)
  local raw = call("HGET", K.unique_keys, key)
  if raw and #raw == HOLDER.size then
    return struct.unpack(HOLDER.format, raw)
  end
end

local function put(key, id, states, over)
  call("HSET", K.unique_keys, key, struct.pack(HOLDER.format, id, states, over))
end

-- Where the former holders of a key are.
local function former(key)
  return K.former_holders .. sub(key, string.find(key, "\0", 1, true) + 1)
end

-- Another job takes the key over: a search for the key still finds this one.
local function supersede(key, id)
  local raw = call("HGET", K.jobs, id)
  if raw and #raw >= RECORD.size then
    call("ZADD", former(key), base.text(base.n6(raw, RECORD.seq.at)), id)
  end
end

-- The key that a job was enqueued with, or nil, and the states in which it is held.
local function key_of(r, extra)
  local key = extra[PACKED.unique]
  if key then
    return tx.class(lanes.get(r.lane).kind).scope .. "\0" .. key, extra[PACKED.unique_states] or 0
  end
end

-- The key is this job's from now on; a window of -1 is none.
function unique.hold(key, id, states, window)
  local before = entry(key)
  if before and before ~= id then
    supersede(key, before)
  end
  put(key, id, states, window >= 0 and tx.now + window or 0)
  call("ZREM", K.unique_windows, key) -- the window of a job that is gone, and over by now
end

-- The job that holds a key now: it is in one of the key's states, or its window is not over.
function unique.holder(key)
  local id, states, over = entry(key)
  if not id then
    return nil
  end
  local r = record.load(id)
  if r == nil then -- erased: only the window can hold
    return over > tx.now and id or nil
  end
  local state = r and record.state(r) or DEAD
  if record.has(states, 2 ^ state) or (over > tx.now and state ~= DEAD and state ~= CANCELLED) then
    return id
  end
  return nil
end

-- A finished job is to live again: its key is its own again; false when another job holds it by now.
function unique.reclaim(r)
  local key, states = key_of(r, record.extra(r))
  if not key then
    return true
  end
  local holder = unique.holder(key)
  if holder and holder ~= r.id then
    return false
  end
  if entry(key) ~= r.id then -- another job had it in between: its states and window are not this one's
    unique.hold(key, r.id, states, -1)
    call("ZREM", former(key), r.id)
  end
  return true
end

-- True when the key of a stored job knows it: as its holder, or as one that held it before. With `mend` it does then.
function unique.knows(r, extra, mend)
  local key, states = key_of(r, extra)
  local id = key and entry(key)
  if not key or id == r.id or call("ZSCORE", former(key), r.id) then
    return true
  end
  if mend and id then
    supersede(key, r.id)
  elseif mend then
    unique.hold(key, r.id, states, -1)
  end
  return false
end

-- True when a stored job held the key `bare` before, and does not now.
function unique.is_former(id, bare)
  local r = record.load(id)
  local extra = r and record.extra(r) or {}
  return extra[PACKED.unique] == bare and entry((key_of(r, extra))) ~= id
end

-- A job is erased: its key goes with it, once its window is over.
function unique.let_go(r, extra)
  local key = key_of(r, extra)
  if not key then
    return
  end
  local id, _, over = entry(key)
  if id ~= r.id then
    call("ZREM", former(key), r.id)
    return
  end
  if over > tx.now then
    put(key, id, 0, over)
    call("ZADD", K.unique_windows, base.text(over), key)
  else
    call("HDEL", K.unique_keys, key)
  end
end

-- Forget at most `limit` keys whose window outlived their job and is over now; how many.
function unique.forget(limit)
  local keys = call("ZRANGEBYSCORE", K.unique_windows, "-inf", base.text(tx.now), "LIMIT", 0, limit)
  base.chunked("HDEL", K.unique_keys, keys)
  base.chunked("ZREM", K.unique_windows, keys)
  return #keys
end
