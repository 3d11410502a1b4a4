-- Reads and rewrites job records: a head of fixed size, then what few jobs have, then the arguments.

record = {}

local PIECE_LENGTH = PIECE.body - 1 -- bytes before the body of a piece

-- True when `flags` holds the bit `flag`.
function record.has(flags, flag)
  return flags % (flag + flag) >= flag
end

-- The table that a part of a record stands for, which begins with its length at `at`, and where the next part begins;
-- nil when its bytes make no sense.
function record.piece(raw, at)
  local begin = at + PIECE_LENGTH
  local size = #raw >= begin - 1 and struct.unpack(PIECE.length.format, raw, at)
  if not size or #raw < begin - 1 + size then
    return nil
  end
  local ok, body, more = pcall(unpack_, sub(raw, begin, begin + size - 1))
  return ok and type(body) == "table" and more == nil and body or nil, begin + size
end

-- The bytes of such a part.
function record.packed(map)
  local body = pack(map)
  return struct.pack(PIECE.length.format, #body) .. body
end

local TYPES = {
  [ADDED.expires_ms] = "number", [ADDED.held_since_ms] = "number", [ADDED.reason] = "string", [ADDED.cause] = "string",
  [ADDED.error_type] = "string",
}
-- Characters of UTF-8 of more than one byte: Python reads no others.
local LONGER = {
  "^[\194-\223][\128-\191]", "^\224[\160-\191][\128-\191]", "^[\225-\236\238\239][\128-\191][\128-\191]",
  "^\237[\128-\159][\128-\191]", "^\240[\144-\191][\128-\191][\128-\191]",
  "^[\241-\243][\128-\191][\128-\191][\128-\191]", "^\244[\128-\143][\128-\191][\128-\191]",
}

local function is_whole(value)
  return type(value) == "number" and value >= 0 and value == floor(value)
end

local function is_text(value)
  if type(value) ~= "string" then
    return false
  end
  local at = string.find(value, "[\128-\255]")
  while at do
    local over
    for _, pattern in ipairs(LONGER) do
      local _, last = string.find(value, pattern, at)
      over = over or last
    end
    if not over then
      return false
    end
    at = string.find(value, "[\128-\255]", over + 1)
  end
  return true
end

-- True when all that scripts have added can be read, by them and by Python.
function record.is_rare(rare)
  for name, value in pairs(rare) do
    local kind = TYPES[name]
    if not is_text(name) or (kind == "string" and not is_text(value)) or (kind == "number" and not is_whole(value)) then
      return false
    end
  end
  return true
end

-- The same for the packed part.
function record.is_extra(extra)
  local flow, key, tags, costs = extra[PACKED.flow], extra[PACKED.unique], extra[PACKED.tags], extra[PACKED.costs]
  if
    not (is_whole(extra[PACKED.cost]) and is_whole(extra[PACKED.unique_states]))
    or not (is_text(extra[PACKED.meta]) and is_text(extra[PACKED.if_parent_fails]))
    or (flow ~= nil and not (type(flow) == "string" and #flow == 2 * ID_BYTES and string.match(flow, "^%x+$")))
    or (key ~= nil and not is_text(key)) or type(tags) ~= "table" or type(costs) ~= "table"
  then
    return false
  end
  for at, tag in pairs(tags) do
    if type(at) ~= "number" or not is_text(tag) then
      return false
    end
  end
  for unit, cost in pairs(costs) do
    if not is_text(unit) or not is_whole(cost) then
      return false
    end
  end
  return true
end

-- True when `code` is that of a state. Running is never written.
function record.is_state(code)
  return code ~= nil and code <= CANCELLED and code ~= RUNNING
end

-- True when the fixed part of a record makes sense, its lane aside.
function record.is_head(raw)
  return raw and #raw >= RECORD.size and byte(raw, RECORD.version) == 1 and record.is_state(byte(raw, RECORD.state))
end

-- The flags of a record whose head is there.
function record.flags(raw)
  local high, low = byte(raw, RECORD.flags)
  return 256 * high + low
end

-- The record as a table; false when its bytes make no sense, or name a missing lane. A script that has opened a
-- record can finish its change: nothing that is read from it later can fail, half way through a script.
function record.open(id, raw)
  if not record.is_head(raw) then
    return false
  end
  local r = { id = id }
  r.version, r.state, r.flags, r.attempt, r.lost, r.held, r.seq, r.due, r.enq, r.lane, r.policy, r.claimed, r.finished =
    struct.unpack(RECORD.format, raw)
  local at = RECORD.rest
  r.rare = {}
  if HAS(r.flags, RARE) then
    r.rare, at = record.piece(raw, at)
    if not r.rare or not record.is_rare(r.rare) then
      return false
    end
  end
  r.tail = sub(raw, at) -- extra, arguments and one byte of the id (see record.py), as they are
  if HAS(r.flags, EXTRA) then
    local extra = record.piece(raw, at)
    if not extra or not record.is_extra(extra) then
      return false
    end
  end
  if lanes and not lanes.whole(r.lane) then -- scripts that change nothing do without lanes
    return false
  end
  return r
end

-- The part of the tail that Python owns (PACKED), for its costs and unique key.
function record.extra(r)
  return HAS(r.flags, EXTRA) and record.piece(r.tail, 1) or {}
end

-- A tail in two: the part that Python owns, as it is stored ("" when there is none), and the arguments with the last byte.
function record.halves(flags, tail)
  if not HAS(flags, EXTRA) then
    return "", tail
  end
  local _, over = record.piece(tail, 1)
  return sub(tail, 1, over - 1), sub(tail, over)
end

-- What a job with this extra costs in a unit; "" is the plain one.
function record.cost(extra, unit)
  if unit == "" then
    return tonumber(extra[PACKED.cost]) or 1
  end
  local costs = extra[PACKED.costs]
  return type(costs) == "table" and tonumber(costs[unit]) or 0
end

-- The stored form of a record table.
function record.close(r)
  local rare = ""
  if next(r.rare) ~= nil then
    r.flags, rare = record.with(r.flags, RARE), record.packed(r.rare)
  else
    r.flags = record.without(r.flags, RARE)
  end
  return struct.pack(
    RECORD.format, 1, r.state, r.flags, r.attempt, r.lost, r.held, r.seq, r.due, r.enq, r.lane, r.policy, r.claimed,
    r.finished
  ) .. rare .. r.tail
end

function record.with(flags, flag)
  return record.has(flags, flag) and flags or flags + flag
end

function record.without(flags, flag)
  return record.has(flags, flag) and flags - flag or flags
end

-- Read one job; nil when there is none, false when it cannot be read. `running` is its entry in `run`, or false.
function record.load(id)
  local raw = call("HGET", K.jobs, id)
  if not raw then
    return nil
  end
  local r = record.open(id, raw)
  if r then
    r.running = call("HGET", K.running, id)
  end
  return r
end

-- Several at once, by id: {id -> record | false}; what is not stored is absent.
function record.load_all(ids)
  local raws, runs, found = base.mget(K.jobs, ids), base.mget(K.running, ids), {}
  for i, id in ipairs(ids) do
    if raws[i] then
      local r = record.open(id, raws[i])
      if r then
        r.running = runs[i]
      end
      found[id] = r
    end
  end
  return found
end

-- The state code as people see it.
function record.state(r)
  return r.running and RUNNING or r.state
end

-- The states of many jobs, by id: false when a record cannot be read; what is not stored is absent.
function record.states(ids)
  local found = {}
  for from = 1, #ids, MANY do
    local some = { unpack(ids, from, min(from + MANY - 1, #ids)) }
    local runs = base.mget(K.running, some)
    for i, raw in ipairs(base.mget(K.jobs, some)) do
      if raw then
        local state = byte(raw, RECORD.state)
        found[some[i]] = #raw >= RECORD.size and (runs[i] and RUNNING or record.is_state(state) and state)
      end
    end
  end
  return found
end

-- The bytes of a record with another state.
function record.with_state(raw, state)
  return sub(raw, 1, RECORD.state.at - 1) .. char(state) .. sub(raw, RECORD.flags_to_rest)
end

-- The bytes of a record with one more flag; nil when it has the flag.
function record.with_flag(raw, flag)
  local flags = record.flags(raw)
  if record.has(flags, flag) then
    return nil
  end
  local changed = struct.pack(RECORD.flags.format, flags + flag)
  return sub(raw, RECORD.version_to_state) .. changed .. sub(raw, RECORD.attempt_to_rest)
end

function record.save(r)
  call("HSET", K.jobs, r.id, record.close(r))
end

-- The item that stands for a job in a lane or a schedule.
function record.item(r)
  return struct.pack(ITEM.due_to_seq.format, r.due, r.seq) .. r.id
end

local function are_charges(charges)
  for _, taken in ipairs(type(charges) == "table" and charges or { 0 }) do
    if type(taken) ~= "table" or type(taken[CHARGE.gate]) ~= "string" or type(taken[CHARGE.cost] or 0) ~= "number"
      or type(taken[CHARGE.own] or "") ~= "string"
    then
      return false
    end
  end
  return true
end

-- Token, instant of the claim and charges of a running job. Of an entry that is cut short it is 0, which no lease
-- has; charges that cannot be read are none.
function record.hold(running)
  if #running < HOLD.size then
    return 0, 0, nil
  end
  local token, claimed = struct.unpack(HOLD.format, running)
  if #running == HOLD.size then
    return token, claimed, nil
  end
  local ok, charges = pcall(unpack_, sub(running, HOLD.charges))
  return token, claimed, ok and are_charges(charges) and charges or nil
end
