-- Promise: the gates whose key begins with a prefix, in no order; changes nothing.
-- Keys: g
-- Args: now prefix
-- Answer: key and msgpack map of core.gate.Gate of each.
-- Bounds: all gates that are stored are read: one per limit key, breaker and place with a rule or a state, fewer as prune
--         removes limits and breakers that rule no lane and remember nothing.
-- Uses: base

local all, prefix = call("HGETALL", P .. "g"), ARGV[2]
if prefix == "" then
  return all
end
local answer = {}
for i = 1, #all, 2 do
  if sub(all[i], 1, #prefix) == prefix then
    answer[#answer + 1] = all[i]
    answer[#answer + 1] = all[i + 1]
  end
end
return answer
