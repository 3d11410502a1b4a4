-- Promise: the gates, and what running jobs were charged, at one instant; changes nothing.
-- Keys: meta, gates, running.
-- Args: now, how many gates
-- Answer: key and gate (msgpack map of core.gate.Gate) in turn; the holds of running jobs that were charged anything (see
--         record.hold).
-- Bounds: the named gates, one page of gates, and every running job.
-- Uses: base record tx

local PAGE = 1000

local refused = tx.begin()
if refused then
  return refused
end
local found, cursor, most = {}, "0", 2 * tonumber(ARGV[2])
repeat
  local page = call("HSCAN", K.gates, cursor, "COUNT", PAGE)
  cursor = page[1]
  for _, word in ipairs(page[2]) do
    found[#found + 1] = word
  end
until cursor == "0" or #found >= most
local charged, running = {}, call("HGETALL", K.running)
for at = 1, #running, 2 do
  if running[at] ~= "" and #running[at + 1] > HOLD.size then
    charged[#charged + 1] = running[at + 1]
  end
end
return { found, charged }
