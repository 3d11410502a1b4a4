-- Lanes that wait at gates, and how they go on: a gate that opens wakes as many of each class as it has room for.

local WAKE = 256 -- lanes of a class that one gate wakes at once
local TURNS = 281474976710656 -- 2^48: the priority stands above the turn in a wait list's score

waiting = {}

-- The lane waits at a gate.
function waiting.park(lane, key)
  local turn = seats.turn(lane.member)
  call("HSET", P .. "ls", lane.id, "w" .. key)
  call("ZADD", P .. "W:" .. lane.kind .. key, lane.prio * TURNS + (turn and turn.turn or 0), lane.id)
  call("SADD", P .. "WC:" .. key, lane.kind)
  seats.leave(lane)
end

-- Wake as many lanes of each waiting class as the gate has room for; the instant to look again when it has none.
function waiting.wake(key)
  local kinds = call("SMEMBERS", P .. "WC:" .. key)
  if #kinds == 0 then
    return nil
  end
  local found = gating.get(key)
  local free = found and gate.room(found, tx.now) or LOTS
  if free <= 0 then
    return gate.opens_at(found, tx.now)
  end
  for _, kind in ipairs(kinds) do
    local waiting = P .. "W:" .. kind .. key
    local woken = call("ZPOPMIN", waiting, min(free, WAKE))
    for i = 1, #woken, 2 do
      local lane = lanes.get(woken[i])
      call("HSET", P .. "ls", lane.id, "a")
      seats.enter(lane, tonumber(woken[i + 1]) % TURNS)
      tx.note_ready(lane.id, 1)
    end
    if call("EXISTS", waiting) == 0 then
      call("SREM", P .. "WC:" .. key, kind)
    end
  end
  -- The woken lanes carry the room: whoever uses it, finds it taken or turns out empty looks at the gate again.
  return nil
end

function waiting.wake_now(keys)
  for _, key in ipairs(keys) do
    gating.arm(key, waiting.wake(key))
  end
end

-- Gates that stop whole classes have room again ({key -> room}): sleeping workers should hear of it.
function waiting.wake_classes(opened)
  for _, entry in ipairs(call("ZRANGE", P .. "act", 0, -1)) do
    local kind, most = sub(entry, 10, 17), nil
    for _, key in ipairs(tx.class(kind).gates) do
      if opened[key] then
        most = min(most or LOTS, opened[key])
      end
    end
    if most then
      tx.note_ready(seats.line(kind, byte(entry, 1), 1)[1].id, most)
    end
  end
end
