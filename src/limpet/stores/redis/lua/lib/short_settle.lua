-- The short way of settle, without a room: first tries of one claim and one lane that simply worked. It does all of the
-- verb or nothing, and then the long way follows. Whoever changes settling or the finished index changes this too.

local function short()
  local session, seq, keep, groups, packed = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
  if #groups ~= 10 then
    return nil
  end
  local kind, token, count = struct.unpack(">c1c7H", groups)
  local meta = call("HMGET", P .. "m", "layout", "token", "swept", "recount")
  local receipt = call("HGET", P .. "rc:" .. session, "settle")
  if (kind ~= "s" and kind ~= "S") or tonumber(meta[1]) ~= base.LAYOUT or (receipt and sub(receipt, 1, #seq + 1) == seq .. " ") then
    return nil
  end
  local now = base.now(meta[2], meta[3])
  if tonumber(meta[4] or 0) > now then
    return nil
  end
  local ids, seen = {}, {}
  for i = 1, count do
    local id = sub(packed, 16 * i - 15, 16 * i)
    ids[i] = id
    if seen[id] then
      return nil
    end
    seen[id] = true
  end
  local runs, raws = base.mget(P .. "run", ids), base.mget(P .. "J", ids)
  local holds, lane = runs[1], raws[1] and sub(raws[1], 29, 36)
  if not holds or #holds ~= 13 or sub(holds, 1, 7) ~= token then
    return nil
  end
  local instant, with_result, stored, results = base.b6(now), kind == "S", {}, {}
  local times, extra = sub(holds, 8, 13) .. instant, with_result and 2 or 0
  for i, raw in ipairs(raws) do
    if not raw or runs[i] ~= holds or #raw < 56 or sub(raw, 29, 36) ~= lane then
      return nil
    end
    local version, state, high, low, tried, tried_, lost, lost_ = byte(raw, 1, 8)
    if
      version ~= 1 or state ~= READY or tried + tried_ + lost + lost_ > 0 or low % 8 > 0 or low % 128 >= RARE
      or high % 4 >= 2
    then
      return nil
    end
    stored[2 * i - 1] = ids[i]
    stored[2 * i] = char(1, SUCCEEDED, high + extra, low, 0, 1) .. sub(raw, 7, 44) .. times .. sub(raw, 57)
    if with_result then
      results[2 * i - 1], results[2 * i] = ids[i], ARGV[6 + i]
    end
  end
  local definition = call("HGET", P .. "ln", lane)
  local class = definition and call("HGET", P .. "cl", sub(definition, 1, 8))
  local text = base.text((struct.unpack(">I7", token)))
  local lease = call("HGET", P .. "le", text)
  if not class or not lease then
    return nil
  end
  class, lease = unpack_(class), unpack_(lease)

  base.chunked("HDEL", P .. "run", ids)
  base.chunked("HSET", P .. "J", stored)
  base.chunked("HSET", P .. "res", results)
  for at = 1, count, 64 do
    local member = instant .. table.concat(ids, "", at, min(at + 63, count))
    call("ZADD", P .. "F:" .. SUCCEEDED .. class[1], "0", member)
  end
  local kept = call("HINCRBY", P .. "fc", class[1], count)
  if lease[2] > count then
    call("HSET", P .. "le", text, pack({ lease[1], lease[2] - count }))
  else
    call("HDEL", P .. "le", text)
    call("DEL", P .. "b:" .. text)
    call("ZREM", P .. "H", text)
    call("SREM", P .. "st:" .. lease[1], text)
  end
  local field = class[1] .. "\0" .. class[2] .. "\0"
  if call("HINCRBY", P .. "n", field .. RUNNING, -count) == 0 then
    call("HDEL", P .. "n", field .. RUNNING)
  end
  call("HINCRBY", P .. "n", field .. SUCCEEDED, count)
  call("HINCRBY", P .. "n", "\0\0" .. EVER_SUCCEEDED, count)
  local answer = string.rep("4", count)
  call("HSET", P .. "rc:" .. session, "settle", seq .. " " .. answer)
  call("PEXPIRE", P .. "rc:" .. session, 3600000)
  if kept > keep then
    rooms()
    tx.begin()
    erasing.trim(class[1], SUCCEEDED, keep, 2 * count)
    tx.finish()
  end
  return answer
end

local answer = short()
if answer then
  return answer
end
