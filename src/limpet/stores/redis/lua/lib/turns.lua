-- Who takes turns: a member (a tenant, or all jobs without one) has a seat in the line of each class that it has active
-- lanes of. However many lanes a member has, its turn moves with a few seats.

turns = {}
tx.seated = true -- tx.finish writes the turns
local known, weighed = {}, nil

local function read_turn(raw)
  if not raw then
    return false
  end
  local at, left, count = struct.unpack(TURN.format, raw)
  return { turn = at, left = left, seats = count }
end

-- Where a member or ring stands: {turn, left, seats}; nil while it has no seat.
function turns.turn(id)
  local turn = known[id]
  if turn == nil then
    turn = read_turn(call("HGET", K.turns, id))
    known[id] = turn
  end
  return turn or nil
end

-- Read several turns at once.
function turns.load_turns(ids)
  local missing = {}
  for _, id in ipairs(ids) do
    if known[id] == nil then
      missing[#missing + 1] = id
    end
  end
  for i, raw in ipairs(base.mget(K.turns, missing)) do
    known[missing[i]] = read_turn(raw)
  end
end

function turns.put_turn(id, turn)
  turn.dirty = true
  known[id] = turn
end

-- True when some queue or tenant has a weight of its own.
function turns.weighed()
  if weighed == nil then
    weighed = call("EXISTS", K.weights) == 1
  end
  return weighed
end

-- How many jobs a turn of this queue or tenant is worth.
function turns.weight(name)
  return turns.weighed() and tonumber(call("HGET", K.weights, name) or 1) or 1
end

-- -- seats

local function seats_key(lane)
  return K.seats .. lane.kind .. char(lane.prio)
end

local function add_seats(id, count)
  local turn = turns.turn(id) or { turn = 0, left = 1, seats = 0 }
  turn.seats = turn.seats + count
  turns.put_turn(id, turn)
end

-- The lane is active: its member has a place in the line of its class.
local function take_seat(lane, turn)
  if lane.multi then
    call("ZADD", K.member_lanes .. lane.kind .. lane.member, tx.now, lane.id)
  end
  if call("ZADD", seats_key(lane), "NX", turn, lane.member) == 1 then
    if not lane.multi then
      call("HSET", K.seat_lanes, lane.kind .. lane.member, lane.id)
    end
    call("ZADD", K.active_classes, 0, char(lane.prio) .. lane.ring .. lane.kind)
    add_seats(lane.member, 1)
    add_seats(lane.ring, 1)
  end
end

-- With the last active lane of its kind a member gives up its place.
function turns.leave(lane)
  if lane.multi then
    local key = K.member_lanes .. lane.kind .. lane.member
    call("ZREM", key, lane.id)
    if call("EXISTS", key) == 1 then
      return
    end
  end
  local key = seats_key(lane)
  if call("ZREM", key, lane.member) == 1 then
    call("HDEL", K.seat_lanes, lane.kind .. lane.member)
    add_seats(lane.member, -1)
    add_seats(lane.ring, -1)
    if call("EXISTS", key) == 0 then
      call("ZREM", K.active_classes, char(lane.prio) .. lane.ring .. lane.kind)
    end
  end
end

-- Lanes of a class at one priority, least recently served member first: {id, member, turn}; and the last turn in view
-- when there are more than `n` members, whose lanes may be seen in part. Members with several lanes share in what is
-- read: about `n` in all, and `met` (kind member -> lanes) more of those that were looked at before.
function turns.line(kind, prio, n, met)
  local row, fields, out = call("ZRANGE", K.seats .. kind .. char(prio), 0, n - 1, "WITHSCORES"), {}, {}
  for i = 1, #row, 2 do
    fields[#fields + 1] = kind .. row[i]
  end
  local share = floor(n / max(1, #fields)) + 1
  for i, id in ipairs(base.mget(K.seat_lanes, fields)) do
    local member, turn = row[2 * i - 1], tonumber(row[2 * i])
    if id then
      out[#out + 1] = { id = id, member = member, turn = turn, kind = kind }
    else
      for _, one in ipairs(call("ZRANGE", K.member_lanes .. kind .. member, 0, share + (met[fields[i]] or 0) - 1)) do
        out[#out + 1] = { id = one, member = member, turn = turn, kind = kind }
      end
    end
  end
  return out, #fields == n and tonumber(row[#row]) or nil
end

-- Members whose turn is over go to the end of every line that they stand in; `moves` is turn, member, turn, member…
function turns.move(ring, prio, moves)
  if #moves == 0 then
    return
  end
  local first = char(prio) .. ring
  local last = first .. string.rep("\255", 8)
  for _, entry in ipairs(call("ZRANGEBYLEX", K.active_classes, "[" .. first, "[" .. last)) do
    local key = K.seats .. sub(entry, ACTIVE.kind) .. char(prio)
    for i = 1, #moves, MANY do
      call("ZADD", key, "XX", unpack(moves, i, min(i + MANY - 1, #moves)))
    end
  end
end

-- What has no seat enters at the end of the round, or where `turn` says.
function turns.enter(lane, turn)
  local member, ring = turns.turn(lane.member), turns.turn(lane.ring)
  local sits = member and member.seats > 0
  if not sits then
    turn = turn or tx.next_turn()
    turns.put_turn(lane.member, { turn = turn, left = turns.weight(lanes.tenant(lane)), seats = 0 })
  end
  if not ring or ring.seats == 0 then
    local weight = turns.weight("queue:" .. tx.class(lane.kind).queue)
    turns.put_turn(lane.ring, { turn = turn or tx.next_turn(), left = weight, seats = 0 })
  end
  take_seat(lane, turns.turn(lane.member).turn)
end

-- Write the turns that changed.
function turns.write()
  local sitting, left = {}, {}
  for id, turn in pairs(known) do
    if turn and turn.dirty and turn.seats > 0 then
      local n = #sitting
      sitting[n + 1], sitting[n + 2] = id, struct.pack(TURN.format, turn.turn, turn.left, turn.seats)
    elseif turn and turn.dirty then
      left[#left + 1] = id
    end
  end
  base.chunked("HSET", K.turns, sitting)
  base.chunked("HDEL", K.turns, left)
end
