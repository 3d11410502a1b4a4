-- Reads and rewrites job records: a head of 56 bytes, then what few jobs have, then the arguments.

local HEAD = ">BBHHHHI6I6I6c8c8I6I6"

record = {}

-- True when `flags` holds the bit `flag`.
function record.has(flags, flag)
  return flags % (flag + flag) >= flag
end

-- The record as a table; false when its bytes make no sense.
function record.open(id, raw)
  if not raw or #raw < 56 or byte(raw, 1) ~= 1 then
    return false
  end
  local r = { id = id }
  r.version, r.state, r.flags, r.attempt, r.lost, r.held, r.seq, r.due, r.enq, r.lane, r.policy, r.claimed, r.finished =
    struct.unpack(HEAD, raw)
  local at = 57
  r.rare = {}
  if record.has(r.flags, RARE) then
    local n = struct.unpack(">I4", raw, at)
    local ok, rare = pcall(unpack_, sub(raw, at + 4, at + 3 + n))
    if ok and type(rare) == "table" then
      r.rare = rare
    end
    at = at + 4 + n
  end
  r.tail = sub(raw, at) -- extra, arguments and one byte of the id (see record.py), as they are
  return r
end

-- The part of the tail that Python owns, for its costs and unique key: [cost, tags, meta, flow, unique, mode, states,
-- costs]. A later layout adds at its end.
function record.extra(r)
  if not record.has(r.flags, EXTRA) then
    return {}
  end
  local n = struct.unpack(">I4", r.tail)
  local ok, extra = pcall(unpack_, sub(r.tail, 5, 4 + n))
  return ok and type(extra) == "table" and extra or {}
end

-- What a job with this extra costs in a unit; "" is the plain one.
function record.cost(extra, unit)
  if unit == "" then
    return tonumber(extra[1]) or 1
  end
  return type(extra[8]) == "table" and tonumber(extra[8][unit]) or 0
end

-- The stored form of a record table.
function record.close(r)
  local rare = ""
  if next(r.rare) ~= nil then
    r.flags = record.with(r.flags, RARE)
    local body = pack(r.rare)
    rare = struct.pack(">I4", #body) .. body
  else
    r.flags = record.without(r.flags, RARE)
  end
  return struct.pack(
    HEAD, 1, r.state, r.flags, r.attempt, r.lost, r.held, r.seq, r.due, r.enq, r.lane, r.policy, r.claimed, r.finished
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
  local raw = call("HGET", P .. "J", id)
  if not raw then
    return nil
  end
  local r = record.open(id, raw)
  if r then
    r.running = call("HGET", P .. "run", id)
  end
  return r
end

-- Several at once, by id: {id -> record | false}; what is not stored is absent.
function record.load_all(ids)
  local raws, runs, found = base.mget(P .. "J", ids), base.mget(P .. "run", ids), {}
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
    local runs = base.mget(P .. "run", some)
    for i, raw in ipairs(base.mget(P .. "J", some)) do
      if raw then
        found[some[i]] = #raw >= 56 and (runs[i] and RUNNING or byte(raw, 2))
      end
    end
  end
  return found
end

function record.save(r)
  call("HSET", P .. "J", r.id, record.close(r))
end

-- The item that stands for a job in a lane or a schedule.
function record.item(r)
  return struct.pack(">I6I6", r.due, r.seq) .. r.id
end

-- Token, instant of the claim and charges of a running job.
function record.hold(running)
  local token, claimed = struct.unpack(">I7I6", running)
  return token, claimed, #running > 13 and unpack_(sub(running, 14)) or nil
end
