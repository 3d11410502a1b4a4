-- Promise: removes what has outlived its time, in small steps; changes nothing that is still needed.
-- Keys: meta, and those of its modules.
-- Args: now · limit · finished jobs to keep per queue · how long succeeded, cancelled and dead jobs stay, in ms
--   (each "" = for ever) · stage · cursor · what is said of single queues (msgpack {queue: [[state, ms or -1 = for ever]]})
-- Answer: {how many went, next stage, next cursor}; stage "" when all was looked at. Begin with stage "jobs", cursor "0".
-- Bounds: `limit` rows of each sort, about 100 queues, 500 gates or 50 flows looked at, 2,000 sessions and all signatures,
--   1,000 dependents.
-- Uses: base record gates_period gates_math sessions_signature wake tx gates gates_events turns lanes gates_wait lanes_due unique find_ledger effect_ending graph hooks enqueue_store find_flows prune
local refused = tx.begin()
if refused then
  return refused
end
local QUEUES, GATES_SEEN, SESSIONS_SEEN = 100, 500, 2000
local limit, keep, stage, cursor = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[7], ARGV[8]
local times = { [SUCCEEDED] = tonumber(ARGV[4]), [CANCELLED] = tonumber(ARGV[5]), [DEAD] = tonumber(ARGV[6]) }
local own, removed = unpack_(ARGV[9]), 0

local function times_of(queue)
  if not own[queue] then
    return times
  end
  local found = { [SUCCEEDED] = times[SUCCEEDED], [CANCELLED] = times[CANCELLED], [DEAD] = times[DEAD] }
  for _, said in ipairs(own[queue]) do
    found[said[1]] = said[2] >= 0 and said[2] or nil
  end
  return found
end

local function jobs_of(queue)
  local times = times_of(queue)
  for _, state in ipairs({ SUCCEEDED, CANCELLED, DEAD }) do
    local old = times[state] and prune.outlived(queue, state, tx.now - times[state], limit - removed) or {}
    if state == DEAD then
      for _, item in ipairs(old) do
        removed = removed + prune.dead(sub(item, ENDED.ids))
      end
    else
      removed = removed + prune.members(queue, state, old, limit - removed)
      removed = removed + prune.trim(queue, state, keep, limit - removed)
    end
  end
  -- A queue without classes has no jobs; while people have a gate on it, it is still theirs.
  if call("EXISTS", K.gate_classes .. "queue:" .. queue) == 0 and call("HEXISTS", K.gates, "queue:" .. queue) == 0 then
    call("SREM", K.queues, queue)
  end
end

-- Signatures that no session has. Beyond the sessions that are looked at only the sleeping ones count: who is awake makes
-- its signature known again with its next beat or claim.
local function signatures()
  local known, used = call("HKEYS", K.signatures), {}
  for _, name in ipairs(call("ZRANGE", K.sessions, 0, SESSIONS_SEEN - 1)) do
    for _, sig in ipairs(call("HMGET", K.session .. name, "sig", "asked")) do
      used[sig] = true
    end
  end
  for _, sig in ipairs(known) do
    if not used[sig] and call("EXISTS", K.sleepers .. sig) == 0 then
      sessions_signature.forget(sig)
      removed = removed + 1
    end
  end
end

local function unused_lanes()
  local ids = call("ZRANGE", K.empty_lanes, 0, limit - 1)
  lanes.load(ids)
  for _, id in ipairs(ids) do
    lanes.forget(id)
  end
  removed = removed + #ids
end

-- Limits and breakers that rule no lane and remember nothing.
local function blank_gates(found)
  local keys, bodies = {}, {}
  for i = 1, #found, 2 do
    if string.match(found[i], "^limit:") or string.match(found[i], "^breaker:") then
      keys[#keys + 1], bodies[found[i]] = found[i], found[i + 1]
    end
  end
  for i, count in ipairs(base.mget(K.gate_lanes, keys)) do
    local key = keys[i]
    local free = not count and call("EXISTS", K.waiting_classes .. key) == 0
    if free and bodies[key] and gates_math.is_blank(gates_math.decode(bodies[key], key), tx.now) then
      gates.drop(key)
      removed, bodies[key] = removed + 1, nil -- a scan may show the same key twice
    end
  end
end

tx.insist()
if stage == "jobs" then
  local answer = call("SSCAN", K.queues, cursor, "COUNT", QUEUES)
  cursor = answer[1]
  for _, queue in ipairs(answer[2]) do
    jobs_of(queue)
  end
  stage = (cursor == "0" and removed < limit) and "rest" or "jobs"
elseif stage == "rest" then
  removed = removed + prune.forget(limit) + unique.forget(limit)
  signatures()
  unused_lanes()
  stage, cursor = "gates", "0"
else
  local answer = call("HSCAN", K.gates, cursor, "COUNT", GATES_SEEN)
  cursor = answer[1]
  blank_gates(answer[2])
  stage = cursor == "0" and "" or "gates"
end
tx.finish()
return { removed, stage, cursor }
