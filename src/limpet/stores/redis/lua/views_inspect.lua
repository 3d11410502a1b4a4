-- Promise: where a job stands: its lane, those ahead of it, the parents it waits for; changes nothing.
-- Keys: meta, jobs, running, lane_states, ready, ready_aside, parents.
-- Args: now; id; how far to count those ahead
-- Answer: nil when the job is gone; else the lane's entry in ls (or nil), jobs ahead, then parent and state code of each
--         parent that is stored and not satisfied.
-- Bounds: LOOK items of its lane, and its parents (at most as many as one enqueue may name).
-- Uses: base record gates_period gates_math turns_fair sessions_signature wake tx gates gates_events turns lanes gates_wait lanes_due

local LOOK, PAGE = 4000, 250

local refused = tx.begin()
if refused then
  return refused
end

local r = record.load(ARGV[2])
if not r then
  return false
end
local most, own = tonumber(ARGV[3]), record.item(r)

-- How many of these items stand for jobs that are ready in the lane.
local function standing(items)
  local ids, count = {}, 0
  for i, item in ipairs(items) do
    ids[i] = sub(item, ITEM.id)
  end
  local found = record.load_all(ids)
  for i, id in ipairs(ids) do
    local other = found[id]
    if other and other.state == READY and not other.running and other.lane == r.lane and record.item(other) == items[i] then
      count = count + 1
    end
  end
  return count
end

-- Those before it: in the list, and among what came out of order.
local function ahead()
  local count = standing(call("ZRANGEBYLEX", K.ready_aside .. r.lane, "-", "(" .. own, "LIMIT", 0, most))
  for first = 0, LOOK - 1, PAGE do
    local page, before = call("LRANGE", K.ready .. r.lane, first, first + PAGE - 1), {}
    for _, item in ipairs(page) do
      if base.before(item, own) then
        before[#before + 1] = item
      end
    end
    count = count + standing(before)
    if count >= most or #before < #page or #page < PAGE then
      break
    end
  end
  return min(count, most)
end

local answer = { call("HGET", K.lane_states, r.lane), record.state(r) == READY and ahead() or 0 }
local deps, open = call("HGETALL", K.parents .. r.id), {}
for i = 1, #deps, 2 do
  if #deps[i] == ID_BYTES and base.begins(deps[i + 1], PARENT_OPEN) then
    open[#open + 1] = deps[i]
  end
end
local states = record.states(open)
for _, parent in ipairs(open) do
  if states[parent] then
    answer[#answer + 1] = parent
    answer[#answer + 1] = states[parent]
  end
end
return answer
