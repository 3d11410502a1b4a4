-- Promise: lines that have outlived their time go, and the oldest events beyond their number.
-- Keys: meta, logs.
-- Args: now; lines to remove at most; how long audit lines and event lines stay ("" = for ever); how many events stay
-- Answer: lines removed; 0 when there is nothing more to do.
-- Bounds: the number in Args, of each log.
-- Uses: base record tx

local refused = tx.begin()
if refused then
  return refused
end
local limit = tonumber(ARGV[2])

-- Remove lines of a log, oldest first, as long as `goes` says so.
local function remove(log, count, goes)
  local key, ids = K.logs .. log, {}
  for _, line in ipairs(count > 0 and call("XRANGE", key, "-", "+", "COUNT", count) or {}) do
    if goes(line[2]) then
      ids[#ids + 1] = line[1]
    end
  end
  base.chunked("XDEL", key, ids)
  return #ids
end

local removed = 0
for i, log in ipairs({ "audit", "event" }) do
  local keep = tonumber(ARGV[2 + i])
  if keep then
    removed = removed + remove(log, limit, function(fields)
      return tonumber(fields[2]) <= tx.now - keep
    end)
  end
end
local over = call("XLEN", K.logs .. "event") - tonumber(ARGV[5])
return removed + remove("event", min(over, limit), function()
  return true
end)
