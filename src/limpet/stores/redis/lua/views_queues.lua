-- Promise: the instants since which the oldest ready jobs of some queues are ready.
--          Corrects hd on the way: claims do not, so its numbers are lower bounds.
-- Keys: meta, oldest_ready, ready, ready_aside, jobs, running, lane_states, lanes, classes.
-- Args: now · names of queues
-- Answer: the instant of each, nil when nothing is ready.
-- Bounds: the queues named (100 at a time); of each LANES lanes, and LOOK items of a lane, beyond which the oldest job
--         that was seen is answered.
-- Uses: base record tx lanes take_front

local LANES, PAGE, LOOK = 256, 32, 64

local refused = tx.begin()
if refused then
  return refused
end

-- Since when the first job of a lane is ready; nil when none of its first items stands for a ready job.
local function head(lane)
  for _, row in ipairs(take_front.read(lane, LOOK)) do
    if row.raw then
      return base.n6(row.item, ITEM.due.at)
    end
  end
  return nil
end

-- The oldest ready job of a queue: lanes are looked at in the order of their lower bounds until none can be older.
local function oldest(queue)
  local key, best, seen = K.oldest_ready .. queue, nil, {}
  for _ = 1, LANES / PAGE do
    local page, fresh = call("ZRANGE", key, 0, PAGE * 2 - 1, "WITHSCORES"), 0
    for i = 1, #page, 2 do
      local id, bound = page[i], tonumber(page[i + 1])
      if best and bound >= best then
        return best
      end
      if not seen[id] and fresh < PAGE then
        seen[id], fresh = true, fresh + 1
        local due = head({ id = id })
        if due then
          best = min(best or due, due)
          if due > bound then
            call("ZADD", key, "XX", due, id)
          end
        elseif call("HEXISTS", K.lane_states, id) == 0 then
          call("ZREM", key, id)
        end
      end
    end
    if fresh == 0 then
      return best
    end
  end
  return best
end

local answer = {}
for i = 2, #ARGV do
  answer[i - 1] = oldest(ARGV[i]) or false
end
return answer
