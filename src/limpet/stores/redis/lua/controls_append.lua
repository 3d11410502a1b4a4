-- Promise: lines are added to the logs, in order and once however often the call is repeated.
-- Keys: meta, logs, answers.
-- Args: now; the call's own name; then log, instant, packed line of each
-- Answer: lines added.
-- Bounds: the lines named; callers send at most 1,000.
-- Uses: base record tx

local refused = tx.begin()
if refused then
  return refused
end
if tx.answered() then
  return 0
end
tx.answer("")
local lines = (#ARGV - 2) / 3
local last = call("HINCRBY", K.meta, "log", lines)
for i = 1, lines do
  local at = i * 3
  call("XADD", K.logs .. ARGV[at], base.text(last - lines + i) .. "-0", "t", ARGV[at + 1], "v", ARGV[at + 2])
end
return lines
